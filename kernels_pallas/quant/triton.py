"""Inside a kernel: products of activations with a tile of quantized rows.

The codes of a run are multiplied and summed as plain numbers; the scale is applied once per run. A token's sums
run in an order that depends on the weight's shape and the tile only, never on the other tokens.
"""

import dataclasses
import functools

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl

from kernels_pallas.quant.planes import PlaneLayout, Planes


@functools.partial(
    jax.tree_util.register_dataclass,
    data_fields=["low", "high", "d", "sc", "m", "mins", "table"],
    meta_fields=["layout"],
)
@dataclasses.dataclass(frozen=True, kw_only=True)
class PlaneOperands:
    """A weight's planes as kernel operands (arrays outside the kernel, references inside).

    Attributes:
      low: see `Planes`.
      high: see `Planes`.
      d: see `Planes`.
      sc: see `Planes`.
      m: see `Planes`.
      mins: see `Planes`.
      table: float32 code book, or None.
      layout: how they are read.
    """

    low: jax.Array
    high: jax.Array | None
    d: jax.Array
    sc: jax.Array | None
    m: jax.Array | None
    mins: jax.Array | None
    table: jax.Array | None
    layout: PlaneLayout


def operands(planes: Planes) -> PlaneOperands:
    """The operands that stand for a weight."""
    layout = planes.layout
    return PlaneOperands(
        low=planes.low,
        high=planes.high,
        d=planes.d,
        sc=planes.sc,
        m=planes.m,
        mins=planes.mins,
        table=None if layout.table is None else jnp.asarray(layout.table, jnp.float32),
        layout=layout,
    )


def power_of_two_divisor(n: int, most: int) -> int:
    """The largest power of two that divides n, at most `most`."""
    size = 1
    while size * 2 <= most and n % (size * 2) == 0:
        size *= 2
    return size


def tile_shape(rows: int, num_blocks: int, run: int, *, tile_bytes: int, row_bytes: int) -> tuple[int, int]:
    """Rows and blocks of a tile of low bytes, powers of two that divide the weight's.

    Args:
      rows: rows of the weight.
      num_blocks: blocks of a row.
      run: bytes that a block gives to the tile.
      tile_bytes: bytes of a tile.
      row_bytes: most bytes of one row.
    """
    blocks = power_of_two_divisor(num_blocks, max(row_bytes // run, 1))
    return power_of_two_divisor(rows, max(tile_bytes // (blocks * run), 1)), blocks


def codes_of(
    refs: PlaneOperands, low: jax.Array, high: jax.Array | None, part: int | jax.Array, field: int
) -> jax.Array:
    """Code values float32 of one (part, field): `low` and `high` are bytes of the tile, any shape."""
    layout = refs.layout
    if layout.low_bits == 8:
        return low.astype(jnp.float32)
    code = low
    if field:
        code = code >> jnp.uint8(field * layout.low_bits)
    if (field + 1) * layout.low_bits < 8:
        code = code & jnp.uint8((1 << layout.low_bits) - 1)
    if high is not None:
        assert layout.high_at is not None
        _, shift = layout.high_at(part, field)
        extra = (high >> jnp.asarray(shift, jnp.uint8)) & jnp.uint8((1 << layout.high_bits) - 1)
        code = code | (extra << jnp.uint8(layout.low_bits))
    if refs.table is not None:
        return refs.table[code.astype(jnp.int32)]
    return code.astype(jnp.float32)


def scale_and_offset(
    refs: PlaneOperands, lead: tuple, part: int | jax.Array, field: int, rows, blocks
) -> tuple[jax.Array, jax.Array | None]:
    """Scale and offset of the codes of one (part, field), float32 `[rows, blocks]`, `zero` included."""
    at_d = part if refs.d.shape[-3] > 1 else 0
    scale = refs.d[(*lead, at_d, rows, blocks)].astype(jnp.float32)
    if refs.sc is not None:
        at = field if refs.sc.shape[-3] > 1 else 0
        scale = scale * refs.sc[(*lead, part, at, rows, blocks)].astype(jnp.float32)
    offset = None
    if refs.m is not None:
        offset = refs.m[(*lead, at_d, rows, blocks)].astype(jnp.float32)
        if refs.mins is not None:
            offset = -offset * refs.mins[(*lead, part, field, rows, blocks)].astype(jnp.float32)
    elif refs.layout.zero:
        offset = scale * jnp.float32(-refs.layout.zero)
    return scale, offset


def rows_dot(
    refs: PlaneOperands,
    lead: tuple,
    x_ref,
    tokens: list,
    row_start: jax.Array,
    *,
    block_rows: int,
    block_blocks: int,
) -> list[jax.Array]:
    """Products of some tokens with `block_rows` rows of a weight.

    Args:
      refs: the weight.
      lead: indices into its leading axes (layer, slot), traced or static.
      x_ref: float32 `[tokens, blocks, block]`.
      tokens: indices into x_ref, traced or static.
      row_start: first row.
      block_rows: rows of the tile, a power of two.
      block_blocks: blocks that are read at once, a power of two that divides the row's.

    Returns:
      float32 `[block_rows]` per token.
    """
    layout = refs.layout
    rows = pl.ds(row_start, block_rows)
    num_blocks = refs.low.shape[-2]

    steps = num_blocks // block_blocks

    def step(i: jax.Array, sums: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        part, chunk = jax.lax.div(i, jnp.int32(steps)), jax.lax.rem(i, jnp.int32(steps))
        blocks = pl.ds(chunk * block_blocks, block_blocks)
        out = list(sums)
        low = refs.low[(*lead, part, rows, blocks, slice(None))]
        for field in range(layout.fields):
            high = None
            if refs.high is not None:
                assert layout.high_at is not None
                run, _ = layout.high_at(part, field)
                high = refs.high[(*lead, run, rows, blocks, slice(None))]
            codes = codes_of(refs, low, high, part, field)
            scale, offset = scale_and_offset(refs, lead, part, field, rows, blocks)
            for n, token in enumerate(tokens):
                x = x_ref[token, blocks, pl.ds(layout.first(part, field), layout.run)]
                added = jnp.sum(codes * x[None], axis=2) * scale
                if offset is not None:
                    added = added + offset * jnp.sum(x, axis=1)[None]
                out[n] = out[n] + added
        return tuple(out)

    zero = jnp.zeros((block_rows, block_blocks), jnp.float32)
    sums = jax.lax.fori_loop(0, layout.parts * steps, step, (zero,) * len(tokens))
    return [jnp.sum(total, axis=1) for total in sums]
