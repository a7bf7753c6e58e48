"""Random bytes that are valid weights: codes of any value, scales chosen for the spread of the values.

Every format is linear in its scales, so the spread for scale 1 is measured once, by the dequantization of
`gguf.quants`, and divides the spread that is wanted.
"""

import ml_dtypes
import numpy as np
from gguf import GGMLQuantizationType, quants

from kernels_pallas.quant import QuantFormat, format_for

_T = GGMLQuantizationType
_FLOATS = {_T.F32: np.float32, _T.F16: np.float16, _T.BF16: ml_dtypes.bfloat16}
_SAMPLE_BLOCKS = 4096
# Second scale (minimum, offset) of the formats that have one.
_OFFSET_FIELDS = ("m", "dmin")
# Scales differ from block to block by up to this share, so that a scale read from the wrong block shows.
_SCALE_SPREAD = 0.25


def _put_half(blocks: np.ndarray, offset: int, values: np.ndarray) -> None:
    blocks[:, offset : offset + 2] = values.astype("<f2")[:, None].view(np.uint8)


def _put_iq1_m(blocks: np.ndarray, offset: int, values: np.ndarray) -> None:
    """IQ1_M keeps the four digits of its half-precision scale in the top digits of four words of small scales."""
    bits = values.astype("<f2").view(np.uint16)
    words = blocks[:, offset : offset + 8].copy().view("<u2")
    for i in range(4):
        words[:, i] = (words[:, i] & 0x0FFF) | (((bits >> (4 * i)) & 0xF) << 12)
    blocks[:, offset : offset + 8] = words.view(np.uint8)


def _set_scales(form: QuantFormat, blocks: np.ndarray, scale: np.ndarray, offset: np.ndarray) -> None:
    """Writes the scales of blocks uint8 `[blocks, block_bytes]`; `scale` and `offset` are float `[blocks]`."""
    for field in form.fields:
        if field.name == "d":
            _put_half(blocks, field.offset, scale)
        elif field.name in _OFFSET_FIELDS:
            _put_half(blocks, field.offset, offset)
        elif form.type is _T.IQ1_M and field.name == "scales":
            _put_iq1_m(blocks, field.offset, scale)


def _dequantized(form: QuantFormat, blocks: np.ndarray, scale: float, offset: float) -> np.ndarray:
    count = len(blocks)
    _set_scales(form, blocks, np.full(count, scale), np.full(count, offset))
    return quants.dequantize(blocks, form.type)


def _random_blocks(form: QuantFormat, count: int, random: np.random.Generator) -> np.ndarray:
    data = np.frombuffer(bytearray(random.bytes(count * form.block_bytes)), np.uint8)
    return data.reshape(count, form.block_bytes)


def _mxfp4(form: QuantFormat, blocks: np.ndarray, std: float, random: np.random.Generator) -> None:
    """Scales of MXFP4 are powers of two: two neighbours are mixed so that the mean square is right."""
    exponent = form.offset("e")
    sample = blocks[:_SAMPLE_BLOCKS].copy()
    sample[:, exponent] = 127
    steps = np.log2(std / quants.dequantize(sample, form.type).std())
    low = int(np.floor(steps))
    # std^2 = (1 - p) * 4^low + p * 4^(low + 1), in units of the spread at exponent 127
    share = (4.0 ** (steps - low) - 1) / 3
    blocks[:, exponent] = 127 + low + (random.random(len(blocks)) < share)


def random_data(
    quant_type: GGMLQuantizationType, num_bytes: int, std: float, random: np.random.Generator
) -> np.ndarray:
    """Random weights, mean 0, as the bytes of a file.

    Args:
      quant_type: their type.
      num_bytes: how many bytes, about: a whole number of blocks.
      std: standard deviation of the values.
      random: source of the bytes.

    Returns:
      uint8 `[blocks, block_bytes]`.
    """
    form = format_for(quant_type)
    count = max(num_bytes // form.block_bytes, 1)
    if quant_type in _FLOATS:
        values = random.standard_normal(count, np.float32) * np.float32(std)
        return values.astype(_FLOATS[quant_type])[:, None].view(np.uint8)
    blocks = _random_blocks(form, count, random)
    if quant_type is _T.MXFP4:
        _mxfp4(form, blocks, std, random)
        return blocks
    sample = _random_blocks(form, _SAMPLE_BLOCKS, random)
    # The second scale cancels the mean that the codes have with the first.
    ratio = 0.0
    if any(field.name in _OFFSET_FIELDS for field in form.fields):
        ratio = -_dequantized(form, sample, 1.0, 0.0).mean() / _dequantized(form, sample, 0.0, 1.0).mean()
    scale = std / _dequantized(form, sample, 1.0, ratio).std()
    each = scale * random.uniform(1 - _SCALE_SPREAD, 1 + _SCALE_SPREAD, count)
    _set_scales(form, blocks, each, each * ratio)
    return blocks
