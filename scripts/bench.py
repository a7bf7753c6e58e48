"""Measures tokens per second of prompts (pp) and of generation (tg), as llama-bench does and in its formats.

moejax-bench --model=FILE.gguf
moejax-bench --model=FILE.gguf --n_prompt=512,4096 --n_gen=64 --n_depth=0,16384 --output=jsonl
moejax-bench --model=FILE.gguf --n_prompt=128-512+128 --n_gen=0 --pg=512,128 --repetitions=3

Tokens are random ids, as llama-bench's are: experts are then used more evenly than by text.
"""

import os
import sys

if __name__ == "__main__":  # this folder has names that would hide the standard library's
    sys.path[0] = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

import dataclasses
from typing import TextIO

from absl import flags

from host_tier.errors import InputError
from moejax import flags as shared_flags
from moejax.bench import (
    FORMATS,
    BenchCase,
    BenchSession,
    make_cases,
    make_record,
    measure,
    memory_limit,
    read_host_facts,
    read_model_facts,
)
from moejax.bench.cases import parse_counts, parse_pair
from moejax.compilation_cache import enable_compilation_cache
from moejax.loading.open_model import open_model
from moejax.program import run
from moejax.progress import Progress
from moejax.run_config import RunConfig
from moejax.run_report import describe_run

shared_flags.define_run_flags()
_N_PROMPT = flags.DEFINE_string(
    "n_prompt", "512", "prompt tokens: a,b or first-last+step or *factor; 0: none"
)
_N_GEN = flags.DEFINE_string("n_gen", "128", "generated tokens, likewise")
_PG = flags.DEFINE_multi_string("pg", [], "prompt,generated: both in one measurement; may be repeated")
_N_DEPTH = flags.DEFINE_string("n_depth", "0", "tokens in the session before, likewise")
_REPETITIONS = flags.DEFINE_integer("repetitions", 5, "measurements of each case")
_WARMUP = flags.DEFINE_bool("warmup", True, "run each case once before, which does not count")
_SEED = flags.DEFINE_integer("seed", 0, "decides the random tokens", lower_bound=0)
_OUTPUT = flags.DEFINE_enum("output", "md", list(FORMATS), "format of the results")
_OUTPUT_ERR = flags.DEFINE_enum("output_err", "none", ["none", *FORMATS], "the same on standard error")


def _positions(cases: list[BenchCase]) -> int:
    return max(case.num_positions for case in cases)


def _sized_for(config: RunConfig, cases: list[BenchCase]) -> RunConfig:
    """The context that the largest case needs, unless one was asked for."""
    need = _positions(cases)
    if not flags.FLAGS["ctx_size"].present:
        return dataclasses.replace(config, ctx_size=-(-need // 256) * 256)
    if 0 < config.ctx_size < need:
        raise InputError(f"--ctx_size is {config.ctx_size}; the largest case needs {need} or more")
    return config


def main(argv: list[str]) -> None:
    """Measures the cases one after another and prints each result as it is known."""
    del argv
    config = shared_flags.run_config()
    cases = make_cases(
        parse_counts("n_prompt", _N_PROMPT.value),
        parse_counts("n_gen", _N_GEN.value),
        [parse_pair(text) for text in _PG.value],
        parse_counts("n_depth", _N_DEPTH.value),
    )
    if _REPETITIONS.value < 1:
        raise InputError(f"--repetitions is {_REPETITIONS.value}; it must be 1 or more")
    config = _sized_for(config, cases)
    enable_compilation_cache(flags.FLAGS.compilation_cache)
    progress = Progress()
    model, host = read_model_facts(config.model), read_host_facts()
    loaded = open_model(config, progress)
    if (need := _positions(cases)) > loaded.plan.context:
        raise InputError(f"the context is {loaded.plan.context}; the largest case needs --ctx_size={need}")
    print(describe_run(loaded.plan), file=sys.stderr)
    outputs: list[tuple[str, TextIO]] = [(_OUTPUT.value, sys.stdout)]
    if _OUTPUT_ERR.value != "none":
        outputs.append((_OUTPUT_ERR.value, sys.stderr))
    printers = [(FORMATS[name](), stream) for name, stream in outputs]
    limit = memory_limit(loaded.plan.description)
    session = BenchSession(loaded.engine, _SEED.value)
    row = None
    for number, case in enumerate(cases):
        steps = _REPETITIONS.value + int(_WARMUP.value)
        with progress.bar(f"{number + 1}/{len(cases)} {case.label}", steps, "runs") as advance:
            samples = measure(
                session, case, repetitions=_REPETITIONS.value, warmup=_WARMUP.value, advance=advance
            )
        before, row = row, make_record(samples, loaded.plan, model, host, limit)
        for printer, stream in printers:
            text = printer.row(row) if before is not None else printer.header(row) + printer.row(row)
            print(text, end="", file=stream, flush=True)
    assert row is not None
    for printer, stream in printers:
        print(printer.footer(row), end="", file=stream)


def cli() -> None:
    """Console command."""
    run(main)


if __name__ == "__main__":
    cli()
