"""One GGUF file, read with `gguf.GGUFReader` made fast and distrustful.

The library's reader loops in Python over every array element and number (4 to 12 s for a real vocabulary) and
believes every count in the file. This subclass keeps its order of reading and replaces these private methods,
so that each size is checked before it is used (a test compares their signatures, and the results on whole
files, with the installed library):

- `_get`: the library's, after a check against the end of the file;
- `_build_fields`, `_build_tensor_info`, `_build_tensors`: replaced. The library's `fields` has only the three
  counts and its `tensors` nothing; `metadata` and `infos` take their place.
"""

import mmap
import os
import stat
import struct
from typing import Any, Literal

import gguf
import numpy as np
import numpy.typing as npt

from host_tier.errors import InputError
from host_tier.gguf_cursor import Cursor, quoted
from host_tier.gguf_tensors import TensorEntry, TensorInfo, check_layout, locate, read_entry
from host_tier.gguf_values import read_value

_MAGIC = b"GGUF"
_VERSIONS = (2, 3)
_PREAMBLE_BYTES = 24  # magic, version, number of tensors, number of keys
_MIN_KEY_BYTES = 13  # an empty name, a type, and a value of one byte
_MIN_TENSOR_BYTES = 32  # an empty name, one dimension, a type, an offset
_ALIGNMENT_KEY = "general.alignment"


class CheckedReader(gguf.GGUFReader):
    """The header of one GGUF file, checked, and a mapping of the whole.

    Attributes:
      path: as given.
      metadata: values by key, see `gguf_values.read_value`.
      infos: the tensors, in file order; `shard` is 0.
      mapping: the file, read-only; reading the header touches none of the tensor data.
      version: of the format, 2 or 3.
    """

    metadata: dict[str, Any]
    infos: list[TensorInfo]

    def __init__(self, path: str):
        """Opens a file.

        Args:
          path: a GGUF file; links are followed.

        Raises:
          InputError: not readable, not a GGUF, truncated, or damaged.
        """
        self.path = path
        self.version = _check_preamble(path)
        self.metadata = {}
        self.infos = []
        try:
            super().__init__(path)
        except InputError:
            raise
        except (OSError, ValueError, KeyError, OverflowError) as error:
            # What the library itself finds wrong; our own checks come first, so this is a second net.
            raise InputError(f"{path}: not a readable GGUF file: {' '.join(str(error).split())}") from error

    @property
    def mapping(self) -> mmap.mmap:
        """The mapped file."""
        return self.data._mmap  # type: ignore[attr-defined]

    def _cursor(self, offset: int) -> Cursor:
        return Cursor(self.mapping, offset, self.path)

    def _get(
        self,
        offset: int,
        dtype: npt.DTypeLike,
        count: int = 1,
        override_order: Literal["I", "S", "<"] | None = None,
    ) -> npt.NDArray[Any]:
        self._cursor(offset).require(np.dtype(dtype).itemsize * int(count), "the header")
        return super()._get(offset, dtype, count, override_order)

    def _build_fields(self, offs: int, count: int) -> int:
        cursor, count = self._cursor(offs), int(count)
        cursor.require(_MIN_KEY_BYTES * count, f"the metadata of {count:,} keys")
        for position in range(count):
            key = cursor.text(f"the name of key {position} of {count:,}")
            if key in self.metadata:
                raise cursor.error(f"key {quoted(key)} is there twice")
            what = f"key {quoted(key)}"
            value_type = cursor.u32(f"the type of {what}")
            if key == _ALIGNMENT_KEY and value_type != gguf.GGUFValueType.UINT32:
                raise cursor.error(f"{what} must be an unsigned 32-bit integer, but its type is {value_type}")
            self.metadata[key] = read_value(cursor, value_type, what)
        alignment = self.metadata.get(_ALIGNMENT_KEY, self.alignment)
        if alignment < 8 or alignment & (alignment - 1):
            raise cursor.error(f"key {_ALIGNMENT_KEY!r} is {alignment}, not a power of two of at least 8")
        self.alignment = alignment
        return cursor.offset

    def _build_tensor_info(self, offs: int, count: int) -> tuple[int, list[Any]]:
        cursor, count = self._cursor(offs), int(count)
        cursor.require(_MIN_TENSOR_BYTES * count, f"the list of {count:,} tensors")
        entries = [read_entry(cursor, position) for position in range(count)]
        return cursor.offset, entries

    def _build_tensors(self, start_offs: int, fields: list[Any]) -> None:
        entries: list[TensorEntry] = fields
        start, cursor = int(start_offs), self._cursor(0)
        self.infos = [locate(entry, start, self.alignment, cursor) for entry in entries]
        check_layout(self.infos, len(self.mapping), cursor)
        self._refuse_joined_files(max((info.end for info in self.infos), default=start))

    def _refuse_joined_files(self, end: int) -> None:
        """Recognizes split files joined with `cat`: another GGUF begins where this one ends."""
        padded_end = -(-end // self.alignment) * self.alignment
        for start in (end, padded_end):
            if self.mapping[start : start + len(_MAGIC)] == _MAGIC:
                raise InputError(
                    f"{self.path}: another GGUF begins at byte {start:,}, as when the shards of a split "
                    "model are joined with cat; keep them apart, or merge them with llama-gguf-split --merge"
                )


def _check_preamble(path: str) -> int:
    """Checks what a file is before it is mapped; returns the format version."""
    try:
        mode = os.stat(path).st_mode
        if stat.S_ISDIR(mode):
            raise InputError(f"{path}: is a folder; name a .gguf file in it")
        if not stat.S_ISREG(mode):
            raise InputError(f"{path}: is not a regular file")
        with open(path, "rb") as file:
            start = file.read(_PREAMBLE_BYTES)
    except InputError:
        raise
    except FileNotFoundError:
        problem = "a link to a file that does not exist" if os.path.islink(path) else "no such file"
        raise InputError(f"{path or repr(path)}: {problem}") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from error
    except ValueError as error:  # a zero byte in the name
        raise InputError(f"{path!r} cannot be a file name: {error}") from error
    if not start:
        raise InputError(f"{path}: is empty")
    if start.startswith(b"version https://git-lfs"):
        raise InputError(f"{path}: is a Git LFS pointer, not the model; fetch it with git lfs pull")
    if start[:4] != _MAGIC:
        raise InputError(f"{path}: is not a GGUF file (it starts with {start[:4]!r}, not {_MAGIC!r})")
    if len(start) < _PREAMBLE_BYTES:
        raise InputError(f"{path}: truncated: only {len(start)} bytes; download or copy it again")
    (version,) = struct.unpack_from("<I", start, 4)
    if version & 0xFFFF == 0:
        raise InputError(f"{path}: is a big-endian GGUF; convert the model to a little-endian one")
    if version not in _VERSIONS:
        advice = "; convert the model again with a current llama.cpp" if version < min(_VERSIONS) else ""
        raise InputError(f"{path}: is GGUF version {version}, versions 2 and 3 are read{advice}")
    return version
