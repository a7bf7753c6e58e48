"""Roles and end-of-generation ids, found as llama.cpp finds them."""

import pytest

from moejax.tokenizer.special_tokens import TokenAttribute, byte_of_text, resolve

NORMAL = TokenAttribute.NORMAL.value


def find(*texts, model="gpt2", **keys):
    """Returns special ids and EOG texts of a vocabulary of normal tokens, and the attributes by text."""
    attributes = [NORMAL] * len(texts)
    metadata = {f"tokenizer.ggml.{key}": value for key, value in keys.items()}
    special, eog = resolve(
        metadata, model=model, ids={text: idx for idx, text in enumerate(texts)}, attributes=attributes
    )
    return special, {texts[idx] for idx in eog}, dict(zip(texts, attributes))


def test_keys():
    special, eog, attributes = find("a", "b", "c", "d", eos_token_id=1, eot_token_id=2, eom_token_id=3)
    assert (special.bos, special.eos, special.eot, special.eom) == (None, 1, 2, 3)
    assert eog == {"b", "c", "d"}
    assert set(attributes.values()) == {NORMAL}


def test_old_keys():
    special, _, _ = find("a", "b", "c", "d", prefix_token_id=1, suffix_token_id=2, middle_token_id=3)
    assert (special.fim_pre, special.fim_suf, special.fim_mid) == (1, 2, 3)


@pytest.mark.parametrize(
    ("model", "expected"),
    [("llama", (1, 2, 0, None)), ("t5", (None, 1, 2, 0)), ("gpt2", (None, None, None, None))],
)
def test_defaults(model, expected):
    special, _, _ = find("a", "b", "c", model=model)
    assert (special.bos, special.eos, special.unk, special.pad) == expected
    tiny, _, _ = find("a", model=model)
    assert tiny.eos is None, "a default past the end is no token"


@pytest.mark.parametrize(
    "text",
    ["<|im_end|>", "<|endoftext|>", "<|eot_id|>", "<end_of_turn>", "<|end|>", "</s>", "<eos>", "[EOS]"],
)
def test_well_known_texts_end_generation(text):
    _, eog, attributes = find("x", text)
    assert eog == {text}
    assert attributes[text] & TokenAttribute.CONTROL
    assert attributes["x"] == NORMAL


def test_qwen():
    texts = (
        "<|endoftext|>",
        "<|im_start|>",
        "<|im_end|>",
        "<|fim_prefix|>",
        "<|fim_suffix|>",
        "<|fim_middle|>",
    )
    special, eog, attributes = find(*texts, "<|fim_pad|>", "<|repo_name|>", "<|file_sep|>", eos_token_id=2)
    assert eog == {"<|endoftext|>", "<|im_end|>", "<|fim_pad|>", "<|repo_name|>", "<|file_sep|>"}
    assert (special.eot, special.fim_pre, special.fim_suf, special.fim_mid) == (2, 3, 4, 5)
    assert (special.fim_pad, special.fim_rep, special.fim_sep) == (6, 7, 8)
    assert attributes["<|im_start|>"] == NORMAL


def test_harmony_keeps_end_as_a_mark_inside_a_reply():
    _, eog, attributes = find("<|return|>", "<|call|>", "<|end|>", "<|start|>", "<|message|>", eos_token_id=0)
    assert eog == {"<|return|>", "<|call|>"}
    assert attributes["<|end|>"] == attributes["<|start|>"] == TokenAttribute.USER_DEFINED
    _, eog, _ = find("<|calls|>", "<|flush|>", "<|end|>")
    assert eog == {"<|calls|>", "<|flush|>"}
    _, eog, _ = find("<|return|>", "<|end|>")
    assert eog == {"<|return|>", "<|end|>"}


def test_html_tag_that_looks_like_an_end():
    _, eog, attributes = find("</s>", "<|tool_response>")
    assert eog == {"<|tool_response>"}
    assert attributes["</s>"] == NORMAL


@pytest.mark.parametrize(
    ("text", "byte"),
    [
        ("<0x00>", 0),
        ("<0xFF>", 255),
        ("<0x0a>", 10),
        ("<0x0>", None),
        ("<0x+1>", None),
        ("<0x000>", None),
        ("", None),
    ],
)
def test_byte_texts(text, byte):
    assert byte_of_text(text) == byte
