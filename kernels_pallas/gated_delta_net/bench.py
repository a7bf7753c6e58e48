"""Times the delta rule on a GPU: `python -m kernels_pallas.gated_delta_net.bench [--sweep] [--only=WORDS]`.

The shape is Qwen3.6-35B-A3B's: 32 value heads (16 key heads, repeated before the kernel) of 128.
"""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np

from kernels_pallas.gated_delta_net import oracle, pallas_triton
from kernels_pallas.gated_delta_net.config import NarrowConfig, Precision, PrefillConfig
from kernels_pallas.gated_delta_net.recurrent_plane import RecurrentPlane
from kernels_pallas.gated_delta_net.reference import PREFILL_BLOCK
from kernels_pallas.timing import Case, Work, main

HEADS, DIM, RING, LAYERS = 32, 128, 17, 8
_STATE_BYTES = 4.0 * HEADS * DIM * DIM
# Products of a block: q.k, k.k, U, W and scores.delta; those with the state; the inverse.
_BLOCK_FLOP = 2.0 * HEADS * (
    5 * PREFILL_BLOCK**2 * DIM + 3 * PREFILL_BLOCK * DIM**2 + 4 * PREFILL_BLOCK**3
)  # fmt: skip

NARROW_SWEEP = tuple(
    NarrowConfig(value_tile=tile, num_warps=warps)
    for tile, warps in ((8, 1), (8, 2), (8, 4), (16, 2), (16, 4), (32, 4), (32, 8), (64, 8), (128, 8))
)
_PREFILL_SIZES: tuple[tuple[int, Precision, int, int], ...] = (
    (16, "bf16x6", 4, 4),
    (32, "bf16x6", 4, 4),
    (32, "bf16x6", 8, 8),
    (64, "bf16x6", 8, 8),
    (32, "bf16x3", 4, 4),
    (32, "bf16x3", 8, 8),
    (32, "ieee", 8, 8),
)
PREFILL_SWEEP = tuple(
    PrefillConfig(value_tile=tile, precision=precision, num_warps=warps, prepare_warps=prepare)
    for tile, precision, warps, prepare in _PREFILL_SIZES
)


def _setup(num_tokens: int, slots: int) -> tuple[jax.Array, tuple, RecurrentPlane]:
    """Values, the other inputs, and states as a model has them."""
    keys = jax.random.split(jax.random.key(0), 6)
    q, k, v = (jax.random.normal(key, (num_tokens, HEADS, DIM), jnp.float32) for key in keys[:3])
    q, k = (x / jnp.linalg.norm(x, axis=-1, keepdims=True) for x in (q, k))
    log_decay = -0.1 * jax.random.exponential(keys[3], (num_tokens, HEADS), jnp.float32)
    beta = jax.random.uniform(keys[4], (num_tokens, HEADS), jnp.float32)
    data = 0.1 * jax.random.normal(keys[5], (LAYERS, slots, RING, HEADS, DIM, DIM), jnp.float32)
    return v, (q * DIM**-0.5, k, log_decay, beta), RecurrentPlane(data=data)


def narrow_case(tokens: int, same_slot: bool, config: NarrowConfig | None = None) -> Case:
    """`tokens` of one slot in a row (a verify step) or each of its own (several sessions)."""
    slots = np.zeros(tokens, np.int32) if same_slot else np.arange(tokens, dtype=np.int32)
    positions = np.arange(100, 100 + tokens, dtype=np.int32) if same_slot else np.full(tokens, 100, np.int32)
    kernel = functools.partial(pallas_triton.delta_net_narrow, config=config)

    def call(v: jax.Array, plane: RecurrentPlane, constants: tuple, i: jax.Array):
        q, k, log_decay, beta = constants
        place = (i % LAYERS, jnp.asarray(slots), jnp.asarray(positions) + i, jnp.ones(tokens, bool))
        return kernel(q, k, v, log_decay, beta, plane, *place)

    def build():
        v, constants, plane = _setup(tokens, 1 if same_slot else tokens)

        def step(carry: tuple, constants: tuple, i: jax.Array) -> tuple:
            v, plane = carry
            out, plane = call(v, plane, constants, i)
            return v + 1e-3 * out, plane

        return step, (v, plane), constants

    def error(carry: tuple, constants: tuple) -> float:
        v, plane = carry
        out, after = jax.jit(call)(v, plane, constants, jnp.int32(0))
        worst = 0.0
        q, k, log_decay, beta = (np.asarray(x) for x in constants)
        for slot in np.unique(slots):
            at = np.flatnonzero(slots == slot)
            state = np.asarray(plane.data[0, slot, positions[at[0]] % RING])
            want, states = oracle.delta_rule(q[at], k[at], np.asarray(v)[at], log_decay[at], beta[at], state)
            last = np.asarray(after.data[0, slot, (positions[at[-1]] + 1) % RING])
            worst = max(worst, np.abs(np.asarray(out)[at] - want).max(), np.abs(last - states[-1]).max())
        return float(worst)

    streams = 1 if same_slot else tokens
    what = f"{tokens} tokens of {streams} slots" if tokens > 1 else "1 token"
    return Case(
        name=f"narrow {what}" + (f" {_sizes(config)}" if config else ""),
        build=build,
        work=Work(num_bytes=(streams + tokens) * _STATE_BYTES, flop=6.0 * tokens * HEADS * DIM * DIM),
        error=error,
    )


def prefill_case(tokens: int, keep_history: bool, config: PrefillConfig | None = None) -> Case:
    """A chunk of `tokens`."""
    kernel = functools.partial(pallas_triton.delta_net_prefill, config=config)

    def call(v: jax.Array, plane: RecurrentPlane, constants: tuple, i: jax.Array):
        q, k, log_decay, beta = constants
        place = (i % LAYERS, jnp.int32(0), jnp.int32(64), jnp.int32(tokens), jnp.bool_(keep_history))
        return kernel(q, k, v, log_decay, beta, plane, *place)

    def build():
        v, constants, plane = _setup(tokens, 1)

        def step(carry: tuple, constants: tuple, i: jax.Array) -> tuple:
            v, plane = carry
            out, plane = call(v, plane, constants, i)
            return v + 1e-3 * out, plane

        return step, (v, plane), constants

    def error(carry: tuple, constants: tuple) -> float:
        v, plane = carry
        out, after = jax.jit(call)(v, plane, constants, jnp.int32(0))
        q, k, log_decay, beta = (np.asarray(x)[:, :4] for x in constants)
        state = np.asarray(plane.data[0, 0, 64 % RING, :4])
        want, states = oracle.delta_rule(q, k, np.asarray(v)[:, :4], log_decay, beta, state)
        last = np.asarray(after.data[0, 0, (64 + tokens) % RING, :4])
        return float(max(np.abs(np.asarray(out)[:, :4] - want).max(), np.abs(last - states[-1]).max()))

    blocks = tokens // PREFILL_BLOCK
    return Case(
        name=f"prefill {tokens} tokens{' with history' if keep_history else ''}"
        + (f" {_sizes(config)}" if config else ""),
        build=build,
        work=Work(num_bytes=4.0 * 4 * tokens * HEADS * DIM + 2 * _STATE_BYTES, flop=blocks * _BLOCK_FLOP),
        error=error,
        calls=8,
    )


def _sizes(config: NarrowConfig | PrefillConfig) -> str:
    return " ".join(f"{field.name}={getattr(config, field.name)}" for field in dataclasses.fields(config))


def cases(sweep: bool) -> list[Case]:
    """All cases; with `sweep`, some of them with every size of the kernels."""
    if sweep:
        narrow = [narrow_case(tokens, True, x) for tokens in (1, 4) for x in NARROW_SWEEP]
        return narrow + [prefill_case(tokens, False, x) for x in PREFILL_SWEEP for tokens in (64, 2048)]
    found = [narrow_case(1, True), narrow_case(4, True), narrow_case(8, False)]
    found += [prefill_case(tokens, False) for tokens in (64, 512, 2048)]
    return [*found, prefill_case(64, True)]


if __name__ == "__main__":
    main(cases)
