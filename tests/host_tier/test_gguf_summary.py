import json

import numpy as np
import pytest
from raw_gguf import F32, FLOAT32, Q4_K, Q8_0, array, gguf_bytes, strings, u32

from host_tier.errors import InputError
from host_tier.gguf_index import open_gguf
from host_tier.gguf_summary import TensorKind, shortened, summarize, summary_document, tensor_kind


def summary_of(path):
    with open_gguf(path) as index:
        return summarize(index)


def test_moe_fixture(fixture_dir):
    summary = summary_of(fixture_dir / "gguf" / "qwen3moe-BF16.gguf")
    assert summary.architecture == "qwen3moe"
    assert summary.version == 3
    assert summary.num_layers == 4
    assert summary.num_tensors == 51
    assert [layer.layer for layer in summary.expert_layers] == [0, 1, 2, 3]
    for layer in summary.expert_layers:
        assert layer.num_experts == 16
        assert layer.bundle_bytes == 3 * 128 * 64 * 2
        assert layer.types == {"gate": "BF16", "up": "BF16", "down": "BF16"}
    assert summary.by_kind["expert"].num_bytes == 4 * 16 * 3 * 128 * 64 * 2
    assert summary.by_kind["embedding"].num_bytes == 2 * 512 * 128 * 2
    for usages in (summary.by_kind, summary.by_type):
        assert sum(use.num_bytes for use in usages.values()) == summary.total_bytes
        assert sum(use.count for use in usages.values()) == summary.num_tensors


def test_dense_fixture_has_no_experts(fixture_dir):
    summary = summary_of(fixture_dir / "gguf" / "qwen3-BF16.gguf")
    assert summary.expert_layers == ()
    assert summary.by_kind["expert"].count == 0
    assert summary.num_layers == 3


def test_mtp_block_counts_as_a_layer(fixture_dir):
    summary = summary_of(fixture_dir / "gguf" / "qwen35moe-BF16.gguf")
    assert summary.num_layers == len(summary.expert_layers) == 7


def test_split_fixture(fixture_dir):
    summary = summary_of(fixture_dir / "gguf" / "split" / "qwen3moe-k-Q4_K_M-00003-of-00003.gguf")
    assert len(summary.files) == len(summary.file_bytes) == 3
    # Types differ by layer (Q6_K rows are longer), and so do the bundles.
    assert [layer.bundle_bytes for layer in summary.expert_layers] == [110_592, 127_488]
    assert summary.expert_layers[1].types == {"gate": "Q4_K", "up": "Q4_K", "down": "Q6_K"}


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("blk.0.ffn_gate_exps.weight", TensorKind.EXPERT),
        ("blk.12.ffn_gate_up_exps.weight", TensorKind.EXPERT),
        ("blk.12.ffn_down_exps.bias", TensorKind.EXPERT),
        ("blk.0.ffn_gate_shexp.weight", TensorKind.DENSE),
        ("blk.0.ffn_gate_inp.weight", TensorKind.DENSE),
        ("blk.0.ffn_gate.weight", TensorKind.DENSE),
        ("output_norm.weight", TensorKind.DENSE),
        ("token_embd.weight", TensorKind.EMBEDDING),
        ("output.weight", TensorKind.EMBEDDING),
        ("per_layer_token_embd.weight", TensorKind.EMBEDDING),
    ],
)
def test_kinds(name, kind):
    assert tensor_kind(name) is kind


def test_fused_gate_and_up(tmp_path):
    path = tmp_path / "model.gguf"
    tensors = [
        ("blk.5.ffn_gate_up_exps.weight", [256, 8, 4], Q4_K, 0),
        ("blk.5.ffn_down_exps.weight", [32, 16, 4], Q8_0, 4608),
    ]
    path.write_bytes(gguf_bytes([], tensors, bytes(4608 + 2176)))
    (layer,) = summary_of(path).expert_layers
    assert (layer.layer, layer.num_experts, layer.bundle_bytes) == (5, 4, 8 * 144 + 16 * 34)
    assert layer.types == {"gate_up": "Q4_K", "down": "Q8_0"}


@pytest.mark.parametrize("dims", [[8, 4, 3], [8, 4], [8, 1, 1, 4]])
def test_expert_tensors_that_do_not_fit(tmp_path, dims):
    path = tmp_path / "model.gguf"
    tensors = [
        ("blk.0.ffn_up_exps.weight", [8, 1, 4], F32, 0),
        ("blk.0.ffn_down_exps.weight", dims, F32, 128),
    ]
    path.write_bytes(gguf_bytes([], tensors, bytes(512)))
    with pytest.raises(InputError, match=r"'blk\.0\.ffn_down_exps\.weight' has shape"):
        summary_of(path)


def test_odd_names_and_metadata_do_no_harm(tmp_path):
    path = tmp_path / "model.gguf"
    names = ["", "blk.", "blk.9999999999999.x", "blk.٣.x", "blk.-1.x"]
    tensors = [(name, [8], F32, 32 * position) for position, name in enumerate(names)]
    path.write_bytes(gguf_bytes([("general.architecture", u32(7))], tensors, bytes(32 * len(names))))
    summary = summary_of(path)
    assert summary.architecture == "7"
    assert summary.num_layers == 0


def test_shortened():
    assert shortened([1, 2, 3], max_items=3) == [1, 2, 3]
    assert shortened([1, 2, 3], max_items=2) == {"count": 3, "first": [1, 2]}
    assert shortened([[1, 2, 3]], max_items=2) == [{"count": 3, "first": [1, 2]}]
    assert shortened(np.arange(3, dtype=np.uint64), max_items=1) == {"count": 3, "first": [0]}
    assert shortened(float("nan")) == "nan"
    assert shortened([float("inf"), np.float32(0.5)]) == ["inf", 0.5]
    assert shortened("text") == "text"


def test_document_is_json_whatever_the_file_says(tmp_path):
    path = tmp_path / "model.gguf"
    keys = [
        ("nan", (FLOAT32, np.float32("nan").tobytes())),
        ("infinite", array(FLOAT32, 5000, np.full(5000, np.inf, np.float32).tobytes())),
        ("general.tags", strings(["a", "b"])),
    ]
    path.write_bytes(gguf_bytes(keys, [("t", [8], F32, 0)], bytes(32)))
    with open_gguf(path) as index:
        text = json.dumps(summary_document(index, summarize(index), with_tensors=True), allow_nan=False)
    document = json.loads(text)
    assert document["metadata"]["infinite"]["count"] == 5000
    assert document["metadata"]["general.tags"] == ["a", "b"]
    assert document["tensors"] == [
        {
            "name": "t",
            "shape": [8],
            "quant_type": "F32",
            "num_bytes": 32,
            "shard": 0,
            "offset": document["tensors"][0]["offset"],
        }
    ]
