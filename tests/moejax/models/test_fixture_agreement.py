"""Logits and greedy tokens of every fixture against independent software (transformers, llama.cpp)."""

import pathlib

import numpy as np
import pytest

from moejax.engine.engine import Engine
from moejax.engine.sampling import SamplingParams
from moejax.loading.holding import Held
from moejax.loading.open_model import open_model
from moejax.progress import Progress
from moejax.run_config import RunConfig

LENGTHS = (7, 33, 60, 130)
BF16 = ("qwen3", "qwen35", "qwen3moe", "qwen35moe")
QUANTIZED = (
    "qwen35moe-nomtp-Q8_0",
    "qwen35moe-spec-Q8_0",
    "qwen35moe-k-Q4_K_M",
    *(
        f"qwen3moe-k-{kind}"
        for kind in (
            "IQ3_S", "IQ3_XXS", "IQ4_NL", "IQ4_XS", "MXFP4_MOE", "Q2_K", "Q3_K_M", "Q4_0", "Q4_K_M", "Q5_K_M", "Q6_K",
            "Q8_0",
        )
    ),
)  # fmt: skip
GREEDY = SamplingParams(temperature=0.0)


def _open(path: pathlib.Path, **options) -> Engine:
    return open_model(RunConfig(model=str(path), **options), Progress(enabled=False)).engine


def _file(fixture_dir: pathlib.Path, name: str) -> pathlib.Path:
    split = fixture_dir / "gguf" / "split" / f"{name}-00001-of-00003.gguf"
    path = split if split.exists() else fixture_dir / "gguf" / f"{name}.gguf"
    if not path.exists():
        pytest.skip(f"{name} is not in the packed subset; MOEJAX_FIXTURES has the whole set")
    return path


def _kld(reference: np.ndarray, logits: np.ndarray) -> float:
    """Mean KL divergence of our distribution from the reference's."""

    def log_softmax(x):
        x = x.astype(np.float64) - x.max(axis=-1, keepdims=True)
        return x - np.log(np.exp(x).sum(axis=-1, keepdims=True))

    p, q = log_softmax(reference), log_softmax(logits)
    return float((np.exp(p) * (p - q)).sum(axis=-1).mean())


def _compare(engine: Engine, reference, max_abs: float, margin_of, record_property, name: str) -> None:
    worst, klds, same, total = 0.0, [], 0, 0
    for length in LENGTHS:
        prompt = reference[f"ids_{length}"].tolist()
        logits = engine.prompt_logits(prompt)
        worst = max(worst, float(np.abs(logits - reference[f"logits_{length}"]).max()))
        klds.append(_kld(reference[f"logits_{length}"], logits))
        tokens = [token.id for token in engine.generate(prompt, GREEDY, num_tokens=32)]
        expected = reference[f"greedy_{length}"].tolist()
        for step, (token, want) in enumerate(zip(tokens, expected, strict=True)):
            total += 1
            if token != want:
                margin = margin_of(length, step)
                assert margin <= max_abs, (
                    f"{name}: length {length}, step {step}: {token} for {want}, margin {margin}"
                )
                break  # after a near-tie the texts go different ways
            same += 1
    print(f"agreement | {name} | {worst:.1e} | {np.mean(klds):.1e} | {same}/{4 * 32}")
    record_property("max_abs", worst)
    assert worst <= max_abs
    assert total >= 32


@pytest.mark.parametrize("name", BF16)
def test_bf16_models_agree_with_transformers(name, fixture_dir, record_property):
    engine = _open(_file(fixture_dir, f"{name}-BF16"), ctx_size=512)
    reference = np.load(fixture_dir / "ref_hf" / f"{name}.npz")

    def margin(length, step):
        # The references agree to 1e-4: a greedy step may differ only where their two best are that close.
        return reference[f"greedy_margin_{length}"][step]

    _compare(engine, reference, 5e-4, margin, record_property, name)


@pytest.mark.parametrize("name", QUANTIZED)
def test_quantized_models_agree_with_llama_cpp(name, fixture_dir, record_property):
    path = _file(fixture_dir, name)
    engine = _open(path, ctx_size=512)
    reference = np.load(fixture_dir / "ref_llama" / f"{name}.deqF32.npz")

    def margin(length, step):
        best = reference[f"greedy_top_logprobs_{length}"][step]
        return best[0] - best[1]

    _compare(engine, reference, 2e-3, margin, record_property, name)


@pytest.mark.parametrize("name", ["qwen3moe-k-Q3_K_M", "qwen3moe-k-Q4_0"])
def test_weights_dequantized_at_load_or_on_use_give_the_same_logits(name, fixture_dir):
    path = _file(fixture_dir, name)
    prompt = list(range(3, 70))
    at_load = _open(path, ctx_size=128)
    on_use = _open(path, ctx_size=128, unpack_mib=0)
    assert on_use.plan.holding.num_bytes[Held.PARTS] == 0 < at_load.plan.holding.num_bytes[Held.PARTS]
    np.testing.assert_allclose(at_load.prompt_logits(prompt), on_use.prompt_logits(prompt), atol=2e-4)
