"""Reads little-endian values one after another from a mapped file; sizes are checked before they are used."""

import mmap
import struct

import numpy as np

from host_tier.errors import InputError

# Real headers (vocabulary, merges, tensor list) are 5 to 25 MB. Nothing beyond this is read as a header, so a
# damaged length in a 100 GB file cannot make us decode, or allocate, the tensor data.
MAX_HEADER_BYTES = 256 << 20

_U32 = struct.Struct("<I").unpack_from
_U64 = struct.Struct("<Q").unpack_from


def quoted(text: str) -> str:
    """A name from a file as it can stand in a message: one line, at most about 80 characters."""
    return repr(text if len(text) <= 80 else text[:77] + "...")


class Cursor:
    """A reading position in a mapped file.

    Attributes:
      offset: next byte to read.
      path: the file, for messages.
    """

    def __init__(self, buffer: mmap.mmap, offset: int, path: str):
        self.offset = offset
        self.path = path
        self._buffer = buffer
        self._end = min(len(buffer), MAX_HEADER_BYTES)

    def error(self, problem: str) -> InputError:
        """The error to raise for a problem of this file."""
        return InputError(f"{self.path}: {problem}")

    def require(self, num_bytes: int, what: str) -> None:
        """Raises InputError unless `num_bytes` more bytes are there for `what`."""
        if num_bytes > self._end - self.offset:
            raise self._beyond_end(num_bytes, what)

    def u32(self, what: str) -> int:
        """Reads an unsigned 32-bit integer."""
        return _U32(self._buffer, self._take(4, what))[0]

    def u64(self, what: str) -> int:
        """Reads an unsigned 64-bit integer."""
        return _U64(self._buffer, self._take(8, what))[0]

    def text(self, what: str) -> str:
        """Reads a string: its length in bytes, then UTF-8."""
        length = self.u64(f"the length of {what}")
        start = self._take(length, what)
        try:
            return self._buffer[start : self.offset].decode()
        except UnicodeDecodeError as error:
            raise self.error(f"{what} is not valid UTF-8 (byte {start + error.start:,})") from None

    def texts(self, count: int, what: str) -> list[str]:
        """Reads `count` strings; one tight loop, since vocabularies have 250,000 of them."""
        self.require(8 * count, what)
        buffer, end, position = self._buffer, self._end, self.offset
        found: list[str] = []
        try:
            for _ in range(count):
                start = position + 8
                stop = start + _U64(buffer, position)[0] if start <= end else start
                if stop > end:
                    self.offset = position
                    raise self._beyond_end(stop - position, f"{what}, item {len(found)} of {count:,}")
                found.append(buffer[start:stop].decode())
                position = stop
        except UnicodeDecodeError:
            raise self.error(f"{what}, item {len(found)} of {count:,}, is not valid UTF-8") from None
        self.offset = position
        return found

    def numbers(self, dtype: np.dtype, count: int, what: str) -> np.ndarray:
        """Reads `count` numbers as one view of the mapping."""
        start = self._take(dtype.itemsize * count, what)
        # numpy refuses an empty view at the very end of a buffer.
        return np.frombuffer(self._buffer, dtype, count, start) if count else np.empty(0, dtype)

    def _take(self, num_bytes: int, what: str) -> int:
        self.require(num_bytes, what)
        start = self.offset
        self.offset = start + num_bytes
        return start

    def _beyond_end(self, num_bytes: int, what: str) -> InputError:
        if self._end < len(self._buffer):
            limit = f"the {self._end >> 20} MiB that a header may have"
        else:
            limit = f"the {self._end:,} bytes of the file"
        return self.error(
            f"truncated or damaged: {what} ({num_bytes:,} bytes from byte {self.offset:,} on) "
            f"goes beyond {limit}"
        )
