"""Which token ids have a role: BOS, EOS, end of turn, fill-in-the-middle, end of generation.

Files often leave roles out or mark control tokens as ordinary text. llama.cpp repairs that by looking for well-known
texts; models are converted with that repair in mind, so the same texts are looked for here.
"""

import dataclasses
import enum
import re
from collections.abc import Iterable, Mapping
from typing import Any

from host_tier.errors import InputError


class TokenAttribute(enum.IntFlag):
    """What a token is; a token can be both user-defined and control."""

    UNDEFINED = 0
    UNKNOWN = 1
    UNUSED = 2
    NORMAL = 4
    CONTROL = 8
    USER_DEFINED = 16
    BYTE = 32


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class SpecialIds:
    """Ids with a role; None where the vocabulary has no such token."""

    bos: int | None = None
    eos: int | None = None
    eot: int | None = None
    eom: int | None = None
    unk: int | None = None
    sep: int | None = None
    pad: int | None = None
    mask: int | None = None
    fim_pre: int | None = None
    fim_suf: int | None = None
    fim_mid: int | None = None
    fim_pad: int | None = None
    fim_rep: int | None = None
    fim_sep: int | None = None


# Later keys of a role win over earlier ones (the last three are old names). "seperator" is how GGUF spells it.
_KEYS = (
    ("bos", "bos_token_id"),
    ("eos", "eos_token_id"),
    ("eot", "eot_token_id"),
    ("eom", "eom_token_id"),
    ("unk", "unknown_token_id"),
    ("sep", "seperator_token_id"),
    ("pad", "padding_token_id"),
    ("mask", "mask_token_id"),
    ("fim_pre", "fim_pre_token_id"),
    ("fim_suf", "fim_suf_token_id"),
    ("fim_mid", "fim_mid_token_id"),
    ("fim_pad", "fim_pad_token_id"),
    ("fim_rep", "fim_rep_token_id"),
    ("fim_sep", "fim_sep_token_id"),
    ("fim_pre", "prefix_token_id"),
    ("fim_suf", "suffix_token_id"),
    ("fim_mid", "middle_token_id"),
)

# Roles of a file without the key. llama.cpp also has one for gpt2 (id 11, Falcon's), which is a comma in the other
# gpt2 vocabularies: those get no role instead.
_DEFAULTS = {"llama": {"bos": 1, "eos": 2, "unk": 0}, "t5": {"eos": 1, "unk": 2, "pad": 0}, "gpt2": {}}

# Separated by spaces, which none of them has. Of several, the first is taken.
_TEXTS_OF_ROLE = {
    "eot": "<|eot_id|> <|im_end|> <|end|> <end_of_turn> <|endoftext|> <|end_of_text|> <EOT> _<EOT> [EOT]"
    " <｜end▁of▁sentence｜> <end_of_utterance>",
    "eom": "<|eom_id|>",
    "fim_pre": "<|fim_prefix|> <fim-prefix> <fim_prefix> <｜fim▁begin｜> <PRE> ▁<PRE> <|code_prefix|> <|prefix|>",
    "fim_suf": "<|fim_suffix|> <fim-suffix> <fim_suffix> <｜fim▁hole｜> <SUF> ▁<SUF> <|code_suffix|> <|suffix|>",
    "fim_mid": "<|fim_middle|> <fim-middle> <fim_middle> <｜fim▁end｜> <MID> ▁<MID> <|code_middle|> <|middle|>",
    "fim_pad": "<|fim_pad|> <fim-pad> <fim_pad> <PAD> [PAD]",
    "fim_rep": "<|fim_repo|> <|repo_name|> <fim-repo> <REPO> <reponame>",
    "fim_sep": "<|file_sep|>",
}
_EOG_TEXTS = (
    "<|eot_id|> <|im_end|> <|end|> <|return|> <|call|> <|flush|> <|calls|> <end_of_turn> <|endoftext|> </s>"
    " <|eom_id|> <EOT> _<EOT> [EOT] [EOS] <|end_of_text|> <end_of_utterance> <eos> <turn|> <|tool_response>"
    " <｜end▁of▁sentence｜> [e~["
)
_BYTE_TEXT = re.compile("<0x([0-9A-Fa-f]{2})>")
# Harmony's message structure: models write these and parsers read them, so they must not be hidden.
_VISIBLE_TEXTS = ("<|channel|>", "<|message|>", "<|start|>", "<|constrain|>")


def resolve(
    metadata: Mapping[str, Any], *, model: str, ids: Mapping[str, int], attributes: list[int]
) -> tuple[SpecialIds, frozenset[int]]:
    """Finds the ids with a role and the ids that end generation.

    Args:
      metadata: GGUF key -> value.
      model: `tokenizer.ggml.model`.
      ids: id of each text.
      attributes: attribute bits of each id; corrected in place where a well-known text has the wrong ones.

    Returns:
      The ids by role, and the end-of-generation ids.
    """
    roles = _read_roles(metadata, model, len(attributes))
    for role, texts in _TEXTS_OF_ROLE.items():
        found = next((ids[text] for text in texts.split() if text in ids), None)
        if roles.get(role) is None and found is not None:
            roles[role] = found
            attributes[found] |= TokenAttribute.CONTROL.value

    eog = {ids[text] for text in _EOG_TEXTS.split() if text in ids}
    for idx in eog:
        attributes[idx] |= TokenAttribute.CONTROL.value
    for text in _VISIBLE_TEXTS:
        if text in ids:
            attributes[ids[text]] = TokenAttribute.USER_DEFINED.value
    for role in ("fim_pad", "fim_rep", "fim_sep", "eos", "eot", "eom"):
        if (idx := roles.get(role)) is not None:
            eog.add(idx)

    def among_eog(*texts: str) -> bool:
        return any(ids.get(text) in eog for text in texts)

    # Where messages end with <|return|>, <|call|> or <|flush|>, <|end|> only closes one channel of a reply.
    if among_eog("<|call|>", "<|calls|>") and among_eog("<|return|>", "<|flush|>"):
        _drop_eog("<|end|>", TokenAttribute.USER_DEFINED, ids, attributes, eog)
    # These vocabularies have "</s>" as an ordinary HTML tag.
    if among_eog("<|tool_response>", "<|plamo:eos|>"):
        _drop_eog("</s>", TokenAttribute.NORMAL, ids, attributes, eog)
    return SpecialIds(**roles), frozenset(eog)


def require_byte_texts(tokens: list[str], attributes: Iterable[int]) -> None:
    """Checks that every token of type byte is written `<0xXX>`."""
    byte = TokenAttribute.BYTE.value  # an int: flags are slow, and there are many tokens
    for idx, attribute in enumerate(attributes):
        if attribute & byte and byte_of_text(tokens[idx]) is None:
            raise InputError(
                f"token {idx} is of type byte, but its text is {tokens[idx]!r} and not <0x00> to <0xFF>"
            )


def byte_of_text(text: str) -> int | None:
    """Returns the byte that `<0xXX>` stands for, or None for other texts."""
    match = _BYTE_TEXT.fullmatch(text)
    return int(match[1], 16) if match else None


def _read_roles(metadata: Mapping[str, Any], model: str, num_tokens: int) -> dict[str, int | None]:
    roles: dict[str, int | None] = {role: idx for role, idx in _DEFAULTS[model].items() if idx < num_tokens}
    for role, name in _KEYS:
        key = f"tokenizer.ggml.{name}"
        if key not in metadata:
            continue
        try:
            idx = int(metadata[key])
        except (TypeError, ValueError):
            raise InputError(f"{key} must be a token id, found {metadata[key]!r}") from None
        if idx in (-1, 0xFFFFFFFF):  # how converters write "none"
            continue
        if not 0 <= idx < num_tokens:
            raise InputError(f"{key} is {idx}, but the vocabulary has {num_tokens} tokens")
        roles[role] = idx
    return roles


def _drop_eog(
    text: str, attribute: TokenAttribute, ids: Mapping[str, int], attributes: list[int], eog: set[int]
) -> None:
    idx = ids.get(text)
    if idx in eog:
        eog.remove(idx)
        attributes[idx] = attribute.value
