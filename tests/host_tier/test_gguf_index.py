import dataclasses
import os
import pathlib
import time
import tracemalloc

import numpy as np
import psutil
import pytest
from raw_gguf import F32, INT32, array, gguf_bytes, string, strings

from host_tier.errors import InputError
from host_tier.gguf_index import open_gguf

MIB = 1 << 20


def mapped_bytes(path: pathlib.Path) -> tuple[int, int]:
    """Sizes of this process's mappings of a file, and how much of them is in memory."""
    size = resident = 0
    inside = False
    for line in pathlib.Path("/proc/self/smaps").read_text().splitlines():
        key, _, rest = line.partition(" ")
        if not key.endswith(":"):
            inside = line.endswith(str(path))
        elif inside and key == "Size:":
            size += int(rest.split()[0]) * 1024
        elif inside and key == "Rss:":
            resident += int(rest.split()[0]) * 1024
    return size, resident


@pytest.fixture
def model(tmp_path) -> pathlib.Path:
    """A file with two tensors of 16 MiB."""
    path = tmp_path / "model.gguf"
    header = gguf_bytes([], [("a", [1024, 4096], F32, 0), ("b", [1024, 4096], F32, 16 * MIB)])
    path.write_bytes(header + np.ones(8 * MIB, np.float32).tobytes())
    return path


def test_views_share_the_mapping(model):
    with open_gguf(model) as index:
        whole, first, again = index.shard_data(0), index.tensor_data("a"), index.tensor_data("a")
        assert np.shares_memory(first, again)
        assert np.shares_memory(first, whole)
        assert not np.shares_memory(first, index.tensor_data("b"))
        assert whole.nbytes == model.stat().st_size
        with pytest.raises(ValueError, match="read-only"):
            first[0, 0] = 1.0


def test_records_are_frozen(model):
    with open_gguf(model) as index:
        with pytest.raises(TypeError):
            index.tensors["c"] = index.tensors["a"]
        with pytest.raises(TypeError):
            index.metadata["key"] = 1
        with pytest.raises(dataclasses.FrozenInstanceError):
            index.tensors["a"].offset = 0


def test_unknown_tensor(model):
    with open_gguf(model) as index:
        for use in (index.tensor_data, index.advise_dont_need, index.advise_will_need):
            with pytest.raises(InputError, match=r"has no tensor 'blk\.0'"):
                use("blk.0")


def test_close_unmaps_and_ends_use(model):
    index = open_gguf(model)
    total = int(index.tensor_data("a").sum())
    assert mapped_bytes(model)[0] > 0
    index.close()
    index.close()
    assert mapped_bytes(model)[0] == 0
    assert total == 4 * MIB
    with pytest.raises(ValueError, match="is closed"):
        index.tensor_data("a")
    assert index.tensors["a"].shape == (4096, 1024)


def test_view_outlives_close(model):
    with open_gguf(model) as index:
        view = index.tensor_data("b")
    assert view[-1, -1] == 1.0
    del view
    assert mapped_bytes(model)[0] == 0


def test_refused_file_is_not_left_mapped(model):
    os.truncate(model, model.stat().st_size - 1)
    with pytest.raises(InputError):
        open_gguf(model)
    assert mapped_bytes(model)[0] == 0


def test_advice_about_one_tensor(model):
    with open_gguf(model) as index:
        first, second = index.tensor_data("a"), index.tensor_data("b")
        first.sum()
        second.sum()
        assert mapped_bytes(model)[1] >= 32 * MIB
        index.advise_dont_need("a")
        assert 16 * MIB <= mapped_bytes(model)[1] < 17 * MIB
        assert first.min() == second.min() == 1.0  # read again
        index.advise_dont_need()
        assert mapped_bytes(model)[1] < MIB
        index.advise_dont_need("b", drop_page_cache=True)
        index.advise_will_need("b")
        index.advise_will_need()
        assert second.min() == 1.0


def test_advice_outlives_the_name_of_the_file(model):
    with open_gguf(model) as index:
        model.unlink()
        index.advise_dont_need("a", drop_page_cache=True)
        assert index.tensor_data("a")[0, 0] == 1.0


def test_opening_reads_no_tensor_data(tmp_path):
    path = tmp_path / "sparse.gguf"
    num_bytes = 20 << 30
    path.write_bytes(gguf_bytes([], [("t", [4096, num_bytes // 4 // 4096], F32, 0)]))
    header = path.stat().st_size
    os.truncate(path, header + num_bytes)
    process = psutil.Process()
    before = process.memory_info().rss
    start = time.perf_counter()
    with open_gguf(path) as index:
        view = index.tensor_data("t")
        seconds = time.perf_counter() - start
        assert process.memory_info().rss - before < 32 * MIB
        assert mapped_bytes(path)[1] < MIB
        assert view.nbytes == index.total_bytes == num_bytes
        assert view[-1, -1] == 0.0
        del view
    assert seconds < 1.0
    os.truncate(path, header + num_bytes - 1)
    with pytest.raises(InputError, match="truncated"):
        open_gguf(path)


def test_real_vocabulary_opens_fast(tmp_path):
    # As many tokens and merges as the largest supported model has.
    tokens = [f"token{number}" for number in range(248_320)]
    merges = [f"left{number} right{number}" for number in range(247_587)]
    types = np.ones(len(tokens), np.int32)
    path = tmp_path / "vocabulary.gguf"
    keys = [
        ("general.architecture", string("qwen35moe")),
        ("tokenizer.ggml.tokens", strings(tokens)),
        ("tokenizer.ggml.token_type", array(INT32, len(types), types.tobytes())),
        ("tokenizer.ggml.merges", strings(merges)),
    ]
    path.write_bytes(gguf_bytes(keys))
    times = []
    for _ in range(3):
        start = time.perf_counter()
        with open_gguf(path) as index:
            times.append(time.perf_counter() - start)
    assert index.metadata["tokenizer.ggml.tokens"] == tokens
    assert index.metadata["tokenizer.ggml.merges"] == merges
    np.testing.assert_array_equal(index.metadata["tokenizer.ggml.token_type"], types)
    assert min(times) < 1.5  # 0.25 s on an idle core


def test_opening_holds_no_second_copy_of_the_vocabulary(tmp_path):
    tokens = ["x" * 100] * 20_000
    path = tmp_path / "vocabulary.gguf"
    path.write_bytes(gguf_bytes([("tokenizer.ggml.tokens", strings(tokens))]))
    tracemalloc.start()
    try:
        with open_gguf(path):
            peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 2 * path.stat().st_size
