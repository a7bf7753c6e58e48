"""Causal attention in plain jnp, summed block by block with a running maximum ("online softmax").

A block that a token does not see changes neither its maximum nor its sums by a single bit, so a token's
result does not depend on how far its neighbours look.
"""

import jax
import jax.numpy as jnp

from kernels_pallas.attention.kv_plane import KV_BLOCK, KVPlane

# Finite, so that exp(masked - maximum) is 0 and never NaN, also before the first visible position.
_MASKED = -1e30


def _attend(
    q: jax.Array, positions: jax.Array, num_blocks: jax.Array, read_k, read_v, scale: float
) -> jax.Array:
    """Online softmax over KV blocks.

    Args:
      q: float32 `[groups, kv_heads, rows, head_dim]`; a group shares keys and values.
      positions: int32 `[groups, 1, rows]`, each row sees positions up to its own.
      num_blocks: int32 scalar, KV blocks to visit.
      read_k: block index -> float32 `[groups, kv_heads, KV_BLOCK, head_dim]`.
      read_v: likewise.
      scale: factor on the scores.

    Returns:
      float32, shape of `q`.
    """

    def step(block: jax.Array, carry: tuple[jax.Array, jax.Array, jax.Array]):
        top, total, out = carry
        scores = jnp.einsum("ghrd,ghpd->ghrp", q, read_k(block), precision="highest") * scale
        seen_positions = block * KV_BLOCK + jnp.arange(KV_BLOCK, dtype=jnp.int32)
        seen = seen_positions[None, None, None] <= positions[..., None]
        scores = jnp.where(seen, scores, _MASKED)
        new_top = jnp.maximum(top, jnp.max(scores, axis=-1))
        keep = jnp.exp(top - new_top)
        p = jnp.where(seen, jnp.exp(scores - new_top[..., None]), 0.0)
        value = jnp.einsum("ghrp,ghpd->ghrd", p, read_v(block), precision="highest")
        return new_top, total * keep + jnp.sum(p, axis=-1), out * keep[..., None] + value

    start = (
        jnp.full(q.shape[:-1], _MASKED, jnp.float32),
        jnp.zeros(q.shape[:-1], jnp.float32),
        jnp.zeros(q.shape, jnp.float32),
    )
    _, total, out = jax.lax.fori_loop(0, num_blocks, step, start)
    return out / total[..., None]


def attention_narrow(
    q: jax.Array, k: KVPlane, v: KVPlane, layer: jax.Array, slots: jax.Array, positions: jax.Array
) -> jax.Array:
    """A few tokens, each of any slot, over that slot's cache (which already holds the tokens' own rows).

    Args:
      q: float32 `[tokens, heads, head_dim]`.
      k: key cache.
      v: value cache.
      layer: int32 scalar, layer in the planes.
      slots: int32 `[tokens]`.
      positions: int32 `[tokens]`; a token sees positions 0..its own.

    Returns:
      float32 `[tokens, heads, head_dim]`.
    """
    num_tokens, num_heads, head_dim = q.shape
    kv_heads = k.data.shape[2]
    read = jax.vmap(lambda plane, slot, block: plane.read_block(layer, slot, block), in_axes=(None, 0, None))
    out = _attend(
        q.reshape(num_tokens, kv_heads, num_heads // kv_heads, head_dim),
        jnp.broadcast_to(positions[:, None, None], (num_tokens, 1, num_heads // kv_heads)),
        jnp.max(positions) // KV_BLOCK + 1,
        lambda block: read(k, slots, block),
        lambda block: read(v, slots, block),
        head_dim**-0.5,
    )
    return out.reshape(num_tokens, num_heads, head_dim)


def attention_prefill(
    q: jax.Array, k: KVPlane, v: KVPlane, layer: jax.Array, slot: jax.Array, positions: jax.Array
) -> jax.Array:
    """Many tokens of one slot; arguments as `attention_narrow` with one `slot`."""
    num_tokens, num_heads, head_dim = q.shape
    kv_heads = k.data.shape[2]
    group = num_heads // kv_heads
    rows = q.reshape(num_tokens, kv_heads, group, head_dim).transpose(1, 2, 0, 3)
    out = _attend(
        rows.reshape(1, kv_heads, group * num_tokens, head_dim),
        jnp.tile(positions, group)[None, None],
        jnp.max(positions) // KV_BLOCK + 1,
        lambda block: k.read_block(layer, slot, block)[None],
        lambda block: v.read_block(layer, slot, block)[None],
        head_dim**-0.5,
    )
    out = out.reshape(kv_heads, group, num_tokens, head_dim).transpose(2, 0, 1, 3)
    return out.reshape(num_tokens, num_heads, head_dim)
