"""Text from a stream of tokens."""

from hypothesis import given, settings
from hypothesis import strategies as st

from moejax.tokenizer import StreamDecoder, Tokenizer


class Bytes:
    """Ids below 256 are bytes; the others are special tokens."""

    def token_bytes(self, idx):
        return bytes([idx]) if idx < 256 else b"<s>"

    def is_special(self, idx):
        return idx >= 256


def test_holds_back_unfinished_characters():
    decoder = StreamDecoder(Bytes())
    assert [decoder.push(byte) for byte in "aé🦙".encode()] == ["a", "", "é", "", "", "", "🦙"]
    assert decoder.flush() == ""


def test_flush_replaces_the_unfinished_rest():
    decoder = StreamDecoder(Bytes())
    assert [decoder.push(0xF0), decoder.push(0x9F), decoder.flush()] == ["", "", "\ufffd"]
    assert [decoder.push(0x41), decoder.flush()] == ["A", ""], "starts afresh"


def test_invalid_bytes_come_out_at_once():
    decoder = StreamDecoder(Bytes())
    assert [decoder.push(0xFF), decoder.push(0xC3), decoder.push(0x41)] == ["\ufffd", "", "\ufffdA"]


def test_special_tokens_can_be_left_out():
    decoder = StreamDecoder(Bytes(), skip_special=True)
    # Inside a character, too: the bytes around it belong together.
    assert [decoder.push(0xC3), decoder.push(256), decoder.push(0xA9)] == ["", "", "é"]
    assert StreamDecoder(Bytes()).push(256) == "<s>"


@given(
    st.lists(st.integers(0, 255) | st.sampled_from([0xC3, 0xA9, 0xE2, 0x96, 0x81, 0xF0, 0x9F, 0xED, 0xA0]))
)
def test_any_bytes_decode_as_a_whole(ids):
    decoder = StreamDecoder(Bytes())
    assert "".join(map(decoder.push, ids)) + decoder.flush() == bytes(ids).decode("utf-8", "replace")


def test_equals_decode_on_any_ids(real_tokenizer):
    tokenizer: Tokenizer = real_tokenizer("qwen2")

    @settings(max_examples=200, deadline=None)
    @given(st.lists(st.integers(0, tokenizer.vocab_size - 1) | st.integers(0, 300)), st.booleans())
    def check(ids, skip_special):
        decoder = tokenizer.stream(skip_special=skip_special)
        assert "".join(map(decoder.push, ids)) + decoder.flush() == tokenizer.decode(
            ids, skip_special=skip_special
        )

    check()
