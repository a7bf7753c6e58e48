"""Gated delta rule: one suite for the reference and the Pallas kernels (interpreted), against float64 numpy."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kernels_pallas import dispatch
from kernels_pallas.gated_delta_net import (
    PREFILL_BLOCK,
    RecurrentPlane,
    api,
    oracle,
    pallas_triton,
    reference,
)
from kernels_pallas.gated_delta_net.config import PrefillConfig

LAYER, HEADS, DIM = 1, 2, 32
TOLERANCE = {"reference": 1e-5, "pallas": 1e-5, "pallas-bf16x3": 1e-3}
# Interpreted kernels are large programs for XLA on a CPU: compile them fast, not well.
FAST = {"xla_backend_optimization_level": 0}
NARROW = {
    "reference": jax.jit(reference.delta_net_narrow),
    "pallas": jax.jit(
        functools.partial(pallas_triton.delta_net_narrow, interpret=True), compiler_options=FAST
    ),
}


def _prefill(precision: str):
    config = PrefillConfig(precision=precision, value_tile=16)
    prefill = functools.partial(pallas_triton.delta_net_prefill, config=config, interpret=True)
    return jax.jit(prefill, compiler_options=FAST)


PREFILL = {
    "reference": jax.jit(api._reference_prefill),
    "pallas": _prefill("bf16x6"),
    "pallas-bf16x3": _prefill("bf16x3"),
}


def i32(value) -> jax.Array:
    return jnp.asarray(value, jnp.int32)


def tokens(rng: np.random.Generator, num: int, *, hard: bool = False) -> list[jax.Array]:
    """q, k, v, log decay, beta; hard: the same key again and again, hardly any decay."""
    q, k, v = (rng.normal(size=(num, HEADS, DIM)) for _ in range(3))
    if hard:
        k[:] = k[:1]
    q, k = (x / np.linalg.norm(x, axis=-1, keepdims=True) for x in (q, k))
    log_decay = -rng.exponential(size=(num, HEADS)) * (1e-3 if hard else 1.0)
    beta = np.full((num, HEADS), 0.99) if hard else rng.uniform(size=(num, HEADS))
    return [jnp.asarray(x, jnp.float32) for x in (q * DIM**-0.5, k, v, log_decay, beta)]


def make_plane(rng: np.random.Generator, ring: int, readable: list[tuple[int, int]]) -> RecurrentPlane:
    """NaN but for the states of (slot, position) in `readable`."""
    data = np.full((2, 3, ring, HEADS, DIM, DIM), np.nan, np.float32)
    for slot, position in readable:
        data[LAYER, slot, position % ring] = rng.normal(size=(HEADS, DIM, DIM))
    return RecurrentPlane(data=jnp.asarray(data))


def numpy_tokens(parts: list[jax.Array], index) -> list[np.ndarray]:
    return [np.asarray(x)[index] for x in parts]


@pytest.fixture(params=NARROW)
def narrow_name(request) -> str:
    return request.param


@pytest.fixture(params=PREFILL)
def prefill_name(request) -> str:
    return request.param


def test_narrow(narrow_name):
    rng = np.random.default_rng(1)
    ring = 7
    slots = np.array([1, 0, 1, 2, 1, 0, 1, 1])
    positions = np.array([5, 0, 6, 20, 7, 1, 8, 9])
    mask = np.array([1, 1, 1, 1, 1, 1, 0, 0], bool)
    plane = make_plane(rng, ring, [(1, 5), (2, 20)])
    parts = tokens(rng, 8)
    before = np.asarray(plane.data)
    out, after = NARROW[narrow_name](*parts, plane, i32(LAYER), i32(slots), i32(positions), jnp.asarray(mask))
    data, want_data = np.asarray(after.data), before.copy()
    for slot in range(3):
        live = np.flatnonzero((slots == slot) & mask)
        first = int(positions[live[0]])
        state = before[LAYER, slot, first % ring] if first else np.zeros((HEADS, DIM, DIM))
        want, states = oracle.delta_rule(*numpy_tokens(parts, live), state)
        np.testing.assert_allclose(np.asarray(out)[live], want, rtol=0, atol=TOLERANCE[narrow_name])
        want_data[LAYER, slot, (positions[live] + 1) % ring] = states
    np.testing.assert_allclose(data, want_data, rtol=0, atol=TOLERANCE[narrow_name])
    # The masked token after the live ones of its slot sees their state.
    state = want_data[LAYER, 1, 8 % ring]
    want, _ = oracle.delta_rule(*numpy_tokens(parts, [6]), state)
    np.testing.assert_allclose(np.asarray(out)[[6]], want, rtol=0, atol=TOLERANCE[narrow_name])


def test_narrow_bits_do_not_depend_on_width_or_neighbours(narrow_name):
    rng = np.random.default_rng(2)
    slots = np.array([0, 1, 1, 2, 1, 0, 2, 1, 0, 0, 2, 2, 1, 1, 0, 2])
    positions = np.array([3 + np.sum(slots[:i] == slot) for i, slot in enumerate(slots)])
    plane = make_plane(rng, 19, [(0, 3), (1, 3), (2, 3)])
    parts, narrow = tokens(rng, 16), NARROW[narrow_name]
    whole_out, whole = narrow(*parts, plane, i32(LAYER), i32(slots), i32(positions), jnp.ones(16, bool))
    for width in (1, 2, 3):
        now = plane
        for first in range(0, 16 - width + 1, width):
            at = slice(first, first + width)
            out, now = narrow(
                *(x[at] for x in parts), now, i32(LAYER), i32(slots[at]), i32(positions[at]), jnp.ones(width, bool)
            )  # fmt: skip
            np.testing.assert_array_equal(
                np.asarray(out), np.asarray(whole_out)[at], err_msg=f"width {width}"
            )
        if 16 % width == 0:
            np.testing.assert_array_equal(np.asarray(now.data), np.asarray(whole.data))


@pytest.mark.parametrize("hard", [False, True], ids=["easy", "hard"])
@pytest.mark.parametrize("start", [0, 128])
@pytest.mark.parametrize(("count", "keep"), [(64, False), (64, True), (37, True), (3, True), (1, False)])
def test_prefill(prefill_name, count, keep, start, hard):
    rng = np.random.default_rng([count, start, hard])
    ring = 9
    plane = make_plane(rng, ring, [(2, start)])
    parts = tokens(rng, PREFILL_BLOCK, hard=hard)
    if prefill_name != "reference":  # what follows the prompt may be anything
        parts = [np.asarray(x).copy() for x in parts]
        for x in parts:
            x[count:] = np.nan
    before = np.asarray(plane.data)
    out, after = PREFILL[prefill_name](
        *parts, plane, i32(LAYER), i32(2), i32(start), i32(count), jnp.asarray(keep)
    )
    state = before[LAYER, 2, start % ring] if start else np.zeros((HEADS, DIM, DIM))
    want, states = oracle.delta_rule(*numpy_tokens(parts, slice(0, count)), state)
    atol = TOLERANCE[prefill_name]
    np.testing.assert_allclose(np.asarray(out)[:count], want, rtol=0, atol=atol)
    want_data = before.copy()
    for number in range(max(count - ring + 1, 1) if keep else count, count + 1):
        want_data[LAYER, 2, (start + number) % ring] = states[number - 1]
    np.testing.assert_allclose(np.asarray(after.data), want_data, rtol=0, atol=atol)


def test_prefill_bits_do_not_depend_on_where_a_prompt_ends(prefill_name):
    rng = np.random.default_rng(3)
    plane, parts, ring = make_plane(rng, 40, [(0, 64)]), tokens(rng, PREFILL_BLOCK), 40
    prefill = PREFILL[prefill_name]
    out, whole = prefill(*parts, plane, i32(LAYER), i32(0), i32(64), i32(64), jnp.asarray(True))
    for count in (30, 37, 63):
        got, after = prefill(*parts, plane, i32(LAYER), i32(0), i32(64), i32(count), jnp.asarray(False))
        np.testing.assert_array_equal(np.asarray(got)[:count], np.asarray(out)[:count])
        entry = (LAYER, 0, (64 + count) % ring)
        np.testing.assert_array_equal(np.asarray(after.data)[entry], np.asarray(whole.data)[entry])


@pytest.mark.parametrize("count", [192, 130, 128, 40])
def test_blocks_in_one_call_have_the_bits_of_single_calls(prefill_name, count):
    rng = np.random.default_rng([4])
    ring, size = 9, PREFILL_BLOCK
    plane, parts, prefill = make_plane(rng, ring, [(0, 64)]), tokens(rng, 3 * size), PREFILL[prefill_name]
    out, whole = prefill(*parts, plane, i32(LAYER), i32(0), i32(64), i32(count), jnp.asarray(True))
    for first in range(0, count, size):
        left = count - first
        got, plane = prefill(
            *(x[first : first + size] for x in parts),
            plane,
            i32(LAYER),
            i32(0),
            i32(64 + first),
            i32(min(left, size)),
            jnp.asarray(left - size < ring - 1),
        )
        np.testing.assert_array_equal(np.asarray(got), np.asarray(out)[first : first + size])
    np.testing.assert_array_equal(np.asarray(out)[-(-count // size) * size :], 0)
    kept = [(64 + count - back) % ring for back in range(min(ring, count))]
    np.testing.assert_array_equal(
        np.asarray(plane.data)[LAYER, 0, kept], np.asarray(whole.data)[LAYER, 0, kept]
    )


def _args(num_tokens: int, head_dim: int = 128) -> list:
    def floats(*shape: int) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(shape, jnp.float32)

    plane = jax.eval_shape(lambda: RecurrentPlane.zeros(30, 8, 17, 32, head_dim))
    rows = [floats(num_tokens, 32, head_dim)] * 3 + [floats(num_tokens, 32)] * 2
    return [*rows, plane, jax.ShapeDtypeStruct((), jnp.int32)]


def _narrow_args(width: int, head_dim: int = 128) -> list:
    ints = jax.ShapeDtypeStruct((width,), jnp.int32)
    return [*_args(width, head_dim), ints, ints, jax.ShapeDtypeStruct((width,), jnp.bool_)]


def _prefill_args(num_tokens: int) -> list:
    scalar = jax.ShapeDtypeStruct((), jnp.int32)
    return [*_args(num_tokens), scalar, scalar, scalar, jax.ShapeDtypeStruct((), jnp.bool_)]


@pytest.mark.parametrize("platform", ["cuda", "rocm"])
def test_lowers_without_a_gpu(platform):
    for width in range(1, 17):
        jax.jit(pallas_triton.delta_net_narrow).trace(*_narrow_args(width)).lower(
            lowering_platforms=(platform,)
        )
    for precision in ("ieee", "bf16x6", "bf16x3"):
        config = PrefillConfig(precision=precision)
        prefill = jax.jit(functools.partial(pallas_triton.delta_net_prefill, config=config))
        prefill.trace(*_prefill_args(256)).lower(lowering_platforms=(platform,))


def test_what_the_kernels_cannot_do_is_named_and_falls_back():
    with pytest.raises(NotImplementedError, match="48"):
        jax.eval_shape(pallas_triton.delta_net_narrow, *_narrow_args(2, 48))
    with pytest.raises(NotImplementedError, match="32 tokens"):
        jax.eval_shape(pallas_triton.delta_net_prefill, *_prefill_args(32))
    dispatch.forget_fallbacks()
    with dispatch.override(pallas=True):
        for _ in range(2):
            jax.eval_shape(api.delta_net_narrow, *_narrow_args(2, 48))
    assert [(f.operation, "48" in f.reason) for f in dispatch.fallbacks()] == [("delta_net_narrow", True)]
    dispatch.forget_fallbacks()
