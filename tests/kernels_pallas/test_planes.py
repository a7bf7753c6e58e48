"""Planes hold exactly the file's values."""

import jax
import numpy as np
import pytest

from kernels_pallas.quant import dequantize, format_for
from kernels_pallas.quant.planes import LAYOUTS, has_planes, planes_float32, to_planes


@pytest.mark.parametrize("quant_type", LAYOUTS, ids=lambda t: t.name)
def test_values_are_the_files(quant_type):
    form = format_for(quant_type)
    rng = np.random.default_rng(1)
    blocks = 768 // form.block_elements
    storage = rng.integers(2, 120, (2, 5, blocks * form.block_bytes), dtype=np.uint8)
    want = np.asarray(jax.jit(dequantize, static_argnums=1)(storage, quant_type))
    got = np.asarray(jax.jit(lambda s: planes_float32(to_planes(s, quant_type)))(storage))
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("quant_type", LAYOUTS, ids=lambda t: t.name)
def test_planes_take_little_more_room_than_the_file(quant_type):
    form = format_for(quant_type)
    storage = np.zeros((4, 768 // form.block_elements * form.block_bytes), np.uint8)
    planes = jax.eval_shape(lambda s: to_planes(s, quant_type), storage)
    # Scales of four bits take a byte each here, which only the two-bit format feels.
    room = 1.2 if form.name == "Q2_K" else 1.07
    assert planes.num_bytes <= storage.size * room


def test_odd_rows_are_said_to_have_no_planes():
    from gguf import GGMLQuantizationType

    assert has_planes(GGMLQuantizationType.Q4_K, 768)
    assert not has_planes(GGMLQuantizationType.Q5_0, 96)
    assert not has_planes(GGMLQuantizationType.IQ2_S, 256)
