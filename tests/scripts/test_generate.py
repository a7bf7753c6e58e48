"""The generate program from outside: its output, its errors, its exit codes."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest

ROOT = __import__("pathlib").Path(__file__).parent.parent.parent


@pytest.fixture(scope="session")
def cache_dir(tmp_path_factory) -> str:
    return str(tmp_path_factory.mktemp("compiled"))


@pytest.fixture(scope="session")
def run_program(cache_dir):
    def run(program: str, *flags: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        environment = os.environ | {"JAX_PLATFORMS": "cpu", "MOEJAX_CACHE": cache_dir}
        done = subprocess.run(
            [sys.executable, str(ROOT / "scripts" / f"{program}.py"), *flags],
            capture_output=True,
            text=True,
            timeout=300,
            env=environment,
            cwd=cache_dir,
        )
        if check:
            assert done.returncode == 0, done.stderr
        return done

    return run


@pytest.fixture(scope="session")
def model(fixture_dir) -> str:
    return str(fixture_dir / "gguf" / "qwen3moe-BF16.gguf")


def _error(done: subprocess.CompletedProcess[str], *words: str) -> None:
    """One clear line, exit code 2, no traceback, nothing on standard output."""
    assert done.returncode == 2, (done.returncode, done.stderr)
    assert "Traceback" not in done.stderr
    errors = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1, done.stderr
    for word in words:
        assert word in errors[0], errors[0]
    assert done.stdout == ""


def test_json_has_the_documented_fields_and_the_references_tokens(run_program, model, fixture_dir, tmp_path):
    reference = np.load(fixture_dir / "ref_hf" / "qwen3moe.npz")
    prompt = reference["ids_33"].tolist()
    logits_file = tmp_path / "logits.npz"
    done = run_program(
        "generate",
        f"--model={model}",
        f"--prompt_tokens={','.join(map(str, prompt))}",
        "--num_tokens=32",
        "--temperature=0",
        "--ignore_eos",
        "--output=json",
        f"--dump_logits={logits_file}",
    )
    result = json.loads(done.stdout.splitlines()[-1])
    assert result["prompt_tokens"] == prompt
    assert result["tokens"] == reference["greedy_33"].tolist()
    assert len(result["logprobs"]) == 32
    assert result["stop"] == "length"
    assert set(result["timings"]) == {
        "prompt_n", "prompt_ms", "predicted_n", "predicted_ms", "draft_n", "draft_n_accepted",
    }  # fmt: skip
    assert set(result["experts"]) == {"reaches", "hits", "cold", "pool_hits", "pool_faults", "bytes_read"}
    plan = result["plan"]
    assert plan["model"]["architecture"] == "qwen3moe"
    assert plan["routing_policy"] == "topk"
    assert plan["versions"]["jax"]
    logits = np.load(logits_file)["logits"]
    assert logits.dtype == np.float32
    assert np.abs(logits - reference["logits_33"]).max() <= 5e-4


def test_eos_stops_and_is_the_last_token(run_program, model, fixture_dir):
    reference = np.load(fixture_dir / "ref_hf" / "qwen3moe.npz")
    greedy = reference["greedy_33"].tolist()
    prompt = ",".join(map(str, reference["ids_33"]))
    done = run_program(
        "generate",
        f"--model={model}",
        f"--prompt_tokens={prompt}",
        "--num_tokens=32",
        "--temperature=0",
        "--output=json",
    )
    result = json.loads(done.stdout.splitlines()[-1])
    assert result["stop"] == "eos"
    assert result["tokens"] == greedy[: greedy.index(511) + 1]


def test_text_output_is_the_text_and_says_what_ran(run_program, model):
    done = run_program("generate", f"--model={model}", "--prompt=abc", "--num_tokens=5", "--seed=1")
    assert "routing topk" in done.stderr
    assert "tokens/s" in done.stderr
    assert done.stdout.strip()


def test_seeded_sampling_repeats_over_processes(run_program, model):
    flags = (
        f"--model={model}",
        "--prompt_tokens=1,2,3",
        "--num_tokens=12",
        "--temperature=1",
        "--output=json",
    )
    first, again, other = (
        json.loads(run_program("generate", *flags, f"--seed={seed}").stdout.splitlines()[-1])["tokens"]
        for seed in (7, 7, 8)
    )
    assert first == again
    assert first != other


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--prompt=a"], ["--model"]),
        (["--model={model}"], ["--prompt"]),
        (["--model={model}", "--prompt=a", "--prompt_tokens=1"], ["one of"]),
        (["--model={model}", "--prompt_tokens=1,x"], ["integers"]),
        (["--model={model}", "--prompt_tokens=600"], ["vocabulary"]),
        (["--model={model}", "--prompt="], ["empty"]),
        (["--model={model}", "--prompt_tokens=1", "--ctx_size=-5"], ["--ctx_size"]),
        (["--model={model}", "--prompt_tokens=1", "--ubatch_size=0"], ["--ubatch_size"]),
        (["--model={model}", "--prompt_tokens=1,2,3,4", "--ctx_size=4"], ["context", "--ctx_size=5"]),
        (["--model={model}", "--prompt_tokens=1", "--num_tokens=-1"], ["number of tokens"]),
        (["--model={model}", "--prompt_tokens=1", "--routing_policy=best"], ["routing policy", "topk"]),
        (["--model={model}", "--prompt_tokens=1", "--cache_type_k=q3"], ["cache_type_k", "q8_0"]),
        (["--model={model}", "--prompt_tokens=1", "--temperature=-1"], ["temperature"]),
        (["--model={model}", "--prompt_tokens=1", "--temperature=hot"], ["temperature"]),
        (["--model={model}", "--prompt_tokens=1", "--logit_bias=x"], ["logit_bias"]),
        (["--model={model}", "--prompt_tokens=1", "--logit_bias=600+1"], ["600"]),
        (["--model={model}", "--prompt_tokens=1", "--no_such_flag=1"], ["no_such_flag"]),
        (["--model={model}", "--prompt_tokens=1", "--stop="], ["stop"]),
        (["--model={model}", "--prompt_tokens=1", "--unpack_mib=-1"], ["--unpack_mib"]),
        (["--model={model}", "--prompt=a", "--chat", "--chat_template_kwargs=["], ["JSON"]),
        (["--model={model}", "--prompt=a", "--chat", "--chat_template_kwargs={{\"messages\": 1}}"], ["messages"]),
        (["--model={model}", "--prompt_tokens=1", "--dump_logits=/nowhere/x.npz"], ["/nowhere/x.npz"]),
        (["--model=/nowhere.gguf", "--prompt=a"], ["/nowhere.gguf"]),
        (["--model={model}", "--prompt=a", "stray"], ["stray"]),
    ],
)  # fmt: skip
def test_bad_input_is_one_line_and_exit_code_2(run_program, model, flags, words):
    done = run_program("generate", *(flag.format(model=model) for flag in flags), check=False)
    _error(done, *words)


def test_help_names_the_flags_and_succeeds(run_program):
    done = run_program("generate", "--help")
    assert "--prompt_tokens" in done.stdout
    assert "--cache_type_k" in done.stdout
