"""Text out of tokens one at a time: a token may end in the middle of a character."""

import codecs
from typing import Protocol


class _TokenSource(Protocol):
    def token_bytes(self, idx: int) -> bytes: ...

    def is_special(self, idx: int) -> bool: ...


class StreamDecoder:
    """Gives out text as soon as its characters are complete.

    The pieces put together are `Tokenizer.decode` of all ids.
    """

    def __init__(self, tokenizer: _TokenSource, *, skip_special: bool = False):
        self._tokenizer = tokenizer
        self._skip_special = skip_special
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, idx: int) -> str:
        """Returns the text that this token completes; the start of an unfinished character is kept."""
        if self._skip_special and self._tokenizer.is_special(idx):
            return ""
        return self._decoder.decode(self._tokenizer.token_bytes(idx))

    def flush(self) -> str:
        """Returns U+FFFD if a character was left unfinished, and starts afresh."""
        rest = self._decoder.decode(b"", True)
        self._decoder.reset()
        return rest
