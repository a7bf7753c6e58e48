r"""How text is cut into words before byte-level BPE: one entry per `tokenizer.ggml.pre`.

A pre-tokenizer is a list of patterns. The first cuts the text into its matches and what lies between; each next one
cuts the pieces further. The patterns are those of the models' own tokenizers as llama.cpp runs them; in a few places
that differs from the original, and files are expected to be read as llama.cpp reads them.
"""

import dataclasses

from host_tier.errors import InputError

# Characters that Unicode 16 added, by general category. The reference tables are Unicode 15.1, the regular
# expression engine's are 16: these count as unassigned, or ids would differ on them.
_NEW_IN_UNICODE_16 = {
    "L": (
        r"\x{1c89}-\x{1c8a}\x{a7cb}-\x{a7cd}\x{a7da}-\x{a7dc}\x{105c0}-\x{105f3}\x{10d4a}-\x{10d65}"
        r"\x{10d6f}-\x{10d85}\x{10ec2}-\x{10ec4}\x{11380}-\x{113b7}\x{113d1}-\x{113d3}\x{11bc0}-\x{11be0}"
        r"\x{13460}-\x{143fa}\x{16100}-\x{1611d}\x{16d40}-\x{16d6c}\x{18cff}\x{1e5d0}-\x{1e5f0}"
    ),
    "M": (
        r"\x{897}\x{10d69}-\x{10d6d}\x{10efc}\x{113b8}-\x{113d2}\x{113e1}-\x{113e2}\x{11f5a}"
        r"\x{1611e}-\x{1612f}\x{1e5ee}-\x{1e5ef}"
    ),
    "N": (
        r"\x{10d40}-\x{10d49}\x{116d0}-\x{116e3}\x{11bf0}-\x{11bf9}\x{16130}-\x{16139}\x{16d70}-\x{16d79}"
        r"\x{1ccf0}-\x{1ccf9}\x{1e5f1}-\x{1e5fa}"
    ),
    "P": r"\x{1b4e}-\x{1b4f}\x{1b7f}\x{10d6e}\x{113d4}-\x{113d8}\x{11be1}\x{16d6d}-\x{16d6f}\x{1e5ff}",
    "S": (
        r"\x{2427}-\x{2429}\x{31e4}-\x{31e5}\x{10d8e}-\x{10d8f}\x{1cc00}-\x{1ccef}\x{1cd00}-\x{1ceb3}"
        r"\x{1f8b2}-\x{1f8bb}\x{1f8c0}-\x{1f8c1}\x{1fa89}\x{1fa8f}\x{1fabe}\x{1fac6}\x{1fadc}\x{1fadf}"
        r"\x{1fae9}\x{1fbcb}-\x{1fbef}"
    ),
}

_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_CONTRACTION = r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])"
_WORD = r"[^\r\n\p{L}\p{N}]?\p{L}+"
_SYMBOLS = r" ?[^\s\p{L}\p{N}]+[\r\n]*"
_SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
# Some models write the last part as `\s*[\r\n]`, which finds the same words.
_QWEN2 = rf"{_CONTRACTION}|{_WORD}|\p{{N}}|{_SYMBOLS}|{_SPACES}"
_LLAMA3 = rf"{_CONTRACTION}|{_WORD}|\p{{N}}{{1,3}}|{_SYMBOLS}|{_SPACES}"
# As Qwen 2, but combining marks belong to words.
_QWEN35 = (
    rf"{_CONTRACTION}|[^\r\n\p{{L}}\p{{N}}]?[\p{{L}}\p{{M}}]+|\p{{N}}"
    rf"| ?[^\s\p{{L}}\p{{M}}\p{{N}}]+[\r\n]*|{_SPACES}"
)
_CJK = "[一-龥぀-ゟ゠-ヿ]+"
_DEEPSEEK3 = (
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+"
    r"|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*"
    rf"|{_SPACES}"
)
# Only ASCII letters have a case here: every other letter fits both halves of a word like "McDonald".
_UPPER = r"[\p{L}&&[^a-z]]"
_LOWER = r"[\p{L}&&[^A-Z]]"
_GPT4O_SYMBOLS = r" ?[^\s\p{L}\p{N}]+[\r\n/]*"
_GPT4O = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+{_CONTRACTION}?|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*{_CONTRACTION}?"
    rf"|\p{{N}}{{1,3}}|{_GPT4O_SYMBOLS}|{_SPACES}"
)
_TEKKEN = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*"
    rf"|\p{{N}}|{_GPT4O_SYMBOLS}|{_SPACES}"
)
_SEED_CODER = rf"{_CONTRACTION}|{_WORD}|\p{{N}}| ?[^\s\p{{L}}\p{{N}}\r\n]+|{_SPACES}"


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class PreTokenizer:
    """How text is cut into words.

    Attributes:
      patterns: Oniguruma patterns, applied one after the other.
      ignore_merges: whether a word that is itself a token becomes that token even if no merges lead to it.
      add_bos: what `add_bos_token` means when the file does not say.
    """

    patterns: tuple[str, ...]
    ignore_merges: bool = False
    add_bos: bool = False


_FAMILIES: tuple[tuple[PreTokenizer, str], ...] = (
    (
        PreTokenizer(patterns=(r"[\p{P}\$\+<=>\^~\|]+", _GPT2, r"\p{N}+", r"[0-9][0-9][0-9]")),
        "default",
    ),
    (
        PreTokenizer(patterns=(_GPT2,)),
        "gpt-2 phi-2 gigachat a.x-4.0 mellum exaone4 mpt olmo jais trillion granite-docling",
    ),
    (
        PreTokenizer(patterns=(r"\p{N}", _GPT2)),
        "starcoder refact command-r smollm codeshell exaone minerva-7b mellum2",
    ),
    (
        PreTokenizer(patterns=(_LLAMA3,), ignore_merges=True, add_bos=True),
        "llama-bpe llama3 llama-v3 falcon3 falcon-h1 pixtral midm-2.0 lfm2",
    ),
    (PreTokenizer(patterns=(_LLAMA3,), ignore_merges=True), "glm4 glm5"),
    (PreTokenizer(patterns=(_LLAMA3,)), "chatglm-bpe dbrx smaug-bpe"),
    (
        PreTokenizer(patterns=(_QWEN2,)),
        "qwen2 deepseek-r1-qwen kormo f2llmv2 megrez stablelm2 hunyuan solar-open grok-2"
        " bailingmoe bailingmoe2 llada-moe",
    ),
    (PreTokenizer(patterns=(_QWEN35,)), "qwen35"),
    (PreTokenizer(patterns=(_GPT4O,)), "gpt-4o llama4 kanana2 talkie minimax-m2"),
    (PreTokenizer(patterns=(_TEKKEN,), ignore_merges=True, add_bos=True), "tekken"),
    (
        PreTokenizer(patterns=(r"\p{N}{1,3}", _CJK, _DEEPSEEK3)),
        "deepseek-v3 hunyuan-dense joyai-llm hy_v4",
    ),
    (
        # The ranges hold some spaces, which must stay with the word behind them.
        PreTokenizer(
            patterns=(r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", r"[[一-龥ࠀ-一가-퟿]&&[^\s]]+", r"\p{N}")
        ),
        "deepseek-coder",
    ),
    (
        PreTokenizer(patterns=(r"[\p{P}\$\+<=>\^~\|`]+", _GPT2, r"[0-9][0-9][0-9]")),
        "falcon",
    ),
    (PreTokenizer(patterns=(_SEED_CODER,)), "seed-coder"),
)
_BY_NAME = {name: pre_tokenizer for pre_tokenizer, names in _FAMILIES for name in names.split()}
SUPPORTED_PRE = tuple(sorted(_BY_NAME))


def find_pre_tokenizer(name: str) -> PreTokenizer:
    """Returns the pre-tokenizer of a `tokenizer.ggml.pre`.

    Raises:
      InputError: the name is not one whose ids are known to be right.
    """
    if name not in _BY_NAME:
        raise InputError(f"pre-tokenizer {name!r} is not supported; supported: {', '.join(SUPPORTED_PRE)}")
    return _BY_NAME[name]


def as_of_unicode_15(pattern: str) -> str:
    r"""Returns the pattern with `\p{L}` and its like meaning Unicode 15.1's sets."""
    for category, ranges in _NEW_IN_UNICODE_16.items():
        pattern = pattern.replace(rf"\p{{{category}}}", rf"[\p{{{category}}}&&[^{ranges}]]")
    return pattern
