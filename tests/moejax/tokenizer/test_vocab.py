"""Damaged and unsupported vocabularies are refused with one line that says what is wrong."""

import numpy as np
import pytest

from host_tier.errors import InputError
from moejax.tokenizer import Tokenizer
from moejax.tokenizer.vocab import Vocab

KEY = "tokenizer.ggml."


def refused(metadata, *, match):
    with pytest.raises(InputError, match=match) as caught:
        Tokenizer.from_metadata(metadata)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("model", ["bert", "rwkv", "plamo2", "gemma4", "no_vocab", "", 3])
def test_unsupported_models(tiny_metadata, model):
    refused(tiny_metadata | {KEY + "model": model}, match="not supported; supported: gpt2, llama, t5")


@pytest.mark.parametrize("pre", ["kimi-k2", "superbpe", "deepseek-llm", "brand-new"])
def test_unsupported_pre_tokenizers(tiny_metadata, pre):
    refused(
        tiny_metadata | {KEY + "pre": pre}, match=f"pre-tokenizer '{pre}' is not supported; .*qwen2, qwen35"
    )


@pytest.mark.parametrize("key", ["model", "tokens", "merges"])
def test_missing_keys(tiny_metadata, key):
    del tiny_metadata[KEY + key]
    refused(tiny_metadata, match=f"has no tokenizer.ggml.{key}")


@pytest.mark.parametrize(
    ("key", "value", "match"),
    [
        ("tokens", [], "tokens is empty"),
        ("tokens", "abc", "tokens must be an array, found str"),
        ("tokens", [1, 2], "tokens must hold only strings"),
        ("token_type", [1, 1], "token_type has 2 entries for 265 tokens"),
        ("token_type", ["a"] * 265, "token_type must hold only numbers"),
        ("token_type", [[1]] * 265, "token_type must hold only numbers"),
        ("scores", [0.0] * 266, "scores has 266 entries for 265 tokens"),
        ("scores", {}, "scores must be an array, found dict"),
        ("merges", ["he"], "merges has 'he', which is not two texts"),
        ("merges", [" he"], "merges has ' he', which is not two texts"),
        ("merges", ["h q"], "joins 'h' and 'q', but 'hq' is not a token"),
        ("merges", ["zz a"], "joins 'zz' and 'a', but 'zz' is not a token"),
        ("merges", [b"h e"], "merges must hold only strings"),
        ("bos_token_id", 265, "bos_token_id is 265, but the vocabulary has 265 tokens"),
        ("eos_token_id", -7, "eos_token_id is -7, but the vocabulary has 265 tokens"),
        ("padding_token_id", 10**12, "padding_token_id is 1000000000000"),
        ("eot_token_id", "x", "eot_token_id must be a token id, found 'x'"),
        ("eom_token_id", None, "eom_token_id must be a token id, found None"),
        ("add_bos_token", "yes", "add_bos_token must be a bool, found str"),
        ("pre", 1, "pre must be a string, found int"),
    ],
)
def test_damage(tiny_metadata, key, value, match):
    refused(tiny_metadata | {KEY + key: value}, match=match)


def test_duplicate_tokens(tiny_metadata):
    tiny_metadata[KEY + "tokens"][7] = "hello"
    refused(tiny_metadata, match="tokens has 'hello' twice: ids 7 and 259")


def test_byte_tokens_must_say_which_byte(spm_metadata):
    metadata = spm_metadata({"a": -1.0})
    metadata[KEY + "tokens"][3] = "<0xG0>"
    refused(metadata, match=r"token 3 is of type byte, but its text is '<0xG0>'")


def test_scores_are_needed_where_they_decide(spm_metadata):
    metadata = spm_metadata({"a": -1.0})
    del metadata[KEY + "scores"]
    refused(metadata, match="a tokenizer of model 'llama' needs tokenizer.ggml.scores")


def test_arrays_of_any_kind(tiny_metadata):
    expected = Tokenizer.from_metadata(tiny_metadata).encode("hello <tag>")
    tiny_metadata[KEY + "token_type"] = np.asarray(tiny_metadata[KEY + "token_type"], np.int32)
    tiny_metadata[KEY + "tokens"] = np.asarray(tiny_metadata[KEY + "tokens"], object)
    tiny_metadata[KEY + "merges"] = tuple(tiny_metadata[KEY + "merges"])
    tiny_metadata[KEY + "scores"] = np.zeros(265, np.float32)
    assert Tokenizer.from_metadata(tiny_metadata).encode("hello <tag>") == expected


def test_without_types_all_tokens_are_normal(tiny_metadata):
    del tiny_metadata[KEY + "token_type"]
    tokenizer = Tokenizer.from_metadata(tiny_metadata)
    assert tokenizer.encode("<tag>", parse_special=True) == [*b"<tag>"]
    # ... except those whose text gives them away.
    assert tokenizer.encode("<|im_end|>", parse_special=True) == [261]


def test_unknown_types_decode_to_nothing(tiny_metadata):
    tiny_metadata[KEY + "token_type"][65] = 99
    tiny_metadata[KEY + "token_type"][66] = -1
    assert Tokenizer.from_metadata(tiny_metadata).decode([65, 66, 67]) == "C"


def test_empty_texts_get_a_name(tiny_metadata):
    tiny_metadata[KEY + "tokens"] += ["", ""]
    tiny_metadata[KEY + "token_type"] += [3, 3]
    assert Vocab.from_metadata(tiny_metadata).tokens[-2:] == ["[EMPTY_265]", "[EMPTY_266]"]


def test_the_first_of_equal_merges_counts(tiny_metadata):
    tiny_metadata[KEY + "merges"] += ["h e"]
    assert Vocab.from_metadata(tiny_metadata).merges[0] == ("h", "e")
    assert len(Vocab.from_metadata(tiny_metadata).merges) == 4


@pytest.mark.parametrize("none", [-1, 0xFFFFFFFF])
def test_ids_that_mean_none(tiny_metadata, none):
    assert Vocab.from_metadata(tiny_metadata | {KEY + "bos_token_id": none}).special.bos is None


def test_tokens_that_cannot_be_text(tiny_metadata):
    tiny_metadata[KEY + "tokens"][5] = "\udc80"
    refused(tiny_metadata, match="the vocabulary cannot be used")
