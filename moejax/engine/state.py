"""The state of all session slots, on the device."""

import dataclasses
import functools

import jax
import jax.numpy as jnp

from moejax.model import Caches


@functools.partial(
    jax.tree_util.register_dataclass,
    data_fields=["tokens", "length", "pending", "caches"],
    meta_fields=[],
)
@dataclasses.dataclass(frozen=True, kw_only=True)
class SessionState:
    """What is known of each slot. Going back to an earlier position is a smaller `length` and nothing else.

    Attributes:
      tokens: int32 `[slots, context]`, the tokens of each session, valid up to `length`.
      length: int32 `[slots]`, tokens whose effects stand in the caches.
      pending: int32 `[slots]`, the token that comes next: chosen, not yet processed.
      caches: keys, values and recurrent states of all layers (see `Model.init_caches`).
    """

    tokens: jax.Array
    length: jax.Array
    pending: jax.Array
    caches: Caches

    @property
    def context(self) -> int:
        """Positions of a session."""
        return self.tokens.shape[1]

    def recent_tokens(self, count: int, no_token: int) -> jax.Array:
        """The last `count` tokens of every slot, int32 `[slots, count]`, `no_token` before the start."""
        positions = self.length[:, None] - count + jnp.arange(count, dtype=jnp.int32)[None, :]
        slots = jnp.arange(self.tokens.shape[0], dtype=jnp.int32)[:, None]
        slots = jnp.broadcast_to(slots, positions.shape)
        return jnp.where(positions >= 0, self.tokens[slots, jnp.maximum(positions, 0)], no_token)


def rollback(state: SessionState, slot: int, length: int) -> SessionState:
    """Forgets the tokens of a slot from position `length` on.

    Exact for any of the last `model.ROLLBACK_WINDOW` positions, and for 0 (a new session).
    """
    return dataclasses.replace(state, length=state.length.at[slot].set(length))
