"""The extras for GPUs resolve: pip finds every package that they name."""

import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parent.parent


@pytest.mark.slow
@pytest.mark.parametrize("extra", ["rocm", "cuda"])
def test_gpu_extras_resolve(extra, tmp_path):
    command = [sys.executable, "-m", "pip", "install", "--dry-run", "--ignore-installed", "--quiet"]
    command += ["--report", str(tmp_path / "report.json"), f"{ROOT}[{extra}]"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr
    report = (tmp_path / "report.json").read_text()
    plugin = {"rocm": '"jax-rocm7-plugin"', "cuda": '"jax-cuda13-plugin"'}[extra]
    assert plugin in report
