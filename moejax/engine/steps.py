"""The jitted programs: a chunk of a prompt, and one step of all slots."""

import dataclasses

import jax
import jax.numpy as jnp

from kernels_pallas import dispatch
from kernels_pallas.gated_delta_net import PREFILL_BLOCK
from moejax.engine.sampling import Sampler, sample
from moejax.engine.state import SessionState
from moejax.engine.trace_counter import CountedJit
from moejax.layers.rows import Rows
from moejax.model import ROLLBACK_WINDOW, Model, ModelWeights


def pack(tokens: jax.Array, logprobs: jax.Array) -> jax.Array:
    """Token ids and log-probabilities `[slots]` in one int32 array `[slots, 2]`: one copy to the host."""
    return jnp.stack([tokens, jax.lax.bitcast_convert_type(logprobs, jnp.int32)], axis=1)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Steps:
    """The compiled programs of one engine.

    Attributes:
      model: the computation.
      chunk: most tokens of a prefill call, a multiple of PREFILL_BLOCK.
      penalty_window: how many recent tokens penalties look at.
      prefill: processes up to `chunk` tokens of a prompt.
      first_token: samples the token after a prompt.
      decode: one token for every slot.
      block_logits: logits of PREFILL_BLOCK positions.
    """

    model: Model
    chunk: int
    penalty_window: int
    prefill: CountedJit = dataclasses.field(init=False)
    first_token: CountedJit = dataclasses.field(init=False)
    decode: CountedJit = dataclasses.field(init=False)
    block_logits: CountedJit = dataclasses.field(init=False)

    def __post_init__(self):
        """Wraps the programs; they compile at their first call."""
        for name, function, donated in (
            ("prefill", self._prefill, ("state",)),
            ("first_token", self._first_token, ("state",)),
            ("decode", self._decode, ("state",)),
            ("block_logits", self.model.logits, ()),
        ):
            object.__setattr__(self, name, CountedJit(name, function, donate_argnames=donated))

    @property
    def programs(self) -> tuple[CountedJit, ...]:
        """All programs."""
        return self.prefill, self.first_token, self.decode, self.block_logits

    def rows_at_once(self, num_tokens: int) -> int:
        """Tokens of a prefill call that go through a layer together.

        Kernels compute every row by itself, so a whole chunk reads each weight once. The reference computes in
        blocks of one size, or a row's bits would depend on the size of its chunk.
        """
        return num_tokens if dispatch.use_pallas() else PREFILL_BLOCK

    def bucket(self, num_tokens: int) -> int:
        """The size to which a prefill call of so many tokens is padded."""
        size = PREFILL_BLOCK
        while dispatch.use_pallas() and size < num_tokens:
            size *= 2
        return min(size, self.chunk) if dispatch.use_pallas() else self.chunk

    def _prefill(
        self,
        weights: ModelWeights,
        state: SessionState,
        tokens: jax.Array,
        slot: jax.Array,
        num_tokens: jax.Array,
    ) -> tuple[SessionState, jax.Array]:
        """Appends `tokens[:num_tokens]` to a slot.

        The loop over blocks has a traced length: one program serves chunks of every size, and a block's
        arithmetic is the same whichever chunk it is part of.

        Args:
          weights: all weights.
          state: donated.
          tokens: int32 `[bucket]`.
          slot: int32 scalar.
          num_tokens: int32 scalar, 1..bucket.

        Returns:
          The state, and the hidden values of all positions, float32 `[bucket, hidden]`.
        """
        start = state.length[slot]
        size = self.rows_at_once(tokens.shape[0])
        lane = jnp.arange(size, dtype=jnp.int32)
        num_blocks = (num_tokens + size - 1) // size

        def block(i: jax.Array, carry: tuple):
            caches, hidden = carry
            offset = i * size
            rows = Rows(
                slots=jnp.broadcast_to(slot, lane.shape),
                positions=start + offset + lane,
                mask=offset + lane < num_tokens,
                # Going back from the chunk's end may reach into the block before the last.
                keep_history=num_tokens - (offset + size) < ROLLBACK_WINDOW,
                wide=True,
            )
            block_tokens = jax.lax.dynamic_slice_in_dim(tokens, offset, size)
            values, caches = self.model.forward(weights, caches, block_tokens, rows)
            return caches, jax.lax.dynamic_update_slice_in_dim(hidden, values, offset, 0)

        hidden = jnp.zeros((tokens.shape[0], self.model.config.hidden_size), jnp.float32)
        if size == tokens.shape[0]:
            caches, hidden = block(jnp.int32(0), (state.caches, hidden))
        else:
            caches, hidden = jax.lax.fori_loop(0, num_blocks, block, (state.caches, hidden))
        index = jnp.arange(tokens.shape[0], dtype=jnp.int32)
        position = jnp.where(index < num_tokens, start + index, state.context)  # out of range, dropped
        state = dataclasses.replace(
            state,
            tokens=state.tokens.at[slot, position].set(tokens, mode="drop"),
            length=state.length.at[slot].add(num_tokens),
            caches=caches,
        )
        return state, hidden

    def _sample(
        self, state: SessionState, logits: jax.Array, sampler: Sampler, active: jax.Array
    ) -> tuple[SessionState, jax.Array]:
        recent = state.recent_tokens(self.penalty_window, self.model.config.vocab_size)
        tokens, logprobs = sample(logits, sampler, recent, state.length)
        pending = jnp.where(active, tokens, state.pending)
        return dataclasses.replace(state, pending=pending), pack(tokens, logprobs)

    def _first_token(
        self,
        weights: ModelWeights,
        state: SessionState,
        hidden: jax.Array,
        index: jax.Array,
        slot: jax.Array,
        sampler: Sampler,
    ) -> tuple[SessionState, jax.Array]:
        """Samples the token that follows a slot's prompt.

        Args:
          weights: all weights.
          state: donated.
          hidden: float32 `[bucket, hidden]` from the last prefill call.
          index: int32 scalar, row of the prompt's last token in `hidden`.
          slot: int32 scalar.
          sampler: parameters of all slots.

        Returns:
          The state with the slot's pending token, and the packed result (only the slot's row counts).
        """
        row = jax.lax.dynamic_slice_in_dim(hidden, index, 1)
        slots = state.length.shape[0]
        logits = jnp.broadcast_to(self.model.logits(weights, row), (slots, self.model.config.vocab_size))
        return self._sample(state, logits, sampler, jnp.arange(slots, dtype=jnp.int32) == slot)

    def _decode(
        self, weights: ModelWeights, state: SessionState, active: jax.Array, sampler: Sampler
    ) -> tuple[SessionState, jax.Array]:
        """Processes the pending token of every active slot and samples the next.

        Args:
          weights: all weights.
          state: donated.
          active: bool `[slots]`; others keep their state.
          sampler: parameters of all slots.

        Returns:
          The state, and the packed result (see `pack`).
        """
        slots = jnp.arange(state.length.shape[0], dtype=jnp.int32)
        rows = Rows(
            slots=slots,
            positions=state.length,
            mask=active,
            keep_history=jnp.bool_(True),
            wide=False,
        )
        hidden, caches = self.model.forward(weights, state.caches, state.pending, rows)
        position = jnp.where(active, state.length, state.context)
        state = dataclasses.replace(
            state,
            tokens=state.tokens.at[slots, position].set(state.pending, mode="drop"),
            length=state.length + active.astype(jnp.int32),
            caches=caches,
        )
        return self._sample(state, self.model.logits(weights, hidden), sampler, active)
