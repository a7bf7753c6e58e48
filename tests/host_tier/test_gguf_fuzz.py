"""Damaged headers: whatever the bytes, a model opens or is refused in one line, fast and in little memory."""

import collections
import io
import json
import os
import pathlib
import random
import resource
import struct
import time
import tracemalloc

import numpy as np
import psutil
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from raw_gguf import (
    ARRAY,
    BOOL,
    F32,
    FLOAT32,
    Q4_0,
    STRING,
    UINT8,
    UINT64,
    array,
    array_body,
    gguf_bytes,
    string,
    strings,
    u32,
)
from rich.console import Console

from host_tier.errors import InputError
from host_tier.gguf_cursor import Cursor
from host_tier.gguf_index import open_gguf
from host_tier.gguf_reader import CheckedReader
from host_tier.gguf_summary import summarize, summary_document
from host_tier.gguf_tables import headline, summary_tables

CASES_PER_FILE = 600
MAX_SECONDS = 1.0
MAX_MORE_BYTES = 200 << 20

EXTREMES = [0, 1, 2, 3, 5, 255, 2**16, 2**28, 2**31 - 1, 2**31, 2**32 - 1, 2**62, 2**63 - 1, 2**63, 2**64 - 1]


def every_value_type() -> bytes:
    """A small file with all kinds of values."""
    keys = [
        ("general.architecture", string("qwen3moe")),
        ("general.alignment", u32(64)),
        ("split.count", u32(1)),
        ("flag", (BOOL, b"\x01")),
        ("number", (UINT64, struct.pack("<Q", 2**64 - 1))),
        ("float", (FLOAT32, struct.pack("<f", float("inf")))),
        ("bytes", array(UINT8, 40, bytes(40))),
        ("long", array(UINT64, 5000, bytes(40_000))),
        ("words", strings(["a", "bc", "", "déf"])),
        (
            "nested",
            array(ARRAY, 2, array_body(ARRAY, 1, array_body(STRING, 0, b"")) + array_body(UINT8, 1, b"1")),
        ),
    ]
    tensors = [
        ("token_embd.weight", [32, 4], Q4_0, 0),
        ("blk.0.ffn_gate_exps.weight", [8, 2, 4], F32, 128),
        ("blk.0.ffn_down_exps.weight", [2, 8, 4], F32, 384),
    ]
    return gguf_bytes(keys, tensors, bytes(640), alignment=64)


class Specimen:
    """A file's header and size. A hole replaces the tensor data, which keeps thousands of cases quick."""

    def __init__(self, source: pathlib.Path, monkeypatch: pytest.MonkeyPatch):
        self.name = source.name
        self.size = source.stat().st_size
        # Where the header's counts, lengths, types, dimensions and offsets are, as the reader finds them.
        self.fields: list[tuple[int, str]] = []
        with monkeypatch.context() as patch:
            for method, code in (("u32", "<I"), ("u64", "<Q")):
                patch.setattr(Cursor, method, self._recording(getattr(Cursor, method), code))
            reader = CheckedReader(str(source))
        self.fields += [(4, "<I"), (8, "<Q"), (16, "<Q")]
        self.header = source.read_bytes()[: reader.data_offset]

    def _recording(self, method, code):
        def read(cursor, what):
            self.fields.append((cursor.offset, code))
            return method(cursor, what)

        return read

    def mutated(self, rng: random.Random) -> tuple[bytes, int]:
        """A damaged header, and the size that the file then has."""
        header, size = bytearray(self.header), self.size
        where = rng.randrange(len(header))
        kind = rng.randrange(9)
        if kind == 0:
            for _ in range(rng.choice([1, 1, 1, 2, 8])):
                header[rng.randrange(len(header))] ^= 1 << rng.randrange(8)
        elif kind in (1, 2, 3):
            # Most damage that matters is in the numbers, which are a small part of the bytes.
            offset, code = rng.choice(self.fields)
            (before,) = struct.unpack_from(code, header, offset)
            near = [before + 1, before - 1, before * 2, size, size + 1, before ^ (1 << rng.randrange(64))]
            value = rng.choice(EXTREMES + near) if kind < 3 else rng.randrange(50)
            struct.pack_into(code, header, offset, value % (1 << 8 * struct.calcsize(code)))
        elif kind == 4:
            del header[where:]
            size = where
        elif kind == 5:
            size = rng.randrange(len(header), self.size + 100)
        elif kind == 6:
            header[where:where] = rng.randbytes(rng.randrange(1, 64))
        elif kind == 7:
            del header[where : where + rng.randrange(1, 64)]
        else:
            source = rng.randrange(len(header))
            piece = header[source : source + rng.randrange(1, 200)]
            header[where : where + len(piece)] = piece
        return bytes(header), size


def write(path: pathlib.Path, header: bytes, size: int) -> None:
    path.write_bytes(header)
    os.truncate(path, size)


def outcome(path: pathlib.Path, render: bool = False) -> str:
    """Opens and uses a file in all ways that read the header; anything but success or InputError escapes."""
    try:
        with open_gguf(path) as index:
            summary = summarize(index)
            json.dumps(summary_document(index, summary, with_tensors=True), allow_nan=False)
            for name, info in index.tensors.items():
                assert index.tensor_data(name).nbytes == info.num_bytes
            if render:
                console = Console(file=io.StringIO(), width=100)
                console.print(*summary_tables(index, summary, with_tensors=True), headline(summary))
    except InputError as error:
        message = str(error)
    else:
        return "opened"
    assert len(message.splitlines()) == 1, message
    assert str(path.parent) in message
    assert len(message) < 1000
    return "refused"


@pytest.fixture
def memory_limit():
    """Makes an allocation that a damaged count asks for fail with MemoryError, which no test accepts."""
    limits = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (psutil.Process().memory_info().vms + MAX_MORE_BYTES, limits[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, limits)


def check_cases(specimen: Specimen, path: pathlib.Path, entry: pathlib.Path) -> None:
    """Damages the file at `path` over and over; opens `entry`, which is the same file or another shard."""
    rng = random.Random(specimen.name)
    outcomes = collections.Counter()
    for case in range(CASES_PER_FILE):
        write(path, *specimen.mutated(rng))
        start = time.perf_counter()
        outcomes[outcome(entry, render=case % 20 == 0)] += 1
        assert time.perf_counter() - start < MAX_SECONDS, case
    # Both outcomes must be frequent, or the damage is too heavy or too light to test anything.
    print(specimen.name, dict(outcomes))
    assert min(outcomes["opened"], outcomes["refused"]) > CASES_PER_FILE // 20, outcomes


@pytest.mark.usefixtures("memory_limit")
@pytest.mark.parametrize("file", ["qwen3moe-BF16", "qwen35moe-nomtp-Q8_0", "qwen3moe-k-Q2_K", "qwen3-BF16"])
def test_damaged_header(fixture_dir, tmp_path, monkeypatch, file):
    specimen = Specimen(fixture_dir / "gguf" / f"{file}.gguf", monkeypatch)
    path = tmp_path / specimen.name
    write(path, specimen.header, specimen.size)
    assert outcome(path) == "opened"
    check_cases(specimen, path, path)


@pytest.mark.usefixtures("memory_limit")
def test_damaged_header_with_every_value_type(tmp_path, monkeypatch):
    path = tmp_path / "values.gguf"
    path.write_bytes(every_value_type())
    check_cases(Specimen(path, monkeypatch), path, path)


@pytest.mark.usefixtures("memory_limit")
@pytest.mark.parametrize("damaged", [0, 1, 2])
def test_damaged_shard(fixture_dir, tmp_path, monkeypatch, damaged):
    sources = sorted((fixture_dir / "gguf" / "split").glob("*.gguf"))
    specimens = [Specimen(source, monkeypatch) for source in sources]
    paths = [tmp_path / specimen.name for specimen in specimens]
    for specimen, path in zip(specimens, paths):
        write(path, specimen.header, specimen.size)
    assert outcome(paths[0]) == "opened"
    check_cases(specimens[damaged], paths[damaged], paths[1])


@given(body=st.binary(max_size=200), num_tensors=st.integers(0, 3), num_keys=st.integers(0, 3))
@settings(
    max_examples=300,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_arbitrary_bytes(tmp_path, body, num_tensors, num_keys):
    path = tmp_path / "model.gguf"
    path.write_bytes(gguf_bytes(num_tensors=num_tensors, num_keys=num_keys, alignment=1) + body)
    outcome(path)


def test_many_small_items_stay_small_in_memory(tmp_path):
    # The densest headers for their size: empty strings, empty arrays, short keys.
    count = 30_000
    bodies = [
        [("a", array(STRING, count, bytes(8 * count)))],
        [("a", array(ARRAY, count, array_body(UINT8, 0, b"") * count))],
        [(f"{key}", (UINT8, b"\0")) for key in range(count)],
        [("a", array(UINT8, count * 100, np.zeros(count * 100, np.uint8).tobytes()))],
    ]
    path = tmp_path / "model.gguf"
    for keys in bodies:
        path.write_bytes(gguf_bytes(keys))
        tracemalloc.start()
        try:
            assert outcome(path) == "opened"
            assert tracemalloc.get_traced_memory()[1] < 64 << 20
        finally:
            tracemalloc.stop()
