"""Random tokens through an engine: a prompt, and steps whose tokens are given instead of sampled.

llama-bench feeds random ids, so that a model's taste does not decide which experts are used. Text uses experts less
evenly: the speed of an expert cache on random ids is not its speed on text.
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from moejax.engine.engine import Engine
from moejax.engine.sampling import SamplingParams, make_sampler
from moejax.engine.state import rollback

_SLOT = 0


class BenchSession:
    """One session of an engine.

    The only file here that knows the engine's programs.

    Attributes:
      length: tokens in the session.
    """

    def __init__(self, engine: Engine, seed: int):
        """`seed` decides the tokens."""
        self._engine = engine
        self._vocab = engine.plan.description.config.vocab_size
        self._random = np.random.default_rng(seed)
        # As llama-bench: logits are computed, nothing is drawn from them.
        params = SamplingParams(temperature=0.0)
        self._sampler = make_sampler([params] * engine.plan.slots, self._vocab)
        self._depth = 0
        self.length = 0

    def go_to(self, depth: int) -> None:
        """Makes the session `depth` random tokens long, without reading again what it has already read.

        Going back further than the engine promises leaves a recurrent state of a longer session: other numbers, the
        same work.
        """
        if depth != self._depth:
            self._engine.reset(_SLOT)
            self.length, self._depth = 0, depth
            if depth:
                self.prompt(depth)
        self._engine.state = rollback(self._engine.state, _SLOT, depth)
        self.length = depth

    def prompt(self, num_tokens: int) -> None:
        """Reads a prompt, and computes the logits of its last token, as a request does."""
        engine = self._engine
        tokens = self._random.integers(0, self._vocab, num_tokens).tolist()
        hidden, count = None, 0
        for hidden, count in engine.prefill(tokens, _SLOT):  # noqa: B007
            pass
        assert hidden is not None
        engine.state, packed = engine.steps.first_token(
            weights=engine._weights,
            state=engine.state,
            hidden=hidden,
            index=np.int32(count - 1),
            slot=np.int32(_SLOT),
            sampler=self._sampler,
        )
        packed.block_until_ready()
        self.length += num_tokens

    def prepare_steps(self, num_tokens: int) -> list[jax.Array]:
        """Random tokens on the device, one int32 `[slots]` for each step: not part of what is measured."""
        tokens = self._random.integers(0, self._vocab, (num_tokens, self._engine.plan.slots))
        steps = [jnp.asarray(row, jnp.int32) for row in tokens]
        return jax.block_until_ready(steps)

    def steps(self, tokens: list[jax.Array]) -> None:
        """Runs a step for each token, and takes the result of every step to the host, one step behind.

        This is how the engine generates: the device never waits for the host.
        """
        engine, before = self._engine, None
        for token in tokens:
            engine.state = dataclasses.replace(engine.state, pending=token)
            packed = engine._decode(self._sampler)
            if before is not None:
                np.asarray(before)
            before = packed
        np.asarray(before)
        self.length += len(tokens)
