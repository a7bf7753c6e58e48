"""Values of any supported format, in plain jnp: bit for bit those of `gguf.quants.dequantize`."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
from gguf import GGMLQuantizationType

from kernels_pallas.quant import i_quants, k_quants, legacy
from kernels_pallas.quant.formats import QuantFormat, format_for
from kernels_pallas.quant.parts import Parts

_T = GGMLQuantizationType
_SPLIT: dict[GGMLQuantizationType, Callable[[jax.Array], Parts]] = {
    _T.Q4_0: legacy.q4_0,
    _T.Q4_1: legacy.q4_1,
    _T.Q5_0: legacy.q5_0,
    _T.Q5_1: legacy.q5_1,
    _T.Q8_0: legacy.q8_0,
    _T.IQ4_NL: legacy.iq4_nl,
    _T.MXFP4: legacy.mxfp4,
    _T.Q2_K: k_quants.q2_k,
    _T.Q3_K: k_quants.q3_k,
    _T.Q4_K: k_quants.q4_k,
    _T.Q5_K: k_quants.q5_k,
    _T.Q6_K: k_quants.q6_k,
    _T.IQ4_XS: i_quants.iq4_xs,
    _T.IQ3_S: i_quants.iq3_s,
    _T.IQ3_XXS: i_quants.iq3_xxs,
    _T.IQ2_XXS: i_quants.iq2_xxs,
    _T.IQ2_XS: i_quants.iq2_xs,
    _T.IQ2_S: i_quants.iq2_s,
    _T.IQ1_S: i_quants.iq1_s,
    _T.IQ1_M: i_quants.iq1_m,
}
_FLOATS = {_T.F32: np.float32, _T.F16: np.float16, _T.BF16: ml_dtypes.bfloat16}


def _blocks(storage: jax.Array, form: QuantFormat) -> jax.Array:
    """Rows of a block format, checked: uint8 `[..., row_bytes]` -> `[..., blocks, block_bytes]`."""
    if storage.dtype != jnp.uint8:
        raise ValueError(f"{form.name} is stored as uint8, not {storage.dtype}")
    form.row_elements(storage.shape[-1])
    return storage.reshape(*storage.shape[:-1], -1, form.block_bytes)


def split_blocks(storage: jax.Array, quant_type: GGMLQuantizationType) -> Parts:
    """Takes rows of a block format apart.

    Args:
      storage: uint8 `[..., row_bytes]`.
      quant_type: a block format.

    Returns:
      Codes `[..., groups, group]` and a scale (and offset) per group, groups counted along the row.

    Raises:
      ValueError: the type is not supported, or the array cannot be rows of it.
    """
    form = format_for(quant_type)
    parts = _SPLIT[form.type](_blocks(storage, form))

    def along_row(x: jax.Array, keep: int) -> jax.Array:
        return x.reshape(*storage.shape[:-1], -1, *x.shape[x.ndim - keep :])

    return Parts(
        codes=along_row(parts.codes, 1),
        scale=along_row(parts.scale, 0),
        offset=None if parts.offset is None else along_row(parts.offset, 0),
    )


def dequantize(
    storage: jax.Array, quant_type: GGMLQuantizationType, dtype: jax.typing.DTypeLike = jnp.float32
) -> jax.Array:
    """Values of stored rows.

    Args:
      storage: uint8 `[..., row_bytes]`, or for a float format the native type `[..., columns]`.
      quant_type: how they are encoded, static under jit.
      dtype: float type of the result. Values of block formats are made in float32 and then rounded once.

    Returns:
      `[..., columns]` of that type.

    Raises:
      ValueError: the type is not supported, or the array cannot be rows of it.
    """
    form = format_for(quant_type)
    if not form.is_block_quantized:
        if storage.dtype != _FLOATS[form.type]:
            raise ValueError(
                f"{form.name} is stored as its native type, not {storage.dtype} (see as_storage)"
            )
        return storage.astype(dtype)
    if form.type is _T.MXFP4:
        values = legacy.mxfp4_values(_blocks(storage, form))
    else:
        values = split_blocks(storage, quant_type).values()
    # A plain cast: reduce_precision would flush values that are subnormal in float16.
    return values.reshape(*storage.shape[:-1], -1).astype(dtype)


def as_storage(raw: np.ndarray, quant_type: GGMLQuantizationType) -> np.ndarray:
    """The array that a device holds, as a view of a tensor's bytes (no copy).

    Args:
      raw: uint8 `[..., row_bytes]`, or already the native float type.
      quant_type: how it is encoded.

    Returns:
      The native float type `[..., columns]`, or uint8 `[..., row_bytes]` for a block format.

    Raises:
      ValueError: the type is not supported, or the array cannot be rows of it.
    """
    form = format_for(quant_type)
    native = _FLOATS.get(form.type)
    if native is not None and raw.dtype == native:
        return raw
    if raw.dtype != np.uint8:
        raise ValueError(f"{form.name} comes as bytes (uint8), not {raw.dtype}")
    form.row_elements(raw.shape[-1])
    return raw if native is None else raw.view(native)
