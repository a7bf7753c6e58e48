"""The product that models call: kernels where the weight is in their layout, plain jnp elsewhere."""

import jax
import jax.numpy as jnp

from kernels_pallas import dispatch
from kernels_pallas.dense_matmul import reference
from kernels_pallas.dense_matmul.pallas_triton import dense_matmul_narrow
from kernels_pallas.weight import LayerPlanes, Matrix

# Up to this many tokens a weight is read once and multiplied token by token; a token's bits do not depend on
# their number. More tokens go to tensor cores.
MAX_NARROW_TOKENS = 16


def dense_matmul(x: jax.Array, weight: Matrix) -> jax.Array:
    """`x @ W.T`, accumulated in float32.

    Args:
      x: float32 `[tokens, columns]`.
      weight: a `[rows, columns]` matrix.

    Returns:
      float32 `[tokens, rows]`.
    """
    if not isinstance(weight, LayerPlanes):
        return reference.dense_matmul(x, weight)
    if x.shape[0] <= MAX_NARROW_TOKENS:
        return dense_matmul_narrow(x, weight.planes, weight.layer, interpret=dispatch.interpret())
    # Unpacked once for the whole chunk: little beside the product.
    return jax.lax.dot_general(
        x.astype(jnp.bfloat16),
        weight.float32().astype(jnp.bfloat16),
        (((1,), (1,)), ((), ())),
        preferred_element_type=jnp.float32,
    )
