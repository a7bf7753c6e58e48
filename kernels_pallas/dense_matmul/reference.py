"""Dense quantized matmul in plain jnp."""

import jax
import jax.numpy as jnp

from kernels_pallas.weight import LayerWeight


def dense_matmul(x: jax.Array, weight: LayerWeight) -> jax.Array:
    """`x @ W.T`, accumulated in float32.

    Args:
      x: float32 `[tokens, columns]`.
      weight: a `[rows, columns]` matrix.

    Returns:
      float32 `[tokens, rows]`.
    """
    return jax.lax.dot_general(
        x,
        weight.float32(),
        (((1,), (1,)), ((), ())),
        precision=jax.lax.Precision.HIGHEST,
        preferred_element_type=jnp.float32,
    )
