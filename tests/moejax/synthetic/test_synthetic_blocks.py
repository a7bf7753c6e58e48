"""Random blocks of every format are finite and have the spread that was asked for."""

import numpy as np
import pytest
from gguf import GGMLQuantizationType, quants

from kernels_pallas.quant import FORMATS
from moejax.synthetic.blocks import random_data


@pytest.mark.parametrize("quant_type", list(FORMATS), ids=lambda quant_type: quant_type.name)
@pytest.mark.parametrize("columns", [256, 12288])
def test_spread_and_mean(quant_type, columns):
    std = columns**-0.5
    form = FORMATS[quant_type]
    data = random_data(quant_type, 4096 * form.block_bytes, std, np.random.default_rng(3))
    assert data.dtype == np.uint8
    assert data.shape == (4096, form.block_bytes)
    values = quants.dequantize(data, quant_type).astype(np.float64)
    assert np.isfinite(values).all()
    # Half-precision scales of the smallest formats are subnormal, so some percent of error are theirs.
    assert values.std() == pytest.approx(std, rel=0.1)
    # Codes of Q4_0 reach from -8 to 7: their mean is a tenth of their spread.
    assert abs(values.mean()) < 0.15 * std


def test_blocks_have_scales_of_their_own():
    data = random_data(GGMLQuantizationType.Q4_K, 144 * 1000, 0.02, np.random.default_rng(0))
    scales = data[:, :2].copy().view(np.float16)
    assert len(np.unique(scales)) > 300
    assert (scales > 0).all()
