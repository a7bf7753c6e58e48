"""Dense feed-forward layers."""

import jax

from kernels_pallas.dense_matmul import dense_matmul
from moejax.layers.weights import LayerWeights


def mlp(x: jax.Array, weights: LayerWeights, suffix: str = "") -> jax.Array:
    """`W_down(silu(W_gate x) * (W_up x))`.

    Args:
      x: float32 `[tokens, hidden]`.
      weights: `ffn_{gate,up,down}{suffix}.weight`.
      suffix: "" or "_shexp".
    """
    gate = dense_matmul(x, weights[f"ffn_gate{suffix}.weight"])
    up = dense_matmul(x, weights[f"ffn_up{suffix}.weight"])
    return dense_matmul(jax.nn.silu(gate) * up, weights[f"ffn_down{suffix}.weight"])
