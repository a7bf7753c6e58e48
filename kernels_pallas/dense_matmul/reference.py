"""Dense quantized matmul in plain jnp."""

import functools

import jax
import jax.numpy as jnp

from kernels_pallas.weight import LayerParts, LayerWeight

_dot = functools.partial(
    jax.lax.dot_general, precision=jax.lax.Precision.HIGHEST, preferred_element_type=jnp.float32
)


def _matmul_parts(x: jax.Array, weight: LayerParts) -> jax.Array:
    def tile(i: jax.Array | int) -> jax.Array:
        return _dot(x, weight.tile_float32(i), (((1,), (0,)), ((), ())))

    if weight.num_tiles == 1:
        return tile(0)

    def add_tile(i: jax.Array, out: jax.Array) -> jax.Array:
        return jax.lax.dynamic_update_slice_in_dim(out, tile(i), i * weight.tile, 1)

    out = jnp.zeros((x.shape[0], weight.num_tiles * weight.tile), jnp.float32)
    return jax.lax.fori_loop(0, weight.num_tiles, add_tile, out)


def dense_matmul(x: jax.Array, weight: LayerWeight | LayerParts) -> jax.Array:
    """`x @ W.T`, accumulated in float32.

    Args:
      x: float32 `[tokens, columns]`.
      weight: a `[rows, columns]` matrix.

    Returns:
      float32 `[tokens, rows]`.
    """
    if isinstance(weight, LayerParts):
        return _matmul_parts(x, weight)
    return _dot(x, weight.float32(), (((1,), (1,)), ((), ())))
