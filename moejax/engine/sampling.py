"""From logits to a token, on the device: penalties, filters, temperature, all per session slot."""

import dataclasses
import functools
import math

import jax
import jax.numpy as jnp
import numpy as np

from host_tier.errors import InputError

_MAX_BIAS = 1e6


@dataclasses.dataclass(frozen=True, kw_only=True)
class SamplingParams:
    """How one request samples; defaults are llama.cpp's where it has the option.

    Attributes:
      temperature: 0 takes the most likely token.
      top_k: keep the k most likely tokens, 0 for all.
      top_p: keep the most likely tokens whose probabilities sum to this.
      min_p: drop tokens less likely than this share of the most likely.
      repeat_penalty: divides (or multiplies, if negative) the logits of recent tokens, 1 for none.
      presence_penalty: subtracted from logits of recent tokens.
      frequency_penalty: subtracted once per recent appearance.
      logit_bias: added to logits, by token id; -inf forbids a token.
      seed: random seed, 0..2^32-1.
    """

    temperature: float = 0.8
    top_k: int = 40
    top_p: float = 0.95
    min_p: float = 0.05
    repeat_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: tuple[tuple[int, float], ...] = ()
    seed: int = 0

    def __post_init__(self):
        """Checks ranges; InputError names the field and what would work."""
        for name, low, high in (
            ("temperature", 0.0, 100.0),
            ("top_p", 0.0, 1.0),
            ("min_p", 0.0, 1.0),
            ("repeat_penalty", 1e-3, 1e3),
            ("presence_penalty", -1e3, 1e3),
            ("frequency_penalty", -1e3, 1e3),
            ("top_k", 0, 2**31 - 1),
            ("seed", 0, 2**32 - 1),
        ):
            value = getattr(self, name)
            if not low <= value <= high:
                raise InputError(f"{name} is {value}; it must be between {low} and {high}")
        for token, bias in self.logit_bias:
            if bias != -math.inf and not abs(bias) <= _MAX_BIAS:
                raise InputError(
                    f"logit_bias of token {token} is {bias}; it must be at most {_MAX_BIAS:g}, or -inf"
                )


@functools.partial(
    jax.tree_util.register_dataclass,
    data_fields=["temperature", "top_k", "top_p", "min_p", "repeat", "presence", "frequency", "bias", "key"],
    meta_fields=[],
)
@dataclasses.dataclass(frozen=True, kw_only=True)
class Sampler:
    """Sampling parameters of all slots as arrays, so that changing them compiles nothing.

    Attributes:
      temperature: float32 `[slots]`.
      top_k: int32 `[slots]`.
      top_p: float32 `[slots]`.
      min_p: float32 `[slots]`.
      repeat: float32 `[slots]`.
      presence: float32 `[slots]`.
      frequency: float32 `[slots]`.
      bias: float32 `[slots, vocab]`.
      key: uint32 `[slots, 2]`, raw random key.
    """

    temperature: jax.Array
    top_k: jax.Array
    top_p: jax.Array
    min_p: jax.Array
    repeat: jax.Array
    presence: jax.Array
    frequency: jax.Array
    bias: jax.Array
    key: jax.Array


def make_sampler(params: list[SamplingParams], vocab_size: int) -> Sampler:
    """Arrays for one request per slot."""
    bias = np.zeros((len(params), vocab_size), np.float32)
    for slot, request in enumerate(params):
        for token, value in request.logit_bias:
            if not 0 <= token < vocab_size:
                raise InputError(f"logit_bias: token id {token} is outside 0..{vocab_size - 1}")
            bias[slot, token] += value

    def column(name: str, dtype: type) -> jax.Array:
        return jnp.asarray(np.array([getattr(request, name) for request in params], dtype))

    return Sampler(
        temperature=column("temperature", np.float32),
        top_k=column("top_k", np.int32),
        top_p=column("top_p", np.float32),
        min_p=column("min_p", np.float32),
        repeat=column("repeat_penalty", np.float32),
        presence=column("presence_penalty", np.float32),
        frequency=column("frequency_penalty", np.float32),
        bias=jnp.asarray(bias),
        key=jnp.asarray(np.stack([np.array([0, request.seed], np.uint32) for request in params])),
    )


def _penalize(logits: jax.Array, sampler: Sampler, recent: jax.Array) -> jax.Array:
    """Penalties and biases. `recent` int32 `[slots, n]`: recent tokens, an id past the vocabulary for none."""
    slots, vocab = logits.shape
    slot = jnp.broadcast_to(jnp.arange(slots, dtype=jnp.int32)[:, None], recent.shape)
    counts = jnp.zeros((slots, vocab), jnp.float32).at[slot, recent].add(1.0, mode="drop")
    logits = logits + sampler.bias  # first, as in llama.cpp
    repeat = sampler.repeat[:, None]
    repeated = jnp.where(logits > 0, logits / repeat, logits * repeat)
    logits = jnp.where(counts > 0, repeated, logits)
    logits = logits - counts * sampler.frequency[:, None]
    return logits - jnp.where(counts > 0, sampler.presence[:, None], 0.0)


def _draw(
    logits: jax.Array,
    temperature: jax.Array,
    top_k: jax.Array,
    top_p: jax.Array,
    min_p: jax.Array,
    key: jax.Array,
    position: jax.Array,
) -> jax.Array:
    """One slot: filters in llama.cpp's order (top-k, top-p, min-p, temperature), then one draw."""
    ids = jnp.arange(logits.shape[0], dtype=jnp.int32)
    negative, order = jax.lax.sort((-logits, ids), num_keys=2)
    ranked = -negative
    keep = (top_k <= 0) | (ids < top_k)
    p = jax.nn.softmax(jnp.where(keep, ranked, -jnp.inf))
    before = jnp.cumsum(p) - p
    keep = keep & ((before < top_p) | (top_p >= 1.0)) & (p >= min_p * p[0])
    keep = keep | (ids == 0)
    scaled = jnp.where(keep, ranked / jnp.where(temperature > 0, temperature, 1.0), -jnp.inf)
    # The draw depends on seed and position only: not on the slot, nor on how the tokens before came about.
    choice = jax.random.categorical(jax.random.fold_in(jax.random.wrap_key_data(key), position), scaled)
    return jnp.where(temperature > 0, order[choice], order[0])


def sample(
    logits: jax.Array, sampler: Sampler, recent: jax.Array, positions: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Chooses a token per slot.

    Args:
      logits: float32 `[slots, vocab]`, the model's output.
      sampler: parameters.
      recent: int32 `[slots, n]`, the tokens that penalties look at (an id past the vocabulary for none).
      positions: int32 `[slots]`, position that the chosen token will take.

    Returns:
      Token ids int32 `[slots]`, and float32 `[slots]`: natural log of the probability that the model itself
      gives the token (before penalties, filters and temperature).
    """
    neutral = (
        jnp.all(sampler.repeat == 1.0)
        & jnp.all(sampler.presence == 0.0)
        & jnp.all(sampler.frequency == 0.0)
        & jnp.all(sampler.bias == 0.0)
    )
    adjusted = jax.lax.cond(neutral, lambda: logits, lambda: _penalize(logits, sampler, recent))
    tokens = jax.lax.cond(
        jnp.any(sampler.temperature > 0),
        lambda: jax.vmap(_draw)(
            adjusted,
            sampler.temperature,
            sampler.top_k,
            sampler.top_p,
            sampler.min_p,
            sampler.key,
            positions,
        ),
        lambda: jnp.argmax(adjusted, axis=-1).astype(jnp.int32),
    )
    chosen = jnp.take_along_axis(logits, tokens[:, None], axis=1)[:, 0]
    return tokens, chosen - jax.nn.logsumexp(logits, axis=-1)
