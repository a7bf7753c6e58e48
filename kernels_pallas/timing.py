"""Timing of kernels on a device: calls chained inside one program, and rows that carry their limit."""

import argparse
import collections.abc
import dataclasses
import json
import time
import typing

import jax

# One H200, as measured with plain copies and plain matrix products.
HBM_BYTES_PER_SECOND = 4.3e12
BF16_FLOP_PER_SECOND = 696e12

Carry = typing.TypeVar("Carry")


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """One measurement.

    Attributes:
      name: what ran.
      microseconds: of one call, None where it failed.
      rate: GB/s or TFLOP/s.
      unit: of the rate.
      fraction: of the device's limit.
      error: largest difference from float64.
      note: why it failed, or what to know.
    """

    name: str
    microseconds: float | None = None
    rate: float | None = None
    unit: str = ""
    fraction: float | None = None
    error: float | None = None
    note: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Work:
    """What a call has to do at least; the larger of the two times is the limit.

    Attributes:
      num_bytes: to and from device memory.
      flop: multiplications and additions.
    """

    num_bytes: float
    flop: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class Case:
    """One benchmark, built when it runs.

    Attributes:
      name: of the row.
      build: returns the step, its first carry and its constants; see `seconds_per_call`.
      work: of a call.
      error: largest difference from float64 of one call, run before the timing; gets carry and constants.
      calls: how many are chained.
    """

    name: str
    build: collections.abc.Callable[[], tuple[collections.abc.Callable, typing.Any, typing.Any]]
    work: Work
    error: collections.abc.Callable[[typing.Any, typing.Any], float]
    calls: int = 32


def seconds_per_call(
    step: collections.abc.Callable[[Carry, typing.Any, jax.Array], Carry],
    carry: Carry,
    constants: typing.Any,
    calls: int,
    repeats: int = 5,
) -> float:
    """Best time of a call among `repeats` runs of one program with `calls` calls, each waiting for the last.

    Args:
      step: takes the carry (donated), the constants and the number of the call (int32 scalar).
      carry: arrays.
      constants: arrays.
      calls: length of the chain.
      repeats: runs after the first.

    Returns:
      Seconds.
    """
    inner = jax.jit(step)  # lowered once, called many times

    def chain(carry: Carry, constants: typing.Any) -> Carry:
        for i in range(calls):
            carry = inner(carry, constants, jax.numpy.int32(i))
        return carry

    run = jax.jit(chain, donate_argnums=0)
    carry = jax.block_until_ready(run(carry, constants))
    best = float("inf")
    for _ in range(repeats):
        start = time.perf_counter()
        carry = jax.block_until_ready(run(carry, constants))
        best = min(best, time.perf_counter() - start)
    return best / calls


def measure(case: Case) -> Row:
    """Runs a case; a failure (too much shared memory, ...) becomes a row with a note."""
    try:
        step, carry, constants = case.build()
        error = case.error(carry, constants)
        seconds = seconds_per_call(step, carry, constants, case.calls)
    except Exception as problem:
        return Row(name=case.name, note=f"{type(problem).__name__}: {str(problem)[:200]}".replace("\n", " "))
    by_memory = case.work.num_bytes / HBM_BYTES_PER_SECOND
    by_compute = case.work.flop / BF16_FLOP_PER_SECOND
    memory_bound = by_memory > by_compute
    return Row(
        name=case.name,
        microseconds=seconds * 1e6,
        rate=(case.work.num_bytes / 1e9 if memory_bound else case.work.flop / 1e12) / seconds,
        unit="GB/s" if memory_bound else "TFLOP/s",
        fraction=max(by_memory, by_compute) / seconds,
        error=error,
    )


def format_row(row: Row) -> str:
    """One line of a table."""
    if row.microseconds is None:
        return f"{row.name:60s} failed: {row.note}"
    return (
        f"{row.name:60s} {row.microseconds:9.2f} us {row.rate:8.1f} {row.unit:8s} "
        f"{100 * (row.fraction or 0):5.1f} % of the limit   error {row.error:.1e}"
    )


def main(cases: collections.abc.Callable[[bool], list[Case]]) -> None:
    """Command line of a bench module: prints rows as they come, and all of them as JSON in the last line.

    Args:
      cases: returns the cases; its argument says whether to try other sizes of the kernels too.
    """
    parser = argparse.ArgumentParser()
    parser.add_argument("--sweep", action="store_true", help="other tile sizes too")
    parser.add_argument("--only", default="", help="comma-separated words that a case's name must contain")
    options = parser.parse_args()
    rows = []
    for case in cases(options.sweep):
        if all(word in case.name for word in options.only.split(",")):
            rows.append(measure(case))
            print(format_row(rows[-1]), flush=True)
    print(json.dumps([dataclasses.asdict(row) for row in rows]))
