"""Attention: one suite for the reference and the Pallas kernels (interpreted), against float64 numpy."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kernels_pallas import dispatch
from kernels_pallas.attention import KVPlane, api, oracle, pallas_triton, reference
from kernels_pallas.attention.config import NarrowConfig, PrefillConfig, narrow_config, prefill_config

LAYER, CONTEXT, SLOTS = 1, 768, 3
CACHES = ("f32", "bf16", "f16", "q8_0")
# Largest error of outputs that are averages of values of size 1. Prefill rounds queries and probabilities.
TOLERANCE = {
    "reference": {"narrow": dict.fromkeys(CACHES, 1e-5), "prefill": dict.fromkeys(CACHES, 1e-5)},
    "pallas": {
        "narrow": {"f32": 3e-6, "bf16": 5e-5, "f16": 5e-6, "q8_0": 2e-3},
        "prefill": {"f32": 3e-6, "bf16": 2e-2, "f16": 3e-3, "q8_0": 4e-3},
    },
}
IMPLEMENTATIONS = {
    "reference": (reference.attention_narrow, reference.attention_prefill),
    "pallas": (
        functools.partial(pallas_triton.attention_narrow, interpret=True),
        functools.partial(pallas_triton.attention_prefill, interpret=True),
    ),
}
# Interpreted kernels are large programs for XLA on a CPU: compile them fast, not well.
OPTIONS = {"reference": None, "pallas": {"xla_backend_optimization_level": 0}}
JITTED = {
    name: tuple(jax.jit(f, compiler_options=OPTIONS[name]) for f in pair)
    for name, pair in IMPLEMENTATIONS.items()
}
# The reference multiplies what it masks by 0, so what it reads must be finite.
UNUSED = {"reference": 0.0, "pallas": np.nan}


def i32(value) -> jax.Array:
    return jnp.asarray(value, jnp.int32)


@jax.jit
def _fill(plane: KVPlane, values: jax.Array) -> KVPlane:
    """Values `[slots, context, kv_heads, head_dim]` into one layer."""
    for slot in range(values.shape[0]):
        mask = jnp.ones(values.shape[1], bool)
        plane = plane.write_block(i32(LAYER), i32(slot), i32(0), mask, values[slot])
    return plane


def make_plane(
    rng, dtype: str, kv_heads: int, head_dim: int, lengths, context: int = CONTEXT, unused: float = np.nan
) -> KVPlane:
    """A plane that is `unused` but for the first `lengths[slot]` positions of one layer."""
    plane = KVPlane.zeros(dtype, 2, len(lengths), kv_heads, context, head_dim)
    values = rng.normal(size=(len(lengths), context, kv_heads, head_dim)).astype(np.float32)
    plane = _fill(plane, values)
    seen = np.zeros((2, len(lengths), 1, context, 1), bool)
    for slot, length in enumerate(lengths):
        seen[LAYER, slot, :, :length] = True

    def spoil(x: jax.Array) -> jax.Array:
        return jnp.asarray(np.where(seen, np.asarray(x), np.asarray(unused).astype(x.dtype)))

    if plane.scale is None:
        return KVPlane(data=spoil(plane.data), scale=None)
    return KVPlane(data=plane.data, scale=spoil(plane.scale))


@pytest.fixture(params=IMPLEMENTATIONS)
def name(request) -> str:
    return request.param


@pytest.mark.parametrize(
    ("dtype", "shape"), [*((dtype, (8, 2, 64)) for dtype in CACHES), ("bf16", (6, 2, 32))], ids=str
)
def test_narrow(name, dtype, shape):
    rng = np.random.default_rng([*dtype.encode(), *shape])
    heads, kv_heads, head_dim = shape
    slots, positions = np.array([0, 1, 2, 1, 0]), np.array([0, 255, 256, 254, 767])
    k, v = (
        make_plane(rng, dtype, kv_heads, head_dim, (768, 256, 257), unused=UNUSED[name]) for _ in range(2)
    )
    q = 2 * rng.normal(size=(len(slots), heads, head_dim)).astype(np.float32)
    got = JITTED[name][0](q, k, v, i32(LAYER), i32(slots), i32(positions))
    want = oracle.attention(q, k, v, LAYER, slots, positions)
    np.testing.assert_allclose(np.asarray(got), want, rtol=0, atol=TOLERANCE[name]["narrow"][dtype])


@pytest.mark.parametrize("dtype", CACHES)
def test_prefill(name, dtype):
    rng = np.random.default_rng([*dtype.encode()])
    for start in (0, 192, 640):
        k, v = (make_plane(rng, dtype, 2, 32, (start + 128, 5), unused=UNUSED[name]) for _ in range(2))
        positions = np.arange(128) + start
        q = 2 * rng.normal(size=(128, 4, 32)).astype(np.float32)
        got = JITTED[name][1](q, k, v, i32(LAYER), i32(0), i32(positions))
        want = oracle.attention(q, k, v, LAYER, np.zeros(128, int), positions)
        np.testing.assert_allclose(np.asarray(got), want, rtol=0, atol=TOLERANCE[name]["prefill"][dtype])


def _narrow_case() -> tuple:
    rng, lengths = np.random.default_rng(1), (512, 500, 200)
    k, v = (make_plane(rng, "bf16", 1, 16, lengths, 512, unused=0.0) for _ in range(2))
    slots = rng.integers(0, 3, 16)
    positions = np.array([rng.integers(0, lengths[slot]) for slot in slots])
    return rng.normal(size=(16, 4, 16)).astype(np.float32), k, v, slots, positions


def test_narrow_bits_do_not_depend_on_neighbours(name):
    q, k, v, slots, positions = _narrow_case()
    whole = np.asarray(JITTED[name][0](q, k, v, i32(LAYER), i32(slots), i32(positions)))
    want = oracle.attention(q, k, v, LAYER, slots, positions)
    np.testing.assert_allclose(whole, want, rtol=0, atol=TOLERANCE[name]["narrow"]["bf16"])
    odd = np.arange(16) % 2 == 1
    q[odd], slots[odd], positions[odd] = -q[odd], 0, 510
    got = JITTED[name][0](q, k, v, i32(LAYER), i32(slots), i32(positions))
    np.testing.assert_array_equal(np.asarray(got)[~odd], whole[~odd])


@pytest.mark.parametrize("width", [1, 2, 3, 5, 8, 11])
def test_kernel_bits_do_not_depend_on_width(width):
    q, k, v, slots, positions = _narrow_case()
    narrow = JITTED["pallas"][0]
    whole = np.asarray(narrow(q, k, v, i32(LAYER), i32(slots), i32(positions)))
    for first in range(0, 16 - width + 1, width):
        part = slice(first, first + width)
        got = narrow(q[part], k, v, i32(LAYER), i32(slots[part]), i32(positions[part]))
        np.testing.assert_array_equal(np.asarray(got), whole[part])


@pytest.mark.parametrize("width", range(1, 17))
def test_every_narrow_width_lowers(width):
    args = _narrow_args("bf16", (32, 4, 128), width)
    jax.jit(pallas_triton.attention_narrow).trace(*args).lower(lowering_platforms=("cuda",))


def test_prefill_bits_do_not_depend_on_the_chunk(name):
    rng = np.random.default_rng(2)
    k, v = (make_plane(rng, "bf16", 2, 32, (768,)) for _ in range(2))
    q, positions = rng.normal(size=(128, 4, 32)).astype(np.float32), np.arange(128) + 320
    prefill = JITTED[name][1]
    whole = np.asarray(prefill(q, k, v, i32(LAYER), i32(0), i32(positions)))
    for part in (slice(0, 64), slice(64, 128)):
        got = np.asarray(prefill(q[part], k, v, i32(LAYER), i32(0), i32(positions[part])))
        np.testing.assert_array_equal(got, whole[part])


def test_a_padded_block_sees_only_what_was_written():
    """The last block of a prompt: the rows of its padding are not in the cache, and may hold anything."""
    rng = np.random.default_rng(3)
    k, v = (make_plane(rng, "bf16", 2, 32, (200,)) for _ in range(2))
    q, positions = rng.normal(size=(64, 4, 32)).astype(np.float32), np.arange(64) + 192
    got = JITTED["pallas"][1](q, k, v, i32(LAYER), i32(0), i32(positions))
    want = oracle.attention(q[:8], k, v, LAYER, np.zeros(8, int), positions[:8])
    np.testing.assert_allclose(np.asarray(got[:8]), want, rtol=0, atol=2e-2)


def test_more_blocks_than_splits():
    rng = np.random.default_rng(4)
    k, v = (make_plane(rng, "f16", 1, 32, (1536, 900), context=1536) for _ in range(2))
    slots, positions = np.array([0, 1, 0, 0]), np.array([1535, 899, 600, 10])
    q = rng.normal(size=(4, 2, 32)).astype(np.float32)
    config = NarrowConfig(num_splits=2, tile=32)
    narrow = functools.partial(pallas_triton.attention_narrow, config=config, interpret=True)
    got = jax.jit(narrow, compiler_options=OPTIONS["pallas"])(q, k, v, i32(LAYER), i32(slots), i32(positions))
    want = oracle.attention(q, k, v, LAYER, slots, positions)
    np.testing.assert_allclose(np.asarray(got), want, rtol=0, atol=5e-6)


def test_planes_of_two_types_and_whole_products():
    rng = np.random.default_rng(5)
    k, v = make_plane(rng, "q8_0", 1, 32, (128,)), make_plane(rng, "bf16", 1, 32, (128,))
    q, positions = rng.normal(size=(64, 2, 32)).astype(np.float32), np.arange(64) + 64
    want = oracle.attention(q, k, v, LAYER, np.zeros(64, int), positions)
    config = PrefillConfig(whole=True)
    prefill = functools.partial(pallas_triton.attention_prefill, config=config, interpret=True)
    got = jax.jit(prefill, compiler_options=OPTIONS["pallas"])(q, k, v, i32(LAYER), i32(0), i32(positions))
    np.testing.assert_allclose(np.asarray(got), want, rtol=0, atol=2e-3)


def _planes(dtype: str, shape: tuple[int, int, int]) -> KVPlane:
    return jax.eval_shape(lambda: KVPlane.zeros(dtype, 48, 4, shape[1], 16384, shape[2]))


def _shape(dtype, *shape: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, dtype)


def _narrow_args(dtype: str, shape: tuple[int, int, int], width: int) -> tuple:
    plane, ints = _planes(dtype, shape), _shape(jnp.int32, width)
    return _shape(jnp.float32, width, shape[0], shape[2]), plane, plane, _shape(jnp.int32), ints, ints


def _prefill_args(dtype: str, shape: tuple[int, int, int], tokens: int) -> tuple:
    plane, scalar = _planes(dtype, shape), _shape(jnp.int32)
    q = _shape(jnp.float32, tokens, shape[0], shape[2])
    return q, plane, plane, scalar, scalar, _shape(jnp.int32, tokens)


@pytest.mark.parametrize("platform", ["cuda", "rocm"])
@pytest.mark.parametrize("shape", [(32, 4, 128), (16, 2, 256), (9, 3, 64)], ids=str)
@pytest.mark.parametrize("dtype", CACHES)
def test_lowers_without_a_gpu(dtype, shape, platform):
    value_bytes, rocm = 4 if dtype == "f32" else 2, platform == "rocm"
    narrow = functools.partial(
        pallas_triton.attention_narrow, config=narrow_config(shape[2], value_bytes, rocm)
    )
    prefill = functools.partial(
        pallas_triton.attention_prefill, config=prefill_config(shape[2], value_bytes, rocm)
    )
    for function, args in (
        (narrow, _narrow_args(dtype, shape, 8)),
        (prefill, _prefill_args(dtype, shape, 512)),
    ):
        jax.jit(function).trace(*args).lower(lowering_platforms=(platform,))


def test_what_the_kernels_cannot_do_is_named_and_falls_back():
    with pytest.raises(NotImplementedError, match="48"):
        jax.eval_shape(pallas_triton.attention_narrow, *_narrow_args("f32", (4, 2, 48), 2))
    with pytest.raises(NotImplementedError, match="32 tokens"):
        jax.eval_shape(pallas_triton.attention_prefill, *_prefill_args("f32", (4, 2, 64), 32))
    plane = jax.eval_shape(lambda: KVPlane.zeros("q8_0", 48, 8, 4, 16384, 128))
    args = _narrow_args("f32", (32, 4, 128), 8)
    with pytest.raises(NotImplementedError, match="GiB"):
        jax.eval_shape(pallas_triton.attention_narrow, args[0], plane, plane, *args[3:])
    dispatch.forget_fallbacks()
    with dispatch.override(pallas=True):
        for _ in range(2):
            jax.eval_shape(api.attention_narrow, *_narrow_args("f32", (4, 2, 48), 2))
    assert [(f.operation, "48" in f.reason) for f in dispatch.fallbacks()] == [("attention_narrow", True)]
    dispatch.forget_fallbacks()
