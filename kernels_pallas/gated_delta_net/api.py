"""The gated delta rule: the public functions, which choose an implementation."""

import jax

from kernels_pallas import dispatch
from kernels_pallas.gated_delta_net import reference
from kernels_pallas.gated_delta_net.recurrent_plane import RecurrentPlane


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
    args = (q, k, v, log_decay, beta, plane, layer, slot, start, num_tokens, keep_history)

    def kernel() -> tuple[jax.Array, RecurrentPlane]:
        from kernels_pallas.gated_delta_net import pallas_triton

        return pallas_triton.delta_net_prefill(*args, interpret=dispatch.interpret())

    return dispatch.call("delta_net_prefill", kernel, lambda: reference.delta_net_prefill(*args))
