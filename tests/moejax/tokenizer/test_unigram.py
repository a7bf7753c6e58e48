"""SentencePiece unigram against trying every cut, and its normalization."""

import itertools
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from host_tier.errors import InputError
from moejax.tokenizer import Tokenizer
from moejax.tokenizer.charsmap import Charsmap

FIRST = 259
PIECES = {"▁": -2.0, "a": -3.0, "b": -3.25, "ab": -4.5, "aba": -6.125, "▁ab": -5.0, "ba": -4.75}


@pytest.fixture
def tokenizer(spm_metadata):
    return Tokenizer.from_metadata(spm_metadata(PIECES, model="t5", unknown_token_id=0, add_eos_token=False))


@settings(deadline=None, max_examples=200)
@given(st.text("ab", max_size=9))
def test_best_of_all_cuts(text):
    tokens = ["<unk>", "<s>", "</s>", *PIECES]
    metadata = {
        "tokenizer.ggml.model": "t5",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.scores": [0.0] * 3 + list(PIECES.values()),
        "tokenizer.ggml.token_type": [2, 3, 3] + [1] * len(PIECES),
        "tokenizer.ggml.add_eos_token": False,
    }
    ids = Tokenizer.from_metadata(metadata).encode(text)
    best = float("-inf")
    for cuts in itertools.product((False, True), repeat=max(len(text) - 1, 0)):
        ends = [place for place, cut in enumerate(cuts, 1) if cut] + [len(text)]
        pieces = [text[start:stop] for start, stop in zip([0, *ends], ends)]
        best = max(best, sum(PIECES.get(piece, float("-inf")) for piece in pieces))
    assert "".join(tokens[idx] for idx in ids) == text
    assert sum(PIECES[tokens[idx]] for idx in ids) == (best if text else 0)


def test_runs_of_unknown_characters_are_one_token(tokenizer):
    assert tokenizer.encode("aéèb") == [FIRST + 1, 0, FIRST + 2]
    assert tokenizer.encode("é") == [0]
    assert tokenizer.encode("éaé") == [0, FIRST + 1, 0]


def test_spaces(spm_metadata):
    def encode(text, **more):
        metadata = spm_metadata(PIECES, model="t5", unknown_token_id=0, add_eos_token=False, **more)
        tokenizer = Tokenizer.from_metadata(metadata)
        return "".join(tokenizer.token_text(idx) for idx in tokenizer.encode(text))

    assert encode("a  b ") == "a▁▁b▁"
    assert encode("a  b ", add_space_prefix=True) == "▁a▁▁b▁"
    assert encode(" a  b ", remove_extra_whitespaces=True) == "▁a▁b"
    assert encode("  ", remove_extra_whitespaces=True) == ""
    assert encode("") == ""


def test_eos_is_added_by_default(spm_metadata):
    tokenizer = Tokenizer.from_metadata(spm_metadata(PIECES, model="t5", unknown_token_id=0, eos_token_id=2))
    assert tokenizer.encode("a") == [FIRST + 1, 2]


def unit(*, label=0, leaf=False, children=0):
    return label | (leaf << 8) | (children << 10)


def table(units, replacements):
    return struct.pack(f"<I{len(units)}I", 4 * len(units), *units) + replacements


def test_charsmap_takes_the_longest_match():
    # "x" -> "y", "xz" -> "" (at 2): root's children start at 0x100, x's at 0x200 ^ 0x178.
    units = [0] * 0x400
    units[0] = unit(children=0x100)
    at_x = 0x100 ^ ord("x")
    units[at_x] = unit(label=ord("x"), leaf=True, children=at_x ^ 0x200)
    units[0x200] = 0
    at_z = 0x200 ^ ord("z")
    units[at_z] = unit(label=ord("z"), leaf=True, children=at_z ^ 0x300)
    units[0x300] = 2
    charsmap = Charsmap(table(units, b"y\0\0"))
    assert charsmap.replace_at(b"ax", 1) == (b"y", 1)
    assert charsmap.replace_at(b"xz", 0) == (b"", 2)
    assert charsmap.replace_at(b"xq", 0) == (b"y", 1)
    assert charsmap.replace_at(b"a", 0) is None
    assert charsmap.replace_at(b"\0", 0) is None


@pytest.mark.parametrize(
    "damaged",
    [b"", b"\0\0\0", struct.pack("<I", 100), struct.pack("<II", 4, 0), b"\xff" * 12],
)
def test_charsmap_cut_short(damaged):
    with pytest.raises(InputError, match="precompiled_charsmap is cut short"):
        Charsmap(damaged)


def test_charsmap_that_points_outside():
    charsmap = Charsmap(table([unit(children=0x100)], b"\0"))
    with pytest.raises(InputError, match="precompiled_charsmap points outside itself"):
        charsmap.replace_at(b"x", 0)
    leaf = [unit(children=1)] + [0] * 255
    leaf[1 ^ ord("x")] = unit(label=ord("x"), leaf=True, children=1 ^ ord("x"))
    leaf[0] = unit(children=1)
    with pytest.raises(InputError, match="points outside itself"):
        Charsmap(table(leaf, b"no end")).replace_at(b"x", 0)
