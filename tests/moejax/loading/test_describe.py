"""Files that do not fit a model: one clear line each. Mutated headers: never anything but that."""

import pathlib
import time

import gguf
import numpy as np
import pytest

from host_tier.errors import InputError
from host_tier.gguf_index import open_gguf
from kernels_pallas import dispatch
from moejax.loading.describe import describe_model
from moejax.plan import make_plan
from moejax.run_config import RunConfig
from moejax.tokenizer import ChatTemplate, Tokenizer

DROP = object()


def _rewrite(
    source: pathlib.Path, target: pathlib.Path, *, keys=None, tensors=None, arch=None
) -> pathlib.Path:
    """Copies a GGUF, with metadata keys and tensors changed or dropped (`DROP`), or added."""
    reader = gguf.GGUFReader(source)
    keys, tensors = dict(keys or {}), dict(tensors or {})
    writer = gguf.GGUFWriter(target, arch or str(reader.fields["general.architecture"].contents()))
    for name, field in reader.fields.items():
        if name.startswith("GGUF.") or name == "general.architecture":
            continue
        value = keys.pop(name, field.contents())
        if value is not DROP:
            kind = field.types[0] if isinstance(value, type(field.contents())) else gguf.GGUFValueType.STRING
            sub = field.types[-1] if kind == gguf.GGUFValueType.ARRAY else None
            writer.add_key_value(name, value, kind, sub_type=sub)
    for name, value in keys.items():
        kind = gguf.GGUFValueType.get_type(value)
        writer.add_key_value(name, value, kind)
    for tensor in reader.tensors:
        value = tensors.pop(tensor.name, (tensor.data, tensor.tensor_type))
        if value is not DROP:
            writer.add_tensor(tensor.name, value[0], raw_dtype=value[1])
    for name, (data, kind) in tensors.items():
        writer.add_tensor(name, data, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return target


def _load(path: pathlib.Path) -> None:
    """Everything up to the point where weights are read."""
    with open_gguf(path) as index:
        description = describe_model(index)
        make_plan(RunConfig(model=str(path), ctx_size=256), index, description)
        if "tokenizer.ggml.model" in index.metadata:
            Tokenizer.from_metadata(index.metadata)
            ChatTemplate.from_metadata(index.metadata)


F32 = gguf.GGMLQuantizationType.F32
TERNARY = gguf.GGMLQuantizationType.TQ1_0
BAD = [
    ({"tensors": {"blk.1.attn_q.weight": DROP}}, ["blk.1.attn_q.weight", "missing"]),
    ({"tensors": {"blk.1.attn_q.bias": (np.zeros(8, np.float32), F32)}}, ["tensor count", "blk.1.attn_q.bias"]),
    ({"tensors": {"blk.1.attn_norm.weight": (np.zeros(64, np.float32), F32)}}, ["blk.1.attn_norm.weight", "[64]", "[128]"]),
    ({"tensors": {"token_embd.weight": DROP}}, ["token_embd.weight"]),
    ({"tensors": {"output_norm.weight": (np.zeros((1, 54), np.uint8), TERNARY)}}, ["output_norm.weight"]),
    ({"arch": "qwen9"}, ["qwen9", "qwen3moe"]),
    ({"keys": {"qwen3moe.block_count": 5}}, ["blk.4."]),
    ({"keys": {"qwen3moe.block_count": DROP}}, ["qwen3moe.block_count"]),
    ({"keys": {"qwen3moe.expert_used_count": 17}}, ["expert_used_count", "17"]),
    ({"keys": {"qwen3moe.attention.head_count_kv": 3}}, ["4 attention heads", "3"]),
    ({"keys": {"qwen3moe.attention.layer_norm_rms_epsilon": float("nan")}}, ["epsilon"]),
    ({"keys": {"qwen3moe.rope.scaling.type": "yarn"}}, ["yarn", "linear"]),
    ({"keys": {"qwen3moe.embedding_length": 64}}, ["shape"]),
]  # fmt: skip


@pytest.mark.parametrize(
    ("change", "words"), BAD, ids=lambda value: value[0] if isinstance(value, list) else ""
)
def test_what_does_not_fit_is_named(change, words, fixture_dir, tmp_path):
    path = _rewrite(fixture_dir / "gguf" / "qwen3moe-BF16.gguf", tmp_path / "bad.gguf", **change)
    with pytest.raises(InputError) as error:
        _load(path)
    assert "\n" not in str(error.value)
    for word in words:
        assert word in str(error.value)


def test_an_unsupported_type_is_named(fixture_dir, tmp_path):
    source = fixture_dir / "gguf" / "qwen3moe-k-Q4_0.gguf"
    data = np.zeros((256, 54), np.uint8)
    path = _rewrite(source, tmp_path / "bad.gguf", tensors={"blk.0.attn_output.weight": (data, TERNARY)})
    with pytest.raises(InputError, match=r"blk\.0\.attn_output\.weight.*TQ1_0.*MXFP4"):
        _load(path)


def test_a_vocabulary_of_another_size_is_a_mismatch(fixture_dir, tmp_path):
    source = fixture_dir / "gguf" / "qwen3moe-BF16.gguf"
    tokens = list(gguf.GGUFReader(source).fields["tokenizer.ggml.tokens"].contents())
    path = _rewrite(source, tmp_path / "bad.gguf", keys={"tokenizer.ggml.tokens": tokens[:-1]})
    with pytest.raises(InputError, match="vocabulary mismatch"):
        _load(path)


def test_an_unchanged_copy_loads(fixture_dir, tmp_path):
    for name in ("qwen3moe-BF16", "qwen35moe-BF16", "qwen35-BF16"):
        _load(_rewrite(fixture_dir / "gguf" / f"{name}.gguf", tmp_path / f"{name}.gguf"))


def test_a_rope_factor_without_a_type_is_linear_scaling(fixture_dir, tmp_path):
    source = fixture_dir / "gguf" / "qwen3moe-BF16.gguf"
    path = _rewrite(source, tmp_path / "scaled.gguf", keys={"qwen3moe.rope.scaling.factor": 4.0})
    with open_gguf(path) as index:
        assert describe_model(index).config.attention.rope.position_scale == 0.25


@pytest.mark.parametrize("name", ["qwen3moe-BF16", "qwen35moe-nomtp-Q8_0"])
def test_mutated_headers_are_refused_or_described(name, fixture_dir, tmp_path):
    """Header bytes changed at random: success or one line; never another exception, a hang, or a large allocation."""
    whole = (fixture_dir / "gguf" / f"{name}.gguf").read_bytes()
    reader = gguf.GGUFReader(fixture_dir / "gguf" / f"{name}.gguf")
    rng = np.random.default_rng(list(name.encode()))
    path = tmp_path / "mutated.gguf"
    outcomes = {"refused": 0, "described": 0}
    for _ in range(1100):
        data = bytearray(whole)
        for _ in range(rng.integers(1, 4)):
            at = int(rng.integers(0, reader.data_offset))
            kind = rng.integers(0, 3)
            if kind == 0:
                data[at] ^= 1 << int(rng.integers(0, 8))
            elif kind == 1:
                data[at] = int(rng.integers(0, 256))
            else:
                data[at : at + 4] = rng.integers(0, 256, 4, dtype=np.uint8).tobytes()
        path.write_bytes(data)
        begin = time.monotonic()
        message = ""
        try:
            _load(path)
        except InputError as error:
            message = str(error)
        assert "\n" not in message
        outcomes["refused" if message else "described"] += 1
        assert time.monotonic() - begin < 5.0
    assert min(outcomes.values()) > 20, outcomes


def test_types_without_a_kernel_are_recorded_for_the_plan(fixture_dir):
    path = fixture_dir / "gguf" / "qwen3moe-k-IQ3_XXS.gguf"
    dispatch.forget_fallbacks()
    with dispatch.override(pallas=True), open_gguf(path) as index:
        plan = make_plan(RunConfig(model=str(path), ctx_size=256), index, describe_model(index))
        fallbacks = plan.record()["kernel_fallbacks"]
        with pytest.raises(InputError, match=r"--strict: .*IQ"):
            make_plan(RunConfig(model=str(path), ctx_size=256, strict=True), index, describe_model(index))
    dispatch.forget_fallbacks()
    assert "expert_matmul: no kernel for IQ3_XXS rows of 256" in fallbacks
    assert not any("Q5_K" in text for text in fallbacks)
