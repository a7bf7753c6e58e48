import inspect
import os
import pathlib
import struct

import gguf
import numpy as np
import pytest
from raw_gguf import (
    ARRAY,
    BOOL,
    F32,
    FLOAT32,
    FLOAT64,
    INT8,
    INT64,
    STRING,
    UINT8,
    UINT32,
    UINT64,
    array,
    array_body,
    gguf_bytes,
    string,
    strings,
    u32,
)

from host_tier.errors import InputError
from host_tier.gguf_cursor import MAX_HEADER_BYTES
from host_tier.gguf_index import open_gguf
from host_tier.gguf_reader import CheckedReader
from host_tier.gguf_values import MAX_ARRAY_DEPTH, MAX_LIST_ITEMS

FILES = ["qwen3moe-BF16", "qwen35moe-nomtp-Q8_0", "qwen3moe-k-Q2_K", "qwen3-BF16", "qwen35moe-BF16"]


def refusal(path: pathlib.Path | str) -> str:
    """The message of the error that opening a file must give: one line that names the file."""
    with pytest.raises(InputError) as caught:
        open_gguf(path)
    message = str(caught.value)
    assert len(message.splitlines()) == 1
    assert str(path) in message or repr(str(path)) in message
    return message


@pytest.fixture
def written(tmp_path):
    """Writes bytes to a file and returns its path."""

    def write(data: bytes, name: str = "model.gguf") -> pathlib.Path:
        path = tmp_path / name
        path.write_bytes(data)
        return path

    return write


def read_keys(path) -> dict:
    with open_gguf(path) as index:
        return dict(index.metadata)


# The installed library


@pytest.mark.parametrize("file", FILES)
def test_reads_what_the_library_reads(fixture_dir, file):
    path = fixture_dir / "gguf" / f"{file}.gguf"
    library = gguf.GGUFReader(path)
    ours = CheckedReader(str(path))
    expected = {key: field.contents() for key, field in library.fields.items() if not key.startswith("GGUF.")}
    assert ours.metadata == expected
    assert ours.data_offset == library.data_offset
    assert len(ours.infos) == len(library.tensors)
    for info, tensor in zip(ours.infos, library.tensors):
        assert info.name == tensor.name
        assert info.shape == tuple(reversed(tensor.shape.tolist()))
        assert info.quant_type is tensor.tensor_type
        assert (info.num_bytes, info.offset) == (tensor.n_bytes, tensor.data_offset)


def test_library_still_has_the_methods_that_are_replaced():
    for name in ("_get", "_build_fields", "_build_tensor_info", "_build_tensors"):
        theirs = inspect.signature(getattr(gguf.GGUFReader, name))
        ours = inspect.signature(getattr(CheckedReader, name))
        assert list(theirs.parameters) == list(ours.parameters), name
        defaults = [parameter.default for parameter in theirs.parameters.values()]
        assert defaults == [parameter.default for parameter in ours.parameters.values()], name


def test_library_calls_the_replaced_methods_in_order(fixture_dir, monkeypatch):
    calls = []

    def recording(name):
        method = getattr(CheckedReader, name)

        def recorded(self, *args, **options):
            calls.append(name)
            return method(self, *args, **options)

        return recorded

    for name in ("_get", "_build_fields", "_build_tensor_info", "_build_tensors"):
        monkeypatch.setattr(CheckedReader, name, recording(name))
    CheckedReader(str(fixture_dir / "gguf" / "qwen3-BF16.gguf"))
    assert calls == ["_get"] * calls.count("_get") + ["_build_fields", "_build_tensor_info", "_build_tensors"]


def test_library_error_becomes_input_error(written, monkeypatch):
    def broken(self, field, skip_sum=False):
        raise KeyError("first\nsecond")

    monkeypatch.setattr(CheckedReader, "_push_field", broken)
    assert "first" in refusal(written(gguf_bytes()))


# What a file is


def test_missing_file(tmp_path):
    assert "no such file" in refusal(tmp_path / "absent.gguf")


def test_empty_name():
    with pytest.raises(InputError, match="no such file"):
        open_gguf("")


def test_name_with_zero_byte():
    assert "cannot be a file name" in refusal("a\0b.gguf")


def test_folder(tmp_path):
    assert "is a folder" in refusal(tmp_path)


def test_broken_link(tmp_path):
    path = tmp_path / "link.gguf"
    path.symlink_to(tmp_path / "absent")
    assert "link to a file that does not exist" in refusal(path)


def test_named_pipe(tmp_path):
    os.mkfifo(tmp_path / "pipe.gguf")
    assert "not a regular file" in refusal(tmp_path / "pipe.gguf")


def test_unreadable_file(written, monkeypatch):
    # Permissions do not stop root, who runs tests in containers.
    path = written(gguf_bytes())

    def denied(*args, **kwargs):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr("builtins.open", denied)
    assert "cannot be read: Permission denied" in refusal(path)


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"", "is empty"),
        (b"PK\x03\x04" + bytes(100), "is not a GGUF file"),
        (b"GG", "is not a GGUF file"),
        (b"GGUF\x03\0\0\0", "truncated: only 8 bytes"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n", "Git LFS pointer"),
        (gguf_bytes(version=1), "GGUF version 1, versions 2 and 3 are read; convert"),
        (gguf_bytes(version=4), "GGUF version 4, versions 2 and 3 are read"),
        (b"GGUF" + struct.pack(">IQQ", 3, 0, 0), "big-endian"),
    ],
)
def test_not_a_gguf_we_read(written, data, problem):
    assert problem in refusal(written(data))


@pytest.mark.parametrize("version", [2, 3])
def test_versions(written, version):
    with open_gguf(written(gguf_bytes([("a", u32(1))], version=version))) as index:
        assert index.version == version
        assert dict(index.metadata) == {"a": 1}


def test_file_without_tensors_need_not_be_padded(written):
    data = gguf_bytes([("general.architecture", string("x"))])
    assert read_keys(written(data.rstrip(b"\0"))) == {"general.architecture": "x"}


# Metadata values


def test_values_keep_their_type_and_bits(written):
    big = [0, 2**63 + 1, 2**64 - 1]
    keys = [
        ("u64", (UINT64, struct.pack("<Q", 2**64 - 1))),
        ("i64", (INT64, struct.pack("<q", -(2**63)))),
        ("f32", (FLOAT32, struct.pack("<f", 0.5))),
        ("f64", (FLOAT64, struct.pack("<d", 0.1))),
        ("i8", (INT8, b"\xff")),
        ("yes", (BOOL, b"\x02")),
        ("no", (BOOL, b"\0")),
        ("text", string("a\nĠ😀")),
        ("u64s", array(UINT64, 3, struct.pack("<3Q", *big))),
        ("bools", array(BOOL, 3, b"\0\x01\xff")),
        ("words", strings(["", "a", "é"])),
        ("none", array(UINT32, 0, b"")),
        ("nested", array(ARRAY, 2, array_body(UINT8, 2, b"\x01\x02") + array_body(STRING, 0, b""))),
    ]
    found = read_keys(written(gguf_bytes(keys)))
    assert found == {
        "u64": 2**64 - 1,
        "i64": -(2**63),
        "f32": 0.5,
        "f64": 0.1,
        "i8": -1,
        "yes": True,
        "no": False,
        "text": "a\nĠ😀",
        "u64s": big,
        "bools": [False, True, True],
        "words": ["", "a", "é"],
        "none": [],
        "nested": [[1, 2], []],
    }
    assert found["yes"] is True
    assert type(found["u64"]) is int


def test_long_number_arrays_are_numpy_and_exact(written):
    values = np.arange(2**64 - MAX_LIST_ITEMS - 1, 2**64 - 1, dtype=np.uint64)
    values = np.append(values, np.uint64(2**64 - 1))
    found = read_keys(written(gguf_bytes([("long", array(UINT64, len(values), values.tobytes()))])))["long"]
    assert isinstance(found, np.ndarray)
    assert found.dtype == np.uint64
    np.testing.assert_array_equal(found, values)
    assert not found.flags.writeable


def nested(depth: int) -> bytes:
    return array_body(ARRAY, 1, b"") * (depth - 1) + array_body(UINT8, 1, b"\x07")


def test_nesting_limit(written):
    value = read_keys(written(gguf_bytes([("deep", (ARRAY, nested(MAX_ARRAY_DEPTH)))])))["deep"]
    for _ in range(MAX_ARRAY_DEPTH):
        assert len(value) == 1
        value = value[0]
    assert value == 7
    for depth in (MAX_ARRAY_DEPTH + 1, 5000):
        assert "'deep' nests arrays" in refusal(written(gguf_bytes([("deep", (ARRAY, nested(depth)))])))


@pytest.mark.parametrize("count", [2**63, 2**64 - 1, 10**6])
@pytest.mark.parametrize(
    ("item_type", "item"),
    [(UINT8, b"\0"), (BOOL, b"\0"), (UINT64, b"\0"), (STRING, b"\0" * 8), (ARRAY, array_body(UINT8, 0, b""))],
)
def test_array_longer_than_the_file(written, item_type, item, count):
    message = refusal(written(gguf_bytes([("list", array(item_type, count, item * 4))])))
    assert "truncated or damaged: key 'list'" in message


@pytest.mark.parametrize("length", [2**64 - 1, 2**63, 1000])
def test_string_longer_than_the_file(written, length):
    data = gguf_bytes([("name", (STRING, struct.pack("<Q", length) + b"abc"))])
    assert "truncated or damaged: key 'name'" in refusal(written(data))
    data = gguf_bytes([("names", array(STRING, 2, struct.pack("<Q", 1) + b"a" + struct.pack("<Q", length)))])
    assert "key 'names', item 1 of 2" in refusal(written(data))


def test_more_keys_or_tensors_than_the_file_can_hold(written):
    assert "metadata of 1,000,000 keys" in refusal(written(gguf_bytes(num_keys=10**6)))
    assert "list of 1,000,000 tensors" in refusal(written(gguf_bytes(num_tensors=10**6)))
    assert "truncated or damaged" in refusal(written(gguf_bytes(num_keys=2**64 - 1, num_tensors=2**64 - 1)))


def test_header_limit(written):
    # A length that a large file could hold, but that no header has: nothing of that size may be decoded.
    path = written(gguf_bytes([("name", (STRING, struct.pack("<Q", 2 * MAX_HEADER_BYTES)))]))
    os.truncate(path, 4 * MAX_HEADER_BYTES)
    assert "256 MiB that a header may have" in refusal(path)


@pytest.mark.parametrize(
    ("keys", "problem"),
    [
        ([("a", u32(1)), ("a", u32(2))], "key 'a' is there twice"),
        ([("a", (13, b"\0" * 8))], "key 'a' has the unknown type 13"),
        ([("a", (2**32 - 1, b"\0" * 8))], "key 'a' has the unknown type 4294967295"),
        ([("a", array(99, 1, b"\0" * 8))], "key 'a' has the unknown type 99"),
        ([(b"\xff\xfe", u32(1))], "name of key 0 of 1 is not valid UTF-8"),
        ([("a", string(b"\xed\xa0\x80"))], "key 'a' is not valid UTF-8"),
        (
            [("a", array(STRING, 2, struct.pack("<QcQc", 1, b"x", 1, b"\xff")))],
            "item 1 of 2, is not valid UTF-8",
        ),
        ([("two\nlines", (99, b""))], "'two\\nlines'"),
        ([("general.alignment", string("32"))], "must be an unsigned 32-bit integer"),
        ([("general.alignment", u32(0))], "is 0, not a power of two"),
        ([("general.alignment", u32(4))], "is 4, not a power of two of at least 8"),
        ([("general.alignment", u32(48))], "is 48, not a power of two"),
    ],
)
def test_bad_metadata(written, keys, problem):
    assert problem in refusal(written(gguf_bytes(keys, data=bytes(64))))


def test_long_names_are_shortened_in_messages(written):
    assert len(refusal(written(gguf_bytes([("k" * 10_000, (99, b""))])))) < 400


def test_file_cut_anywhere_in_the_header(written, fixture_dir):
    whole = (fixture_dir / "gguf" / "qwen3-BF16.gguf").read_bytes()
    header = CheckedReader(str(fixture_dir / "gguf" / "qwen3-BF16.gguf")).data_offset
    for size in range(4, header, 97):
        assert "truncated" in refusal(written(whole[:size]))


def test_alignment_key_is_obeyed(written):
    keys = [("general.alignment", u32(256))]
    data = gguf_bytes(keys, [("t", [4], F32, 0)], np.arange(4, dtype=np.float32).tobytes(), alignment=256)
    with open_gguf(written(data)) as index:
        assert index.tensors["t"].offset == 256
        np.testing.assert_array_equal(index.tensor_data("t"), np.arange(4, dtype=np.float32))
