"""Stacks cover every layer once, in order, and group what repeats."""

from hypothesis import given
from hypothesis import strategies as st

from moejax.loading.stacks import plan_stacks


@given(st.lists(st.integers(0, 3), min_size=1, max_size=40))
def test_every_layer_is_covered_once_by_an_equal_signature(signatures):
    covered = []
    for stack in plan_stacks(signatures):
        for repeat in range(stack.repeats):
            for place in range(stack.period):
                layer = stack.layer(place, repeat)
                covered.append(layer)
                assert signatures[layer] == signatures[stack.layer(place, 0)]
    assert covered == list(range(len(signatures)))


def test_equal_layers_make_one_stack():
    (stack,) = plan_stacks(["a"] * 48)
    assert (stack.period, stack.repeats) == (1, 48)


def test_stacks_can_be_kept_short():
    stacks = plan_stacks(["a"] * 10, max_repeats=4)
    assert [(stack.first, stack.repeats) for stack in stacks] == [(0, 4), (4, 4), (8, 2)]


def test_a_hybrid_model_makes_one_stack_of_groups():
    (stack,) = plan_stacks(["gdn", "gdn", "gdn", "full"] * 10)
    assert (stack.period, stack.repeats) == (4, 10)
