"""Values of any supported format, in plain jnp: bit for bit those of `gguf.quants.dequantize`."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
from gguf import GGMLQuantizationType

from kernels_pallas.quant import i_quants, k_quants, legacy
from kernels_pallas.quant.formats import format_for
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


def split_blocks(storage: jax.Array, quant_type: GGMLQuantizationType) -> Parts:
    """Takes rows of a block format apart.

    Args:
      storage: uint8 `[..., row_bytes]`.
      quant_type: a block format.

    Returns:
      Codes `[..., groups, group]` and a scale (and offset) per group, groups counted along the row.
    """
    form = format_for(quant_type)
    blocks = storage.reshape(*storage.shape[:-1], -1, form.block_bytes)
    parts = _SPLIT[quant_type](blocks)

    def along_row(x: jax.Array, keep: int) -> jax.Array:
        return x.reshape(*storage.shape[:-1], -1, *x.shape[x.ndim - keep :])

    return Parts(
        codes=along_row(parts.codes, 1),
        scale=along_row(parts.scale, 0),
        offset=None if parts.offset is None else along_row(parts.offset, 0),
    )


def dequantize(storage: jax.Array, quant_type: GGMLQuantizationType) -> jax.Array:
    """Values of stored rows.

    Args:
      storage: uint8 `[..., row_bytes]`, or for a float format the native type `[..., columns]`.
      quant_type: how they are encoded.

    Returns:
      float32 `[..., columns]`.
    """
    form = format_for(quant_type)
    if not form.is_block_quantized:
        return storage.astype(jnp.float32)
    if quant_type is _T.MXFP4:
        blocks = storage.reshape(*storage.shape[:-1], -1, form.block_bytes)
        return legacy.mxfp4_values(blocks).reshape(*storage.shape[:-1], -1)
    return split_blocks(storage, quant_type).values().reshape(*storage.shape[:-1], -1)


def as_storage(raw: np.ndarray, quant_type: GGMLQuantizationType) -> np.ndarray:
    """The array that a device holds, as a view of a tensor's bytes (no copy).

    Args:
      raw: uint8 `[..., row_bytes]`, or already the native float type.
      quant_type: how it is encoded.
    """
    if quant_type in _FLOATS and raw.dtype != _FLOATS[quant_type]:
        return raw.view(_FLOATS[quant_type])
    return raw
