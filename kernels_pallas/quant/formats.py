"""The tensor types that a model file may use."""

import dataclasses

import gguf
from gguf import GGMLQuantizationType

_NAMES = (
    "F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ4_NL",
    "IQ4_XS", "IQ3_S", "IQ3_XXS", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ1_S", "IQ1_M", "MXFP4",
)  # fmt: skip
_FLOATS = ("F32", "F16", "BF16")


class UnsupportedFormatError(ValueError):
    """A tensor type that has no dequantization here; the message names it and those that have."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class QuantFormat:
    """One tensor type.

    Attributes:
      type: GGML's id of it.
      block_elements: values in a block, 1 for float types.
      block_bytes: bytes of a block.
    """

    type: GGMLQuantizationType
    block_elements: int
    block_bytes: int

    @property
    def name(self) -> str:
        """GGML's name, as in "Q4_K"."""
        return self.type.name

    @property
    def is_block_quantized(self) -> bool:
        """False for the float types."""
        return self.name not in _FLOATS

    def row_bytes(self, num_elements: int) -> int:
        """Bytes of a row; ValueError if it does not divide into blocks."""
        if num_elements % self.block_elements:
            raise ValueError(
                f"{self.name} rows come in multiples of {self.block_elements}, not {num_elements}"
            )
        return num_elements // self.block_elements * self.block_bytes


FORMATS: dict[GGMLQuantizationType, QuantFormat] = {}
for _name in _NAMES:
    _type = GGMLQuantizationType[_name]
    _elements, _bytes = gguf.GGML_QUANT_SIZES[_type]
    FORMATS[_type] = QuantFormat(type=_type, block_elements=_elements, block_bytes=_bytes)


def format_for(quant_type: GGMLQuantizationType | int) -> QuantFormat:
    """The format of a GGML type id; UnsupportedFormatError names a type that is not supported."""
    if quant_type in FORMATS:
        return FORMATS[GGMLQuantizationType(quant_type)]
    name = quant_type.name if isinstance(quant_type, GGMLQuantizationType) else f"number {int(quant_type)}"
    raise UnsupportedFormatError(f"tensor type {name} is not supported; supported: {', '.join(_NAMES)}")
