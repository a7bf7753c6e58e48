"""The tensor types that a model file may use."""

import dataclasses
import itertools

import gguf
from gguf import GGMLQuantizationType

_FLOATS = ("F32", "F16", "BF16")
# Bytes of the fields of a block, in file order. Source: the structs in ggml-common.h, cut and named as the
# `dequantize_blocks` methods of `gguf.quants` do (so the grid indices and the signs of IQ2_S are two fields).
_BLOCK_FIELDS = {
    "Q4_0": {"d": 2, "qs": 16},
    "Q4_1": {"d": 2, "m": 2, "qs": 16},
    "Q5_0": {"d": 2, "qh": 4, "qs": 16},
    "Q5_1": {"d": 2, "m": 2, "qh": 4, "qs": 16},
    "Q8_0": {"d": 2, "qs": 32},
    "Q2_K": {"scales": 16, "qs": 64, "d": 2, "dmin": 2},
    "Q3_K": {"hmask": 32, "qs": 64, "scales": 12, "d": 2},
    "Q4_K": {"d": 2, "dmin": 2, "scales": 12, "qs": 128},
    "Q5_K": {"d": 2, "dmin": 2, "scales": 12, "qh": 32, "qs": 128},
    "Q6_K": {"ql": 128, "qh": 64, "scales": 16, "d": 2},
    "IQ4_NL": {"d": 2, "qs": 16},
    "IQ4_XS": {"d": 2, "scales_h": 2, "scales_l": 4, "qs": 128},
    "IQ3_S": {"d": 2, "qs": 64, "qh": 8, "signs": 32, "scales": 4},
    "IQ3_XXS": {"d": 2, "qs": 64, "scales": 32},
    "IQ2_XXS": {"d": 2, "qs": 64},
    "IQ2_XS": {"d": 2, "qs": 64, "scales": 8},
    "IQ2_S": {"d": 2, "qs": 32, "signs": 32, "qh": 8, "scales": 8},
    "IQ1_S": {"d": 2, "qs": 32, "qh": 16},
    "IQ1_M": {"qs": 32, "qh": 16, "scales": 8},
    "MXFP4": {"e": 1, "qs": 16},
}
_NAMES = (*_FLOATS, *_BLOCK_FIELDS)


class UnsupportedFormatError(ValueError):
    """A tensor type that has no dequantization here; the message names it and those that have."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class BlockField:
    """A run of bytes in a block.

    Attributes:
      name: its name in `gguf.quants`, as in "qs".
      offset: of its first byte in the block.
      num_bytes: its length.
    """

    name: str
    offset: int
    num_bytes: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class QuantFormat:
    """One tensor type.

    Attributes:
      type: GGML's id of it.
      block_elements: values in a block, 1 for float types.
      block_bytes: bytes of a block.
      fields: what the bytes of a block are, in file order and without gaps; empty for float types.
    """

    type: GGMLQuantizationType
    block_elements: int
    block_bytes: int
    fields: tuple[BlockField, ...] = ()

    @property
    def name(self) -> str:
        """GGML's name, as in "Q4_K"."""
        return self.type.name

    @property
    def is_block_quantized(self) -> bool:
        """False for the float types."""
        return self.name not in _FLOATS

    def row_bytes(self, num_elements: int) -> int:
        """Bytes of a row of `num_elements` values.

        Raises:
          ValueError: the row does not divide into blocks.
        """
        if num_elements % self.block_elements:
            raise ValueError(
                f"{self.name} rows come in multiples of {self.block_elements}, not {num_elements}"
            )
        return num_elements // self.block_elements * self.block_bytes

    def row_elements(self, num_bytes: int) -> int:
        """Values in a row of `num_bytes` bytes.

        Raises:
          ValueError: the row does not divide into blocks.
        """
        if num_bytes % self.block_bytes:
            raise ValueError(
                f"{self.name} rows come in multiples of {self.block_bytes} bytes, not {num_bytes}"
            )
        return num_bytes // self.block_bytes * self.block_elements

    def field(self, name: str) -> BlockField:
        """The field of this name."""
        return next(field for field in self.fields if field.name == name)

    def offset(self, name: str) -> int:
        """Where a field begins in a block."""
        return self.field(name).offset

    def span(self, name: str) -> slice:
        """The bytes of a field in a block, as an index."""
        field = self.field(name)
        return slice(field.offset, field.offset + field.num_bytes)


def _fields(sizes: dict[str, int]) -> tuple[BlockField, ...]:
    ends = itertools.accumulate(sizes.values())
    return tuple(BlockField(name=n, offset=end - sizes[n], num_bytes=sizes[n]) for n, end in zip(sizes, ends))


FORMATS: dict[GGMLQuantizationType, QuantFormat] = {}
for _name in _NAMES:
    _type = GGMLQuantizationType[_name]
    _elements, _bytes = gguf.GGML_QUANT_SIZES[_type]
    FORMATS[_type] = QuantFormat(
        type=_type,
        block_elements=_elements,
        block_bytes=_bytes,
        fields=_fields(_BLOCK_FIELDS.get(_name, {})),
    )


def format_for(quant_type: GGMLQuantizationType | int) -> QuantFormat:
    """The format of a GGML type id.

    Raises:
      UnsupportedFormatError: names the type (or gives its number, if GGML has no such type) and the supported ones.
    """
    try:
        known = GGMLQuantizationType(quant_type)
    except ValueError:
        name = f"number {int(quant_type)}"
    else:
        if known in FORMATS:
            return FORMATS[known]
        name = known.name
    raise UnsupportedFormatError(f"tensor type {name} is not supported; supported: {', '.join(_NAMES)}")
