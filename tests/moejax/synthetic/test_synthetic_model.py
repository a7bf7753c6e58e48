"""Files of random weights: their metadata is the model's, their types the mix's, and they run."""

import dataclasses
import hashlib
import logging
import pathlib

import numpy as np
import pytest

from host_tier.errors import InputError
from host_tier.gguf_index import open_gguf
from moejax.config import Mixer
from moejax.loading.describe import describe_model
from moejax.loading.open_model import open_model
from moejax.progress import Progress
from moejax.run_config import RunConfig
from moejax.synthetic import MIXES, SHAPES, resize, write_model
from moejax.synthetic.mixes import _more_bits
from moejax.synthetic.writer import list_tensors


def _tiny(shape: str, layers: int = 2, *, mtp: bool = False):
    return resize(SHAPES[shape], layers=layers, scale=32, vocab=512, mtp=mtp)


def _params(shape: str) -> int:
    tensors = list_tensors(SHAPES[shape], MIXES["BF16"])
    return sum(int(np.prod(tensor.spec.shape)) for tensor in tensors)


def test_presets_have_the_number_of_weights_in_their_names():
    assert _params("qwen3-30b-a3b") == 30_532_122_624  # as llama.cpp counts the real file
    assert _params("qwen3-235b-a22b") == pytest.approx(235e9, rel=0.01)
    assert _params("qwen3.6-35b-a3b") == pytest.approx(35e9, rel=0.02)
    assert _params("qwen3-0.6b") == pytest.approx(0.6e9, rel=0.01)
    assert _params("qwen3-8b") == pytest.approx(8.2e9, rel=0.01)


def test_q4_k_m_has_the_size_of_the_real_file():
    tensors = list_tensors(SHAPES["qwen3-30b-a3b"], MIXES["Q4_K_M"])
    assert sum(tensor.num_bytes for tensor in tensors) / 2**30 == pytest.approx(17.28, abs=0.01)


def test_more_bits_go_to_both_ends_and_every_third_layer():
    assert [i for i in range(16) if _more_bits(i, 16)] == [0, 1, 4, 7, 10, 13, 14, 15]


@pytest.mark.parametrize("shape", sorted(SHAPES))
def test_the_metadata_reads_back_as_the_model(tmp_path, shape):
    mtp = SHAPES[shape].delta_net is not None
    config = _tiny(shape, layers=5, mtp=mtp)
    path = tmp_path / "model.gguf"
    written = write_model(path, config, MIXES["Q8_0"])
    with open_gguf(str(path)) as index:
        description = describe_model(index)
        assert description.config.norm_eps == pytest.approx(config.norm_eps)  # float32 in the file
        assert dataclasses.replace(description.config, norm_eps=config.norm_eps) == config
        assert bool(description.mtp) == mtp
        assert index.metadata["general.file_type"] == 7
        assert path.stat().st_size == written.num_bytes
    assert sorted(p.name for p in tmp_path.iterdir()) == ["model.gguf"]


def test_hybrid_layers_keep_their_pattern():
    mixers = [kind.mixer for kind in _tiny("qwen3.6-35b-a3b", layers=9).layers]
    assert [i for i, mixer in enumerate(mixers) if mixer is Mixer.GATED_ATTENTION] == [3, 7]


@pytest.mark.parametrize("quant", list(MIXES))
@pytest.mark.parametrize("row", [288, 272])
def test_rows_that_blocks_do_not_fit_fall_back(quant, row):
    config = dataclasses.replace(_tiny("qwen3-30b-a3b", 1), hidden_size=row)
    tensors = list_tensors(config, MIXES[quant])
    types = {t.quant_type.name for t in tensors if "exps" in t.name and t.spec.shape[-1] == row}
    base = MIXES[quant].base.name
    if base in ("F32", "BF16"):
        assert types == {base}
    elif row == 272:
        assert types == {"F16"}
    else:
        assert types <= {"F16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "IQ4_NL", "MXFP4"}


def test_equal_seeds_give_equal_files_and_no_two_experts_are_equal(tmp_path):
    def write(name: str, seed: int) -> pathlib.Path:
        return write_model(tmp_path / name, _tiny("qwen3-30b-a3b"), MIXES["Q4_0"], seed=seed).path

    digests = [hashlib.sha256(write(*case).read_bytes()).digest() for case in (("a", 1), ("b", 1), ("c", 2))]
    assert digests[0] == digests[1] != digests[2]
    with open_gguf(str(tmp_path / "a")) as index:
        names = [name for name in index.tensors if "exps" in name]
        experts = [index.tensor_data(name)[expert].tobytes() for name in names for expert in range(4)]
    assert len(set(experts)) == len(experts) == 24


@pytest.mark.parametrize(("shape", "layers"), [("qwen3-30b-a3b", 2), ("qwen3.6-35b-a3b", 4)])
def test_a_model_reads_text_and_its_logits_have_spread_1(tmp_path, shape, layers):
    path = write_model(tmp_path / "model.gguf", _tiny(shape, layers), MIXES["Q4_K_M"]).path
    loaded = open_model(RunConfig(model=str(path), ctx_size=64), Progress(enabled=False))
    tokenizer = loaded.require_tokenizer()
    prompt = tokenizer.encode("Hello, the wörld\n and 世界", add_special=True, parse_special=True)
    assert tokenizer.decode(prompt) == "Hello, the wörld\n and 世界"
    assert max(prompt) < 256 + 35  # bytes and merges
    logits = loaded.engine.prompt_logits(prompt)
    assert np.isfinite(logits).all()
    assert 0.7 < logits.std() < 1.4
    assert loaded.chat_template is not None
    chat = loaded.chat_template.render([{"role": "user", "content": "x"}], add_generation_prompt=True)
    assert chat == "<|im_start|>user\nx<|im_end|>\n<|im_start|>assistant\n"


@pytest.mark.parametrize(
    ("shape", "options", "words"),
    [
        ("qwen3-8b", {"scale": 0}, "--scale"),
        ("qwen3-8b", {"layers": 0}, "--layers"),
        ("qwen3-8b", {"vocab": 10}, "--vocab is 10; it must be between 512"),
        ("qwen3-8b", {"mtp": True}, "--mtp"),
    ],
)
def test_sizes_that_cannot_be_are_named(shape, options, words):
    with pytest.raises(InputError, match=words):
        resize(SHAPES[shape], **options)


def test_a_folder_that_is_not_there_and_a_disk_that_is_too_small(tmp_path):
    with pytest.raises(InputError, match="cannot write"):
        write_model(tmp_path / "none" / "model.gguf", _tiny("qwen3-0.6b"), MIXES["Q8_0"])
    huge = resize(SHAPES["qwen3-235b-a22b"], layers=4096)
    with pytest.raises(InputError, match="fewer --layers"):
        write_model(tmp_path / "model.gguf", huge, MIXES["F32"])
    assert list(tmp_path.iterdir()) == []


def test_writing_says_nothing(tmp_path, caplog):
    with caplog.at_level(logging.INFO):
        write_model(tmp_path / "model.gguf", _tiny("qwen3-0.6b"), MIXES["Q8_0"])
    assert caplog.text == ""
