"""The bench program from outside."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

SCRIPT = pathlib.Path(__file__).parent.parent.parent / "scripts" / "bench.py"


@pytest.fixture(scope="module")
def model(fixture_dir) -> str:
    return str(fixture_dir / "gguf" / "qwen3moe-BF16.gguf")


def _run(*flags: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"JAX_PLATFORMS": "cpu"}
    command = [sys.executable, str(SCRIPT), "--compilation_cache=none", *flags]
    return subprocess.run(command, capture_output=True, text=True, timeout=200, env=environment)


def test_results_on_standard_output_and_a_copy_on_standard_error(model):
    done = _run(
        f"--model={model}", "--n_prompt=16", "--n_gen=2", "--n_depth=8", "--repetitions=2", "--output=json",
        "--output_err=md",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)
    assert [(row["n_prompt"], row["n_gen"], row["n_depth"]) for row in rows] == [(16, 0, 8), (0, 2, 8)]
    assert rows[0]["ctx_size"] == 256  # what the largest case needs, rounded up
    assert "pp16 @ d8" in done.stderr
    assert "routing topk" in done.stderr


@pytest.mark.parametrize(
    ("flags", "word"),
    [
        (["--model=/nowhere.gguf"], "/nowhere.gguf"),
        (["--model={model}", "--n_prompt=a"], "--n_prompt"),
        (["--model={model}", "--n_prompt=0", "--n_gen=0"], "nothing to measure"),
        (["--model={model}", "--repetitions=0"], "--repetitions"),
        (["--model={model}", "--ctx_size=256"], "512"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(model, flags, word):
    done = _run(*(flag.format(model=model) for flag in flags))
    assert done.returncode == 2, done.stderr
    errors = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1, done.stderr
    assert word in errors[0]
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
