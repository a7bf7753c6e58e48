"""A byte-level vocabulary of any size: every text has ids, every id has a text.

256 bytes, some common merges, filler words to the model's size, and the control tokens of the ChatML format.
"""

import dataclasses
from typing import Final

from gguf import TokenType

from moejax.tokenizer.byte_alphabet import CHAR_OF_BYTE

# Pairs in order of rank; each joins tokens that exist by then.
_MERGES: Final = (
    "Ġ t", "Ġ a", "h e", "i n", "r e", "o n", "Ġt he", "e r", "Ġ s", "a t", "Ġ w", "Ġ o", "e n", "Ġ c", "i t",
    "i s", "a n", "o r", "e s", "Ġ b", "e d", "Ġ f", "in g", "Ġ p", "o u", "Ġa n", "a l", "a r", "Ġt o", "Ġ m",
    "Ġo f", "Ġ in", "Ġ d", "Ġ h", "Ġan d",
)  # fmt: skip
_CONTROL: Final = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")

CHAT_TEMPLATE: Final = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class SyntheticVocabulary:
    """What the `tokenizer.ggml.*` keys hold.

    Attributes:
      tokens: text of each id.
      types: kind of each id, values of `gguf.TokenType`.
      merges: pairs in order of rank.
      end_of_text: id, also used for padding.
      end_of_turn: id that ends a reply.
    """

    tokens: list[str]
    types: list[int]
    merges: tuple[str, ...]
    end_of_text: int
    end_of_turn: int


def make_vocabulary(size: int) -> SyntheticVocabulary:
    """A vocabulary of `size` tokens, at least `len(_MERGES)` + 259."""
    words = [*CHAR_OF_BYTE, *(pair.replace(" ", "") for pair in _MERGES)]
    num_filler = size - len(words) - len(_CONTROL)
    assert num_filler >= 0, size
    words += [f"Ġw{number}" for number in range(num_filler)]
    normal = [int(TokenType.NORMAL)] * len(words)
    return SyntheticVocabulary(
        tokens=[*words, *_CONTROL],
        types=normal + [int(TokenType.CONTROL)] * len(_CONTROL),
        merges=_MERGES,
        end_of_text=len(words),
        end_of_turn=len(words) + 2,
    )
