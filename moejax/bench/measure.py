"""Repeats a case and takes the time."""

import dataclasses
import statistics
import time
from collections.abc import Callable

from moejax.bench.cases import BenchCase
from moejax.bench.session import BenchSession


@dataclasses.dataclass(frozen=True, kw_only=True)
class Samples:
    """Times of the repetitions of a case.

    Attributes:
      case: what was measured.
      ns: time of each repetition, nanoseconds.
    """

    case: BenchCase
    ns: tuple[int, ...]

    @property
    def tokens_per_second(self) -> tuple[float, ...]:
        """Rate of each repetition."""
        num_tokens = self.case.n_prompt + self.case.n_gen
        return tuple(num_tokens * 1e9 / ns for ns in self.ns)

    @property
    def mean_ns(self) -> int:
        """Mean time."""
        return round(statistics.fmean(self.ns))

    @property
    def stddev_ns(self) -> int:
        """Sample standard deviation of the time, 0 for one repetition."""
        return round(_stddev(self.ns))

    @property
    def mean_rate(self) -> float:
        """Mean of the rates (not the rate of the mean time), tokens/s."""
        return statistics.fmean(self.tokens_per_second)

    @property
    def stddev_rate(self) -> float:
        """Sample standard deviation of the rates."""
        return _stddev(self.tokens_per_second)


def _stddev(values: tuple[float, ...] | tuple[int, ...]) -> float:
    return statistics.stdev(values) if len(values) > 1 else 0.0


def _warm_up(session: BenchSession, case: BenchCase) -> None:
    """The whole prompt and one step, as llama-bench, but where they are measured: compiles, and touches memory."""
    session.go_to(case.n_depth)
    if case.n_prompt:
        session.prompt(case.n_prompt)
    if case.n_gen:
        session.steps(session.prepare_steps(1))


def measure(
    session: BenchSession,
    case: BenchCase,
    *,
    repetitions: int,
    warmup: bool = True,
    advance: Callable[[int], None] = lambda count: None,
    clock: Callable[[], int] = time.perf_counter_ns,
) -> Samples:
    """Measures a case.

    Args:
      session: where the tokens go.
      case: how many of them.
      repetitions: how often.
      warmup: whether one run that does not count comes first.
      advance: called with 1 after the warm-up and after every repetition.
      clock: nanoseconds.
    """
    if warmup:
        _warm_up(session, case)
        advance(1)
    times = []
    for _ in range(repetitions):
        session.go_to(case.n_depth)
        tokens = session.prepare_steps(case.n_gen)
        begin = clock()
        if case.n_prompt:
            session.prompt(case.n_prompt)
        if case.n_gen:
            session.steps(tokens)
        times.append(clock() - begin)
        advance(1)
    return Samples(case=case, ns=tuple(times))
