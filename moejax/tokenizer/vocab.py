"""A GGUF file's vocabulary: the `tokenizer.ggml.*` keys, read, checked and put in plain Python types.

Knows keys and their consistency. Does not know how text becomes tokens.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from host_tier.errors import InputError
from moejax.tokenizer import special_tokens
from moejax.tokenizer.special_tokens import TokenAttribute

_PREFIX = "tokenizer.ggml."
SUPPORTED_MODELS = ("gpt2", "llama", "t5")

# tokenizer.ggml.token_type -> attribute; 0 and anything unknown are "undefined" and decode to nothing.
_ATTRIBUTE_OF_TYPE = (
    TokenAttribute.UNDEFINED,
    TokenAttribute.NORMAL,
    TokenAttribute.UNKNOWN,
    TokenAttribute.CONTROL,
    TokenAttribute.USER_DEFINED,
    TokenAttribute.UNUSED,
    TokenAttribute.BYTE,
)


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Vocab:
    """A checked vocabulary.

    Attributes:
      model: kind of tokenizer: `gpt2` (byte-level BPE), `llama` (SentencePiece BPE) or `t5` (unigram).
      pre: name of the pre-tokenizer; only `gpt2` has several.
      tokens: text of each id, as stored (byte-level texts use GPT-2's printable alphabet).
      ids: id of each text.
      attributes: `TokenAttribute` bits of each id, after the corrections of `special_tokens.resolve`.
      scores: score of each id; zeros when the file has none.
      merges: pairs of texts in order of rank; empty unless `gpt2`.
      special: ids with a role.
      eog_ids: ids that end generation.
      add_bos: whether BOS is put in front when special tokens are asked for.
      add_eos: whether EOS is appended then.
      add_space_prefix: whether text starts with a space that the caller did not write (`llama`, `t5`).
      remove_extra_whitespaces: whether runs of spaces count as one (`t5`).
      charsmap: SentencePiece's normalization table (`t5`), else empty.
    """

    model: str
    pre: str
    tokens: list[str]
    ids: dict[str, int]
    attributes: list[int]
    scores: list[float]
    merges: list[tuple[str, str]]
    special: special_tokens.SpecialIds
    eog_ids: frozenset[int]
    add_bos: bool
    add_eos: bool
    add_space_prefix: bool
    remove_extra_whitespaces: bool
    charsmap: bytes

    @classmethod
    def from_metadata(cls, metadata: Mapping[str, Any], *, pre_adds_bos: bool = False) -> "Vocab":
        """Reads and checks the vocabulary.

        Args:
          metadata: GGUF key -> value; arrays as lists or numpy arrays.
          pre_adds_bos: what `add_bos_token` means for this pre-tokenizer when the key is absent.

        Raises:
          InputError: a key is missing, of the wrong kind, or contradicts another one.
        """
        model = read_model(metadata)
        tokens = _read_tokens(metadata)
        num_tokens = len(tokens)
        ids = _index_tokens(tokens)
        types = _read_numbers(metadata, "token_type", num_tokens)
        known = len(_ATTRIBUTE_OF_TYPE)
        attributes: list[int] = (
            [TokenAttribute.NORMAL.value] * num_tokens
            if types is None
            else [_ATTRIBUTE_OF_TYPE[t if 0 <= t < known else 0].value for t in types]
        )
        scores = _read_numbers(metadata, "scores", num_tokens)
        if scores is None and model != "gpt2":
            raise InputError(f"a tokenizer of model '{model}' needs {_PREFIX}scores, and the file has none")
        special, eog_ids = special_tokens.resolve(metadata, model=model, ids=ids, attributes=attributes)
        special_tokens.require_byte_texts(tokens, attributes)
        return cls(
            model=model,
            pre=read_pre(metadata),
            tokens=tokens,
            ids=ids,
            attributes=attributes,
            scores=[0.0] * num_tokens if scores is None else scores,
            merges=_read_merges(metadata, ids) if model == "gpt2" else [],
            special=special,
            eog_ids=eog_ids,
            add_bos=_read_bool(metadata, "add_bos_token", model == "llama" or pre_adds_bos),
            add_eos=_read_bool(metadata, "add_eos_token", model == "t5"),
            add_space_prefix=_read_bool(metadata, "add_space_prefix", model == "llama"),
            remove_extra_whitespaces=_read_bool(metadata, "remove_extra_whitespaces", False),
            charsmap=_read_bytes(metadata, "precompiled_charsmap"),
        )


def read_model(metadata: Mapping[str, Any]) -> str:
    """Returns `tokenizer.ggml.model`, refusing the ones that this package has no algorithm for."""
    model = metadata.get(_PREFIX + "model")
    if model is None:
        raise InputError(f"the file has no {_PREFIX}model, so it has no tokenizer")
    if model not in SUPPORTED_MODELS:
        raise InputError(
            f"tokenizer model {model!r} is not supported; supported: {', '.join(SUPPORTED_MODELS)}"
        )
    return model


def read_pre(metadata: Mapping[str, Any]) -> str:
    """Returns `tokenizer.ggml.pre`; files from before that key existed count as `default`."""
    pre = metadata.get(_PREFIX + "pre")
    if pre is not None and not isinstance(pre, str):
        raise InputError(f"{_PREFIX}pre must be a string, found {type(pre).__name__}")
    return pre or "default"


def _read_array(metadata: Mapping[str, Any], name: str) -> Sequence[Any] | np.ndarray | None:
    values = metadata.get(_PREFIX + name)
    if values is not None and not isinstance(values, list | tuple | np.ndarray):
        raise InputError(f"{_PREFIX}{name} must be an array, found {type(values).__name__}")
    return values


def _read_strings(metadata: Mapping[str, Any], name: str) -> list[str]:
    values = _read_array(metadata, name)
    if values is None:
        raise InputError(f"the file has no {_PREFIX}{name}")
    strings = values.tolist() if isinstance(values, np.ndarray) else list(values)
    if not all(isinstance(value, str) for value in strings):
        raise InputError(f"{_PREFIX}{name} must hold only strings")
    return strings


def _read_tokens(metadata: Mapping[str, Any]) -> list[str]:
    tokens = _read_strings(metadata, "tokens")
    if not tokens:
        raise InputError(f"{_PREFIX}tokens is empty")
    if "" in tokens:
        # An empty text would match everywhere: give such tokens a name, as llama.cpp does.
        tokens = [text or f"[EMPTY_{idx}]" for idx, text in enumerate(tokens)]
    return tokens


def _index_tokens(tokens: list[str]) -> dict[str, int]:
    ids = {text: idx for idx, text in enumerate(tokens)}
    if len(ids) != len(tokens):
        first = next(idx for idx, text in enumerate(tokens) if ids[text] != idx)
        raise InputError(f"{_PREFIX}tokens has {tokens[first]!r} twice: ids {first} and {ids[tokens[first]]}")
    return ids


def _read_numbers(metadata: Mapping[str, Any], name: str, num_tokens: int) -> list[Any] | None:
    values = _read_array(metadata, name)
    if values is None:
        return None
    array = np.asarray(values)
    if array.ndim != 1 or (array.dtype.kind not in "iuf" and len(array)):
        raise InputError(f"{_PREFIX}{name} must hold only numbers")
    if len(array) != num_tokens:
        raise InputError(f"{_PREFIX}{name} has {len(array)} entries for {num_tokens} tokens")
    if name == "token_type":
        array = array.astype(np.int64)
    return array.tolist()


def _read_merges(metadata: Mapping[str, Any], ids: dict[str, int]) -> list[tuple[str, str]]:
    lines = _read_strings(metadata, "merges")
    # The first of two equal merges counts; a dict keeps first positions.
    merges = [
        (line[:cut], line[cut + 1 :]) for line in dict.fromkeys(lines) if (cut := line.find(" ", 1)) > 0
    ]
    if len(merges) != len(set(lines)):
        bad = next(line for line in lines if line.find(" ", 1) <= 0)
        raise InputError(f"{_PREFIX}merges has {bad!r}, which is not two texts with a space between")
    for left, right in merges:
        if left not in ids or right not in ids or left + right not in ids:
            missing = next(text for text in (left, right, left + right) if text not in ids)
            raise InputError(f"{_PREFIX}merges joins {left!r} and {right!r}, but {missing!r} is not a token")
    return merges


def _read_bool(metadata: Mapping[str, Any], name: str, default: bool) -> bool:
    value = metadata.get(_PREFIX + name, default)
    if not isinstance(value, bool | np.bool_):
        raise InputError(f"{_PREFIX}{name} must be a bool, found {type(value).__name__}")
    return bool(value)


def _read_bytes(metadata: Mapping[str, Any], name: str) -> bytes:
    values = _read_array(metadata, name)
    # Stored as int8 or uint8: both are the same bytes.
    return b"" if values is None else (np.asarray(values).astype(np.int64) & 0xFF).astype(np.uint8).tobytes()
