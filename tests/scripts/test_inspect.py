import json
import os
import subprocess
import sys

import pytest


@pytest.fixture
def inspect(repo_root):
    def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "scripts/inspect.py", *arguments],
            cwd=repo_root,
            env=os.environ | environment,
            capture_output=True,
            text=True,
            timeout=60,
        )

    return run


def test_text(inspect, fixture_dir):
    done = inspect(f"--model={fixture_dir}/gguf/qwen3moe-BF16.gguf", "--tensors")
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    for shown in (
        "qwen3moe.expert_count",
        "512 items",
        "blk.3.ffn_up_exps.weight",
        "[16, 64, 128]",
        "49,152",
    ):
        assert shown in done.stdout
    assert done.stdout.splitlines()[-1].startswith("'qwen3moe': 4 layers, 51 tensors, ")


def test_json_is_the_last_line(inspect, fixture_dir):
    shard = "qwen3moe-k-Q4_K_M-00002-of-00003.gguf"
    done = inspect(f"--model={fixture_dir}/gguf/split/{shard}", "--output=json")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout.splitlines()[-1])
    assert document["architecture"] == document["metadata"]["general.architecture"] == "qwen3moe"
    assert len(document["files"]) == len(document["file_bytes"]) == 3
    assert document["num_layers"] == 2
    assert document["by_type"]["Q6_K"]["count"] == 2
    assert set(document["by_kind"]) == {"expert", "dense", "embedding"}
    assert document["expert_layers"][1]["bundle_bytes"] == 127_488
    assert document["metadata"]["tokenizer.ggml.tokens"]["count"] == 512
    assert "tensors" not in document


def test_json_with_tensors(inspect, fixture_dir):
    done = inspect(f"--model={fixture_dir}/gguf/qwen3-BF16.gguf", "--output=json", "--tensors")
    tensors = json.loads(done.stdout.splitlines()[-1])["tensors"]
    assert len(tensors) == 35
    assert tensors[0] == {
        "name": tensors[0]["name"],
        "shape": tensors[0]["shape"],
        "quant_type": "BF16",
        "num_bytes": 512 * 128 * 2,
        "shard": 0,
        "offset": tensors[0]["offset"],
    }


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ([], "--model"),
        (["--model=/does/not/exist.gguf"], "/does/not/exist.gguf: no such file"),
        (["--model=scripts"], "scripts: is a folder"),
        (["--model=pyproject.toml"], "pyproject.toml: is not a GGUF file"),
        (["--model=x", "--output=xml"], "output"),
        (["model.gguf"], "model.gguf"),
    ],
)
def test_bad_use_is_one_line_and_code_2(inspect, arguments, problem):
    done = inspect(*arguments)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("error: ")
    assert problem in done.stderr.splitlines()[0]
    assert "Traceback" not in done.stderr


def test_truncated_model(inspect, fixture_dir, tmp_path):
    path = tmp_path / "cut.gguf"
    path.write_bytes((fixture_dir / "gguf" / "qwen3-BF16.gguf").read_bytes()[:1_000_000])
    done = inspect(f"--model={path}")
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"error: {path}: truncated: the file has 1,000,000 bytes but needs 1,3")


def test_help(inspect):
    done = inspect("--help")
    assert done.returncode == 0
    assert "--tensors" in done.stdout
