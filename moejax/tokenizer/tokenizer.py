"""Text to token ids and back, as the GGUF file's vocabulary says and llama.cpp does it."""

import re
from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from host_tier.errors import InputError
from moejax.tokenizer import byte_alphabet, special_tokens
from moejax.tokenizer.bpe import BpeEncoder
from moejax.tokenizer.pre_tokenizers import find_pre_tokenizer
from moejax.tokenizer.special_splitter import SpecialSplitter
from moejax.tokenizer.special_tokens import SpecialIds, TokenAttribute
from moejax.tokenizer.spm import ESCAPED_SPACE, SpmEncoder
from moejax.tokenizer.stream_decoder import StreamDecoder
from moejax.tokenizer.unigram import UnigramEncoder
from moejax.tokenizer.vocab import Vocab, read_model, read_pre

_HIDDEN = (TokenAttribute.CONTROL | TokenAttribute.UNKNOWN).value
_VERBATIM = _HIDDEN | TokenAttribute.USER_DEFINED.value
_SURROGATES = re.compile("[\ud800-\udfff]")


class _Encoder(Protocol):
    def encode(self, text: str) -> list[int]: ...


class Tokenizer:
    r"""A vocabulary with its algorithm. Safe to share between threads.

    Example usage:

    ```
    tokenizer = Tokenizer.from_metadata(open_gguf(path).metadata)
    ids = tokenizer.encode("<|im_start|>user\nHi", parse_special=True)
    tokenizer.decode(ids)
    ```
    """

    def __init__(self, vocab: Vocab, encoder: _Encoder, splitter: SpecialSplitter):
        self._vocab = vocab
        self._encoder = encoder
        self._splitter = splitter
        self._bytes: list[bytes | None] = [None] * len(vocab.tokens)

    @classmethod
    def from_metadata(cls, metadata: Mapping[str, Any]) -> "Tokenizer":
        """Builds the tokenizer of a GGUF file.

        Args:
          metadata: GGUF key -> value; arrays as lists or numpy arrays.

        Raises:
          InputError: the kind of tokenizer is not supported, or the vocabulary is damaged.
        """
        model = read_model(metadata)
        if model == "gpt2":
            pre_tokenizer = find_pre_tokenizer(read_pre(metadata))
            vocab = Vocab.from_metadata(metadata, pre_adds_bos=pre_tokenizer.add_bos)
            encoder: _Encoder = BpeEncoder(vocab, pre_tokenizer)
        else:
            vocab = Vocab.from_metadata(metadata)
            encoder = SpmEncoder(vocab) if model == "llama" else UnigramEncoder(vocab)
        for name, wanted, idx in (
            ("bos", vocab.add_bos, vocab.special.bos),
            ("eos", vocab.add_eos, vocab.special.eos),
        ):
            if wanted and idx is None:
                raise InputError(
                    f"the vocabulary asks to add {name.upper()}, but has no tokenizer.ggml.{name}_token_id"
                )
        strip_left, strip_right = _strip_rules(metadata, vocab)
        splitter = SpecialSplitter(vocab, strip_left=strip_left, strip_right=strip_right)
        return cls(vocab, encoder, splitter)

    @property
    def vocab_size(self) -> int:
        """Number of ids."""
        return len(self._vocab.tokens)

    @property
    def special(self) -> SpecialIds:
        """Ids with a role (BOS, EOS, ...)."""
        return self._vocab.special

    @property
    def eog_ids(self) -> frozenset[int]:
        """Ids that end generation."""
        return self._vocab.eog_ids

    @property
    def add_bos(self) -> bool:
        """Whether `encode(add_special=True)` puts BOS in front."""
        return self._vocab.add_bos

    @property
    def add_eos(self) -> bool:
        """Whether `encode(add_special=True)` appends EOS."""
        return self._vocab.add_eos

    def encode(self, text: str, add_special: bool = True, parse_special: bool = False) -> list[int]:
        """Returns the ids of a text.

        Args:
          text: any text; lone surrogates count as U+FFFD.
          add_special: put BOS in front and EOS behind, if the vocabulary asks for it.
          parse_special: control tokens written in the text become those tokens; otherwise they are plain text.
            User-defined tokens are always found.
        """
        text = _SURROGATES.sub("\ufffd", text)
        vocab = self._vocab
        # Only SentencePiece BPE puts a space in front here; unigram does so while it normalizes.
        prefix = " " if vocab.model == "llama" and vocab.add_space_prefix else ""
        output: list[int] = []
        if add_special and vocab.add_bos and vocab.special.bos is not None:
            output.append(vocab.special.bos)
        after_special = True
        for part in self._splitter.split(text, parse_special=parse_special):
            if isinstance(part, int):
                output.append(part)
                after_special = True
            else:
                output += self._encoder.encode(prefix + part if after_special else part)
                after_special = False
        if add_special and vocab.add_eos and vocab.special.eos is not None:
            output.append(vocab.special.eos)
        return output

    def decode(self, ids: Iterable[int], skip_special: bool = False) -> str:
        """Returns the text of ids: their bytes one after the other, invalid UTF-8 as U+FFFD.

        Args:
          ids: token ids.
          skip_special: leave out control and unknown tokens.
        """
        kept = (idx for idx in ids if not (skip_special and self.is_special(idx)))
        return b"".join(map(self.token_bytes, kept)).decode("utf-8", "replace")

    def stream(self, skip_special: bool = False) -> StreamDecoder:
        """Returns a decoder that takes one id at a time."""
        return StreamDecoder(self, skip_special=skip_special)

    def token_text(self, idx: int) -> str:
        """Returns the text of a token as the file has it."""
        return self._vocab.tokens[self._check(idx)]

    def token_id(self, text: str) -> int | None:
        """Returns the id whose stored text this is, or None."""
        return self._vocab.ids.get(text)

    def token_bytes(self, idx: int) -> bytes:
        """Returns the bytes that a token adds to the text."""
        known = self._bytes[self._check(idx)]
        if known is None:
            known = self._bytes[idx] = self._compute_bytes(idx)
        return known

    def is_special(self, idx: int) -> bool:
        """Whether a token is control or unknown, so that readers should not see it."""
        return bool(self._vocab.attributes[self._check(idx)] & _HIDDEN)

    def is_eog(self, idx: int) -> bool:
        """Whether a token ends generation."""
        return idx in self._vocab.eog_ids

    def _check(self, idx: int) -> int:
        if not 0 <= idx < len(self._vocab.tokens):
            raise InputError(
                f"token id {idx} is out of range: the vocabulary has {len(self._vocab.tokens)} tokens"
            )
        return idx

    def _compute_bytes(self, idx: int) -> bytes:
        text, bits = self._vocab.tokens[idx], self._vocab.attributes[idx]
        if bits & _VERBATIM:
            return text.encode("utf-8", "replace")
        if bits & TokenAttribute.NORMAL:
            if self._vocab.model == "gpt2":
                return byte_alphabet.to_bytes(text)
            return text.replace(ESCAPED_SPACE, " ").encode("utf-8", "replace")
        if bits & TokenAttribute.BYTE:
            byte = special_tokens.byte_of_text(text)
            return b"" if byte is None else bytes([byte])
        return b""  # unused and undefined tokens are place holders


def _strip_rules(metadata: Mapping[str, Any], vocab: Vocab) -> tuple[frozenset[int], frozenset[int]]:
    """Returns which special tokens swallow the white space to their left, and to their right.

    Files do not say; llama.cpp knows two kinds of models by name, and so do we.
    """
    if "nomic-bert-moe" in str(metadata.get("general.architecture", "")):
        mask = vocab.ids.get("<mask>")
        return frozenset(() if mask is None else (mask,)), frozenset()
    name = str(metadata.get("general.name", "")).lower()
    if "phi-3" in name or "phi3" in name:
        special = {idx for idx, bits in enumerate(vocab.attributes) if bits & _VERBATIM} | {
            vocab.ids.get("</s>", -1)
        }
        return frozenset(), frozenset(
            special - {vocab.ids.get(text) for text in ("<unk>", "<s>", "<|endoftext|>")}
        )
    return frozenset(), frozenset()
