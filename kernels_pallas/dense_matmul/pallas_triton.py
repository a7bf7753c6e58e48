"""Dense matmul of few tokens with quantized rows: each byte of the weight is read once for all tokens."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plgpu

from kernels_pallas.quant.planes import Planes
from kernels_pallas.quant.triton import PlaneOperands, operands, rows_dot, tile_shape


@dataclasses.dataclass(frozen=True, kw_only=True)
class NarrowConfig:
    """Tile sizes.

    Attributes:
      tile_bytes: low bytes that a program reads at once.
      row_bytes: low bytes of one row among them.
      num_warps: warps of a program.
    """

    tile_bytes: int = 2048
    row_bytes: int = 1024
    num_warps: int = 2


def _kernel(
    # inputs
    layer_ref,  # int32 [1]
    x_ref,  # float32 [tokens, blocks, block]
    weight: PlaneOperands,  # planes with a leading layer axis
    # outputs
    out_ref,  # float32 [tokens, rows]
    *,
    # hyperparameters
    block_rows: int,
    block_blocks: int,
):
    start = pl.program_id(0) * block_rows
    num_tokens = x_ref.shape[0]
    sums = rows_dot(
        weight,
        (layer_ref[0],),
        x_ref,
        list(range(num_tokens)),
        start,
        block_rows=block_rows,
        block_blocks=block_blocks,
    )
    for token, total in enumerate(sums):
        out_ref[token, pl.ds(start, block_rows)] = total


def dense_matmul_narrow(
    x: jax.Array,
    planes: Planes,
    layer: jax.Array,
    *,
    config: NarrowConfig | None = None,
    interpret: bool = False,
) -> jax.Array:
    """`x @ W.T` for 1 to 16 tokens.

    Args:
      x: float32 `[tokens, columns]`.
      planes: stacked weight, planes with one leading axis of layers.
      layer: int32 scalar.
      config: tile sizes.
      interpret: run on a CPU, for tests.

    Returns:
      float32 `[tokens, rows]`.
    """
    config = config or NarrowConfig()
    rows = planes.num_rows
    block_rows, block_blocks = tile_shape(
        rows,
        planes.num_blocks,
        planes.layout.run,
        tile_bytes=config.tile_bytes,
        row_bytes=config.row_bytes,
    )
    kernel = functools.partial(_kernel, block_rows=block_rows, block_blocks=block_blocks)
    return pl.pallas_call(
        kernel,
        out_shape=jax.ShapeDtypeStruct((x.shape[0], rows), jnp.float32),
        grid=(rows // block_rows,),
        compiler_params=plgpu.CompilerParams(num_warps=config.num_warps, num_stages=2),
        interpret=interpret,
        name=f"dense_narrow_{planes.quant_type.name}",
    )(layer.reshape(1), x.reshape(x.shape[0], -1, planes.layout.block), operands(planes))
