"""llama.cpp reads the same files, computes the same, and chooses the same types. MOEJAX_LLAMA_BIN names its folder."""

import contextlib
import json
import os
import pathlib
import socket
import subprocess
import time
import urllib.error
import urllib.request

import numpy as np
import pytest

from host_tier.gguf_index import open_gguf
from moejax.loading.open_model import open_model
from moejax.progress import Progress
from moejax.run_config import RunConfig
from moejax.synthetic import MIXES, SHAPES, resize, write_model

FOLDER = os.environ.get("MOEJAX_LLAMA_BIN")
pytestmark = [
    pytest.mark.peer,
    pytest.mark.skipif(FOLDER is None, reason="MOEJAX_LLAMA_BIN names no folder of llama.cpp binaries"),
]
PROMPT = [17, 260, 3, 450, 99, 301, 12, 700, 288, 5, 64, 129]
# With F32 weights nothing is rounded. Else llama.cpp on a CPU rounds activations to BF16 or 8 bits, and random weights
# have near ties in routing that rounding decides: logits of spread 1 then differ by as much as an expert weighs.
TOLERANCE = {"F32": 2e-3, "BF16": 0.3, "Q8_0": 0.5, "Q4_K_M": 0.5}


def _binary(name: str) -> str:
    return str(pathlib.Path(FOLDER or "") / name)


@contextlib.contextmanager
def _server(model: pathlib.Path):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    flags = [
        "-c",
        "512",
        "-fa",
        "off",
        "-ctk",
        "f32",
        "-ctv",
        "f32",
        "-t",
        "2",
        "--host",
        "127.0.0.1",
        "--port",
        str(port),
    ]
    log = model.with_suffix(".log").open("w")
    process = subprocess.Popen([_binary("llama-server"), "-m", str(model), *flags], stdout=log, stderr=log)
    try:
        for _ in range(300):
            with contextlib.suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{port}/health"):
                break
            assert process.poll() is None, pathlib.Path(log.name).read_text()[-2000:]
            time.sleep(0.1)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(30)
        log.close()


def _post(url: str, body: dict) -> dict:
    data = json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=60) as reply:
            return json.load(reply)
    except urllib.error.HTTPError as error:
        raise AssertionError(error.read()) from error


@pytest.mark.parametrize("quant", list(TOLERANCE))
@pytest.mark.parametrize("shape", ["qwen3-30b-a3b", "qwen3.6-35b-a3b"])
def test_llama_server_gives_our_logits(tmp_path, shape, quant):
    config = resize(SHAPES[shape], layers=4, scale=16, mtp=shape.startswith("qwen3.6"))
    path = tmp_path / "model.gguf"
    write_model(path, config, MIXES[quant])
    tokens, tops = [], []
    with _server(path) as url:
        for _ in range(6):  # one by one: a reply has no probabilities for tokens that end inside a character
            body = {
                "prompt": PROMPT + tokens,
                "n_predict": 1,
                "temperature": 0,
                "n_probs": 5,
                "ignore_eos": True,
            }
            reply = _post(f"{url}/completion", body | {"return_tokens": True})
            tokens += reply["tokens"]
            found = reply.get("completion_probabilities", [])
            tops.append({top["id"]: top["logprob"] for entry in found for top in entry["top_logprobs"]})
    assert len(tokens) == 6
    assert any(tops)
    engine = open_model(RunConfig(model=str(path), ctx_size=256), Progress(enabled=False)).engine
    logits = engine.prompt_logits(PROMPT + tokens)[len(PROMPT) - 1 : -1].astype(np.float64)
    ours = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    worst = 0.0
    for row, token, top in zip(ours, tokens, tops, strict=True):
        worst = max(worst, row.max() - row[token], *(abs(row[i] - logprob) for i, logprob in top.items()))
    same = [int(row.argmax()) for row in ours] == tokens
    print(f"{shape} {quant}: worst difference of a log-probability {worst:.4f}, greedy tokens equal: {same}")
    assert worst <= TOLERANCE[quant]


def test_llama_bench_runs(tmp_path):
    path = tmp_path / "model.gguf"
    write_model(path, resize(SHAPES["qwen3-30b-a3b"], layers=2, scale=16), MIXES["IQ4_NL"])
    command = [_binary("llama-bench"), "-m", str(path), "-p", "16", "-n", "4", "-r", "1", "-o", "json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert [row["model_type"] for row in json.loads(done.stdout)] == ["qwen3moe ?B IQ4_NL - 4.5 bpw"] * 2


@pytest.mark.parametrize(
    "quant",
    ["Q8_0", "Q4_K_M", "Q4_K_S", "Q5_K_M", "Q6_K", "Q4_0", "IQ4_NL", "IQ4_XS", "IQ3_S", "Q3_K_M", "Q3_K_L", "Q2_K",
     "MXFP4_MOE"],
)  # fmt: skip
@pytest.mark.parametrize("shape", ["qwen3-30b-a3b", "qwen3.6-35b-a3b", "qwen3-0.6b"])
def test_types_are_those_of_llama_quantize(tmp_path, shape, quant):
    mtp = shape.startswith("qwen3.6")
    # The scale that does not give eight experts, for which llama.cpp has rules of its own.
    config = resize(SHAPES[shape], layers=17, scale=64 if mtp else 32, vocab=512, mtp=mtp)
    source, peers, ours = (tmp_path / name for name in ("bf16.gguf", "peers.gguf", "ours.gguf"))
    write_model(source, config, MIXES["BF16"])
    write_model(ours, config, MIXES[quant])
    command = [_binary("llama-quantize"), str(source), str(peers), quant, "2"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-2000:]
    with open_gguf(str(peers)) as theirs, open_gguf(str(ours)) as mine:
        want = {name: info.quant_type.name for name, info in theirs.tensors.items()}
        have = {name: info.quant_type.name for name, info in mine.tensors.items()}
        assert have == want
        assert mine.metadata["general.file_type"] == theirs.metadata["general.file_type"]
