"""Blocks of 256 values from code books: IQ1, IQ2, IQ3 and IQ4_XS.

Source: the classes of the same names in `gguf.quants` (`dequantize_blocks`). Each function takes uint8
`[..., block_bytes]` and returns `Parts` with the block's groups.
"""

import jax
import jax.numpy as jnp
from gguf import GGMLQuantizationType

from kernels_pallas.quant.formats import FORMATS
from kernels_pallas.quant.grids import NON_LINEAR_4BIT, grid, sign_rows
from kernels_pallas.quant.parts import Parts, fields, half_at, look_up, shifted, words_at

_T = GGMLQuantizationType


def _from_grid(name: str, index: jax.Array, signs: jax.Array, group: int) -> jax.Array:
    """Grid rows with signs: int8 `[..., 256 / group, group]`."""
    rows = look_up(jnp.asarray(grid(name)), index)
    return (rows.reshape(signs.shape) * signs).reshape(*index.shape[:-1], 256 // group, group)


def _indexed_signs(index: jax.Array) -> jax.Array:
    """Seven-bit indices `[..., n]` -> int8 `[..., n, 8]`."""
    return look_up(jnp.asarray(sign_rows()), index)


def _plain_signs(bits: jax.Array) -> jax.Array:
    """Sign bytes `[..., n]` -> int8 `[..., n, 8]`."""
    set_bits = fields(bits, tuple(range(8)), 1).reshape(*bits.shape, 8)
    return jnp.int8(1) - jnp.int8(2) * set_bits.astype(jnp.int8)


def _half_step_scale(d: jax.Array, scales: jax.Array, factor: float) -> jax.Array:
    return d[..., None] * (jnp.float32(0.5) + scales.astype(jnp.float32)) * jnp.float32(factor)


def iq2_xxs(blocks: jax.Array) -> Parts:
    """Groups of 32: four grid rows; signs and a four-bit scale share a word."""
    form = FORMATS[_T.IQ2_XXS]
    words = words_at(blocks, form.offset("qs"), 16, jnp.uint32)
    words = words.reshape(*words.shape[:-1], 8, 2)
    control = words[..., 1]
    index = jax.lax.bitcast_convert_type(words[..., 0], jnp.uint8)
    signs = _indexed_signs(fields(control, (0, 7, 14, 21), 0x7F))
    return Parts(
        codes=_from_grid("IQ2_XXS", index.reshape(*index.shape[:-2], 32), signs, 32),
        scale=_half_step_scale(half_at(blocks, form.offset("d")), control >> jnp.uint32(28), 0.25),
    )


def iq2_xs(blocks: jax.Array) -> Parts:
    """Groups of 16: nine-bit grid indices with seven-bit sign indices."""
    form = FORMATS[_T.IQ2_XS]
    words = words_at(blocks, form.offset("qs"), 32, jnp.uint16)
    signs = _indexed_signs(words >> jnp.uint16(9))
    scales = fields(blocks[..., form.span("scales")], (0, 4), 0x0F)
    return Parts(
        codes=_from_grid("IQ2_XS", words & jnp.uint16(511), signs, 16),
        scale=_half_step_scale(half_at(blocks, form.offset("d")), scales, 0.25),
    )


def iq2_s(blocks: jax.Array) -> Parts:
    """Groups of 16: ten-bit grid indices, signs as bits."""
    form = FORMATS[_T.IQ2_S]
    high = fields(blocks[..., form.span("qh")], (0, 2, 4, 6), 3).astype(jnp.uint16)
    index = blocks[..., form.span("qs")].astype(jnp.uint16) | (high << jnp.uint16(8))
    scales = fields(blocks[..., form.span("scales")], (0, 4), 0x0F)
    return Parts(
        codes=_from_grid("IQ2_S", index, _plain_signs(blocks[..., form.span("signs")]), 16),
        scale=_half_step_scale(half_at(blocks, form.offset("d")), scales, 0.25),
    )


def iq3_xxs(blocks: jax.Array) -> Parts:
    """Groups of 32: eight grid rows of four; signs and a four-bit scale share a word."""
    form = FORMATS[_T.IQ3_XXS]
    control = words_at(blocks, form.offset("scales"), 8, jnp.uint32)
    signs = _indexed_signs(fields(control, (0, 7, 14, 21), 0x7F))
    return Parts(
        codes=_from_grid("IQ3_XXS", blocks[..., form.span("qs")], signs, 32),
        scale=_half_step_scale(half_at(blocks, form.offset("d")), control >> jnp.uint32(28), 0.5),
    )


def iq3_s(blocks: jax.Array) -> Parts:
    """Groups of 32: nine-bit grid indices, signs as bits, odd scales."""
    form = FORMATS[_T.IQ3_S]
    high = fields(blocks[..., form.span("qh")], tuple(range(8)), 1).astype(jnp.uint16)
    index = blocks[..., form.span("qs")].astype(jnp.uint16) | (high << jnp.uint16(8))
    scales = fields(blocks[..., form.span("scales")], (0, 4), 0x0F)
    odd = (jnp.uint8(1) + jnp.uint8(2) * scales).astype(jnp.float32)
    return Parts(
        codes=_from_grid("IQ3_S", index, _plain_signs(blocks[..., form.span("signs")]), 32),
        scale=half_at(blocks, form.offset("d"))[..., None] * odd,
    )


def _eighths(index: jax.Array, negative: jax.Array) -> jax.Array:
    """Values of IQ1 in eighths: `8 * (grid + delta)`, delta an eighth up or down: int8 `[..., n, 8]`."""
    rows = look_up(jnp.asarray(grid("IQ1_S")), index)
    delta = jnp.where(negative, jnp.int8(-1), jnp.int8(1))
    return rows * jnp.int8(8) + delta[..., None]


def iq1_s(blocks: jax.Array) -> Parts:
    """Groups of 32: eleven-bit grid indices; scale, index bits and the sign of delta share a word."""
    form = FORMATS[_T.IQ1_S]
    words = words_at(blocks, form.offset("qh"), 8, jnp.uint16)
    high = fields(words, (0, 3, 6, 9), 7)
    index = blocks[..., form.span("qs")].astype(jnp.uint16) | (high << jnp.uint16(8))
    negative = jnp.repeat((words & jnp.uint16(0x8000)) != 0, 4, axis=-1)
    odd = jnp.uint16(2) * ((words >> jnp.uint16(12)) & jnp.uint16(7)) + jnp.uint16(1)
    return Parts(
        codes=_eighths(index, negative).reshape(*blocks.shape[:-1], 8, 32),
        # A power of two: moving it from the codes to the scale rounds nothing.
        scale=half_at(blocks, form.offset("d"))[..., None] * odd.astype(jnp.float32) * jnp.float32(0.125),
    )


def iq1_m(blocks: jax.Array) -> Parts:
    """Groups of 16: as IQ1_S, the block's scale spread over the top bits of four words."""
    form = FORMATS[_T.IQ1_M]
    words = words_at(blocks, form.offset("scales"), 4, jnp.uint16)
    tops = (words & jnp.uint16(0xF000)) >> jnp.asarray([12, 8, 4, 0], jnp.uint16).reshape(
        *(1,) * (words.ndim - 1), 4
    )
    d = tops[..., 0] | tops[..., 1] | tops[..., 2] | tops[..., 3]
    d = jax.lax.bitcast_convert_type(d, jnp.float16).astype(jnp.float32)
    odd = jnp.uint16(2) * fields(words, (0, 3, 6, 9), 7) + jnp.uint16(1)
    high = fields(blocks[..., form.span("qh")], (0, 4), 0x0F)
    top = (high & jnp.uint8(7)).astype(jnp.uint16) << jnp.uint16(8)
    index = blocks[..., form.span("qs")].astype(jnp.uint16) | top
    return Parts(
        codes=_eighths(index, (high & jnp.uint8(8)) != 0).reshape(*blocks.shape[:-1], 16, 16),
        scale=d[..., None] * odd.astype(jnp.float32) * jnp.float32(0.125),
    )


def iq4_xs(blocks: jax.Array) -> Parts:
    """Groups of 32: `(d * (sc - 32)) * table[q]`."""
    form = FORMATS[_T.IQ4_XS]
    word = words_at(blocks, form.offset("scales_h"), 1, jnp.uint16)
    high = shifted(word, tuple(range(0, 16, 2)), 3)[..., 0].astype(jnp.uint8)
    low = fields(blocks[..., form.span("scales_l")], (0, 4), 0x0F)
    scales = (low | (high << jnp.uint8(4))).astype(jnp.int8) - jnp.int8(32)
    qs = shifted(blocks[..., form.span("qs")].reshape(*blocks.shape[:-1], 8, 16), (0, 4), 0x0F)
    codes = look_up(jnp.asarray(NON_LINEAR_4BIT), qs.reshape(*blocks.shape[:-1], 8, 32))
    return Parts(codes=codes, scale=half_at(blocks, form.offset("d"))[..., None] * scales.astype(jnp.float32))
