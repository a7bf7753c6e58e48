"""Dequantization bit for bit as `gguf.quants`, for every format and every kind of byte."""

import gguf
import jax
import numpy as np
import pytest
from gguf import GGMLQuantizationType, quants

from kernels_pallas.quant import (
    FORMATS,
    UnsupportedFormatError,
    as_storage,
    dequantize,
    format_for,
    split_blocks,
)

BLOCK_FORMATS = [form for form in FORMATS.values() if form.is_block_quantized]
NAMES = [form.name for form in BLOCK_FORMATS]


def _check(storage: np.ndarray, form) -> None:
    with np.errstate(all="ignore"):
        want = quants.dequantize(storage, form.type)
    got = np.asarray(jax.jit(dequantize, static_argnums=1)(storage, form.type))
    assert got.dtype == np.float32
    assert got.shape == want.shape
    same = (got.view(np.uint32) == want.view(np.uint32)) | (np.isnan(got) & np.isnan(want))
    if not same.all():
        at = tuple(np.argwhere(~same)[0])
        raise AssertionError(
            f"{form.name}: {(~same).sum()} of {same.size} differ, first at {at} (block "
            f"{at[-1] // form.block_elements}, place {at[-1] % form.block_elements}): {got[at]!r}, want {want[at]!r}"
        )


@pytest.mark.parametrize("form", BLOCK_FORMATS, ids=NAMES)
def test_random_bytes(form):
    rng = np.random.default_rng(list(form.name.encode()))
    for shape in ((700, 4), (3, 5, 7), (1, 1)):
        blocks = rng.integers(0, 256, (*shape[:-1], shape[-1] * form.block_bytes), dtype=np.uint8)
        _check(blocks, form)


@pytest.mark.parametrize("form", BLOCK_FORMATS, ids=NAMES)
def test_extreme_halves_in_every_place(form):
    """Infinite, NaN, subnormal and negative halves wherever a scale may stand."""
    halves = np.array([np.inf, -np.inf, np.nan, 6e-8, -6e-8, 1e-5, 65504, 0, -0.0], np.float16).view(np.uint8)
    rng = np.random.default_rng(1)
    rows = []
    for value in halves.reshape(-1, 2):
        for at in range(0, form.block_bytes - 1):
            block = rng.integers(0, 256, form.block_bytes, dtype=np.uint8)
            block[at : at + 2] = value
            rows.append(block)
    rows += [np.full(form.block_bytes, byte, np.uint8) for byte in (0x00, 0xFF, 0x80, 0x7F)]
    _check(np.stack(rows), form)


@pytest.mark.parametrize("name", ["Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "MXFP4"])
def test_values_that_a_quantizer_writes(name):
    form = format_for(GGMLQuantizationType[name])
    values = np.random.default_rng(2).normal(0, 0.05, (64, 1024)).astype(np.float32)
    _check(quants.quantize(values, form.type), form)


@pytest.mark.parametrize("form", BLOCK_FORMATS, ids=NAMES)
def test_parts_have_int8_codes_and_make_the_values(form):
    blocks = np.random.default_rng(3).integers(2, 60, (6, 2 * form.block_bytes), dtype=np.uint8)
    parts = split_blocks(jax.numpy.asarray(blocks), form.type)
    assert parts.codes.dtype == np.int8
    assert parts.codes.shape[-2] * parts.codes.shape[-1] == 2 * form.block_elements
    assert parts.scale.shape == parts.codes.shape[:-1]
    want = np.asarray(dequantize(jax.numpy.asarray(blocks), form.type))
    np.testing.assert_array_equal(np.asarray(parts.values()).reshape(want.shape), want)


@pytest.mark.parametrize("name", ["F32", "F16", "BF16"])
def test_float_formats(name):
    quant_type = GGMLQuantizationType[name]
    values = np.random.default_rng(4).normal(0, 1, (3, 64)).astype(np.float32)
    raw = quants.quantize(values, quant_type)
    storage = as_storage(raw, quant_type)
    assert np.shares_memory(storage, raw)
    np.testing.assert_array_equal(
        np.asarray(dequantize(storage, quant_type)), quants.dequantize(raw, quant_type)
    )


def test_storage_of_blocks_is_the_same_bytes():
    raw = np.zeros((2, 34), np.uint8)
    assert as_storage(raw, GGMLQuantizationType.Q8_0) is raw


def test_sizes_are_ggmls():
    assert len(FORMATS) == 23
    for form in FORMATS.values():
        assert (form.block_elements, form.block_bytes) == gguf.GGML_QUANT_SIZES[form.type]
    assert format_for(GGMLQuantizationType.Q4_K).row_bytes(512) == 288
    with pytest.raises(ValueError, match="multiples of 256"):
        format_for(GGMLQuantizationType.Q4_K).row_bytes(100)


@pytest.mark.parametrize(("quant_type", "name"), [(GGMLQuantizationType.TQ1_0, "TQ1_0"), (999, "999")])
def test_an_unsupported_type_is_named(quant_type, name):
    with pytest.raises(UnsupportedFormatError, match=name) as error:
        format_for(quant_type)
    assert "MXFP4" in str(error.value)
    assert "\n" not in str(error.value)
