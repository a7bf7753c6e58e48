"""Writes GGUF bytes field by field, wrong ones included, most of which `gguf.GGUFWriter` refuses."""

import struct
from collections.abc import Sequence

F32, F16, Q4_0, Q8_0, Q4_K, BF16 = 0, 1, 2, 8, 12, 30
UINT8, INT8, UINT16, INT16, UINT32, INT32, FLOAT32, BOOL, STRING, ARRAY, UINT64, INT64, FLOAT64 = range(13)

Value = tuple[int, bytes]


def text(value: str | bytes) -> bytes:
    data = value.encode() if isinstance(value, str) else value
    return struct.pack("<Q", len(data)) + data


def string(value: str | bytes) -> Value:
    return STRING, text(value)


def u16(value: int) -> Value:
    return UINT16, struct.pack("<H", value)


def u32(value: int) -> Value:
    return UINT32, struct.pack("<I", value)


def i32(value: int) -> Value:
    return INT32, struct.pack("<i", value)


def array_body(item_type: int, count: int, items: bytes) -> bytes:
    return struct.pack("<IQ", item_type, count) + items


def array(item_type: int, count: int, items: bytes) -> Value:
    return ARRAY, array_body(item_type, count, items)


def strings(values: Sequence[str]) -> Value:
    return array(STRING, len(values), b"".join(text(value) for value in values))


def gguf_bytes(
    keys: Sequence[tuple[str | bytes, Value]] = (),
    tensors: Sequence[tuple[str | bytes, Sequence[int], int, int]] = (),
    data: bytes = b"",
    *,
    magic: bytes = b"GGUF",
    version: int = 3,
    num_keys: int | None = None,
    num_tensors: int | None = None,
    alignment: int = 32,
) -> bytes:
    """Bytes of a file; `tensors` are (name, dimensions in file order, type number, offset in the data)."""
    out = magic + struct.pack(
        "<IQQ",
        version,
        len(tensors) if num_tensors is None else num_tensors,
        len(keys) if num_keys is None else num_keys,
    )
    for key, (value_type, value) in keys:
        out += text(key) + struct.pack("<I", value_type) + value
    for name, dims, tensor_type, offset in tensors:
        out += text(name) + struct.pack(f"<I{len(dims)}Q", len(dims), *dims)
        out += struct.pack("<IQ", tensor_type, offset)
    return out + b"\0" * (-len(out) % alignment) + data
