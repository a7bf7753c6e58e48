"""A request of text: token ids to streamed text, stop strings, the reason it ended."""

import dataclasses
from collections.abc import Callable

from host_tier.errors import InputError
from moejax.engine.engine import Engine, Timings
from moejax.engine.sampling import SamplingParams
from moejax.tokenizer import Tokenizer


class StopMatcher:
    """Finds stop strings in streamed text, holding back what may be the start of one."""

    def __init__(self, stops: tuple[str, ...]):
        """`stops`: strings that end the text; they are not part of it."""
        if any(not stop for stop in stops):
            raise InputError("a stop string must not be empty")
        self._stops = stops
        self._held = ""

    def push(self, text: str) -> tuple[str, bool]:
        """Adds text; returns what can be shown, and whether a stop string was found."""
        self._held += text
        found = [at for at in (self._held.find(stop) for stop in self._stops) if at >= 0]
        if found:
            shown, self._held = self._held[: min(found)], ""
            return shown, True
        keep = 0
        for stop in self._stops:
            for size in range(min(len(stop) - 1, len(self._held)), keep, -1):
                if self._held.endswith(stop[:size]):
                    keep = size
                    break
        shown, self._held = self._held[: len(self._held) - keep], self._held[len(self._held) - keep :]
        return shown, False

    def flush(self) -> str:
        """What was held back, at the end of the text."""
        held, self._held = self._held, ""
        return held


@dataclasses.dataclass(kw_only=True)
class TextResult:
    """What a request gave.

    Attributes:
      prompt_tokens: ids of the prompt.
      tokens: generated ids, with the one that ended generation.
      text: generated text, without control tokens and stop string; empty if there is no vocabulary.
      logprobs: natural log of the model's probability of each generated token.
      stop: "eos" (end of generation), "word" (a stop string), "length" (number of tokens or context).
      timings: wall-clock times.
    """

    prompt_tokens: list[int]
    tokens: list[int] = dataclasses.field(default_factory=list)
    text: str = ""
    logprobs: list[float] = dataclasses.field(default_factory=list)
    stop: str = "length"
    timings: Timings = dataclasses.field(default_factory=Timings)


def generate_text(
    engine: Engine,
    tokenizer: Tokenizer | None,
    prompt: list[int],
    params: SamplingParams,
    *,
    num_tokens: int,
    stops: tuple[str, ...] = (),
    ignore_eos: bool = False,
    on_text: Callable[[str], None] = lambda text: None,
    on_prompt: Callable[[int], None] | None = None,
) -> TextResult:
    """Generates until end of generation, a stop string, or `num_tokens`.

    Args:
      engine: runs the tokens.
      tokenizer: None for token ids only.
      prompt: token ids.
      params: how to sample.
      num_tokens: most tokens.
      stops: strings that end the text.
      ignore_eos: go on after an end-of-generation token.
      on_text: called with pieces of text as they become certain.
      on_prompt: called with the number of prompt tokens of each chunk that is done.
    """
    result = TextResult(prompt_tokens=prompt)
    if tokenizer is None and stops:
        raise InputError("stop strings need a vocabulary; the file has none")
    matcher = StopMatcher(stops)
    decoder = tokenizer.stream(skip_special=True) if tokenizer else None

    def show(text: str) -> bool:
        shown, found = matcher.push(text)
        result.text += shown
        if shown:
            on_text(shown)
        return found

    tokens = engine.generate(
        prompt, params, num_tokens=num_tokens, timings=result.timings, progress=on_prompt
    )
    try:
        for token in tokens:
            result.tokens.append(token.id)
            result.logprobs.append(token.logprob)
            if tokenizer and not ignore_eos and tokenizer.is_eog(token.id):
                result.stop = "eos"
                break
            if decoder and show(decoder.push(token.id)):
                result.stop = "word"
                break
    finally:
        tokens.close()
    if result.stop != "word":
        if decoder and show(decoder.flush()):
            result.stop = "word"
        else:
            rest = matcher.flush()
            result.text += rest
            if rest:
                on_text(rest)
    return result
