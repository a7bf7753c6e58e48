"""Dequantization gives the bits of `gguf.quants`, which is the independent reference, whatever the bytes are."""

import zlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gguf import GGMLQuantizationType, quants

from kernels_pallas.quant import FORMATS, QuantFormat, as_storage, dequantize, format_for, split_blocks

BLOCK_FORMATS = [form for form in FORMATS.values() if form.is_block_quantized]
FLOAT_FORMATS = [form for form in FORMATS.values() if not form.is_block_quantized]
QUANTIZERS = ["Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "MXFP4"]
# One shape for most cases, so that each format is compiled once: 64 rows of 32 blocks.
ROWS, BLOCKS = 64, 32
# Positive and negative: infinity, NaN (quiet and signalling), the ends of the subnormals and of the normals, zero.
HALVES = np.array([0x7C00, 0x7E00, 0x7C01, 0x0001, 0x03FF, 0x0400, 0x7BFF, 0x0000], np.uint16)
HALVES = np.concatenate([HALVES, HALVES | np.uint16(0x8000)])

each_block_format = pytest.mark.parametrize("form", BLOCK_FORMATS, ids=lambda form: form.name)
each_float_format = pytest.mark.parametrize("form", FLOAT_FORMATS, ids=lambda form: form.name)
jitted = jax.jit(dequantize, static_argnums=(1, 2))


def _rng(form: QuantFormat, case: str) -> np.random.Generator:
    return np.random.default_rng(zlib.crc32(f"{form.name} {case}".encode()))


def _random_blocks(form: QuantFormat, case: str, num_blocks: int = ROWS * BLOCKS) -> np.ndarray:
    return _rng(form, case).integers(0, 256, (num_blocks, form.block_bytes), dtype=np.uint8)


def _half_offsets(form: QuantFormat) -> list[int]:
    return [field.offset for field in form.fields if field.name in ("d", "dmin", "m")]


def _with_block_scales(form: QuantFormat, blocks: np.ndarray, halves: np.ndarray) -> np.ndarray:
    """The blocks with these float16 bits (uint16, one a block) in place of all scales of the whole block."""
    blocks = blocks.copy()
    for at in _half_offsets(form):
        blocks[:, at : at + 2] = halves.astype("<u2")[:, None].view(np.uint8)
    if form.name == "IQ1_M":  # four bits of the scale on top of each of four words
        start = form.offset("scales")
        for word in range(4):
            at = start + 2 * word + 1
            blocks[:, at] = (blocks[:, at] & 0x0F) | ((halves >> (4 * word)) & 0xF).astype(np.uint8) << 4
    if form.name == "MXFP4":  # an exponent instead of a float16: zero and one are subnormal, 255 overflows
        blocks[:, form.offset("e")] = np.array([0, 1, 2, 3, 127, 128, 254, 255], np.uint8)[halves % 8]
    return blocks


def _in_rows(form: QuantFormat, blocks: np.ndarray) -> np.ndarray:
    """Blocks repeated until the usual shape is full."""
    index = np.arange(ROWS * BLOCKS) % len(blocks)
    assert len(blocks) <= len(index)
    return blocks[index].reshape(ROWS, BLOCKS * form.block_bytes)


def _reference(raw: np.ndarray, form: QuantFormat) -> np.ndarray:
    with np.errstate(all="ignore"):
        return quants.dequantize(raw, form.type)


def _assert_same_bits(got: jax.Array | np.ndarray, want: np.ndarray, form: QuantFormat) -> None:
    """Equal bit for bit, any NaN for any NaN; else the worst value is named with its block and position."""
    out = np.asarray(got)
    assert out.dtype == want.dtype
    assert out.shape == want.shape
    bits = f"u{want.dtype.itemsize}"
    wrong = (out.view(bits) != want.view(bits)) & ~(np.isnan(out) & np.isnan(want))
    if not wrong.any():
        return
    with np.errstate(all="ignore"):
        error = np.abs(out.astype(np.float64) - want.astype(np.float64))
        error = np.nan_to_num(error, nan=np.inf, posinf=np.inf)
    at = np.unravel_index(np.argmax(np.where(wrong, error, -1.0)), wrong.shape)
    block, position = divmod(int(at[-1]), form.block_elements)
    pytest.fail(
        f"{form.name}: {wrong.sum()} of {wrong.size} values differ; worst in row {tuple(map(int, at[:-1]))}, "
        f"block {block}, position {position}: {out[at]!r}, should be {want[at]!r}"
    )


@each_block_format
def test_random_bytes_with_finite_scales(form):
    blocks = _random_blocks(form, "finite")
    for at in _half_offsets(form):
        blocks[:, at + 1] &= 0xBF  # no exponent of all ones
    if form.name == "IQ1_M":
        blocks[:, form.offset("scales") + 7] &= 0xBF
    if form.name == "MXFP4":
        blocks[:, form.offset("e")] %= 250
    raw = _in_rows(form, blocks)
    want = _reference(raw, form)
    assert np.isfinite(want).all()
    _assert_same_bits(jitted(raw, form.type), want, form)


@each_block_format
def test_random_bytes_of_all_kinds(form):
    raw = _in_rows(form, _random_blocks(form, "any"))
    _assert_same_bits(jitted(raw, form.type), _reference(raw, form), form)


@each_block_format
def test_adversarial_blocks(form):
    fills = np.repeat(np.array([0x00, 0xFF, 0x80, 0x7F, 0x01], np.uint8)[:, None], form.block_bytes, axis=1)
    bodies = np.concatenate([fills, _random_blocks(form, "bodies", 59)])
    halves = np.repeat(HALVES, len(bodies))
    scaled = _with_block_scales(form, np.tile(bodies, (len(HALVES), 1)), halves)
    raw = _in_rows(form, np.concatenate([fills, scaled]))
    _assert_same_bits(jitted(raw, form.type), _reference(raw, form), form)


@each_block_format
def test_every_half_as_scale(form):
    """All 65,536 float16 patterns (subnormals may be flushed, products contracted: nothing may show)."""
    halves = np.arange(1 << 16, dtype=np.uint16)
    for part in np.split(halves, len(halves) // (ROWS * BLOCKS)):
        raw = _in_rows(form, _with_block_scales(form, _random_blocks(form, f"half {part[0]}"), part))
        _assert_same_bits(jitted(raw, form.type), _reference(raw, form), form)


@pytest.mark.parametrize("name", QUANTIZERS)
def test_values_that_a_quantizer_writes(name):
    form = format_for(GGMLQuantizationType[name])
    values = _rng(form, "quantizer").normal(0, 0.05, (ROWS, BLOCKS * form.block_elements)).astype(np.float32)
    raw = quants.quantize(values, form.type)
    _assert_same_bits(jitted(raw, form.type), _reference(raw, form), form)


def test_all_quantizers_of_the_reference_are_used():
    found = []
    for form in BLOCK_FORMATS:
        try:
            quants.quantize(np.zeros((1, form.block_elements), np.float32), form.type)
        except NotImplementedError:
            continue
        found.append(form.name)
    assert sorted(found) == sorted(QUANTIZERS)


@each_block_format
@pytest.mark.parametrize("use_jit", [True, False], ids=["jit", "eager"])
def test_leading_shapes(form, use_jit):
    run, shapes = jitted, [((), 3), ((3, 5), 7)]
    if not use_jit:  # each operation is compiled for each shape: slow
        run, shapes = dequantize, [((3, 5), 1)]
    for lead, num_blocks in shapes:
        size = int(np.prod(lead)) * num_blocks
        raw = _random_blocks(form, f"{lead}", size).reshape(*lead, num_blocks * form.block_bytes)
        want = _reference(raw.reshape(-1, raw.shape[-1]), form)
        want = want.reshape(*lead, num_blocks * form.block_elements)
        _assert_same_bits(run(jnp.asarray(raw), form.type), want, form)


@each_block_format
def test_parts_make_the_values(form):
    """Put together by numpy, which flushes no subnormals: also the tiniest scales of MXFP4 are right in the parts."""
    blocks = _with_block_scales(form, _random_blocks(form, "parts", 16 * 32), np.repeat(HALVES, 32))
    raw = blocks.reshape(16, 32 * form.block_bytes)
    parts = jax.jit(split_blocks, static_argnums=1)(raw, form.type)
    assert parts.codes.dtype == np.int8
    assert parts.scale.shape == parts.codes.shape[:-1]
    assert parts.offset is None or parts.offset.shape == parts.scale.shape
    with np.errstate(all="ignore"):
        values = np.asarray(parts.codes).astype(np.float32) * np.asarray(parts.scale)[..., None]
        if parts.offset is not None:
            values = values + np.asarray(parts.offset)[..., None]
    want = _reference(raw, form)
    _assert_same_bits(values.reshape(want.shape), want, form)


@pytest.mark.parametrize("name", ["Q4_1", "Q6_K", "IQ2_XS", "MXFP4"])  # the cast is the same for all
def test_narrow_results_are_rounded_once(name):
    """Also where they are widened again in the same program, which must not undo the rounding."""
    form = format_for(GGMLQuantizationType[name])
    dtypes = (jnp.bfloat16, jnp.float16)
    raw = _in_rows(form, _random_blocks(form, "narrow"))[:4]

    @jax.jit
    def narrow_and_wide(storage: jax.Array) -> list[tuple[jax.Array, jax.Array]]:
        narrow = [dequantize(storage, form.type, dtype) for dtype in dtypes]
        return [(x, x.astype(jnp.float32)) for x in narrow]

    for dtype, (narrow, wide) in zip(dtypes, narrow_and_wide(raw)):
        with np.errstate(all="ignore"):
            want = _reference(raw, form).astype(dtype)
            want_wide = want.astype(np.float32)
        _assert_same_bits(narrow, want, form)
        _assert_same_bits(wide, want_wide, form)


@each_float_format
@pytest.mark.parametrize("use_jit", [True, False], ids=["jit", "eager"])
def test_float_formats(form, use_jit):
    """Every pattern of 16 bits, for F32 in the upper half with random lower bits."""
    words = np.arange(1 << 16, dtype=np.uint16).reshape(64, 1024)
    if form.name == "F32":
        low = _rng(form, "low").integers(0, 1 << 16, words.shape, dtype=np.uint32)
        words = (words.astype(np.uint32) << np.uint32(16)) | low
    raw = words.view(np.uint8)
    run = jitted if use_jit else dequantize
    _assert_same_bits(run(jnp.asarray(as_storage(raw, form.type)), form.type), _reference(raw, form), form)
