"""The gated delta rule: the public functions, which choose an implementation."""

import jax
import jax.numpy as jnp

from kernels_pallas import dispatch
from kernels_pallas.gated_delta_net import reference
from kernels_pallas.gated_delta_net.recurrent_plane import RecurrentPlane
from kernels_pallas.gated_delta_net.reference import PREFILL_BLOCK


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
    args = (q, k, v, log_decay, beta, plane, layer, slots, positions, mask)

    def kernel() -> tuple[jax.Array, RecurrentPlane]:
        from kernels_pallas.gated_delta_net import pallas_triton  # a CPU needs no Triton

        return pallas_triton.delta_net_narrow(*args, interpret=dispatch.interpret())

    return dispatch.call("delta_net_narrow", kernel, lambda: reference.delta_net_narrow(*args))


def _reference_prefill(
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
    """The reference, which takes one block, called for each block that has tokens."""
    if q.shape[0] == PREFILL_BLOCK:
        return reference.delta_net_prefill(
            q, k, v, log_decay, beta, plane, layer, slot, start, num_tokens, keep_history
        )
    reach = plane.data.shape[2] - 1

    def advance(
        block: jax.Array, carry: tuple[jax.Array, RecurrentPlane]
    ) -> tuple[jax.Array, RecurrentPlane]:
        out, plane = carry
        before = block * PREFILL_BLOCK

        def rows(x: jax.Array) -> jax.Array:
            return jax.lax.dynamic_slice_in_dim(x, before, PREFILL_BLOCK)

        left = num_tokens - before
        block_out, plane = reference.delta_net_prefill(
            rows(q), rows(k), rows(v), rows(log_decay), rows(beta), plane, layer, slot, start + before,
            jnp.minimum(left, PREFILL_BLOCK), keep_history & (left - PREFILL_BLOCK < reach),
        )  # fmt: skip
        return jax.lax.dynamic_update_slice_in_dim(out, block_out, before, 0), plane

    num_blocks = (num_tokens + PREFILL_BLOCK - 1) // PREFILL_BLOCK
    return jax.lax.fori_loop(0, num_blocks, advance, (jnp.zeros(v.shape, jnp.float32), plane))


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
    """Blocks of PREFILL_BLOCK tokens of one slot, of which the first `num_tokens` count.

    Several blocks in one call give the bits of one call a block.

    Args:
      q: float32 `[tokens, v_heads, head_dim]`; k, v, log_decay, beta as in `delta_net_narrow`.
      k: see q.
      v: see q.
      log_decay: see q.
      beta: see q.
      plane: states; entry `start` of the slot is read.
      layer: int32 scalar.
      slot: int32 scalar.
      start: int32 scalar, position of the first token.
      num_tokens: int32 scalar, 1..tokens.
      keep_history: bool scalar; store the states of the ring's whole reach (the end of a chunk), or only the
        last state.

    Returns:
      Output float32 `[tokens, v_heads, head_dim]` and the new states.
    """
    args = (q, k, v, log_decay, beta, plane, layer, slot, start, num_tokens, keep_history)

    def kernel() -> tuple[jax.Array, RecurrentPlane]:
        from kernels_pallas.gated_delta_net import pallas_triton

        return pallas_triton.delta_net_prefill(*args, interpret=dispatch.interpret())

    return dispatch.call("delta_net_prefill", kernel, lambda: _reference_prefill(*args))
