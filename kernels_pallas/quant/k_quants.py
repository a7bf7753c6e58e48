"""Blocks of 256 values with scales of their own for groups of 16 or 32: Q2_K to Q6_K.

Source: the classes of the same names in `gguf.quants` (`dequantize_blocks`). Each function takes uint8
`[..., block_bytes]` and returns `Parts` with the block's groups.
"""

import jax
import jax.numpy as jnp
from gguf import GGMLQuantizationType

from kernels_pallas.quant.formats import FORMATS, QuantFormat
from kernels_pallas.quant.parts import Parts, half_at, shifted

_T = GGMLQuantizationType


def _groups(codes: jax.Array, size: int) -> jax.Array:
    """`[..., ...]` of 256 values -> int8 `[..., 256 / size, size]`; the leading axes are those before the last two."""
    return codes.reshape(*codes.shape[:-3], 256 // size, size).astype(jnp.int8)


def _interleaved(qs: jax.Array, run: int, shifts: tuple[int, ...], mask: int) -> jax.Array:
    """Bytes in runs of `run`, each run holding `len(shifts)` rows of values: `[..., runs, len(shifts), run]`."""
    return shifted(qs.reshape(*qs.shape[:-1], -1, run), shifts, mask)


def q2_k(blocks: jax.Array) -> Parts:
    """`(d * sc) * q - dmin * m`, groups of 16."""
    form = FORMATS[_T.Q2_K]
    scales = blocks[..., form.span("scales")]
    d, dmin = half_at(blocks, form.offset("d"))[..., None], half_at(blocks, form.offset("dmin"))[..., None]
    return Parts(
        codes=_groups(_interleaved(blocks[..., form.span("qs")], 32, (0, 2, 4, 6), 3), 16),
        scale=d * (scales & jnp.uint8(0x0F)).astype(jnp.float32),
        offset=-(dmin * (scales >> jnp.uint8(4)).astype(jnp.float32)),
    )


def q3_k(blocks: jax.Array) -> Parts:
    """`(d * (sc - 32)) * (q - 4 * not(high bit))`, groups of 16."""
    form = FORMATS[_T.Q3_K]
    high = shifted(blocks[..., form.span("hmask")], tuple(range(8)), 1)
    high = high.reshape(*high.shape[:-2], 2, 4, 32)  # like the runs of the low bits
    low = _interleaved(blocks[..., form.span("qs")], 32, (0, 2, 4, 6), 3)
    codes = low.astype(jnp.int8) - ((high ^ jnp.uint8(1)) << jnp.uint8(2)).astype(jnp.int8)
    packed = blocks[..., form.span("scales")]
    low_scales = shifted(packed[..., :8], (0, 4), 0x0F).reshape(*packed.shape[:-1], 16)
    high_scales = shifted(packed[..., 8:], (0, 2, 4, 6), 0x03).reshape(*packed.shape[:-1], 16)
    scales = (low_scales | (high_scales << jnp.uint8(4))).astype(jnp.int8) - jnp.int8(32)
    return Parts(
        codes=_groups(codes, 16),
        scale=half_at(blocks, form.offset("d"))[..., None] * scales.astype(jnp.float32),
    )


def scales_and_mins(packed: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Six-bit scales and minimums of Q4_K and Q5_K: uint8 `[..., 12]` -> two float32 `[..., 8]`."""
    d, m, rest = packed[..., :4], packed[..., 4:8], packed[..., 8:]
    six, four, two = jnp.uint8(0x3F), jnp.uint8(0x0F), jnp.uint8(0x30)
    scales = jnp.concatenate([d & six, (rest & four) | ((d >> jnp.uint8(2)) & two)], axis=-1)
    mins = jnp.concatenate([m & six, (rest >> jnp.uint8(4)) | ((m >> jnp.uint8(2)) & two)], axis=-1)
    return scales.astype(jnp.float32), mins.astype(jnp.float32)


def _with_mins(blocks: jax.Array, form: QuantFormat, codes: jax.Array) -> Parts:
    scales, mins = scales_and_mins(blocks[..., form.span("scales")])
    return Parts(
        codes=_groups(codes, 32),
        scale=half_at(blocks, form.offset("d"))[..., None] * scales,
        offset=-(half_at(blocks, form.offset("dmin"))[..., None] * mins),
    )


def q4_k(blocks: jax.Array) -> Parts:
    """`(d * sc) * q - dmin * m`, groups of 32."""
    form = FORMATS[_T.Q4_K]
    return _with_mins(blocks, form, _interleaved(blocks[..., form.span("qs")], 32, (0, 4), 0x0F))


def q5_k(blocks: jax.Array) -> Parts:
    """As Q4_K with a fifth bit."""
    form = FORMATS[_T.Q5_K]
    low = _interleaved(blocks[..., form.span("qs")], 32, (0, 4), 0x0F)
    high = shifted(blocks[..., form.span("qh")], tuple(range(8)), 1).reshape(low.shape)
    return _with_mins(blocks, form, low | (high << jnp.uint8(4)))


def q6_k(blocks: jax.Array) -> Parts:
    """`(d * sc) * (q - 32)`, groups of 16."""
    form = FORMATS[_T.Q6_K]
    low = _interleaved(blocks[..., form.span("ql")], 64, (0, 4), 0x0F)
    high = _interleaved(blocks[..., form.span("qh")], 32, (0, 2, 4, 6), 3)
    codes = low.reshape(high.shape) | (high << jnp.uint8(4))
    scales = jax.lax.bitcast_convert_type(blocks[..., form.span("scales")], jnp.int8).astype(jnp.float32)
    return Parts(
        codes=_groups(codes.astype(jnp.int8) - jnp.int8(32), 16),
        scale=half_at(blocks, form.offset("d"))[..., None] * scales,
    )
