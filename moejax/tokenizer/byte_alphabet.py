"""GPT-2's printable alphabet: byte-level vocabularies write each byte as one visible character."""

from collections.abc import Mapping


def _char_of_byte() -> list[str]:
    visible = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    # The other 68 bytes take the characters from U+0100 on, in order.
    spare = iter(range(0x100, 0x200))
    return [chr(byte if byte in visible else next(spare)) for byte in range(256)]


CHAR_OF_BYTE: tuple[str, ...] = tuple(_char_of_byte())
_BYTES_OF_CHAR: Mapping[int, str] = {ord(char): chr(byte) for byte, char in enumerate(CHAR_OF_BYTE)}


def to_bytes(text: str) -> bytes:
    """Returns the bytes that a byte-level token stands for.

    Characters outside the alphabet can only come from a damaged vocabulary; they stand for their own UTF-8.
    """
    try:
        return text.translate(_BYTES_OF_CHAR).encode("latin-1")
    except UnicodeEncodeError:
        return b"".join(
            _BYTES_OF_CHAR[ord(char)].encode("latin-1")
            if ord(char) in _BYTES_OF_CHAR
            else char.encode("utf-8", "replace")
            for char in text
        )
