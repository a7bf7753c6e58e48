import pathlib
import re
import shutil

import numpy as np
import pytest
from raw_gguf import F32, gguf_bytes, i32, string, strings, u16, u32

from host_tier.errors import InputError
from host_tier.gguf_index import open_gguf
from host_tier.gguf_split import ShardName

COUNT = 3


def shard(
    number: int,
    *,
    count: int = COUNT,
    index: int | None = None,
    tensors: int = COUNT,
    name: str = "",
    extra=(),
) -> bytes:
    """Bytes of shard `number` (from 1) of a model with one tensor in each."""
    keys = [("split.no", u16(number - 1 if index is None else index)), ("split.count", u16(count))]
    keys += [("split.tensors.count", i32(tensors)), *extra]
    if number == 1:
        keys.insert(0, ("general.architecture", string("qwen3moe")))
    data = np.full(8, number, np.float32).tobytes()
    return gguf_bytes(keys, [(name or f"t{number}", [8], F32, 0)], data)


@pytest.fixture
def model(tmp_path) -> list[pathlib.Path]:
    """Three shards of one model; tests then break one."""
    paths = [tmp_path / f"m-{number:05d}-of-{COUNT:05d}.gguf" for number in range(1, COUNT + 1)]
    for number, path in enumerate(paths, start=1):
        path.write_bytes(shard(number))
    return paths


def refusal(path: pathlib.Path) -> str:
    with pytest.raises(InputError) as caught:
        open_gguf(path)
    message = str(caught.value)
    assert len(message.splitlines()) == 1
    assert str(path.parent) in message
    return message


@pytest.mark.parametrize("entry", range(COUNT))
def test_any_shard_opens_all(model, entry):
    with open_gguf(model[entry]) as index:
        assert index.shards == tuple(model)
        assert index.metadata["general.architecture"] == "qwen3moe"
        assert list(index.tensors) == ["t1", "t2", "t3"]
        assert [info.shard for info in index.tensors.values()] == [0, 1, 2]
        assert index.total_bytes == 96
        assert index.file_bytes == tuple(path.stat().st_size for path in model)
        for number in (1, 2, 3):
            np.testing.assert_array_equal(index.tensor_data(f"t{number}"), np.full(8, number, np.float32))


def test_fixture_has_the_tensors_of_its_parts(fixture_dir):
    paths = sorted((fixture_dir / "gguf" / "split").glob("*.gguf"))
    assert len(paths) == 3
    seen = []
    for path in paths:
        with open_gguf(path) as index:
            assert index.shards == tuple(paths)
            assert len(index.tensors) == index.metadata["split.tensors.count"] == 27
            assert len(index.metadata["tokenizer.ggml.tokens"]) == 512
            seen.append({name: bytes(index.tensor_data(name)) for name in index.tensors})
    assert seen[0] == seen[1] == seen[2]


def test_relative_path(model, monkeypatch):
    monkeypatch.chdir(model[0].parent)
    with open_gguf(model[1].name) as index:
        assert len(index.shards) == 3


def test_links_of_a_download_cache(model, tmp_path):
    blobs, snapshot = tmp_path / "blobs", tmp_path / "snapshot"
    blobs.mkdir()
    snapshot.mkdir()
    for number, path in enumerate(model):
        path.rename(blobs / f"{number:064x}")
        (snapshot / path.name).symlink_to(blobs / f"{number:064x}")
    with open_gguf(snapshot / model[2].name) as index:
        assert len(index.tensors) == 3
    # The blob itself has no name to find the others by.
    assert "rename it back to NAME-00001-of-00003.gguf" in refusal(blobs / f"{0:064x}")


@pytest.mark.parametrize("gone", range(COUNT))
def test_missing_shard_is_named(model, gone):
    model[gone].unlink()
    entry = model[(gone + 1) % COUNT]
    assert refusal(entry) == f"{entry}: is one of 3 shards, but {model[gone]} is missing"


def test_several_missing_shards(model):
    model[1].unlink()
    model[2].unlink()
    assert f"{model[1]} is missing and 1 more" in refusal(model[0])


def test_renamed_shard(model):
    renamed = model[1].rename(model[1].with_name("model.gguf"))
    message = refusal(renamed)
    assert "is shard 2 of 3" in message
    assert "NAME-00002-of-00003.gguf" in message


@pytest.mark.parametrize("entry", range(COUNT))
def test_duplicated_shard(model, entry):
    shutil.copy(model[0], model[1])
    message = refusal(model[entry])
    assert "says that it is shard 1" in message
    assert str(model[0]) in message
    assert str(model[1]) in message


@pytest.mark.parametrize("entry", range(COUNT))
def test_swapped_shards(model, entry):
    first, second = model[0].read_bytes(), model[1].read_bytes()
    model[0].write_bytes(second)
    model[1].write_bytes(first)
    assert f"{model[0]}: is named shard 1 but says that it is shard 2" in refusal(model[entry])


def test_shard_number_beyond_the_count(model):
    model[2].write_bytes(shard(3, index=7))
    assert "is named shard 3 but says that it is shard 8" in refusal(model[0])


def test_name_and_metadata_disagree_on_the_count(model):
    renamed = model[0].rename(model[0].with_name("m-00001-of-00004.gguf"))
    message = refusal(renamed)
    assert "is named as one of 4 shards, but its metadata says 3" in message
    assert "-00001-of-00003.gguf" in message


def test_shards_disagree_on_the_count(model):
    model[1].write_bytes(shard(2, count=4))
    assert f"{model[1]}: its metadata says one of 4 shards, but {model[0]} says 3" in refusal(model[0])


def test_whole_model_with_the_name_of_a_shard(tmp_path):
    path = tmp_path / "m-00001-of-00003.gguf"
    path.write_bytes(gguf_bytes([], [("t", [8], F32, 0)], bytes(32)))
    assert "rename it to m.gguf if it is a whole model" in refusal(path)


@pytest.mark.parametrize("name", ["m-00001-of-00001.gguf", "m.gguf"])
@pytest.mark.parametrize("count", [0, 1, None])
def test_not_split(tmp_path, name, count):
    keys = [] if count is None else [("split.count", u16(count)), ("split.no", u16(0))]
    path = tmp_path / name
    path.write_bytes(gguf_bytes(keys, [("t", [8], F32, 0)], bytes(32)))
    with open_gguf(path) as index:
        assert index.shards == (path,)


def test_tensor_count(model):
    for number in (1, 2, 3):
        model[number - 1].write_bytes(shard(number, tensors=4))
    assert "the model has 4 tensors (split.tensors.count), but its 3 file(s) hold 3" in refusal(model[0])


def test_tensor_count_of_one_shard(model):
    model[2].write_bytes(shard(3, tensors=2))
    assert f"{model[2]}: the model has 2 tensors" in refusal(model[0])


def test_tensor_in_two_shards(model):
    model[2].write_bytes(shard(3, name="t1"))
    assert f"{model[2]}: tensor 't1' is also in {model[0]}" in refusal(model[1])


def test_shards_of_different_models(model):
    model[2].write_bytes(shard(3, extra=[("general.architecture", string("llama"))]))
    message = refusal(model[0])
    assert f"{model[2]}: is of architecture 'llama', but {model[0]} is of 'qwen3moe'" in message


def test_same_architecture_in_every_shard_is_fine(model):
    model[2].write_bytes(shard(3, extra=[("general.architecture", string("qwen3moe"))]))
    with open_gguf(model[0]) as index:
        assert len(index.tensors) == 3


@pytest.mark.parametrize("value", [string("3"), i32(-1), strings(["3"]), (7, b"\x01")])
def test_split_key_of_a_wrong_type(tmp_path, value):
    path = tmp_path / "m.gguf"
    path.write_bytes(gguf_bytes([("split.count", value)]))
    assert "key 'split.count' is" in refusal(path)


def test_shard_without_its_number(tmp_path):
    path = tmp_path / "m-00001-of-00003.gguf"
    path.write_bytes(gguf_bytes([("split.count", u32(3))]))
    assert "does not say which (key 'split.no')" in refusal(path)


def test_damaged_shard_is_the_one_named(model):
    model[1].write_bytes(model[1].read_bytes()[:-1])
    assert re.match(rf"{re.escape(str(model[1]))}: truncated", refusal(model[0]))


def test_shards_joined_with_cat(model, tmp_path):
    joined = tmp_path / "joined.gguf"
    joined.write_bytes(b"".join(path.read_bytes() for path in model))
    assert "joined with cat" in refusal(joined)


def test_fixture_joined_with_cat(fixture_dir, tmp_path):
    paths = sorted((fixture_dir / "gguf" / "split").glob("*.gguf"))
    joined = tmp_path / "joined.gguf"
    joined.write_bytes(b"".join(path.read_bytes() for path in paths))
    assert "llama-gguf-split --merge" in refusal(joined)


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("a/b-00002-of-00010.gguf", ShardName(prefix="a/b", number=2, count=10)),
        ("a-00001-of-00002-00003-of-00004.gguf", ShardName(prefix="a-00001-of-00002", number=3, count=4)),
        ("a-1-of-2.gguf", None),
        ("a-00001-of-00002.gguf.part", None),
        ("a.gguf", None),
    ],
)
def test_shard_names(path, expected):
    assert ShardName.parse(path) == expected
    if expected is not None:
        assert expected.of(expected.number) == path
