"""The generate program from outside: its output, its errors, its exit codes."""

import json
import os
import signal
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
    errors = done.stderr.splitlines()
    assert len(errors) == 1, done.stderr
    assert errors[0].startswith("error: ")
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


def test_text_output_is_the_text_alone_and_standard_error_says_what_ran(run_program, model):
    flags = (f"--model={model}", "--prompt=abc", "--num_tokens=5", "--seed=1")
    done = run_program("generate", *flags)
    assert "routing topk" in done.stderr
    assert "kernels reference" in done.stderr
    assert "tokens/s" in done.stderr
    assert "seed 1" in done.stderr
    result = json.loads(run_program("generate", *flags, "--output=json").stdout)
    assert result["text"]
    assert done.stdout == result["text"] + "\n"


def test_text_goes_to_standard_output_also_with_progress_bars(model, cache_dir, tmp_path):
    """A terminal on standard error shows bars; the text must still go where standard output goes."""
    out = tmp_path / "out.txt"
    prompt = ",".join(["5"] * 200)
    program = f"{sys.executable} {ROOT / 'scripts' / 'generate.py'} --model={model} --prompt_tokens={prompt}"
    command = f"{program} --ubatch_size=64 --num_tokens=4 --temperature=0 > {out}"
    environment = os.environ | {"JAX_PLATFORMS": "cpu", "MOEJAX_CACHE": cache_dir, "TERM": "xterm"}
    master, terminal = os.openpty()
    done = subprocess.run(command, shell=True, stderr=terminal, stdin=terminal, env=environment, timeout=300)
    os.close(terminal)
    os.close(master)
    assert done.returncode == 0
    assert out.read_text().strip()


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_a_narrow_encoding_is_no_failure(run_program, model, encoding, monkeypatch):
    monkeypatch.setenv("PYTHONIOENCODING", encoding)
    run_program(
        "generate", f"--model={model}", "--prompt=hé ✓", "--num_tokens=8", "--seed=3", "--temperature=2"
    )


def test_the_prompt_is_utf8_whatever_the_locale(run_program, model, monkeypatch):
    for name, value in {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}.items():
        monkeypatch.setenv(name, value)
    done = run_program("generate", f"--model={model}", "--prompt=hé", "--num_tokens=1", "--output=json")
    assert json.loads(done.stdout)["prompt_tokens"] == [71, 127, 102]


def test_an_interrupt_ends_with_130_and_one_line(model, cache_dir):
    environment = os.environ | {"JAX_PLATFORMS": "cpu", "MOEJAX_CACHE": cache_dir}
    command = [
        sys.executable,
        str(ROOT / "scripts" / "generate.py"),
        f"--model={model}",
        "--prompt_tokens=1,2",
    ]
    command += ["--num_tokens=4000", "--ignore_eos"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as run:
        assert run.stdout is not None
        run.stdout.read(1)  # it has begun to answer
        run.send_signal(signal.SIGINT)
        _, stderr = run.communicate(timeout=60)
    assert run.returncode == 130
    assert "interrupted" in stderr
    assert "Traceback" not in stderr


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
        (["--model={model}", "--prompt=a", "--n_cpu_moe=4"], ["--n_cpu_moe=4", "not there yet"]),
        (["--model={model}", "--prompt=a", "--spec_type=draft-mtp"], ["--spec_type", "'none'"]),
        (["--model={model}", "--prompt=a", "--batch_size=0"], ["--batch_size"]),
        (["--model={model}", "--prompt=a", "--system=b"], ["--system", "--chat"]),
        (["--model={model}", "--prompt=a", "--chat", "--chat_template_kwargs={{\"self\": 1}}"], ["self"]),
        (["--model={model}", "--prompt_tokens=1", "--logit_bias=5+1e39"], ["logit_bias"]),
        (["--model={model}", "--prompt_tokens=1", "--compilation_cache="], ["--compilation_cache"]),
        (["--model={model}", "--prompt_tokens=1", "--ctx_size=abc"], ["ctx_size", "--help"]),
        (["--model=.", "--prompt=a"], ["is a folder"]),
    ],
)  # fmt: skip
def test_bad_input_is_one_line_and_exit_code_2(run_program, model, flags, words):
    done = run_program("generate", *(flag.format(model=model) for flag in flags), check=False)
    _error(done, *words)


def test_flags_of_parts_to_come_accept_what_is_true_today(run_program, model):
    flags = [
        "--n_cpu_moe=0",
        "--expert_cache_mib=auto",
        "--cache_policy=none",
        "--split_mode=none",
        "--num_devices=1",
    ]
    flags += ["--parallel=1", "--spec_type=none", "--host_experts=auto", "--batch_size=64", "--strict"]
    done = run_program(
        "generate", f"--model={model}", "--prompt_tokens=1,2", "--num_tokens=2", "--output=json", *flags
    )
    assert json.loads(done.stdout)["plan"]["ubatch_size"] == 64


def test_help_names_the_flags_and_succeeds(run_program):
    done = run_program("generate", "--help")
    assert "--prompt_tokens" in done.stdout
    assert "--cache_type_k" in done.stdout
