"""The gated delta rule in plain jnp.

Source: transformers `torch_recurrent_gated_delta_rule` and `torch_chunk_gated_delta_rule` (docs/ARCHITECTURES.md 3.2). Per
value head, with decay a_t = exp(g_t), learning rate b_t and state S `[key dim, value dim]`:

  S <- a_t S;  d_t = b_t (v_t - S^T k_t);  S <- S + k_t d_t^T;  o_t = S^T q_t
"""

import functools

import jax
import jax.numpy as jnp

from kernels_pallas.gated_delta_net.recurrent_plane import RecurrentPlane

# Prompts are processed in blocks of this many tokens; a chunk of any multiple of it gives the same bits.
PREFILL_BLOCK = 64

_einsum = functools.partial(jnp.einsum, precision="highest")


def delta_net_narrow(
    q: jax.Array,
    k: jax.Array,
    v: jax.Array,
    log_decay: jax.Array,
    beta: jax.Array,
    plane: RecurrentPlane,
    layer: jax.Array,
    slots: jax.Array,
    positions: jax.Array,
    mask: jax.Array,
) -> tuple[jax.Array, RecurrentPlane]:
    """A few tokens, one after the other, each of any slot.

    Args:
      q: float32 `[tokens, v_heads, head_dim]`, normalised and scaled.
      k: float32, as q, normalised.
      v: float32, as q.
      log_decay: float32 `[tokens, v_heads]`, at most 0.
      beta: float32 `[tokens, v_heads]`.
      plane: states; entry `positions[i]` of the slot is read, entry `positions[i] + 1` written.
      layer: int32 scalar.
      slots: int32 `[tokens]`.
      positions: int32 `[tokens]`; tokens of one slot stand in order.
      mask: bool `[tokens]`; a masked token changes no state.

    Returns:
      Output float32 `[tokens, v_heads, head_dim]` and the new states.
    """

    def step(i: jax.Array, carry: tuple[jax.Array, RecurrentPlane]) -> tuple[jax.Array, RecurrentPlane]:
        out, plane = carry
        state = plane.read(layer, slots[i], positions[i]) * jnp.exp(log_decay[i])[:, None, None]
        delta = beta[i][:, None] * (v[i] - _einsum("hkv,hk->hv", state, k[i]))
        state = state + k[i][:, :, None] * delta[:, None, :]
        out = out.at[i].set(_einsum("hkv,hk->hv", state, q[i]))
        old = plane.read(layer, slots[i], positions[i] + 1)
        return out, plane.write(layer, slots[i], positions[i] + 1, jnp.where(mask[i], state, old))

    return jax.lax.fori_loop(0, q.shape[0], step, (jnp.zeros(v.shape, jnp.float32), plane))


def _block(q: jax.Array, k: jax.Array, v: jax.Array, log_decay: jax.Array, beta: jax.Array, state: jax.Array):
    """One block: outputs, and what is needed for the state after any of its tokens.

    Args are `[heads, tokens, ...]`; returns out `[heads, tokens, head_dim]`, deltas d_t (same shape) and the
    cumulative log decay `[heads, tokens]`.
    """
    num_tokens = q.shape[1]
    total = jnp.cumsum(log_decay, axis=1)
    row = jnp.arange(num_tokens, dtype=jnp.int32)
    below = (row[:, None] > row[None, :])[None]
    # exp only of what is kept: above the diagonal the exponent is positive and may overflow.
    difference = jnp.where(below, total[:, :, None] - total[:, None, :], 0.0)
    decay = jnp.where(below, jnp.exp(difference), 0.0)
    coupling = beta[:, :, None] * decay * _einsum("htd,hsd->hts", k, k)
    from_start = jnp.exp(total)[:, :, None]
    target = beta[:, :, None] * (v - from_start * _einsum("htk,hkv->htv", k, state))

    def solve_row(i: jax.Array, delta: jax.Array) -> jax.Array:
        """(I + coupling) delta = target, by forward substitution: row i needs the rows above it only."""
        known = _einsum("hs,hsv->hv", jax.lax.dynamic_index_in_dim(coupling, i, 1, keepdims=False), delta)
        return delta.at[:, i].set(jax.lax.dynamic_index_in_dim(target, i, 1, keepdims=False) - known)

    delta = jax.lax.fori_loop(0, num_tokens, solve_row, jnp.zeros(v.shape, jnp.float32))
    seen = decay + jnp.eye(num_tokens, dtype=jnp.float32)[None]
    scores = _einsum("htd,hsd->hts", q, k) * seen
    out = from_start * _einsum("htk,hkv->htv", q, state) + _einsum("hts,hsv->htv", scores, delta)
    return out, delta, total


def delta_net_prefill(
    q: jax.Array,
    k: jax.Array,
    v: jax.Array,
    log_decay: jax.Array,
    beta: jax.Array,
    plane: RecurrentPlane,
    layer: jax.Array,
    slot: jax.Array,
    start: jax.Array,
    num_tokens: jax.Array,
    keep_history: jax.Array,
) -> tuple[jax.Array, RecurrentPlane]:
    """One block of PREFILL_BLOCK tokens of one slot, of which the first `num_tokens` count.

    The state after any token of the block comes from the same expression, so a prompt that ends at that
    token has the same bits as a longer one rolled back to it.

    Args:
      q: float32 `[PREFILL_BLOCK, v_heads, head_dim]`; k, v, log_decay, beta as in `delta_net_narrow`.
      k: see q.
      v: see q.
      log_decay: see q.
      beta: see q.
      plane: states; entry `start` of the slot is read.
      layer: int32 scalar.
      slot: int32 scalar.
      start: int32 scalar, position of the first token.
      num_tokens: int32 scalar, 1..PREFILL_BLOCK.
      keep_history: bool scalar; store the states of the ring's whole reach (the last block of a chunk), or
        only the block's last state.

    Returns:
      Output float32 `[PREFILL_BLOCK, v_heads, head_dim]` and the new states.
    """
    valid = jnp.arange(PREFILL_BLOCK, dtype=jnp.int32) < num_tokens

    def heads_first(x: jax.Array) -> jax.Array:
        return jnp.swapaxes(jnp.where(valid.reshape(-1, *(1,) * (x.ndim - 1)), x, 0.0), 0, 1)

    state, keys = plane.read(layer, slot, start), heads_first(k)
    out, delta, total = _block(
        heads_first(q), keys, heads_first(v), heads_first(log_decay), heads_first(beta), state
    )

    def store_state(count: jax.Array, plane: RecurrentPlane) -> RecurrentPlane:
        last = jax.lax.dynamic_index_in_dim(total, count - 1, 1)
        used = (jnp.arange(PREFILL_BLOCK, dtype=jnp.int32) < count)[None]
        weight = jnp.where(used, jnp.exp(jnp.where(used, last - total, 0.0)), 0.0)
        added = _einsum("hsk,hsv->hkv", keys * weight[:, :, None], delta)
        return plane.write(layer, slot, start + count, jnp.exp(last)[:, :, None] * state + added)

    reach = plane.data.shape[2] - 1
    first = jnp.where(keep_history, jnp.maximum(num_tokens - reach, 1), num_tokens)
    plane = jax.lax.fori_loop(first, num_tokens + 1, store_state, plane)
    return jnp.swapaxes(out, 0, 1), plane
