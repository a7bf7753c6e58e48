"""Sampling against a plain numpy model of each filter, and its statistics."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from host_tier.errors import InputError
from moejax.engine.sampling import SamplingParams, make_sampler, sample

VOCAB = 50


def _draw(logits, params: SamplingParams, count: int, recent=()) -> np.ndarray:
    """`count` draws of one request, at positions 0..count-1."""
    sampler = make_sampler([params], VOCAB)
    recent_ids = jnp.asarray([list(recent) + [VOCAB] * (8 - len(recent))], jnp.int32)
    run = jax.jit(
        lambda position: sample(jnp.asarray(logits)[None], sampler, recent_ids, position[None])[0][0]
    )
    return np.asarray(jax.lax.map(run, jnp.arange(count, dtype=jnp.int32)))


def _expected(logits: np.ndarray, params: SamplingParams) -> np.ndarray:
    """The distribution by definition, in float64."""
    order = np.argsort(-logits, kind="stable")
    ranked = logits[order].astype(np.float64)
    if params.top_k:
        ranked[params.top_k :] = -np.inf
    p = np.exp(ranked - ranked[0])
    p /= p.sum()
    keep = p > 0
    if params.top_p < 1:
        keep &= np.concatenate([[True], np.cumsum(p)[:-1] < params.top_p])
    keep &= p >= params.min_p * p[0]
    scaled = np.where(keep, ranked / params.temperature, -np.inf)
    q = np.exp(scaled - scaled[0])
    out = np.zeros(VOCAB)
    out[order] = q / q.sum()
    return out


@pytest.mark.parametrize(
    "params",
    [
        SamplingParams(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0),
        SamplingParams(temperature=0.7, top_k=5, top_p=1.0, min_p=0.0),
        SamplingParams(temperature=1.3, top_k=0, top_p=0.6, min_p=0.0),
        SamplingParams(temperature=1.0, top_k=0, top_p=1.0, min_p=0.2),
        SamplingParams(temperature=0.9, top_k=20, top_p=0.8, min_p=0.05),
    ],
)
def test_draws_follow_the_filtered_distribution(params):
    logits = np.random.default_rng(1).normal(0, 1.5, VOCAB).astype(np.float32)
    expected = _expected(logits, params)
    count = 20_000
    drawn = np.bincount(_draw(logits, params, count), minlength=VOCAB)
    assert drawn[expected == 0].sum() == 0
    inside = expected > 0
    chi2 = ((drawn[inside] - count * expected[inside]) ** 2 / (count * expected[inside])).sum()
    freedom = inside.sum() - 1
    assert chi2 < freedom + 5 * np.sqrt(2 * freedom) + 5


def test_greedy_takes_the_first_of_equal_logits():
    logits = np.zeros(VOCAB, np.float32)
    logits[[7, 9]] = 2.0
    assert _draw(logits, SamplingParams(temperature=0.0), 3).tolist() == [7, 7, 7]
    assert _draw(logits, SamplingParams(temperature=1.0, top_k=1), 3).tolist() == [7, 7, 7]


def test_penalties_and_bias_by_definition():
    logits = np.random.default_rng(2).normal(0, 1, VOCAB).astype(np.float32)
    recent = [3, 3, 5]
    params = SamplingParams(
        temperature=0.0,
        repeat_penalty=1.3,
        presence_penalty=0.2,
        frequency_penalty=0.4,
        logit_bias=((8, 3.0), (9, -np.inf)),
    )
    want = logits.astype(np.float64)
    want[8] += 3.0
    want[9] = -np.inf
    for token, times in ((3, 2), (5, 1)):
        want[token] = want[token] / 1.3 if want[token] > 0 else want[token] * 1.3
        want[token] -= times * 0.4 + 0.2
    assert _draw(logits, params, 1, recent)[0] == np.argmax(want)


def test_a_seed_repeats_and_another_differs():
    logits = np.zeros(VOCAB, np.float32)
    a = _draw(logits, SamplingParams(temperature=1.0, seed=5), 64)
    b = _draw(logits, SamplingParams(temperature=1.0, seed=5), 64)
    c = _draw(logits, SamplingParams(temperature=1.0, seed=6), 64)
    assert (a == b).all()
    assert (a != c).any()


def test_a_slot_does_not_change_its_neighbours_draw():
    logits = jnp.asarray(np.random.default_rng(3).normal(0, 1, (2, VOCAB)).astype(np.float32))
    one = SamplingParams(temperature=1.0, seed=1)
    other = SamplingParams(temperature=0.5, seed=2, repeat_penalty=1.5, logit_bias=((1, 2.0),))
    recent = jnp.full((2, 4), 3, jnp.int32)
    positions = jnp.asarray([9, 9], jnp.int32)
    alone, _ = sample(logits[:1], make_sampler([one], VOCAB), recent[:1], positions[:1])
    beside, _ = sample(logits, make_sampler([one, other], VOCAB), recent, positions)
    assert alone[0] == beside[0]


def test_logprob_is_the_models_own():
    logits = np.random.default_rng(4).normal(0, 2, VOCAB).astype(np.float32)
    params = SamplingParams(temperature=0.0, logit_bias=((4, 100.0),))
    sampler = make_sampler([params], VOCAB)
    recent = jnp.full((1, 4), VOCAB, jnp.int32)
    tokens, logprobs = sample(jnp.asarray(logits)[None], sampler, recent, jnp.zeros(1, jnp.int32))
    assert tokens[0] == 4
    want = logits[4] - np.log(np.exp(logits.astype(np.float64)).sum())
    assert abs(float(logprobs[0]) - want) < 1e-5


@pytest.mark.parametrize(
    ("field", "value"),
    [("temperature", -1.0), ("temperature", float("nan")), ("top_p", 1.5), ("min_p", -0.1), ("seed", 2**32)],
)
def test_values_out_of_range_are_named(field, value):
    with pytest.raises(InputError, match=field):
        SamplingParams(**{field: value})


def test_bias_of_an_unknown_token_is_refused():
    with pytest.raises(InputError, match=r"outside 0\.\.49"):
        make_sampler([SamplingParams(logit_bias=((50, 1.0),))], VOCAB)
