"""Quantized matmul kernels, interpreted, against float64; they lower for both kinds of GPU."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gguf import GGMLQuantizationType as T

from kernels_pallas.dense_matmul.pallas_triton import dense_matmul_narrow
from kernels_pallas.expert_matmul.pallas_triton import MASKED, ExpertPlanes, expert_matmul_narrow
from kernels_pallas.expert_matmul.pallas_wide import WideConfig, expert_matmul_wide
from kernels_pallas.quant import dequantize, format_for
from kernels_pallas.quant.planes import LAYOUTS, to_planes

TYPES = list(LAYOUTS)
SLOTS, HIDDEN, FFN = 6, 256, 128 * 2
LAYER = jnp.int32(0)


def _rng(*names: object) -> np.random.Generator:
    return np.random.default_rng(list("/".join(map(str, names)).encode()))


def _storage(rng: np.random.Generator, quant_type, *shape: int) -> jax.Array:
    *lead, columns = shape
    blocks = rng.integers(2, 120, (*lead, format_for(quant_type).row_bytes(columns)), dtype=np.uint8)
    return jnp.asarray(blocks)


def _values(storage: jax.Array, quant_type) -> np.ndarray:
    return np.asarray(dequantize(storage, quant_type)).astype(np.float64)


def _close(got: jax.Array, want: np.ndarray, limit: float) -> None:
    got64 = np.asarray(got, np.float64)
    assert np.isfinite(got64).all()
    error = np.linalg.norm(got64 - want) / np.linalg.norm(want)
    assert error < limit, error


@pytest.mark.parametrize("quant_type", TYPES, ids=lambda t: t.name)
def test_dense_narrow_is_the_product_and_a_token_s_bits_are_its_own(quant_type):
    rng = _rng("dense", quant_type.name)
    storage = _storage(rng, quant_type, 2, 48, 768)
    planes = to_planes(storage, quant_type)
    x = jnp.asarray(rng.standard_normal((16, 768), dtype=np.float32))
    run = functools.partial(dense_matmul_narrow, planes=planes, layer=jnp.int32(1), interpret=True)
    one, five = run(x[:1]), run(x[:5])
    _close(five, np.asarray(x[:5], np.float64) @ _values(storage[1], quant_type).T, 1e-6)
    np.testing.assert_array_equal(np.asarray(one), np.asarray(five[:1]))
    if quant_type is T.Q4_K:
        np.testing.assert_array_equal(np.asarray(run(x))[:5], np.asarray(five))


def _experts(rng: np.random.Generator, gate_type, down_type) -> tuple[ExpertPlanes, tuple[np.ndarray, ...]]:
    gate, up = (_storage(rng, gate_type, 1, SLOTS, FFN, HIDDEN) for _ in range(2))
    down = _storage(rng, down_type, 1, SLOTS, HIDDEN, FFN)
    planes = ExpertPlanes(
        gate=to_planes(gate, gate_type), up=to_planes(up, gate_type), down=to_planes(down, down_type)
    )
    return planes, (_values(gate[0], gate_type), _values(up[0], gate_type), _values(down[0], down_type))


def _expected(x: jax.Array, values, sources: np.ndarray, weights: jax.Array) -> np.ndarray:
    gate, up, down = values
    out = np.zeros(x.shape)
    for token, row in enumerate(np.asarray(x, np.float64)):
        for rank, source in enumerate(sources[token]):
            if 0 <= source < SLOTS:
                g = gate[source] @ row
                h = g * 0.5 * (1 + np.tanh(g / 2)) * (up[source] @ row)  # silu without overflow
                out[token] += float(weights[token, rank]) * (down[source] @ h)
    return out


def _slots(planes: ExpertPlanes, slots: slice) -> ExpertPlanes:
    return jax.tree.map(lambda x: x[:, slots], planes)


PAIRS = [
    (T.Q4_K, T.Q6_K),
    (T.IQ4_NL, T.IQ4_NL),
    (T.Q8_0, T.Q3_K),
    (T.Q5_0, T.Q5_1),
    (T.MXFP4, T.IQ4_XS),
    (T.Q2_K, T.Q4_1),
]
# Duplicates within and between tokens, and masked pairs.
SOURCES = np.array([[0, 5], [3, 3], [MASKED, 4], [5, MASKED]], np.int32)


@pytest.mark.parametrize("types", PAIRS, ids=lambda t: f"{t[0].name}-{t[1].name}")
def test_expert_narrow_from_slab_or_host_is_the_same_and_right(types):
    rng = _rng("narrow", *types)
    planes, values = _experts(rng, *types)
    x = jnp.asarray(rng.standard_normal((4, HIDDEN), dtype=np.float32)) * 0.01
    weights = jnp.asarray(rng.random((4, 2), dtype=np.float32))
    run = functools.partial(expert_matmul_narrow, interpret=True, layer=LAYER)
    whole = run(x, planes, None, sources=jnp.asarray(SOURCES), expert_weights=weights)
    _close(whole, _expected(x, values, SOURCES, weights), 2e-6)
    split = run(
        x,
        _slots(planes, slice(0, 4)),
        _slots(planes, slice(4, 6)),
        sources=jnp.asarray(SOURCES),
        expert_weights=weights,
    )
    np.testing.assert_array_equal(np.asarray(split), np.asarray(whole))
    alone = run(x[2:3], planes, None, sources=jnp.asarray(SOURCES[2:3]), expert_weights=weights[2:3])
    np.testing.assert_array_equal(np.asarray(alone), np.asarray(whole)[2:3])


def test_nan_in_slots_that_are_not_used_does_not_leak():
    rng = _rng("nan")
    planes, values = _experts(rng, T.Q4_K, T.Q6_K)
    poisoned = jax.tree.map(
        lambda x: x.at[:, 2].set(jnp.nan) if jnp.issubdtype(x.dtype, jnp.floating) else x, planes
    )
    x = jnp.asarray(rng.standard_normal((20, HIDDEN), dtype=np.float32)) * 0.01
    weights = jnp.asarray(rng.random((20, 2), dtype=np.float32))
    sources = np.array([0, 1, 3, 4, 5], np.int32)[rng.integers(0, 5, (20, 2))]
    want = _expected(x, values, sources, weights)
    narrow = expert_matmul_narrow(
        x[:4], poisoned, None, LAYER, jnp.asarray(sources[:4]), weights[:4], interpret=True
    )
    _close(narrow, want[:4], 2e-6)
    config = WideConfig(block_pairs=16, gate_up_rows=32, down_rows=32)
    wide = expert_matmul_wide(
        x, poisoned, LAYER, jnp.asarray(sources), weights, dtype=jnp.float32, config=config, interpret=True
    )
    _close(wide, want, 2e-6)


@pytest.mark.parametrize("types", PAIRS[:3], ids=lambda t: f"{t[0].name}-{t[1].name}")
def test_expert_wide_with_empty_masked_and_repeated_experts(types):
    rng = _rng("wide", *types)
    planes, values = _experts(rng, *types)
    x = jnp.asarray(rng.standard_normal((40, HIDDEN), dtype=np.float32)) * 0.01
    weights = jnp.asarray(rng.random((40, 2), dtype=np.float32))
    sources = rng.integers(0, SLOTS + 1, (40, 2)).astype(np.int32)  # SLOTS masks
    sources[sources == 2] = 3  # an expert without tokens
    sources[:17, 0] = 1  # one with more than a tile
    run = functools.partial(
        expert_matmul_wide,
        slab=planes,
        layer=LAYER,
        config=WideConfig(block_pairs=16, gate_up_rows=32, down_rows=32),
        interpret=True,
    )
    got = run(x, sources=jnp.asarray(sources), expert_weights=weights, dtype=jnp.float32)
    _close(got, _expected(x, values, sources, weights), 2e-6)
    # A token's bits do not depend on the others.
    fewer = run(x[:9], sources=jnp.asarray(sources[:9]), expert_weights=weights[:9], dtype=jnp.float32)
    np.testing.assert_array_equal(np.asarray(fewer), np.asarray(got)[:9])


@pytest.mark.parametrize("platform", ["cuda", "rocm"])
@pytest.mark.parametrize("quant_type", TYPES, ids=lambda t: t.name)
def test_kernels_lower_for_gpus(quant_type, platform):
    rng = _rng("lower")
    planes, _ = _experts(rng, quant_type, quant_type)
    x, weights = jnp.zeros((8, HIDDEN)), jnp.zeros((8, 2))
    sources = jnp.zeros((8, 2), jnp.int32)
    dense = to_planes(_storage(rng, quant_type, 1, 64, 768), quant_type)
    for function, args in (
        (dense_matmul_narrow, (jnp.zeros((8, 768)), dense, LAYER)),
        (expert_matmul_narrow, (x, planes, planes, LAYER, sources, weights)),
        (expert_matmul_wide, (x, planes, LAYER, sources, weights)),
    ):
        jax.jit(function).trace(*args).lower(lowering_platforms=(platform,))
