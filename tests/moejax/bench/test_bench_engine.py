"""A real engine measured, and its rows in every format."""

import csv
import io
import json
import sqlite3

import numpy as np
import pytest

from moejax.bench import (
    FORMATS,
    BenchCase,
    BenchSession,
    make_record,
    measure,
    memory_limit,
    read_host_facts,
    read_model_facts,
)
from moejax.bench.limit import token_bytes
from moejax.bench.model_facts import file_type_name
from moejax.bench.record import COLUMNS
from moejax.loading.open_model import open_model
from moejax.progress import Progress
from moejax.run_config import RunConfig

# As llama-bench prints them (`-o csv`).
HEADER = (
    "build_commit,build_number,cpu_info,gpu_info,backends,model_filename,model_type,model_size,model_n_params,n_batch,"
    "n_ubatch,n_threads,cpu_mask,cpu_strict,poll,type_k,type_v,n_gpu_layers,n_cpu_moe,split_mode,main_gpu,"
    "no_kv_offload,flash_attn,devices,tensor_split,tensor_buft_overrides,load_mode,embeddings,no_op_offload,no_host,"
    "fit_target,fit_min_ctx,n_prompt,n_gen,n_depth,test_time,avg_ns,stddev_ns,avg_ts,stddev_ts"
)
LLAMA_BENCH = next(csv.reader([HEADER]))
CASES = (
    BenchCase(n_prompt=70, n_gen=0),
    BenchCase(n_prompt=0, n_gen=3, n_depth=20),
    BenchCase(n_prompt=5, n_gen=2, n_depth=20),
)


@pytest.fixture(scope="module")
def loaded(fixture_dir):
    path = str(fixture_dir / "gguf" / "qwen3moe-BF16.gguf")
    return open_model(RunConfig(model=path, ctx_size=128, ubatch_size=64), Progress(enabled=False))


@pytest.fixture(scope="module")
def rows(loaded):
    session = BenchSession(loaded.engine, seed=1)
    model, host = read_model_facts(loaded.plan.config.model), read_host_facts()
    limit = memory_limit(loaded.plan.description)
    samples = [measure(session, case, repetitions=2) for case in CASES]
    return [make_record(s, loaded.plan, model, host, limit) for s in samples]


def _text(name: str, rows) -> str:
    printer = FORMATS[name]()
    return printer.header(rows[0]) + "".join(map(printer.row, rows)) + printer.footer(rows[-1])


def test_rows_have_llama_benchs_columns_first_and_say_what_ran(rows):
    assert list(COLUMNS)[: len(LLAMA_BENCH)] == LLAMA_BENCH
    assert list(rows[0]) == [*COLUMNS, "samples_ns", "samples_ts"]
    row = rows[1]
    assert (row["n_prompt"], row["n_gen"], row["n_depth"]) == (0, 3, 20)
    assert row["avg_ts"] > 0
    assert len(row["samples_ns"]) == len(row["samples_ts"]) == 2
    assert row["samples_ts"][0] == pytest.approx(3e9 / row["samples_ns"][0], rel=1e-3)
    assert row["routing_policy"] == row["plan"]["routing_policy"] == "topk"
    assert row["trace"] == "random tokens"
    assert row["model_type"].startswith("qwen3moe ")
    assert row["model_type"].endswith(" BF16")
    assert row["limit_ts"] > 0
    assert rows[0]["limit_ts"] is None


def test_each_program_is_compiled_once(loaded, rows):
    """Changing lengths and depths must not compile: the time would be the compiler's."""
    del rows
    steps = loaded.engine.steps
    assert [steps.prefill.traces, steps.first_token.traces, steps.decode.traces] == [1, 1, 1]


def test_the_session_holds_the_tokens_it_was_fed(loaded):
    session = BenchSession(loaded.engine, seed=5)
    session.go_to(7)
    session.prompt(4)
    tokens = session.prepare_steps(3)
    fed = [int(token[0]) for token in tokens]
    session.steps(tokens)
    assert session.length == int(loaded.engine.state.length[0]) == 14
    held = np.asarray(loaded.engine.state.tokens[0])
    assert held[11:14].tolist() == fed
    session.go_to(7)
    assert session.length == int(loaded.engine.state.length[0]) == 7
    assert np.asarray(loaded.engine.state.tokens[0])[:7].tolist() == held[:7].tolist()


def test_a_seed_repeats_the_tokens(loaded):
    def tokens(seed):
        session = BenchSession(loaded.engine, seed=seed)
        session.go_to(0)
        session.prompt(16)
        return np.asarray(loaded.engine.state.tokens[0])[:16].tolist()

    assert tokens(3) == tokens(3) != tokens(4)


def test_json_and_lines_are_the_rows(rows):
    assert json.loads(_text("json", rows)) == rows
    assert [json.loads(line) for line in _text("jsonl", rows).splitlines()] == rows


def test_csv_has_every_column(rows):
    found = list(csv.DictReader(io.StringIO(_text("csv", rows))))
    assert list(found[0]) == list(COLUMNS)
    assert [int(row["n_gen"]) for row in found] == [0, 3, 2]
    assert found[0]["embeddings"] == "0"
    assert found[0]["limit_ts"] == ""
    assert json.loads(found[0]["plan"]) == rows[0]["plan"]


def test_sql_makes_a_table(rows):
    rows = [row | {"model_filename": "it's.gguf"} for row in rows]
    database = sqlite3.connect(":memory:")
    database.executescript(_text("sql", rows))
    query = (
        "SELECT n_prompt, n_gen, n_depth, limit_ts IS NULL, typeof(avg_ts), model_filename FROM llama_bench"
    )
    found = database.execute(query).fetchall()
    database.close()
    name = "it's.gguf"
    assert found == [(70, 0, 0, 1, "real", name), (0, 3, 20, 0, "real", name), (5, 2, 20, 1, "real", name)]


def test_the_table_for_people(rows):
    lines = _text("md", rows).splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[:5]]
    assert cells[0][:5] == ["model", "size", "params", "backend", "threads"]
    assert cells[0][5:] == ["n_ubatch", "test", "t/s", "memory allows"]
    assert [row[6] for row in cells[2:]] == ["pp70", "tg3 @ d20", "pp5+tg2 @ d20"]
    assert cells[2][7] == f"{rows[0]['avg_ts']:.2f} ± {rows[0]['stddev_ts']:.2f}"
    assert len({len(line) for line in lines[:5]}) == 1
    assert lines[-1].startswith("build: ")


def test_token_bytes_count_the_experts_in_use(loaded):
    description = loaded.plan.description
    experts = sum(t.num_bytes for layer in description.layers for name, t in layer.items() if "exps" in name)
    table = description.globals["token_embd.weight"].num_bytes
    row = table // description.config.vocab_size
    rest = description.trunk_bytes - experts - table
    assert token_bytes(description) == rest + row + experts * 4 // 16


@pytest.mark.parametrize(
    ("value", "name"),
    [
        (15, "Q4_K - Medium"),
        (7, "Q8_0"),
        (32, "BF16"),
        (25, "IQ4_NL"),
        (38, "MXFP4 MoE"),
        (18, "Q6_K"),
        (0, "all F32"),
    ],
)
def test_names_of_file_types(value, name):
    assert file_type_name(value) == name


def test_a_file_without_a_type():
    assert file_type_name(None) == "unknown"
