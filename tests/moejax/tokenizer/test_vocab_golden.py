"""Ids are those of llama.cpp: on its own test cases, and on a corpus of hard strings (tests/data/vocab)."""

import hashlib
import itertools
import json
import pathlib
import sys

import pytest

from moejax.tokenizer import SUPPORTED_PRE, Tokenizer
from moejax.tokenizer.pre_tokenizers import find_pre_tokenizer

DATA = pathlib.Path(__file__).parents[2] / "data" / "vocab"
sys.path.insert(0, str(DATA))
from pair_vocab import pair_metadata  # noqa: E402

CORPUS = json.loads((DATA / "corpus.json").read_text())
SEPARATOR = "\n__ggml_vocab_test__\n"
PRE = sorted(path.stem.removeprefix("golden-pre-") for path in DATA.glob("golden-pre-*.json"))


@pytest.mark.parametrize("name", ["qwen2", "qwen35", "llama-spm", "gpt-2"])
def test_test_cases_of_llama_cpp(name, real_tokenizer):
    texts = (DATA / f"{name}.inp").read_bytes().decode().split(SEPARATOR)
    lines = (DATA / f"{name}.out").read_text().split("\n")
    assert len(texts) > 40
    for text, line in zip(texts, lines):
        assert real_tokenizer(name).encode(text, add_special=False) == [int(idx) for idx in line.split()], (
            repr(text)
        )


def check_corpus(tokenizer: Tokenizer, golden: dict) -> None:
    indices = golden["cases"] if isinstance(golden["cases"], list) else range(golden["cases"])
    assert len(indices) >= 200
    for index, expected in zip(indices, golden["plain"], strict=True):
        case = CORPUS[index]
        text = case if isinstance(case, str) else case[0] * case[1]
        ids = tokenizer.encode(text, add_special=False, parse_special=False)
        if isinstance(case, list):
            ids = [len(ids), hashlib.sha256(",".join(map(str, ids)).encode()).hexdigest()]
        assert ids == expected, f"case {index}: {text[:80]!r}"
        if isinstance(case, str):
            parsed = golden["special"].get(str(index), expected)
            assert tokenizer.encode(text, add_special=False, parse_special=True) == parsed, (
                f"case {index}: {text!r}"
            )


@pytest.mark.parametrize("name", ["qwen2", "qwen35", "llama-spm", "gpt-2", "smollm", "t5"])
def test_hard_strings(name, real_tokenizer):
    golden = json.loads((DATA / f"golden-{name}.json").read_text())
    assert golden["cases"] == len(CORPUS)
    check_corpus(real_tokenizer(name), golden)


@pytest.mark.parametrize("pre", PRE)
def test_hard_strings_with_every_pre_tokenizer(pre):
    golden = json.loads((DATA / f"golden-pre-{pre}.json").read_text())
    check_corpus(Tokenizer.from_metadata(pair_metadata(pre)), golden)


def test_goldens_differ_between_pre_tokenizers():
    """A corpus that cannot tell them apart would prove nothing."""
    plain = {pre: json.loads((DATA / f"golden-pre-{pre}.json").read_text())["plain"] for pre in PRE}
    assert len(PRE) >= 12
    for one, other in itertools.combinations(PRE, 2):
        assert sum(a != b for a, b in zip(plain[one], plain[other], strict=True)) >= 3, (one, other)


def test_every_way_to_cut_has_a_golden():
    checked = {find_pre_tokenizer(pre).patterns for pre in PRE}
    assert {find_pre_tokenizer(pre).patterns for pre in SUPPORTED_PRE} == checked
