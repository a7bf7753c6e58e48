"""Vocabularies for the tokenizer's tests: real ones, unpacked, and a tiny one made here."""

import functools
import lzma
import pathlib
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from host_tier.gguf_index import open_gguf
from moejax.tokenizer import Tokenizer, byte_alphabet

VOCABS = pathlib.Path(__file__).parents[2] / "data" / "vocab"
# llama.cpp's qwen35 test vocabulary is qwen2's with another pre-tokenizer.
SAME_TOKENS = {"qwen35": "qwen2"}


@pytest.fixture(scope="session")
def vocab_path(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], pathlib.Path]:
    """Path of an unpacked file of tests/data/vocab, by name."""
    folder = tmp_path_factory.mktemp("vocab")

    @functools.cache
    def unpack(name: str) -> pathlib.Path:
        path = folder / f"{name}.gguf"
        path.write_bytes(lzma.decompress((VOCABS / f"{name}.gguf.xz").read_bytes()))
        return path

    return unpack


@pytest.fixture(scope="session")
def vocab_metadata(vocab_path: Callable[[str], pathlib.Path]) -> Callable[[str], dict[str, Any]]:
    """Metadata of a file in tests/data/vocab, by name."""

    @functools.cache
    def read(name: str) -> Mapping[str, Any]:
        with open_gguf(vocab_path(name)) as index:
            return index.metadata

    def copy(name: str) -> dict[str, Any]:
        metadata = dict(read(SAME_TOKENS.get(name, name)))
        if name in SAME_TOKENS:
            metadata["tokenizer.ggml.pre"] = name
        return metadata

    return copy


@pytest.fixture(scope="session")
def real_tokenizer(vocab_metadata: Callable[[str], dict[str, Any]]) -> Callable[[str], Tokenizer]:
    """Tokenizer of a file in tests/data/vocab, by name."""
    return functools.cache(lambda name: Tokenizer.from_metadata(vocab_metadata(name)))


NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)


@pytest.fixture
def tiny_metadata() -> dict[str, Any]:
    """A byte-level vocabulary: 256 bytes, "he" "hel" "hell" "hello", then special tokens."""
    merges = ["h e", "he l", "hel l", "hell o"]
    tokens = [*byte_alphabet.CHAR_OF_BYTE, *(merge.replace(" ", "") for merge in merges)]
    kinds = [NORMAL] * len(tokens)
    for text, kind in (
        ("<bos>", CONTROL),
        ("<|im_end|>", CONTROL),
        ("<tag>", USER_DEFINED),
        ("[PAD0]", UNUSED),
        ("<unknown>", UNKNOWN),
    ):
        tokens.append(text)
        kinds.append(kind)
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": kinds,
        "tokenizer.ggml.merges": merges,
        "tokenizer.ggml.bos_token_id": 260,
        "tokenizer.ggml.eos_token_id": 261,
    }


@pytest.fixture
def spm_metadata() -> Callable[..., dict[str, Any]]:
    """A SentencePiece vocabulary: unknown, BOS, EOS, 256 bytes, then the given texts with their scores."""

    def make(pieces: dict[str, float], model: str = "llama", **more: Any) -> dict[str, Any]:
        tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *pieces]
        return {
            "tokenizer.ggml.model": model,
            "tokenizer.ggml.tokens": tokens,
            "tokenizer.ggml.scores": [0.0] * 259 + list(pieces.values()),
            "tokenizer.ggml.token_type": [UNKNOWN, CONTROL, CONTROL, *[BYTE] * 256, *[NORMAL] * len(pieces)],
            **{f"tokenizer.ggml.{key}": value for key, value in more.items()},
        }

    return make
