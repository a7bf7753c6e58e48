"""Metadata values of a GGUF: numbers, strings, and arrays of them."""

from typing import Any

import numpy as np
from gguf import GGUFValueType

from host_tier.gguf_cursor import Cursor

# Longer arrays of numbers (token types, scores) stay numpy arrays, shorter ones (settings by layer) become
# lists.
MAX_LIST_ITEMS = 4096

# The format does not limit nesting. llama.cpp reads no arrays of arrays at all, so this is generous.
MAX_ARRAY_DEPTH = 4

_DTYPES: dict[int, np.dtype] = {
    GGUFValueType.UINT8: np.dtype("<u1"),
    GGUFValueType.INT8: np.dtype("<i1"),
    GGUFValueType.UINT16: np.dtype("<u2"),
    GGUFValueType.INT16: np.dtype("<i2"),
    GGUFValueType.UINT32: np.dtype("<u4"),
    GGUFValueType.INT32: np.dtype("<i4"),
    GGUFValueType.FLOAT32: np.dtype("<f4"),
    GGUFValueType.UINT64: np.dtype("<u8"),
    GGUFValueType.INT64: np.dtype("<i8"),
    GGUFValueType.FLOAT64: np.dtype("<f8"),
}

# An inner array has at least its type and its length.
_MIN_ARRAY_BYTES = 12


def read_value(cursor: Cursor, value_type: int, what: str) -> Any:
    """Reads one value and moves the cursor behind it.

    Args:
      cursor: stands at the value.
      value_type: number of a `gguf.GGUFValueType`.
      what: names the value in messages.

    Returns:
      int, float, bool, str; a list of those; a read-only numpy array for more than `MAX_LIST_ITEMS` numbers
      (a copy, so that it outlives the mapping). Integers keep all their bits.

    Raises:
      InputError: an unknown type, or a length that the file cannot hold.
    """
    if value_type == GGUFValueType.STRING:
        return cursor.text(what)
    if value_type == GGUFValueType.ARRAY:
        return _read_array(cursor, what, depth=1)
    return _read_numbers(cursor, value_type, 1, what)[0].item()


def _read_array(cursor: Cursor, what: str, depth: int) -> Any:
    item_type = cursor.u32(f"the item type of {what}")
    count = cursor.u64(f"the number of items of {what}")
    if item_type == GGUFValueType.STRING:
        return cursor.texts(count, what)
    if item_type == GGUFValueType.ARRAY:
        if depth == MAX_ARRAY_DEPTH:
            raise cursor.error(f"{what} nests arrays more than {MAX_ARRAY_DEPTH} deep")
        cursor.require(_MIN_ARRAY_BYTES * count, what)
        return [_read_array(cursor, what, depth + 1) for _ in range(count)]
    numbers = _read_numbers(cursor, item_type, count, what)
    if count <= MAX_LIST_ITEMS:
        return numbers.tolist()
    kept = numbers.copy()
    kept.setflags(write=False)
    return kept


def _read_numbers(cursor: Cursor, value_type: int, count: int, what: str) -> np.ndarray:
    if value_type == GGUFValueType.BOOL:
        # Read as bytes: a byte other than 0 and 1 would be an invalid numpy bool.
        return cursor.numbers(_DTYPES[GGUFValueType.UINT8], count, what) != 0
    dtype = _DTYPES.get(value_type)
    if dtype is None:
        raise cursor.error(f"{what} has the unknown type {value_type} (known: 0 to {max(GGUFValueType)})")
    return cursor.numbers(dtype, count, what)
