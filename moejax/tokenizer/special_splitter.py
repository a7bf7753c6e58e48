"""Finds special tokens written out in text, before any other step."""

from collections.abc import Sequence

from moejax.tokenizer.special_tokens import TokenAttribute
from moejax.tokenizer.vocab import Vocab

_ALWAYS = TokenAttribute.USER_DEFINED.value
_HIDDEN = (TokenAttribute.CONTROL | TokenAttribute.UNKNOWN).value
_C_SPACES = " \t\n\v\f\r"


class SpecialSplitter:
    """Cuts text into special tokens (ids) and what lies between (strings).

    Longer special tokens win over shorter ones anywhere in the text, not only at the same place.
    """

    def __init__(self, vocab: Vocab, *, strip_left: frozenset[int], strip_right: frozenset[int]):
        special = [idx for idx, bits in enumerate(vocab.attributes) if bits & (_ALWAYS | _HIDDEN)]
        special.sort(key=lambda idx: -len(vocab.tokens[idx].encode("utf-8", "replace")))
        self._all = [(idx, vocab.tokens[idx]) for idx in special]
        self._user_defined = [(idx, text) for idx, text in self._all if not vocab.attributes[idx] & _HIDDEN]
        self._strip_left = strip_left
        self._strip_right = strip_right

    def split(self, text: str, *, parse_special: bool) -> list[int | str]:
        """Returns ids and non-empty strings in order.

        Args:
          text: any text.
          parse_special: whether control tokens count; user-defined ones always do.
        """
        parts: list[int | str] = [text] if text else []
        for idx, special in self._all if parse_special else self._user_defined:
            if special in text:
                parts = self._split_at(parts, idx, special)
        return parts

    def _split_at(self, parts: Sequence[int | str], idx: int, special: str) -> list[int | str]:
        output: list[int | str] = []
        for part in parts:
            if isinstance(part, int):
                output.append(part)
                continue
            between = part.split(special)
            for position, piece in enumerate(between):
                if position > 0:
                    output.append(idx)
                    if idx in self._strip_right:
                        piece = piece.lstrip(_C_SPACES)
                if idx in self._strip_left and position < len(between) - 1:
                    piece = piece.rstrip(_C_SPACES)
                if piece:
                    output.append(piece)
        return output
