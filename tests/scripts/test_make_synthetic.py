"""The make_synthetic program from outside."""

import os
import pathlib
import subprocess
import sys

import pytest

SCRIPT = pathlib.Path(__file__).parent.parent.parent / "scripts" / "make_synthetic.py"


def _run(*flags: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"JAX_PLATFORMS": "cpu"}
    command = [sys.executable, str(SCRIPT), *flags]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment)


def test_it_writes_a_model_and_says_so(tmp_path):
    path = tmp_path / "model.gguf"
    done = _run(
        "--shape=qwen3.6-35b-a3b", "--layers=2", "--scale=32", "--quant=Q4_0", "--mtp", f"--output={path}"
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1
    assert done.stderr.startswith(f"wrote {path}: ")
    assert path.stat().st_size > 2**20


@pytest.mark.parametrize(
    ("flags", "word"),
    [
        ([], "--output"),
        (["--output=/nowhere/x.gguf"], "/nowhere/x.gguf"),
        (["--output=x.gguf", "--shape=gpt-5"], "qwen3-30b-a3b"),
        (["--output=x.gguf", "--mtp"], "--mtp"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(flags, word):
    done = _run(*flags)
    assert done.returncode == 2
    errors = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1, done.stderr
    assert word in errors[0]
    assert "Traceback" not in done.stderr
