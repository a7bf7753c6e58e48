"""Blocks of 32 values: Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, IQ4_NL, MXFP4.

Source: the classes of the same names in `gguf.quants` (`dequantize_blocks`). Each function takes uint8
`[..., block_bytes]` and returns `Parts` with one group of 32 a block.
"""

import jax
import jax.numpy as jnp
import numpy as np
from gguf import GGMLQuantizationType

from kernels_pallas.quant.formats import FORMATS
from kernels_pallas.quant.grids import FP4_VALUES, NON_LINEAR_4BIT
from kernels_pallas.quant.parts import Parts, half_at, look_up, shifted, words_at

_T = GGMLQuantizationType
_NIBBLES = (0, 4)


def _nibbles(qs: jax.Array) -> jax.Array:
    """uint8 `[..., 16]` -> uint8 `[..., 1, 32]`: all low halves, then all high halves."""
    return shifted(qs, _NIBBLES, 0x0F).reshape(*qs.shape[:-1], 1, 32)


def _fifth_bits(blocks: jax.Array, offset: int) -> jax.Array:
    """uint8 `[..., 1, 32]`: bit i of a 32-bit word, at the place of bit 4."""
    word = words_at(blocks, offset, 1, jnp.uint32)
    bits = shifted(word, tuple(range(32)), 1)[..., 0]
    return (bits.astype(jnp.uint8) << jnp.uint8(4))[..., None, :]


def _signed(codes: jax.Array, zero: int = 0) -> jax.Array:
    return codes.astype(jnp.int8) - jnp.int8(zero)


def q4_0(blocks: jax.Array) -> Parts:
    """`d * (q - 8)`."""
    form = FORMATS[_T.Q4_0]
    return Parts(
        codes=_signed(_nibbles(blocks[..., form.span("qs")]), 8),
        scale=half_at(blocks, form.offset("d"))[..., None],
    )


def q4_1(blocks: jax.Array) -> Parts:
    """`d * q + m`."""
    form = FORMATS[_T.Q4_1]
    codes = _signed(_nibbles(blocks[..., form.span("qs")]))
    return Parts(
        codes=codes,
        scale=half_at(blocks, form.offset("d"))[..., None],
        offset=half_at(blocks, form.offset("m"))[..., None],
    )


def q5_0(blocks: jax.Array) -> Parts:
    """`d * (q - 16)`, the fifth bits in a word of their own."""
    form = FORMATS[_T.Q5_0]
    codes = _nibbles(blocks[..., form.span("qs")]) | _fifth_bits(blocks, form.offset("qh"))
    return Parts(codes=_signed(codes, 16), scale=half_at(blocks, form.offset("d"))[..., None])


def q5_1(blocks: jax.Array) -> Parts:
    """`d * q + m`, the fifth bits in a word of their own."""
    form = FORMATS[_T.Q5_1]
    codes = _signed(_nibbles(blocks[..., form.span("qs")]) | _fifth_bits(blocks, form.offset("qh")))
    return Parts(
        codes=codes,
        scale=half_at(blocks, form.offset("d"))[..., None],
        offset=half_at(blocks, form.offset("m"))[..., None],
    )


def q8_0(blocks: jax.Array) -> Parts:
    """`d * q`."""
    form = FORMATS[_T.Q8_0]
    codes = jax.lax.bitcast_convert_type(blocks[..., form.span("qs")], jnp.int8)
    return Parts(codes=codes[..., None, :], scale=half_at(blocks, form.offset("d"))[..., None])


def iq4_nl(blocks: jax.Array) -> Parts:
    """`d * table[q]`."""
    form = FORMATS[_T.IQ4_NL]
    codes = look_up(jnp.asarray(NON_LINEAR_4BIT), _nibbles(blocks[..., form.span("qs")]))
    return Parts(codes=codes, scale=half_at(blocks, form.offset("d"))[..., None])


def mxfp4(blocks: jax.Array) -> Parts:
    """`2^(e - 128) * table[q]`, the table holding doubled e2m1 values; exact for e >= 2, see `mxfp4_values`."""
    form = FORMATS[_T.MXFP4]
    e = blocks[..., form.span("e")].astype(jnp.uint32)
    tiny = jnp.uint32(0x00200000) << jnp.minimum(e, jnp.uint32(1))
    bits = jnp.where(e < 2, tiny, (e - jnp.uint32(1)) << jnp.uint32(23))
    codes = look_up(jnp.asarray(FP4_VALUES), _nibbles(blocks[..., form.span("qs")]))
    return Parts(codes=codes, scale=jax.lax.bitcast_convert_type(bits, jnp.float32))


def mxfp4_values(blocks: jax.Array) -> jax.Array:
    """Values float32 `[..., 1, 32]`. XLA on a CPU flushes subnormal factors to zero: those come from a table."""
    form = FORMATS[_T.MXFP4]
    scales = np.array([2.0**-128, 2.0**-127], np.float32)
    tiny = (scales[:, None] * FP4_VALUES.astype(np.float32)).view(np.uint32).reshape(-1)
    e = blocks[..., form.span("e"), None].astype(jnp.uint32)
    row = jnp.minimum(e, jnp.uint32(1)) * jnp.uint32(FP4_VALUES.size)
    bits = look_up(jnp.asarray(tiny), row + _nibbles(blocks[..., form.span("qs")]).astype(jnp.uint32))
    usual = jax.lax.bitcast_convert_type(mxfp4(blocks).values(), jnp.uint32)
    return jax.lax.bitcast_convert_type(jnp.where(e < 2, bits, usual), jnp.float32)
