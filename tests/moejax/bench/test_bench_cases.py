"""What is measured: lists, ranges, order, labels."""

import pytest

from host_tier.errors import InputError
from moejax.bench.cases import BenchCase, make_cases, parse_counts, parse_pair


@pytest.mark.parametrize(
    ("text", "counts"),
    [
        ("512", [512]),
        ("0", [0]),
        ("128,512", [128, 512]),
        ("1-4", [1, 2, 3, 4]),
        ("128-512+128", [128, 256, 384, 512]),
        ("1-64*2", [1, 2, 4, 8, 16, 32, 64]),
        ("100-250+100, 7", [100, 200, 7]),
        ("5-5", [5]),
    ],
)
def test_lists_and_ranges(text, counts):
    assert parse_counts("n_prompt", text) == counts


@pytest.mark.parametrize(
    "text", ["", "a", "1,", "-1", "1.5", "5-1", "1-9+0", "1-9*1", "0-9*2", "1-9/2", "1-999999"]
)
def test_what_is_no_list_names_the_flag(text):
    with pytest.raises(InputError, match="--n_gen"):
        parse_counts("n_gen", text)


def test_pairs():
    assert parse_pair("512,128") == (512, 128)
    with pytest.raises(InputError, match="512,128"):
        parse_pair("512")


def test_cases_come_in_llama_benchs_order():
    cases = make_cases([16, 0], [4], [(8, 4), (0, 0)], [0, 8])
    labels = ["pp16", "tg4", "pp8+tg4", "pp16 @ d8", "tg4 @ d8", "pp8+tg4 @ d8"]
    assert [case.label for case in cases] == labels
    assert BenchCase(n_prompt=3, n_gen=2, n_depth=10).num_positions == 15


def test_nothing_to_measure():
    with pytest.raises(InputError, match="nothing to measure"):
        make_cases([0], [0], [], [0])
