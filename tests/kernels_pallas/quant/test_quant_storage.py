"""Storage is a view of a file's bytes; arrays that cannot be rows of a format are refused."""

import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from gguf import GGMLQuantizationType

from kernels_pallas.quant import FORMATS, UnsupportedFormatError, as_storage, dequantize, split_blocks

_T = GGMLQuantizationType
NATIVE = {"F32": np.float32, "F16": np.float16, "BF16": ml_dtypes.bfloat16}

each_format = pytest.mark.parametrize("form", FORMATS.values(), ids=lambda form: form.name)


@each_format
def test_storage_shares_the_memory_of_the_bytes(form):
    raw = np.zeros((2, 3, 4 * form.block_bytes), np.uint8)
    storage = as_storage(raw, form.type)
    assert np.shares_memory(storage, raw)
    if form.is_block_quantized:
        assert storage.dtype == np.uint8
        assert storage.shape == raw.shape
    else:
        assert storage.dtype == NATIVE[form.name]
        assert storage.shape == (2, 3, 4)
        assert as_storage(storage, form.type) is storage


@each_format
def test_storage_of_a_read_only_file_mapping(form, tmp_path):
    path = tmp_path / "rows.bin"
    path.write_bytes(bytes(6 * form.block_bytes))
    raw = np.memmap(path, np.uint8, mode="r", shape=(3, 2 * form.block_bytes))
    storage = as_storage(raw, form.type)
    assert np.shares_memory(storage, raw)
    assert not storage.flags.writeable


@each_format
def test_arrays_of_another_type_are_refused(form):
    wrong = np.zeros((2, form.block_bytes), np.int32)
    with pytest.raises(ValueError, match=f"{form.name} .*int32"):
        as_storage(wrong, form.type)
    with pytest.raises(ValueError, match=f"{form.name} .*int32"):
        dequantize(jnp.asarray(wrong), form.type)


@each_format
def test_cut_rows_are_refused(form):
    raw = np.zeros((2, 2 * form.block_bytes - 1), np.uint8)
    with pytest.raises(ValueError, match=f"{form.name} rows come in multiples of {form.block_bytes} bytes"):
        as_storage(raw, form.type)
    if form.is_block_quantized:
        for function in (dequantize, split_blocks):
            with pytest.raises(ValueError, match=f"{form.name} rows come in multiples"):
                function(jnp.asarray(raw), form.type)


def test_bytes_of_a_float_format_are_not_taken_for_values():
    with pytest.raises(ValueError, match="F16 is stored as its native type, not uint8"):
        dequantize(jnp.zeros((2, 4), jnp.uint8), _T.F16)


@pytest.mark.parametrize("function", [as_storage, dequantize, split_blocks])
def test_unsupported_types_are_refused_by_name(function):
    with pytest.raises(UnsupportedFormatError, match="TQ1_0"):
        function(np.zeros((1, 54), np.uint8), _T.TQ1_0)
