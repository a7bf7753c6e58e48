"""One session after another on a loaded model: prefill, decode, timings."""

import dataclasses
import math
import time
from collections.abc import Callable, Generator, Iterator

import jax
import jax.numpy as jnp
import numpy as np

from host_tier.errors import EngineError, InputError
from kernels_pallas import dispatch
from kernels_pallas.gated_delta_net import PREFILL_BLOCK
from moejax.engine.sampling import Sampler, SamplingParams, make_sampler
from moejax.engine.state import SessionState, rollback
from moejax.engine.steps import Steps
from moejax.model import ModelWeights
from moejax.plan import Plan


@dataclasses.dataclass(frozen=True, kw_only=True)
class SampledToken:
    """One generated token.

    Attributes:
      id: token id.
      logprob: natural log of the probability that the model gives it.
    """

    id: int
    logprob: float


@dataclasses.dataclass(kw_only=True)
class Timings:
    """Wall-clock times of a request.

    Attributes:
      prompt_n: prompt tokens.
      prompt_ms: time until the first token was known, milliseconds.
      predicted_n: generated tokens.
      predicted_ms: time of all tokens after the first, milliseconds.
    """

    prompt_n: int = 0
    prompt_ms: float = 0.0
    predicted_n: int = 0
    predicted_ms: float = 0.0


def _unpack(packed: jax.Array, slot: int) -> SampledToken:
    row = np.asarray(packed)[slot]
    logprob = float(row[1:2].view(np.float32)[0])
    if math.isnan(logprob):
        raise EngineError("the model's output is not a number: its weights, or the arithmetic, are broken")
    return SampledToken(id=int(row[0]), logprob=logprob)


class Engine:
    """Runs requests of token ids on one model.

    Attributes:
      plan: what runs.
      steps: the compiled programs, with their trace counters.
      state: all session state, on the device.
    """

    def __init__(self, plan: Plan, weights: ModelWeights):
        """Allocates the session state; programs compile at their first use."""
        self.plan = plan
        self.steps = Steps(model=plan.model, chunk=plan.chunk, penalty_window=plan.config.penalty_window)
        self._weights = weights
        self._request = 0  # counts requests, so that an older one notices that its session is gone
        self.state = SessionState(
            tokens=jnp.zeros((plan.slots, plan.context), jnp.int32),
            length=jnp.zeros((plan.slots,), jnp.int32),
            pending=jnp.zeros((plan.slots,), jnp.int32),
            caches=plan.model.init_caches(
                slots=plan.slots,
                context=plan.context,
                padding=plan.padding,
                type_k=plan.type_k,
                type_v=plan.type_v,
            ),
        )

    def check_request(self, prompt: list[int], num_tokens: int, params: SamplingParams | None = None) -> None:
        """InputError if the prompt is empty or too long for the context, or any token id is unknown."""
        vocab = self.plan.description.config.vocab_size
        if not prompt:
            raise InputError("the prompt is empty: at least one token is needed")
        if num_tokens < 0:
            raise InputError(f"the number of tokens to generate is {num_tokens}; it must be 0 or more")
        for token in prompt:
            if not 0 <= token < vocab:
                raise InputError(f"prompt token id {token} is outside the vocabulary 0..{vocab - 1}")
        for token, _ in params.logit_bias if params else ():
            if not 0 <= token < vocab:
                raise InputError(f"logit_bias: token id {token} is outside the vocabulary 0..{vocab - 1}")
        if len(prompt) + min(num_tokens, 1) > self.plan.context:
            need = len(prompt) + 1
            raise InputError(
                f"the prompt has {len(prompt)} tokens, the context {self.plan.context}; use --ctx_size={need} or more"
            )

    def prefill(
        self, prompt: list[int], slot: int = 0, progress: Callable[[int], None] | None = None
    ) -> Iterator[tuple[jax.Array, int]]:
        """Appends a prompt to a slot, chunk by chunk.

        Args:
          prompt: token ids.
          slot: where.
          progress: called with the tokens of each chunk once it is done; waiting for it costs little
            next to a chunk.

        Yields:
          Hidden values float32 `[bucket, hidden]` of each chunk, and how many of its rows count.
        """
        size = self.plan.ubatch_size
        for start in range(0, len(prompt), size):
            part = prompt[start : start + size]
            tokens = np.zeros((self.steps.bucket(len(part)),), np.int32)
            tokens[: len(part)] = part
            self.state, hidden = self.steps.prefill(
                weights=self._weights,
                state=self.state,
                tokens=tokens,
                slot=np.int32(slot),
                num_tokens=np.int32(len(part)),
            )
            if progress is not None:
                hidden.block_until_ready()
                progress(len(part))
            yield hidden, len(part)

    def prompt_logits(self, prompt: list[int], progress: Callable[[int], None] | None = None) -> np.ndarray:
        """Logits of every prompt position, float32 `[tokens, vocab]`, in a session of its own."""
        self.check_request(prompt, 0)
        self.reset()
        blocks = []
        for hidden, count in self.prefill(prompt, progress=progress):
            for start in range(0, count, PREFILL_BLOCK):
                logits = self.steps.block_logits(self._weights, hidden[start : start + PREFILL_BLOCK])
                blocks.append(np.asarray(logits)[: count - start])
        return np.concatenate(blocks)

    def reset(self, slot: int = 0) -> None:
        """Begins a new session in a slot."""
        self.state = rollback(self.state, slot, 0)

    def generate(
        self,
        prompt: list[int],
        params: SamplingParams,
        *,
        num_tokens: int,
        timings: Timings | None = None,
        progress: Callable[[int], None] | None = None,
    ) -> Generator[SampledToken]:
        """Generates up to `num_tokens` tokens after a prompt, in a new session.

        The caller stops by closing the iterator. While the caller looks at a token the device already works on
        the next; a step too many is taken back, since going back is an index.

        Args:
          prompt: token ids.
          params: how to sample.
          num_tokens: most tokens; the context's end stops earlier.
          timings: filled in as the request goes on.
          progress: see `prefill`.

        Yields:
          Tokens as they become known.
        """
        self.check_request(prompt, num_tokens, params)
        timings = timings if timings is not None else Timings()
        timings.prompt_n = len(prompt)
        if num_tokens == 0:
            return
        sampler = make_sampler([params], self.plan.description.config.vocab_size)
        self._request += 1
        request = self._request
        self.reset()
        begin = time.perf_counter()
        hidden, count = None, 0
        for hidden, count in self.prefill(prompt, progress=progress):  # noqa: B007
            pass
        assert hidden is not None
        self.state, packed = self.steps.first_token(
            weights=self._weights,
            state=self.state,
            hidden=hidden,
            index=np.int32(count - 1),
            slot=np.int32(0),
            sampler=sampler,
        )
        limit = min(num_tokens, self.plan.context - len(prompt))
        try:
            for step in range(limit):
                if request != self._request:
                    raise EngineError("another request has taken this session over")
                following = self._decode(sampler) if step + 1 < limit else None
                token = _unpack(packed, 0)
                if self.plan.config.strict and dispatch.fallbacks():
                    first = dispatch.fallbacks()[0]
                    raise EngineError(
                        f"--strict: {first.operation} fell back to the reference: {first.reason}"
                    )
                now = time.perf_counter()
                if step == 0:
                    timings.prompt_ms = (now - begin) * 1e3
                    begin = now
                timings.predicted_n = step + 1
                timings.predicted_ms = (now - begin) * 1e3
                yield token
                if following is not None:
                    packed = following
        finally:
            if request == self._request:
                self._keep(len(prompt), timings.predicted_n)

    def _keep(self, prompt_n: int, predicted_n: int) -> None:
        """Ends a request: what a step too many added is forgotten."""
        # The state covers the prompt and every token that was given out but the last, which is pending.
        self.state = rollback(self.state, 0, prompt_n + max(predicted_n - 1, 0))

    def _decode(self, sampler: Sampler) -> jax.Array:
        active = np.ones((self.plan.slots,), np.bool_)
        self.state, packed = self.steps.decode(
            weights=self._weights, state=self.state, active=active, sampler=sampler
        )
        return packed
