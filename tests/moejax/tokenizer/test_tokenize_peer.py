"""Random strings against a llama-tokenize binary, named by LLAMA_TOKENIZE."""

import os
import pathlib
import sys

import pytest

from moejax.tokenizer import Tokenizer

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "data" / "vocab"))
import make_corpus
import make_golden

pytestmark = [
    pytest.mark.peer,
    pytest.mark.skipif("LLAMA_TOKENIZE" not in os.environ, reason="LLAMA_TOKENIZE names no binary"),
]


@pytest.mark.parametrize("name", ["qwen2", "qwen35", "gpt-2", "llama-spm", "smollm"])
def test_random_strings(name, vocab_metadata, tmp_path):
    metadata = vocab_metadata(name)
    # The writer wants lists.
    metadata |= {key: value.tolist() for key, value in metadata.items() if hasattr(value, "tolist")}
    path = tmp_path / "vocab.gguf"
    make_golden.write_vocab(path, metadata)
    texts = [text for text in make_corpus.random_strings(99, 800) if "<" not in text]
    plain, _ = make_golden.expected_ids(os.environ["LLAMA_TOKENIZE"], path, metadata, texts)
    tokenizer = Tokenizer.from_metadata(metadata)
    for text, expected in zip(texts, plain, strict=True):
        assert tokenizer.encode(text, add_special=False) == expected, repr(text)
