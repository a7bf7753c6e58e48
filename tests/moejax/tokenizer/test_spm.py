"""SentencePiece BPE against a slow version of the same rule."""

import itertools

from hypothesis import given, settings
from hypothesis import strategies as st

from moejax.tokenizer import Tokenizer
from moejax.tokenizer.spm import SpmEncoder
from moejax.tokenizer.vocab import Vocab

FIRST = 259  # after unknown, BOS, EOS and the bytes


def slow_encode(vocab: Vocab, text: str) -> list[int]:
    """Merges the pair with the best score, the leftmost of equals, until no pair is a token."""
    pieces = list(text.replace(" ", "▁"))
    while True:
        found = [
            (-vocab.scores[vocab.ids[left + right]], place)
            for place, (left, right) in enumerate(itertools.pairwise(pieces))
            if left + right in vocab.ids
        ]
        if not found:
            break
        place = min(found)[1]
        pieces[place : place + 2] = [pieces[place] + pieces[place + 1]]
    ids = []
    for piece in pieces:
        ids += [vocab.ids[piece]] if piece in vocab.ids else [3 + byte for byte in piece.encode()]
    return ids


@settings(deadline=None)
@given(
    st.dictionaries(
        st.text("ab▁é", min_size=1, max_size=5), st.sampled_from([-1.0, -2.0, -3.5]), max_size=25
    ),
    st.text("ab é漢", max_size=24),
)
def test_equals_the_slow_version(spm_pieces, text):
    """Few scores, so that ties are common; characters that are no tokens themselves."""
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *spm_pieces]
    vocab = Vocab.from_metadata(
        {
            "tokenizer.ggml.model": "llama",
            "tokenizer.ggml.tokens": tokens,
            "tokenizer.ggml.scores": [0.0] * FIRST + list(spm_pieces.values()),
        }
    )
    assert SpmEncoder(vocab).encode(text) == slow_encode(vocab, text)


def test_space_in_front(spm_metadata):
    pieces = {"▁": -3.0, "a": -3.0, "▁a": -1.0}
    with_prefix = Tokenizer.from_metadata(spm_metadata(pieces))
    assert with_prefix.encode("a", add_special=False) == [FIRST + 2]
    assert with_prefix.encode("a<s>a", add_special=False, parse_special=True) == [FIRST + 2, 1, FIRST + 2]
    without = Tokenizer.from_metadata(spm_metadata(pieces, add_space_prefix=False))
    assert without.encode("a a", add_special=False) == [FIRST + 1, FIRST + 2]
    assert without.decode([FIRST + 2]) == " a"


def test_bytes_stand_for_unknown_characters(spm_metadata):
    tokenizer = Tokenizer.from_metadata(spm_metadata({"a": -1.0}, add_space_prefix=False))
    assert tokenizer.encode("aé", add_special=False) == [FIRST, 3 + 0xC3, 3 + 0xA9]
    assert tokenizer.decode([3 + 0xC3, 3 + 0xA9]) == "é"


def test_unknown_where_bytes_have_no_token():
    vocab = Vocab.from_metadata(
        {
            "tokenizer.ggml.model": "llama",
            "tokenizer.ggml.tokens": ["<unk>", "<s>", "</s>", "a", "\n"],
            "tokenizer.ggml.scores": [0.0] * 5,
        }
    )
    assert SpmEncoder(vocab).encode("ab\n") == [3, 0, 4]
