"""SentencePiece's compiled normalization table: replaces the longest known sequence at a place.

The table is a double array (a trie in one array of 32-bit units) followed by the replacements, each ending in NUL:

    uint32 size of the array in bytes | array | replacements

A unit has an offset to its children (bits 10 to 30, times 256 if bit 9 is set), the byte that leads to it (bits 0 to
7), and whether a replacement ends here (bit 8). The replacement's position is in bits 0 to 30 of the first child.
"""

import numpy as np

from host_tier.errors import InputError


class Charsmap:
    """Longest-match replacement on UTF-8."""

    def __init__(self, table: bytes):
        size = int.from_bytes(table[:4], "little")
        if len(table) < 4 or 4 + size >= len(table):
            raise InputError("tokenizer.ggml.precompiled_charsmap is cut short")
        self._units = np.frombuffer(table, "<u4", size // 4, 4).tolist()
        self._replacements = table[4 + size :]

    def replace_at(self, text: bytes, position: int) -> tuple[bytes, int] | None:
        """Returns the replacement of the longest known sequence at a position and that sequence's length."""
        units = self._units
        found = None
        try:
            node = _children(units[0])
            for offset in range(position, len(text)):
                byte = text[offset]
                node ^= byte
                unit = units[node]
                if byte == 0 or unit & 0x800000FF != byte:
                    break
                node ^= _children(unit)
                if unit & 0x100:
                    found = units[node] & 0x7FFFFFFF, offset + 1 - position
            if found is None:
                return None
            stop = self._replacements.index(b"\0", found[0])
        except (IndexError, ValueError):
            raise InputError("tokenizer.ggml.precompiled_charsmap points outside itself") from None
        return self._replacements[found[0] : stop], found[1]


def _children(unit: int) -> int:
    return (unit >> 10) << ((unit & 0x200) >> 6)
