"""The table of formats: sizes are GGML's, fields cover a block, anything else is refused by name."""

import dataclasses

import gguf
import pytest
from gguf import GGMLQuantizationType

from kernels_pallas.quant import FORMATS, UnsupportedFormatError, format_for

NAMES = [
    "F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ4_NL",
    "IQ4_XS", "IQ3_S", "IQ3_XXS", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ1_S", "IQ1_M", "MXFP4",
]  # fmt: skip

each_format = pytest.mark.parametrize("form", FORMATS.values(), ids=lambda form: form.name)


def test_exactly_these_formats():
    assert [form.name for form in FORMATS.values()] == NAMES
    assert [quant_type.name for quant_type in FORMATS] == NAMES


@each_format
def test_sizes_are_ggmls(form):
    assert (form.block_elements, form.block_bytes) == gguf.GGML_QUANT_SIZES[form.type]
    assert form.is_block_quantized == (form.name not in ("F32", "F16", "BF16"))


@each_format
def test_fields_cover_the_block_without_gaps(form):
    end = 0
    for field in form.fields:
        assert field.offset == end == form.offset(field.name)
        end += field.num_bytes
        assert form.span(field.name) == slice(field.offset, end)
    assert end == (form.block_bytes if form.is_block_quantized else 0)
    assert len({field.name for field in form.fields}) == len(form.fields)


@each_format
def test_rows_must_divide_into_blocks(form):
    assert form.row_bytes(3 * form.block_elements) == 3 * form.block_bytes
    assert form.row_elements(3 * form.block_bytes) == 3 * form.block_elements
    with pytest.raises(ValueError, match=f"{form.name} rows come in multiples of {form.block_bytes} bytes"):
        form.row_elements(form.block_bytes + 1)
    if form.is_block_quantized:
        with pytest.raises(ValueError, match=f"{form.name} rows come in multiples of {form.block_elements}"):
            form.row_bytes(form.block_elements + 1)


@each_format
def test_a_format_is_found_by_type_and_by_number(form):
    assert format_for(form.type) is format_for(int(form.type)) is form
    assert hash(form) == hash(dataclasses.replace(form))  # static under jit


UNSUPPORTED = [t for t in GGMLQuantizationType if t.name not in NAMES]


@pytest.mark.parametrize("quant_type", UNSUPPORTED, ids=lambda t: t.name)
def test_an_unsupported_type_is_refused_by_name(quant_type):
    for given in (quant_type, int(quant_type)):
        with pytest.raises(UnsupportedFormatError) as error:
            format_for(given)
        message = str(error.value)
        assert quant_type.name in message.split(";")[0].split()
        assert message.split("supported: ")[1].split(", ") == NAMES
        assert "\n" not in message


def test_an_unknown_number_is_refused():
    with pytest.raises(UnsupportedFormatError, match="999"):
        format_for(999)


def test_formats_are_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        format_for(GGMLQuantizationType.Q4_0).block_bytes = 1  # pyright: ignore[reportAttributeAccessIssue]
