"""Repetitions, times and rates, with a session that only writes down what it is asked."""

import statistics

import pytest

from moejax.bench.cases import BenchCase
from moejax.bench.measure import Samples, measure


class FakeSession:
    def __init__(self):
        self.log = []

    def go_to(self, depth):
        self.log.append(("go", depth))

    def prompt(self, num_tokens):
        self.log.append(("prompt", num_tokens))

    def prepare_steps(self, num_tokens):
        return [None] * num_tokens

    def steps(self, tokens):
        self.log.append(("steps", len(tokens)))


def _clock(times):
    return iter(times).__next__


def test_one_warm_up_and_all_repetitions_at_the_depth():
    session, done = FakeSession(), []
    case = BenchCase(n_prompt=8, n_gen=3, n_depth=5)
    samples = measure(session, case, repetitions=2, advance=done.append, clock=_clock([0, 100, 1000, 1300]))
    run = [("go", 5), ("prompt", 8), ("steps", 3)]
    assert session.log == [("go", 5), ("prompt", 8), ("steps", 1), *run, *run]
    assert done == [1, 1, 1]
    assert samples.ns == (100, 300)


def test_a_case_without_generation_takes_no_step():
    session = FakeSession()
    measure(session, BenchCase(n_prompt=8, n_gen=0), repetitions=1, warmup=False, clock=_clock([0, 1]))
    assert session.log == [("go", 0), ("prompt", 8)]


def test_rates_are_llama_benchs():
    samples = Samples(case=BenchCase(n_prompt=512, n_gen=128), ns=(10**9, 2 * 10**9, 4 * 10**9))
    rates = (640.0, 320.0, 160.0)
    assert samples.tokens_per_second == rates
    assert samples.mean_rate == pytest.approx(sum(rates) / 3)
    assert samples.stddev_rate == pytest.approx(statistics.stdev(rates))
    assert samples.mean_ns == 2333333333
    assert samples.stddev_ns == pytest.approx(statistics.stdev(samples.ns), abs=1)


def test_one_repetition_has_no_deviation():
    samples = Samples(case=BenchCase(n_prompt=1, n_gen=0), ns=(5,))
    assert samples.stddev_rate == samples.stddev_ns == 0
