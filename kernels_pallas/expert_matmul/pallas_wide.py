"""Routed experts for many tokens: pairs sorted by expert, a grouped product on tensor cores.

Weights are dequantized in the tile, so they are read from memory quantized and once per tile of rows. A tile of
rows belongs to one expert; experts without tokens cost nothing, and nothing is padded to the largest expert.
"""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plgpu

from kernels_pallas.expert_matmul.pallas_triton import ExpertPlanes
from kernels_pallas.quant.planes import PlaneLayout, Planes
from kernels_pallas.quant.triton import (
    PlaneOperands,
    codes_of,
    operands,
    power_of_two_divisor,
    scale_and_offset,
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class WideConfig:
    """Tile sizes.

    Attributes:
      block_pairs: rows (token, expert) of a tile.
      gate_up_rows: rows of gate, and of up, of a tile.
      down_rows: rows of down of a tile.
      block_columns: columns that one product contracts.
      num_warps: warps of a program.
      num_stages: depth of the load pipeline.
    """

    block_pairs: int = 128
    gate_up_rows: int = 64
    down_rows: int = 128
    block_columns: int = 64
    num_warps: int = 8
    num_stages: int = 3


def _column_order(layout: PlaneLayout, columns: int) -> np.ndarray:
    """Columns in the order (part, field, block, place) of a layout, int32 `[columns]`."""
    blocks = np.arange(columns // layout.block, dtype=np.int32) * layout.block
    order = layout.permutation()[:, :, None, :] + blocks[None, None, :, None]
    return order.reshape(-1)


def _tile_float(
    refs: PlaneOperands, lead: tuple, part: jax.Array, field: int, rows, blocks, low: jax.Array, dtype
) -> jax.Array:
    """Values of one (part, field) of a tile, `[rows, blocks * run]`."""
    layout = refs.layout
    high = None
    if refs.high is not None:
        assert layout.high_at is not None
        run, _ = layout.high_at(part, field)  # type: ignore[arg-type]
        high = refs.high[(*lead, run, rows, blocks, slice(None))]
    codes = codes_of(refs, low, high, part, field)
    scale, offset = scale_and_offset(refs, lead, part, field, rows, blocks)
    values = codes * scale[:, :, None]
    if offset is not None:
        values = values + offset[:, :, None]
    return values.astype(dtype).reshape(values.shape[0], -1)


def _accumulate(
    weights: tuple[PlaneOperands, ...],
    lead: tuple,
    x_refs: tuple,
    pair_rows,
    mask: jax.Array,
    row_start: jax.Array,
    *,
    block_rows: int,
    block_columns: int,
) -> tuple[jax.Array, ...]:
    """Products of a tile of pairs with a tile of rows of each weight, float32 `[pairs, rows]` each."""
    rows = pl.ds(row_start, block_rows)
    out = []
    for refs, x_ref in zip(weights, x_refs, strict=True):
        layout = refs.layout
        num_blocks = refs.low.shape[-2]
        step = power_of_two_divisor(num_blocks, max(block_columns // layout.run, 1))
        steps = num_blocks // step

        def body(
            i, total, refs=refs, x_ref=x_ref, layout=layout, step=step, steps=steps, num_blocks=num_blocks
        ):
            part, chunk = jax.lax.div(i, jnp.int32(steps)), jax.lax.rem(i, jnp.int32(steps))
            blocks = pl.ds(chunk * step, step)
            low = refs.low[(*lead, part, rows, blocks, slice(None))]
            for field in range(layout.fields):
                w = _tile_float(refs, lead, part, field, rows, blocks, low, x_ref.dtype)
                at = (part * layout.fields + field) * (num_blocks * layout.run) + chunk * (step * layout.run)
                x = plgpu.load(
                    x_ref.at[pair_rows, pl.ds(at, step * layout.run)],
                    mask=mask,
                    other=jnp.zeros((), x_ref.dtype),
                )
                total = total + plgpu.dot(x, w, trans_b=True)
            return total

        zero = jnp.zeros((mask.shape[0], block_rows), jnp.float32)
        out.append(jax.lax.fori_loop(0, layout.parts * steps, body, zero))
    return tuple(out)


def _kernel(
    # inputs
    layer_ref,  # int32 [1]
    expert_ref,  # int32 [tiles], the expert (slot) of a tile of pairs
    start_ref,  # int32 [tiles], its first pair
    end_ref,  # int32 [tiles], past its expert's last pair; start_ref for a tile without pairs
    x_refs,  # [pairs, columns] each, columns in the weight's order
    weights: tuple[PlaneOperands, ...],
    # outputs
    out_ref,  # [pairs, rows]
    *,
    # hyperparameters
    block_pairs: int,
    block_rows: int,
    block_columns: int,
):
    tile, row_start = pl.program_id(1), pl.program_id(0) * block_rows
    start, end = start_ref[tile], end_ref[tile]

    @pl.when(start < end)
    def _():
        pair_rows = pl.ds(start, block_pairs)
        mask = (start + jnp.arange(block_pairs, dtype=jnp.int32) < end)[:, None]
        totals = _accumulate(
            weights,
            (layer_ref[0], expert_ref[tile]),
            x_refs,
            pair_rows,
            mask,
            row_start,
            block_rows=block_rows,
            block_columns=block_columns,
        )
        y = totals[0]
        if len(totals) == 2:  # gate and up
            y = y / (1.0 + jnp.exp(-y)) * totals[1]
        plgpu.store(out_ref.at[pair_rows, pl.ds(row_start, block_rows)], y.astype(out_ref.dtype), mask=mask)


def _grouped(
    x: tuple[jax.Array, ...],
    weights: tuple[Planes, ...],
    layer: jax.Array,
    tiles: tuple[jax.Array, jax.Array, jax.Array],
    dtype,
    *,
    block_rows: int,
    config: WideConfig,
    interpret: bool,
) -> jax.Array:
    rows = weights[0].num_rows
    block_rows = power_of_two_divisor(rows, block_rows)
    kernel = functools.partial(
        _kernel, block_pairs=config.block_pairs, block_rows=block_rows, block_columns=config.block_columns
    )
    return pl.pallas_call(
        kernel,
        out_shape=jax.ShapeDtypeStruct((x[0].shape[0], rows), dtype),
        grid=(rows // block_rows, tiles[0].shape[0]),
        compiler_params=plgpu.CompilerParams(num_warps=config.num_warps, num_stages=config.num_stages),
        interpret=interpret,
        name=f"expert_wide_{weights[0].quant_type.name}_{len(weights)}",
    )(layer.reshape(1), *tiles, x, tuple(operands(w) for w in weights))


def _plan_tiles(sources: jax.Array, num_slots: int, block_pairs: int):
    """Sorts pairs by slot and cuts them into tiles.

    Args:
      sources: int32 `[pairs]`, a slot each, or `num_slots` for a masked pair.
      num_slots: slots.
      block_pairs: pairs of a tile.

    Returns:
      The sorted order int32 `[pairs]`, and slot, first pair, end of each tile, int32 `[tiles]`.
    """
    order = jnp.argsort(sources, stable=True).astype(jnp.int32)
    sizes = jnp.zeros((num_slots + 1,), jnp.int32).at[sources].add(1)[:num_slots]
    ends = jnp.cumsum(sizes)
    num_tiles = (sizes + block_pairs - 1) // block_pairs
    tile_ends = jnp.cumsum(num_tiles)
    most = -(-sources.shape[0] // block_pairs) + num_slots
    tile = jnp.arange(most, dtype=jnp.int32)
    slot = jnp.minimum(jnp.searchsorted(tile_ends, tile, side="right").astype(jnp.int32), num_slots - 1)
    start = ends[slot] - sizes[slot] + (tile - (tile_ends[slot] - num_tiles[slot])) * block_pairs
    used = tile < tile_ends[-1]
    return order, (slot, jnp.where(used, start, 0), jnp.where(used, ends[slot], 0))


def expert_matmul_wide(
    x: jax.Array,
    slab: ExpertPlanes,
    layer: jax.Array,
    sources: jax.Array,
    expert_weights: jax.Array,
    *,
    dtype=jnp.bfloat16,
    config: WideConfig | None = None,
    interpret: bool = False,
) -> jax.Array:
    """The experts' feed-forward for many tokens.

    Args:
      x: float32 `[tokens, hidden]`.
      slab: experts in device memory.
      layer: int32 scalar.
      sources: int32 `[tokens, k]`, slots; the number of slots masks a pair. Duplicates are allowed.
      expert_weights: float32 `[tokens, k]`.
      dtype: type of the products' operands; sums are float32.
      config: tile sizes.
      interpret: run on a CPU, for tests.

    Returns:
      float32 `[tokens, hidden]`. A token's result does not depend on the others.
    """
    config = config or WideConfig()
    (num_tokens, num_used), hidden = sources.shape, x.shape[1]
    pairs, ffn, num_slots = sources.reshape(-1), slab.gate.num_rows, slab.num_slots
    order, tiles = _plan_tiles(pairs, num_slots, config.block_pairs)
    # Tiles read past the last pair; those rows are masked but must exist.
    token = jnp.pad(order // num_used, (0, config.block_pairs))
    narrow = x.astype(dtype)
    gathered = [narrow[:, _column_order(w.layout, hidden)][token] for w in (slab.gate, slab.up)]
    grouped = functools.partial(_grouped, layer=layer, tiles=tiles, config=config, interpret=interpret)
    h = grouped((gathered[0], gathered[1]), (slab.gate, slab.up), dtype=dtype, block_rows=config.gate_up_rows)
    h = h[:, _column_order(slab.down.layout, ffn)]
    y = grouped((h,), (slab.down,), dtype=dtype, block_rows=config.down_rows)
    place = (
        jnp.zeros((num_tokens * num_used,), jnp.int32)
        .at[order]
        .set(jnp.arange(num_tokens * num_used, dtype=jnp.int32))
    )
    per_token = y[place].reshape(num_tokens, num_used, hidden).astype(jnp.float32)
    kept = (sources < num_slots)[:, :, None]
    return jnp.sum(jnp.where(kept, expert_weights[:, :, None] * per_token, 0.0), axis=1)
