"""Byte-level BPE (`tokenizer.ggml.model = gpt2`): words by the pre-tokenizer, merges by the `tokenizers` library."""

import tokenizers
from tokenizers import models, pre_tokenizers

from host_tier.errors import InputError
from moejax.tokenizer import byte_alphabet
from moejax.tokenizer.pre_tokenizers import PreTokenizer, as_of_unicode_15
from moejax.tokenizer.vocab import Vocab


class BpeEncoder:
    """Text without special tokens to ids."""

    def __init__(self, vocab: Vocab, pre_tokenizer: PreTokenizer):
        self._num_tokens = len(vocab.tokens)
        # A byte without a token yields nothing, but still keeps its neighbours apart. The library would let them
        # merge, so such bytes get ids past the end, which are dropped afterwards.
        absent = [char for char in byte_alphabet.CHAR_OF_BYTE if char not in vocab.ids]
        ids = (
            vocab.ids | {char: self._num_tokens + idx for idx, char in enumerate(absent)}
            if absent
            else vocab.ids
        )
        self._has_absent_bytes = bool(absent)
        try:
            model = models.BPE(vocab=ids, merges=vocab.merges, ignore_merges=pre_tokenizer.ignore_merges)
        except Exception as error:  # the library raises plain Exception
            reason = " ".join(str(error).split())
            raise InputError(f"the vocabulary cannot be used: {reason[:200]}") from None
        self._tokenizer = tokenizers.Tokenizer(model)
        splits = [
            pre_tokenizers.Split(tokenizers.Regex(as_of_unicode_15(pattern)), "isolated")
            for pattern in pre_tokenizer.patterns
        ]
        to_alphabet = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        self._tokenizer.pre_tokenizer = pre_tokenizers.Sequence([*splits, to_alphabet])

    def encode(self, text: str) -> list[int]:
        """Returns the ids of text that holds no special tokens."""
        ids = self._tokenizer.encode(text, add_special_tokens=False).ids
        if self._has_absent_bytes:
            ids = [idx for idx in ids if idx < self._num_tokens]
        return ids
