"""Rotary position embedding."""

import jax
import jax.numpy as jnp
import numpy as np

from moejax.config import RopeConfig


def apply_rope(
    x: jax.Array, positions: jax.Array, rope: RopeConfig, factors: jax.Array | None = None
) -> jax.Array:
    """Rotates the first `rope.dims` dimensions of each head by `position * base^(-2i/dims)`.

    Args:
      x: float32 `[tokens, heads, head_dim]`.
      positions: int32 `[tokens]`.
      rope: dimensions, base, pairing.
      factors: float32 `[dims / 2]`, divisors of the frequencies (`rope_freqs.weight`), None for none.

    Returns:
      float32, shape of `x`.
    """
    half = rope.dims // 2
    inverse = rope.base ** (-np.arange(half, dtype=np.float64) / half)
    frequencies = jnp.asarray(inverse, jnp.float32)
    if factors is not None:
        frequencies = frequencies / factors
    scaled = positions.astype(jnp.float32) * rope.position_scale
    angles = scaled[:, None] * frequencies[None, :]
    cos, sin = jnp.cos(angles)[:, None, :], jnp.sin(angles)[:, None, :]
    rotated, rest = x[..., : rope.dims], x[..., rope.dims :]
    if rope.interleaved:
        pairs = rotated.reshape(*rotated.shape[:-1], half, 2)
        a, b = pairs[..., 0], pairs[..., 1]
        turned = jnp.stack([a * cos - b * sin, a * sin + b * cos], axis=-1).reshape(rotated.shape)
    else:
        a, b = rotated[..., :half], rotated[..., half:]
        turned = jnp.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1)
    return jnp.concatenate([turned, rest], axis=-1)
