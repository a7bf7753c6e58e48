"""A real model: the demo model's greedy tokens are llama.cpp's."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

from moejax.engine.sampling import SamplingParams
from moejax.loading.open_model import LoadedModel, open_model
from moejax.progress import Progress
from moejax.run_config import RunConfig
from moejax.text import generate_text

ROOT = pathlib.Path(__file__).parent.parent.parent
CASES = json.loads((ROOT / "tests/data/smollm2/llama_cpp_greedy.json").read_text())["cases"]
NEAR_TIE = 1e-3  # nats; the two programs' log-probabilities differ by less than 3e-4


@pytest.fixture(scope="module")
def loaded(tmp_path_factory) -> LoadedModel:
    path = ROOT / "models" / "SmolLM2-135M-Instruct.Q4_1.gguf"
    if not path.exists():
        path = tmp_path_factory.mktemp("model") / path.name
        script = str(ROOT / "scripts" / "get_demo_model.py")
        environment = os.environ | {"PIP_DISABLE_PIP_VERSION_CHECK": "1"}
        subprocess.run([sys.executable, script, f"--output={path}"], check=True, env=environment, timeout=600)
    return open_model(RunConfig(model=str(path), ctx_size=512), Progress(enabled=False))


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=lambda case: case["prompt"][:12])
def test_greedy_tokens_are_llama_cpps(loaded, case):
    prompt = loaded.require_tokenizer().encode(case["prompt"], add_special=True, parse_special=True)
    assert prompt == case["ids"]
    greedy = SamplingParams(temperature=0.0)
    tokens = list(loaded.engine.generate(prompt, greedy, num_tokens=len(case["tokens"])))
    for step, (token, want) in enumerate(zip(tokens, case["tokens"], strict=True)):
        if token.id != want:
            assert case["margins"][step] < NEAR_TIE, f"step {step}: {token.id} for {want}"
            break
        assert abs(token.logprob - case["logprobs"][step]) < 1e-3


@pytest.mark.slow
def test_chat_answers_sensibly_and_stops(loaded):
    assert loaded.chat_template is not None
    tokenizer = loaded.require_tokenizer()
    text = loaded.chat_template.render([{"role": "user", "content": "What is the capital of France?"}])
    prompt = tokenizer.encode(text, add_special=False, parse_special=True)
    pieces = []
    result = generate_text(
        loaded.engine,
        tokenizer,
        prompt,
        SamplingParams(temperature=0.0),
        num_tokens=100,
        on_text=pieces.append,
    )
    assert result.stop == "eos"
    assert "Paris" in result.text
    assert "".join(pieces) == result.text
    assert "<|im_end|>" not in result.text

    stop = generate_text(
        loaded.engine, tokenizer, prompt, SamplingParams(temperature=0.0), num_tokens=100, stops=("Paris",)
    )
    assert stop.stop == "word"
    assert stop.text == result.text[: result.text.index("Paris")]
