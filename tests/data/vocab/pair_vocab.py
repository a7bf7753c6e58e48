"""A vocabulary made up to show where text was cut into words: every two bytes of a word join, lowest pair first."""

from typing import Any

from moejax.tokenizer import byte_alphabet


def pair_metadata(pre: str) -> dict[str, Any]:
    """Returns the metadata of a byte-level vocabulary of all bytes and all pairs of bytes."""
    chars = byte_alphabet.CHAR_OF_BYTE
    pairs = [(left, right) for left in chars for right in chars]
    tokens = [*chars, *(left + right for left, right in pairs), "<|endoftext|>"]
    return {
        "general.architecture": "llama",
        "general.name": "pairs",
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": pre,
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [1] * (len(tokens) - 1) + [3],
        "tokenizer.ggml.merges": [f"{left} {right}" for left, right in pairs],
        "tokenizer.ggml.bos_token_id": len(tokens) - 1,
        "tokenizer.ggml.eos_token_id": len(tokens) - 1,
    }
