"""Root-mean-square normalisation."""

import jax
import jax.numpy as jnp


def rms_norm(x: jax.Array, weight: jax.Array, eps: float) -> jax.Array:
    """`x / sqrt(mean(x^2) + eps) * weight` over the last axis (docs/ARCHITECTURES.md section 1).

    Args:
      x: float32 `[..., n]`.
      weight: float32 `[n]`, as stored in GGUF (ready to multiply).
      eps: added to the mean square.
    """
    y = x * jax.lax.rsqrt(jnp.mean(x * x, axis=-1, keepdims=True) + eps)
    return y * weight.reshape((1,) * (x.ndim - 1) + weight.shape)


def l2_norm(x: jax.Array, eps: float = 1e-6) -> jax.Array:
    """`x / sqrt(sum(x^2) + eps)` over the last axis (transformers `l2norm`)."""
    return x * jax.lax.rsqrt(jnp.sum(x * x, axis=-1, keepdims=True) + eps)
