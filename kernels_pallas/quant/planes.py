"""The layout in which GPU kernels read quantized weights: the fields of the blocks, each in a plane of its own.

A block of the file mixes codes, scales and minimums at odd offsets. Kernels read them best when each is
contiguous and aligned. Nothing is rounded: planes hold the file's own bits in another order, so a kernel computes
with exactly the file's values (but MXFP4 exponents 0 and 1, below 1e-37, which count as 0).

In a block, `parts` runs of `run` bytes hold the low bits of codes, `fields` codes to a byte. For the value at
(part, field, place) of a block:

  code  = (low[part, place] >> field * low_bits) & mask, plus high bits from another run of bytes
  value = d * sc[part, field] * (table[code] or code - zero)  -  dmin * mins[part, field]   (or + m)
"""

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from gguf import GGMLQuantizationType

from kernels_pallas.quant.formats import format_for
from kernels_pallas.quant.grids import FP4_VALUES, NON_LINEAR_4BIT
from kernels_pallas.quant.k_quants import scales_and_mins
from kernels_pallas.quant.parts import fields as bit_fields
from kernels_pallas.quant.parts import shifted, words_at

_T = GGMLQuantizationType


@dataclasses.dataclass(frozen=True, kw_only=True)
class PlaneLayout:
    """How a format's planes are read.

    Attributes:
      parts: runs of low bytes in a block.
      run: bytes of a run.
      low_bits: bits of a field of a low byte; 8 for whole signed bytes.
      first: index in the block of the first value of (part, field); its run of values follows in order.
      zero: subtracted from codes.
      table: code book, or None.
      high_bits: bits that the high plane adds to a code, 0 without one.
      high_at: (run of high bytes, shift) of each (part, field); the part may be traced, so no division.
    """

    parts: int
    run: int
    low_bits: int
    first: Callable[[Any, int], Any]
    zero: int = 0
    table: tuple[int, ...] | None = None
    high_bits: int = 0
    high_at: Callable[[Any, int], tuple[Any, Any]] | None = None

    @property
    def fields(self) -> int:
        """Codes in a low byte."""
        return 8 // self.low_bits

    @property
    def block(self) -> int:
        """Values of a block."""
        return self.parts * self.fields * self.run

    def permutation(self) -> np.ndarray:
        """Index in the block of every value, int32 `[parts, fields, run]`."""
        shape = (self.parts, self.fields, self.run)
        out = np.array([self.first(p, f) + place for p, f, place in np.ndindex(shape)], np.int32).reshape(
            shape
        )
        assert np.array_equal(np.sort(out, axis=None), np.arange(self.block))
        return out


@functools.partial(
    jax.tree_util.register_dataclass,
    data_fields=["low", "high", "d", "sc", "m", "mins"],
    meta_fields=["quant_type"],
)
@dataclasses.dataclass(frozen=True, kw_only=True)
class Planes:
    """Rows of a weight; the leading axes (layers, experts or slots) are the same in all planes.

    Attributes:
      low: uint8 (int8 for whole bytes) `[..., parts, rows, blocks, run]`.
      high: uint8 `[..., high runs, rows, blocks, run]`, or None.
      d: float16 (bfloat16 for MXFP4) `[..., d parts, rows, blocks]`, d parts 1 or `parts`.
      sc: int8 `[..., parts, sc fields, rows, blocks]`, sc fields 1 or `fields`, or None.
      m: float16 `[..., d parts, rows, blocks]`, or None: dmin with `mins`, else the offset itself.
      mins: int8 `[..., parts, fields, rows, blocks]`, or None.
      quant_type: the file's type.
    """

    low: jax.Array
    high: jax.Array | None
    d: jax.Array
    sc: jax.Array | None
    m: jax.Array | None
    mins: jax.Array | None
    quant_type: GGMLQuantizationType

    @property
    def layout(self) -> PlaneLayout:
        """How the planes are read."""
        return LAYOUTS[self.quant_type]

    @property
    def num_rows(self) -> int:
        """Rows of the matrix."""
        return self.low.shape[-3]

    @property
    def num_blocks(self) -> int:
        """Blocks of a row."""
        return self.low.shape[-2]

    @property
    def num_columns(self) -> int:
        """Columns of the matrix."""
        return self.num_blocks * self.layout.block

    def map(self, change: Callable[[jax.Array, int], jax.Array]) -> "Planes":
        """The planes with every array changed by `change(array, position of its rows axis from the end)`."""

        def apply(x: jax.Array | None, rows_axis: int) -> jax.Array | None:
            return None if x is None else change(x, rows_axis)

        return dataclasses.replace(
            self,
            low=change(self.low, -3),
            high=apply(self.high, -3),
            d=change(self.d, -2),
            sc=apply(self.sc, -2),
            m=apply(self.m, -2),
            mins=apply(self.mins, -2),
        )

    @property
    def num_bytes(self) -> int:
        """Bytes of all planes."""
        return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(self))


def _halves(run: int) -> Callable[[Any, int], Any]:
    return lambda part, field: (part * 2 + field) * run


def _two_bit_first(part: Any, field: int) -> Any:
    return (part >> 1) * 128 + field * 32 + (part & 1) * 16


def _q6_first(part: Any, field: int) -> Any:
    return (part >> 2) * 128 + field * 64 + (part & 3) * 16


_four_bit_32 = functools.partial(PlaneLayout, parts=1, run=16, low_bits=4, first=_halves(16))
_five_bit_32 = functools.partial(
    PlaneLayout,
    # Four blocks of the file together, so that a high byte holds one bit of each of its eight codes.
    parts=4, run=16, low_bits=4, first=_halves(16), high_bits=1, high_at=lambda part, field: (0, 2 * part + field),
)  # fmt: skip
_four_bit_k = functools.partial(PlaneLayout, parts=4, run=32, low_bits=4, first=_halves(32))

LAYOUTS: dict[GGMLQuantizationType, PlaneLayout] = {
    _T.Q4_0: _four_bit_32(zero=8),
    _T.Q4_1: _four_bit_32(),
    _T.IQ4_NL: _four_bit_32(table=tuple(NON_LINEAR_4BIT.tolist())),
    _T.MXFP4: _four_bit_32(table=tuple(FP4_VALUES.tolist())),
    _T.Q5_0: _five_bit_32(zero=16),
    _T.Q5_1: _five_bit_32(),
    _T.Q8_0: PlaneLayout(parts=1, run=32, low_bits=8, first=lambda part, field: 0),
    _T.Q4_K: _four_bit_k(),
    _T.Q5_K: _four_bit_k(high_bits=1, high_at=lambda part, field: (0, 2 * part + field)),
    _T.Q6_K: PlaneLayout(
        parts=8,
        run=16,
        low_bits=4,
        first=_q6_first,
        zero=32,
        high_bits=2,
        high_at=lambda part, field: ((part >> 2) * 2 + (part & 1), 2 * (field * 2 + ((part & 3) >> 1))),
    ),
    _T.Q2_K: PlaneLayout(parts=4, run=16, low_bits=2, first=_two_bit_first),
    _T.Q3_K: PlaneLayout(
        parts=4,
        run=16,
        low_bits=2,
        first=_two_bit_first,
        zero=4,
        high_bits=1,
        high_at=lambda part, field: (part & 1, (part >> 1) * 4 + field),
    ),
    _T.IQ4_XS: PlaneLayout(
        parts=8, run=16, low_bits=4, first=_halves(16), table=tuple(NON_LINEAR_4BIT.tolist())
    ),
}


def has_planes(quant_type: GGMLQuantizationType, columns: int) -> bool:
    """Whether kernels can read this format with rows of this many columns."""
    return quant_type in LAYOUTS and columns % LAYOUTS[quant_type].block == 0


def _runs(blocks: jax.Array, span: slice, runs: int) -> jax.Array:
    """A field of `[..., rows, blocks, bytes]` in equal runs: `[..., runs, rows, blocks, run]`."""
    field = blocks[..., span]
    return jnp.moveaxis(field.reshape(*field.shape[:-1], runs, -1), -2, -4)


def _half(blocks: jax.Array, offset: int) -> jax.Array:
    """The float16 of each block, `[..., 1, rows, blocks]`."""
    half = jax.lax.bitcast_convert_type(blocks[..., offset : offset + 2], jnp.float16)
    return half[..., None, :, :]


def _per_part(values: jax.Array, axes: tuple[int, ...]) -> jax.Array:
    """`[..., rows, blocks, n]` -> int8 `[..., *axes, rows, blocks]`, n split into axes."""
    out = values.reshape(*values.shape[:-1], *axes).astype(jnp.int8)
    count = len(axes)
    return jnp.moveaxis(out, range(-count, 0), range(-count - 2, -2))


def _file_scales(blocks: jax.Array, quant_type: GGMLQuantizationType):
    """d, sc, m, mins of the k-quants, see `Planes`; sc and mins in the order (part, field) of the layout."""

    def in_order(groups: jax.Array, size: int) -> jax.Array:
        """Per-group values `[..., 256 / size]` -> `[..., parts * fields]`."""
        layout = LAYOUTS[quant_type]
        index = layout.permutation()[:, :, 0] // size
        return _per_part(groups[..., index.reshape(-1)], (layout.parts, layout.fields))

    form = format_for(quant_type)
    d = _half(blocks, form.offset("d"))
    if quant_type is _T.IQ4_XS:
        high = shifted(words_at(blocks, form.offset("scales_h"), 1, jnp.uint16), tuple(range(0, 16, 2)), 3)
        low = bit_fields(blocks[..., form.span("scales_l")], (0, 4), 15)
        sc = (low | (high[..., 0].astype(jnp.uint8) << jnp.uint8(4))).astype(jnp.int8) - jnp.int8(32)
        return d, _per_part(sc, (8, 1)), None, None
    packed = blocks[..., form.span("scales")]
    if quant_type in (_T.Q4_K, _T.Q5_K):
        sc, mins = scales_and_mins(packed)
        return d, in_order(sc, 32), _half(blocks, form.offset("dmin")), in_order(mins, 32)
    if quant_type is _T.Q6_K:
        return d, in_order(jax.lax.bitcast_convert_type(packed, jnp.int8), 16), None, None
    if quant_type is _T.Q2_K:
        low, high = in_order(packed & jnp.uint8(15), 16), in_order(packed >> jnp.uint8(4), 16)
        return d, low, _half(blocks, form.offset("dmin")), high
    assert quant_type is _T.Q3_K
    low = shifted(packed[..., :8], (0, 4), 15).reshape(*packed.shape[:-1], 16)
    high = shifted(packed[..., 8:], (0, 2, 4, 6), 3).reshape(*packed.shape[:-1], 16)
    sc = (low | (high << jnp.uint8(4))).astype(jnp.int8) - jnp.int8(32)
    return d, in_order(sc, 16), None, None


# The field of high bits, with the runs that it is cut into.
_HIGH = {_T.Q5_K: ("qh", 1), _T.Q6_K: ("qh", 4), _T.Q3_K: ("hmask", 2)}
_SMALL = (_T.Q4_0, _T.Q4_1, _T.IQ4_NL, _T.MXFP4, _T.Q5_0, _T.Q5_1, _T.Q8_0)


def _five_bit_planes(blocks: jax.Array, quant_type: GGMLQuantizationType) -> Planes:
    """Q5_0 and Q5_1: four blocks of 32 become one of 128; the high bits of a place gather in one byte."""
    lead = blocks.shape[:-2]
    quads = blocks.reshape(*lead, -1, 4, blocks.shape[-1])
    has_m = quant_type is _T.Q5_1
    form = format_for(quant_type)
    word = words_at(quads, form.offset("qh"), 1, jnp.uint32)
    bits = shifted(word, tuple(range(32)), 1)[..., 0].astype(jnp.uint8)  # [..., blocks, part, 32]
    bits = bits.reshape(*bits.shape[:-1], 2, 16)  # field, place
    weights = jnp.asarray([[1 << (2 * part + field) for field in range(2)] for part in range(4)], jnp.uint8)
    weights = weights.reshape(*(1,) * (bits.ndim - 3), 4, 2, 1)
    high = jnp.sum(bits * weights, axis=(-3, -2), dtype=jnp.uint8)[..., None, :, :, :]

    def part_first(x: jax.Array) -> jax.Array:  # [..., rows, blocks, part] -> [..., part, rows, blocks]
        return jnp.moveaxis(x, -1, -3)

    def half(offset: int) -> jax.Array:
        return part_first(jax.lax.bitcast_convert_type(quads[..., offset : offset + 2], jnp.float16))

    low = jnp.moveaxis(quads[..., form.span("qs")], -2, -4)
    return Planes(
        low=low,
        high=high,
        d=half(form.offset("d")),
        sc=None,
        m=half(form.offset("m")) if has_m else None,
        mins=None,
        quant_type=quant_type,
    )


def to_planes(storage: jax.Array, quant_type: GGMLQuantizationType) -> Planes:
    """Takes rows of a file apart into planes, losslessly.

    Args:
      storage: uint8 `[..., rows, row_bytes]`.
      quant_type: a format with a layout (see `has_planes`).
    """
    blocks = storage.reshape(*storage.shape[:-1], -1, format_for(quant_type).block_bytes)
    layout = LAYOUTS[quant_type]
    if quant_type in (_T.Q5_0, _T.Q5_1):
        return _five_bit_planes(blocks, quant_type)
    form = format_for(quant_type)
    if quant_type in _SMALL:
        low = _runs(blocks, form.span("qs"), 1)
        if quant_type is _T.Q8_0:
            low = jax.lax.bitcast_convert_type(low, jnp.int8)
        if quant_type is _T.MXFP4:
            # 2^(e - 128) is a bfloat16: its exponent bits are e - 1 (the two subnormal exponents stay tiny).
            exponent = jnp.maximum(blocks[..., 0].astype(jnp.uint16), jnp.uint16(1)) - jnp.uint16(1)
            d = jax.lax.bitcast_convert_type(exponent << jnp.uint16(7), jnp.bfloat16)[..., None, :, :]
        else:
            d = _half(blocks, form.offset("d"))
        m = _half(blocks, form.offset("m")) if quant_type is _T.Q4_1 else None
        return Planes(low=low, high=None, d=d, sc=None, m=m, mins=None, quant_type=quant_type)
    d, sc, m, mins = _file_scales(blocks, quant_type)
    high = None
    if quant_type in _HIGH:
        name, runs = _HIGH[quant_type]
        high = _runs(blocks, form.span(name), runs)
    low = _runs(blocks, form.span("ql" if quant_type is _T.Q6_K else "qs"), layout.parts)
    return Planes(low=low, high=high, d=d, sc=sc, m=m, mins=mins, quant_type=quant_type)


def plane_bytes(shape: tuple[int, ...], quant_type: GGMLQuantizationType) -> int:
    """Bytes of the planes of a weight of this shape."""
    *lead, columns = shape
    row = jax.ShapeDtypeStruct((1, format_for(quant_type).row_bytes(columns)), jnp.uint8)
    planes = jax.eval_shape(functools.partial(to_planes, quant_type=quant_type), row)
    return planes.num_bytes * math.prod(lead)


def planes_float32(planes: Planes) -> jax.Array:
    """Values `[..., rows, columns]`, those of `dequantize` (the measure for kernels)."""
    layout = planes.layout
    pieces = []
    for part in range(layout.parts):
        low = planes.low[..., part, :, :, :]
        at_d = part if planes.d.shape[-3] > 1 else 0
        d = planes.d[..., at_d, :, :].astype(jnp.float32)
        for field in range(layout.fields):
            if layout.low_bits == 8:
                code = low.astype(jnp.int32)
            else:
                code = (low.astype(jnp.int32) >> (field * layout.low_bits)) & ((1 << layout.low_bits) - 1)
            if planes.high is not None:
                assert layout.high_at is not None
                run, shift = layout.high_at(part, field)
                high = planes.high[..., run, :, :, :].astype(jnp.int32)
                code = code | (((high >> shift) & ((1 << layout.high_bits) - 1)) << layout.low_bits)
            if layout.table is not None:
                value = jnp.asarray(layout.table, jnp.float32)[code]
            else:
                value = (code - layout.zero).astype(jnp.float32)
            scale = d
            if planes.sc is not None:
                at = field if planes.sc.shape[-3] > 1 else 0
                scale = d * planes.sc[..., part, at, :, :].astype(jnp.float32)
            value = scale[..., None] * value
            if planes.m is not None:
                m = planes.m[..., at_d, :, :].astype(jnp.float32)
                if planes.mins is not None:
                    m = -(m * planes.mins[..., part, field, :, :].astype(jnp.float32))
                value = value + m[..., None]
            pieces.append(value)
    stacked = jnp.stack(pieces, axis=-2)  # [..., rows, blocks, parts * fields, run]
    flat = stacked.reshape(*stacked.shape[:-2], layout.block)
    inverse = np.argsort(layout.permutation(), axis=None)
    return flat[..., inverse].reshape(*flat.shape[:-2], -1)
