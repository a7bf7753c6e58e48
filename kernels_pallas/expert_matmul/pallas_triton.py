"""Routed experts for few tokens: each (token, expert) pair reads its expert from a slab slot or from host memory.

Two kernels: gate, up and activation; then down. A program decides
by the pair's source which memory it reads; the arithmetic after that is the same, so the result is too.
"""

import dataclasses
import functools

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plgpu

from kernels_pallas.quant.planes import Planes
from kernels_pallas.quant.triton import PlaneOperands, operands, rows_dot, tile_shape

# Source of a pair that computes nothing (an inactive token): its output is zero.
MASKED = -1


@dataclasses.dataclass(frozen=True, kw_only=True)
class NarrowConfig:
    """Tile sizes of the two kernels.

    Attributes:
      tile_bytes: low bytes that a program reads at once.
      row_bytes: low bytes of one row among them.
      num_warps: warps of a program.
    """

    tile_bytes: int = 2048
    row_bytes: int = 256
    num_warps: int = 4


@functools.partial(jax.tree_util.register_dataclass, data_fields=["gate", "up", "down"], meta_fields=[])
@dataclasses.dataclass(frozen=True, kw_only=True)
class ExpertPlanes:
    """Experts in one memory, as planes with leading axes `[layers, slots]`.

    Attributes:
      gate: `[ffn, hidden]` per slot.
      up: `[ffn, hidden]` per slot.
      down: `[hidden, ffn]` per slot.
    """

    gate: Planes
    up: Planes
    down: Planes

    @property
    def num_slots(self) -> int:
        """Slots of a layer."""
        return self.gate.low.shape[1]


def _from_source(source: jax.Array, slab_slots: int, slab, host, read) -> list[jax.Array]:
    """`read(planes, slot)` from the slab, or from host memory for sources past the slab's slots."""
    if host is None:
        return read(slab, source)
    return jax.lax.cond(
        source < slab_slots,
        lambda: read(slab, source),
        lambda: read(host, jnp.maximum(source - slab_slots, 0)),
    )


def _gate_up_kernel(
    # inputs
    layer_ref,  # int32 [1]
    source_ref,  # int32 [pairs]
    x_gate_ref,  # float32 [tokens, blocks, block], in gate's blocks
    x_up_ref,  # the same in up's blocks
    slab: tuple[PlaneOperands, PlaneOperands],
    host: tuple[PlaneOperands, PlaneOperands] | None,
    # outputs
    out_ref,  # float32 [pairs, ffn]
    *,
    # hyperparameters
    num_used: int,
    slab_slots: int,
    block_rows: int,
    block_blocks: tuple[int, int],
):
    pair, start = pl.program_id(0), pl.program_id(1) * block_rows
    token, source = pair // num_used, source_ref[pair]

    def read(weights: tuple[PlaneOperands, PlaneOperands], slot: jax.Array) -> list[jax.Array]:
        lead = (layer_ref[0], slot)
        return [
            rows_dot(w, lead, x_ref, [token], start, block_rows=block_rows, block_blocks=blocks)[0]
            for w, x_ref, blocks in zip(weights, (x_gate_ref, x_up_ref), block_blocks, strict=True)
        ]

    @pl.when(source >= 0)
    def _():
        gate, up = _from_source(source, slab_slots, slab, host, read)
        out_ref[pair, pl.ds(start, block_rows)] = gate / (1.0 + jnp.exp(-gate)) * up

    @pl.when(source < 0)
    def _():
        out_ref[pair, pl.ds(start, block_rows)] = jnp.zeros((block_rows,), jnp.float32)


def _down_kernel(
    # inputs
    layer_ref,  # int32 [1]
    source_ref,  # int32 [pairs]
    weight_ref,  # float32 [pairs]
    h_ref,  # float32 [pairs, blocks, block]
    slab: PlaneOperands,
    host: PlaneOperands | None,
    # outputs
    out_ref,  # float32 [pairs, hidden], times the pair's weight
    *,
    # hyperparameters
    slab_slots: int,
    block_rows: int,
    block_blocks: int,
):
    pair, start = pl.program_id(0), pl.program_id(1) * block_rows
    source = source_ref[pair]

    def read(weights: PlaneOperands, slot: jax.Array) -> list[jax.Array]:
        lead = (layer_ref[0], slot)
        return rows_dot(weights, lead, h_ref, [pair], start, block_rows=block_rows, block_blocks=block_blocks)

    @pl.when(source >= 0)
    def _():
        (y,) = _from_source(source, slab_slots, slab, host, read)
        out_ref[pair, pl.ds(start, block_rows)] = weight_ref[pair] * y

    @pl.when(source < 0)
    def _():
        out_ref[pair, pl.ds(start, block_rows)] = jnp.zeros((block_rows,), jnp.float32)


def expert_matmul_narrow(
    x: jax.Array,
    slab: ExpertPlanes,
    host: ExpertPlanes | None,
    layer: jax.Array,
    sources: jax.Array,
    expert_weights: jax.Array,
    *,
    config: NarrowConfig | None = None,
    interpret: bool = False,
) -> jax.Array:
    """The experts' feed-forward for 1 to 16 tokens.

    Args:
      x: float32 `[tokens, hidden]`.
      slab: experts in device memory.
      host: experts in pinned host memory that the device can read, or None.
      layer: int32 scalar, index into the first axis of all planes.
      sources: int32 `[tokens, k]`: a slab slot, or the slab's number of slots plus a host slot, or MASKED.
      expert_weights: float32 `[tokens, k]`.
      config: tile sizes.
      interpret: run on a CPU, for tests.

    Returns:
      float32 `[tokens, hidden]`.
    """
    config = config or NarrowConfig()
    (num_tokens, num_used), hidden, ffn = sources.shape, slab.down.num_rows, slab.gate.num_rows
    layer, pairs = layer.reshape(1), sources.reshape(-1)
    params = plgpu.CompilerParams(num_warps=config.num_warps, num_stages=2)

    def tile_of(planes: Planes) -> tuple[int, int]:
        return tile_shape(
            planes.num_rows,
            planes.num_blocks,
            planes.layout.run,
            tile_bytes=config.tile_bytes,
            row_bytes=config.row_bytes,
        )

    (gate_rows, gate_blocks), (up_rows, up_blocks) = tile_of(slab.gate), tile_of(slab.up)
    rows = min(gate_rows, up_rows)
    h = pl.pallas_call(
        functools.partial(
            _gate_up_kernel,
            num_used=num_used,
            slab_slots=slab.num_slots,
            block_rows=rows,
            block_blocks=(gate_blocks, up_blocks),
        ),
        out_shape=jax.ShapeDtypeStruct((num_tokens * num_used, ffn), jnp.float32),
        grid=(num_tokens * num_used, ffn // rows),
        compiler_params=params,
        interpret=interpret,
        name=f"expert_gate_up_{slab.gate.quant_type.name}",
    )(
        layer,
        pairs,
        x.reshape(x.shape[0], -1, slab.gate.layout.block),
        x.reshape(x.shape[0], -1, slab.up.layout.block),
        (operands(slab.gate), operands(slab.up)),
        None if host is None else (operands(host.gate), operands(host.up)),
    )
    rows, blocks = tile_of(slab.down)
    y = pl.pallas_call(
        functools.partial(
            _down_kernel,
            slab_slots=slab.num_slots,
            block_rows=rows,
            block_blocks=blocks,
        ),
        out_shape=jax.ShapeDtypeStruct((num_tokens * num_used, hidden), jnp.float32),
        grid=(num_tokens * num_used, hidden // rows),
        compiler_params=params,
        interpret=interpret,
        name=f"expert_down_{slab.down.quant_type.name}",
    )(
        layer,
        pairs,
        expert_weights.reshape(-1),
        h.reshape(h.shape[0], -1, slab.down.layout.block),
        operands(slab.down),
        None if host is None else operands(host.down),
    )
    # Added one after the other, in the token's own order.
    y = y.reshape(num_tokens, num_used, hidden)
    out = y[:, 0]
    for rank in range(1, num_used):
        out = out + y[:, rank]
    return out
