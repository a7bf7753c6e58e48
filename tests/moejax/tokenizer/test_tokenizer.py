"""The tokenizer as a whole: special tokens, bytes, decoding, surrogates."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from host_tier.errors import InputError
from moejax.tokenizer import SUPPORTED_PRE, Tokenizer

TEXT = st.text(st.characters(codec="utf-8")) | st.text(" \n\r\t'aseSé1漢\u0301.!", max_size=40)


@pytest.fixture
def tiny(tiny_metadata):
    return Tokenizer.from_metadata(tiny_metadata)


def test_merges_and_control_tokens(tiny):
    assert tiny.encode("hello") == [259]
    assert tiny.encode("<bos>hello<|im_end|>", parse_special=True) == [260, 259, 261]
    assert tiny.decode(tiny.encode("<bos>")) == "<bos>"
    assert 260 not in tiny.encode("<bos>", parse_special=False)
    assert tiny.encode("a<tag>b", parse_special=False) == [97, 262, 98]


def test_properties(tiny):
    assert tiny.vocab_size == 265
    assert (tiny.special.bos, tiny.special.eos, tiny.special.eot) == (260, 261, 261)
    assert tiny.eog_ids == {261}
    assert tiny.is_eog(261)
    assert not tiny.is_eog(260)
    assert tiny.is_special(260)
    assert not tiny.is_special(262)
    assert tiny.token_text(259) == "hello"
    assert (tiny.token_id("<tag>"), tiny.token_id("nope")) == (262, None)


def test_decode(tiny):
    ids = tiny.encode("<bos>hé<tag><|im_end|>", parse_special=True)
    assert tiny.decode(ids) == "<bos>hé<tag><|im_end|>"
    assert tiny.decode(ids, skip_special=True) == "hé<tag>"
    assert tiny.decode([0xC3]) == "\ufffd"
    assert tiny.decode([263]) == "", "unused tokens are place holders"
    assert tiny.decode([]) == ""
    assert tiny.token_bytes(259) == b"hello"
    assert [tiny.token_bytes(byte) for byte in range(256)] == [bytes([byte]) for byte in range(256)]


@pytest.mark.parametrize("idx", [-1, 265, 10**9])
def test_ids_out_of_range(tiny, idx):
    for use in (tiny.token_bytes, tiny.token_text, tiny.is_special, lambda i: tiny.decode([i])):
        with pytest.raises(
            InputError, match=f"token id {idx} is out of range: the vocabulary has 265 tokens"
        ):
            use(idx)
    assert not tiny.is_eog(idx)


@pytest.mark.parametrize(("add_bos", "add_eos"), [(True, False), (False, True), (True, True), (False, False)])
def test_added_tokens(tiny_metadata, add_bos, add_eos):
    tiny_metadata |= {"tokenizer.ggml.add_bos_token": add_bos, "tokenizer.ggml.add_eos_token": add_eos}
    tokenizer = Tokenizer.from_metadata(tiny_metadata)
    assert (tokenizer.add_bos, tokenizer.add_eos) == (add_bos, add_eos)
    assert tokenizer.encode("h", add_special=True) == [260] * add_bos + [104] + [261] * add_eos
    assert tokenizer.encode("", add_special=True) == [260] * add_bos + [261] * add_eos
    assert tokenizer.encode("h", add_special=False) == [104]


def test_bos_depends_on_the_pre_tokenizer(tiny_metadata):
    tiny_metadata["tokenizer.ggml.pre"] = "llama-bpe"
    assert Tokenizer.from_metadata(tiny_metadata).encode("h") == [260, 104]
    tiny_metadata["tokenizer.ggml.add_bos_token"] = False
    assert Tokenizer.from_metadata(tiny_metadata).encode("h") == [104]


def test_bos_to_add_must_exist(tiny_metadata):
    del tiny_metadata["tokenizer.ggml.bos_token_id"]
    tiny_metadata["tokenizer.ggml.add_bos_token"] = True
    with pytest.raises(InputError, match=r"asks to add BOS, but has no tokenizer\.ggml\.bos_token_id"):
        Tokenizer.from_metadata(tiny_metadata)


def test_longer_special_tokens_win(tiny_metadata):
    tiny_metadata["tokenizer.ggml.tokens"] += ["<tag><tag>", "g><ta"]
    tiny_metadata["tokenizer.ggml.token_type"] += [4, 4]
    tokenizer = Tokenizer.from_metadata(tiny_metadata)
    assert tokenizer.encode("<tag><tag><tag>") == [265, 262]
    # Longest first anywhere, not leftmost first: "<tag>" (5 bytes) and "g><ta" (5 bytes) tie, lower id first.
    assert tokenizer.encode("<tag>g><ta") == [262, 266]


def test_surrogates_become_replacement_characters(tiny):
    assert tiny.encode("a\ud800b") == tiny.encode("a\ufffdb")
    assert tiny.encode("\udfff\ud800") == tiny.encode("\ufffd\ufffd")


def test_bytes_without_a_token_vanish_but_keep_neighbours_apart(tiny_metadata):
    missing = tiny_metadata["tokenizer.ggml.tokens"].index("z")
    tiny_metadata["tokenizer.ggml.tokens"][missing] = "unused text"
    tokenizer = Tokenizer.from_metadata(tiny_metadata)
    assert tokenizer.encode("hze") == [104, 101]
    assert tokenizer.encode("he") == [256]


def test_merges_ignored_for_whole_words(tiny_metadata):
    tiny_metadata["tokenizer.ggml.tokens"].append("xyz")
    tiny_metadata["tokenizer.ggml.token_type"].append(1)
    assert Tokenizer.from_metadata(tiny_metadata).encode("xyz") == [*b"xyz"]
    tiny_metadata |= {"tokenizer.ggml.pre": "llama-bpe", "tokenizer.ggml.add_bos_token": False}
    assert Tokenizer.from_metadata(tiny_metadata).encode("xyz") == [265]


@pytest.mark.parametrize("pre", SUPPORTED_PRE)
def test_every_pre_tokenizer_builds_and_loses_nothing(tiny_metadata, pre):
    tokenizer = Tokenizer.from_metadata(tiny_metadata | {"tokenizer.ggml.pre": pre})
    text = "It's 12345 McDonald's  \n\n été, ١٢ 漢字かな \u2009x\u0301! \U00010d4a"
    assert tokenizer.decode(tokenizer.encode(text, add_special=False)) == text


def test_missing_pre_is_default(tiny_metadata):
    del tiny_metadata["tokenizer.ggml.pre"]
    assert Tokenizer.from_metadata(tiny_metadata).encode("hello") == [259]


@pytest.mark.parametrize("name", ["qwen2", "qwen35", "gpt-2"])
def test_byte_level_round_trip(name, real_tokenizer):
    tokenizer = real_tokenizer(name)

    @settings(max_examples=150, deadline=None)
    @given(TEXT, st.booleans())
    def check(text, parse_special):
        ids = tokenizer.encode(text, add_special=False, parse_special=parse_special)
        assert tokenizer.decode(ids) == text
        assert all(0 <= idx < tokenizer.vocab_size for idx in ids)

    check()


def test_sentencepiece_round_trip(real_tokenizer):
    tokenizer = real_tokenizer("llama-spm")

    @settings(max_examples=150, deadline=None)
    @given(TEXT)
    def check(text):
        decoded = tokenizer.decode(tokenizer.encode(text, add_special=False))
        # The space in front is SentencePiece's; its mark for spaces is not told from a space.
        assert decoded == (" " + text if text else "").replace("▁", " ")

    check()


def test_real_special_tokens(real_tokenizer):
    assert real_tokenizer("llama-spm").encode("a") == [1, 263]
    assert real_tokenizer("llama-spm").encode("a</s>b", parse_special=True) == [1, 263, 2, 289]
    assert real_tokenizer("smollm").eog_ids == {0, 2, 4}
    # <|endoftext|>, <|im_end|>, and an ordinary token that reads "</s>".
    assert real_tokenizer("qwen2").eog_ids == {151643, 151645, 128247}


def test_white_space_beside_special_tokens_of_phi3(spm_metadata):
    metadata = spm_metadata({"▁": -1.0, "a": -1.0}) | {"general.name": "Phi-3 mini"}
    metadata["tokenizer.ggml.tokens"].append("<|end|>")
    metadata["tokenizer.ggml.scores"].append(0.0)
    metadata["tokenizer.ggml.token_type"].append(3)
    tokenizer = Tokenizer.from_metadata(metadata)
    assert tokenizer.encode("a<|end|> \n a<s>  a", False, True) == [
        259,
        260,
        261,
        259,
        260,
        1,
        259,
        259,
        259,
        260,
    ]
