"""What to measure: prompts, generation, or both, at a depth of the session; llama-bench's way to write lists."""

import dataclasses
import re
from collections.abc import Sequence

from host_tier.errors import InputError

_RANGE = re.compile(r"(\d{1,9})(?:-(\d{1,9})(?:([+*])(\d{1,9}))?)?")
_MAX_CASES = 10000


@dataclasses.dataclass(frozen=True, kw_only=True)
class BenchCase:
    """One measurement; its rate counts the tokens of both parts.

    Attributes:
      n_prompt: tokens of a prompt.
      n_gen: tokens generated after it, one at a time.
      n_depth: tokens already in the session, not measured.
    """

    n_prompt: int
    n_gen: int
    n_depth: int = 0

    @property
    def num_positions(self) -> int:
        """Positions of a session that it needs."""
        return self.n_depth + self.n_prompt + self.n_gen

    @property
    def label(self) -> str:
        """llama-bench's name of the test, as in "pp512+tg128 @ d4096"."""
        parts = [f"pp{self.n_prompt}"] * (self.n_prompt > 0) + [f"tg{self.n_gen}"] * (self.n_gen > 0)
        return "+".join(parts) + (f" @ d{self.n_depth}" if self.n_depth else "")


def parse_counts(flag: str, text: str) -> list[int]:
    """Numbers and ranges with commas between them: `512`, `1,8`, `1-4`, `128-512+128`, `1-64*2`.

    Args:
      flag: name for the error.
      text: the flag's value.

    Raises:
      InputError: the text is not of that form.
    """
    counts: list[int] = []
    for part in text.split(","):
        match = _RANGE.fullmatch(part.strip())
        if match is None:
            raise InputError(
                f"--{flag}={text!r}: {part!r} is not a number, first-last, first-last+step or *factor"
            )
        first, last = int(match[1]), int(match[2] or match[1])
        multiplies, step = match[3] == "*", int(match[4] or 1)
        grows = step > 1 and first > 0 if multiplies else step > 0
        if last < first or not grows:
            raise InputError(f"--{flag}={text!r}: {part!r} never gets from its first number to its last")
        while first <= last:
            counts.append(first)
            if len(counts) > _MAX_CASES:
                raise InputError(f"--{flag}={text!r} stands for more than {_MAX_CASES} numbers")
            first = first * step if multiplies else first + step
    return counts


def parse_pair(text: str) -> tuple[int, int]:
    """A value of `--pg`: prompt tokens and generated tokens."""
    match = re.fullmatch(r"(\d{1,9}),(\d{1,9})", text.strip())
    if match is None:
        raise InputError(f"--pg={text!r} is not of the form prompt,generated, for example 512,128")
    return int(match[1]), int(match[2])


def make_cases(
    prompts: Sequence[int], gens: Sequence[int], pairs: Sequence[tuple[int, int]], depths: Sequence[int]
) -> list[BenchCase]:
    """All cases, in llama-bench's order: by depth, prompts before generation before both.

    Zeros stand for no such case.

    Raises:
      InputError: nothing is left to measure.
    """
    cases = []
    for depth in depths:
        sizes = [(n, 0) for n in prompts] + [(0, n) for n in gens] + list(pairs)
        cases += [BenchCase(n_prompt=pp, n_gen=tg, n_depth=depth) for pp, tg in sizes if pp + tg > 0]
    if not cases:
        raise InputError("nothing to measure: --n_prompt, --n_gen and --pg are all 0")
    return cases
