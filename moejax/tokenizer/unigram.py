"""SentencePiece unigram (`tokenizer.ggml.model = t5`): the cut into tokens with the best sum of scores."""

import math

import numpy as np

from moejax.tokenizer.charsmap import Charsmap
from moejax.tokenizer.special_tokens import TokenAttribute
from moejax.tokenizer.spm import ESCAPED_SPACE
from moejax.tokenizer.vocab import Vocab

_UNKNOWN_PENALTY = 10.0
_NORMAL = TokenAttribute.NORMAL.value
_USER_DEFINED = TokenAttribute.USER_DEFINED.value
_MATCHED = (TokenAttribute.NORMAL | TokenAttribute.USER_DEFINED | TokenAttribute.UNUSED).value


class UnigramEncoder:
    """Text without special tokens to ids."""

    def __init__(self, vocab: Vocab):
        self._charsmap = Charsmap(vocab.charsmap) if vocab.charsmap else None
        self._add_space_prefix = vocab.add_space_prefix
        self._merge_spaces = vocab.remove_extra_whitespaces
        self._unk = vocab.special.unk
        self._entries: dict[str, tuple[int, float]] = {}
        self._longest: dict[str, int] = {}
        self._user_defined: dict[int, list[bytes]] = {}
        normal = [score for score, bits in zip(vocab.scores, vocab.attributes) if bits & _NORMAL]
        # Single precision, as scores are: the sum of a cut can hang on the last bit.
        self._unknown_score = float(np.float32(min(normal, default=0.0)) - np.float32(_UNKNOWN_PENALTY))
        for idx, (text, bits) in enumerate(zip(vocab.tokens, vocab.attributes)):
            if not bits & _MATCHED:
                continue
            user_defined = bits & _USER_DEFINED
            self._entries[text] = (idx, 0.0 if user_defined else vocab.scores[idx])
            self._longest[text[0]] = max(self._longest.get(text[0], 0), len(text))
            if user_defined:
                encoded = text.encode("utf-8", "replace")
                self._user_defined.setdefault(encoded[0], []).append(encoded)
        for texts in self._user_defined.values():
            texts.sort(key=len, reverse=True)

    def encode(self, text: str) -> list[int]:
        """Returns the ids of text that holds no special tokens."""
        return self._segment(self._normalize(text.encode()))

    def _segment(self, text: str) -> list[int]:
        """Viterbi over characters; a character that is no token costs the unknown score."""
        entries, longest = self._entries, self._longest
        num_chars = len(text)
        best = [0.0] + [-math.inf] * num_chars
        came_from: list[tuple[int, int | None]] = [(0, self._unk)] * (num_chars + 1)
        for start in range(num_chars):
            here = best[start]
            single = False
            for stop in range(start + 1, min(start + longest.get(text[start], 0), num_chars) + 1):
                entry = entries.get(text[start:stop])
                if entry is None:
                    continue
                single = single or stop == start + 1
                if here + entry[1] > best[stop]:
                    best[stop] = here + entry[1]
                    came_from[stop] = (start, entry[0])
            if not single and here + self._unknown_score > best[start + 1]:
                best[start + 1] = here + self._unknown_score
                came_from[start + 1] = (start, self._unk)
        output: list[int] = []
        stop = num_chars
        after_unknown = False
        while stop > 0:
            stop, idx = came_from[stop]
            is_unknown = idx == self._unk
            # A run of unknown characters is one unknown token.
            if idx is not None and not (is_unknown and after_unknown):
                output.append(idx)
            after_unknown = is_unknown
        return output[::-1]

    def _normalize(self, text: bytes) -> str:
        """Applies the normalization table, and writes spaces as the vocabulary does."""
        output: list[bytes] = []
        space = ESCAPED_SPACE.encode()
        in_word = False
        prefixed = False
        position = 0
        while position < len(text):
            piece, length = self._next_piece(text, position)
            position += length
            for byte in piece:
                if byte != 0x20:
                    if not in_word:
                        in_word = True
                        if self._merge_spaces or (self._add_space_prefix and not prefixed):
                            output.append(space)
                            prefixed = True
                    output.append(bytes([byte]))
                else:
                    in_word = False
                    if not self._merge_spaces:
                        output.append(space)
        return b"".join(output).decode("utf-8", "replace")

    def _next_piece(self, text: bytes, position: int) -> tuple[bytes, int]:
        """Returns what the text at a position becomes, and how many bytes that took."""
        # User-defined tokens stay as they are. (llama.cpp also keeps what only begins like one, even when that cuts a
        # character in two; SentencePiece does not.)
        for token in self._user_defined.get(text[position], ()):
            if text.startswith(token, position):
                return token, len(token)
        if self._charsmap is not None and (replaced := self._charsmap.replace_at(text, position)) is not None:
            return replaced
        length = 1
        while position + length < len(text) and text[position + length] & 0xC0 == 0x80:
            length += 1
        return text[position : position + length], length
