"""GGML's block formats: what they are, and their values in plain jnp.

Files in reading order: `formats` (sizes), `parts` (codes, scales, offsets), `legacy`, `k_quants`, `i_quants`
(from bytes to parts), `grids` (code books), `reference` (from bytes to values).
"""

from kernels_pallas.quant.formats import FORMATS as FORMATS
from kernels_pallas.quant.formats import BlockField as BlockField
from kernels_pallas.quant.formats import QuantFormat as QuantFormat
from kernels_pallas.quant.formats import UnsupportedFormatError as UnsupportedFormatError
from kernels_pallas.quant.formats import format_for as format_for
from kernels_pallas.quant.parts import Parts as Parts
from kernels_pallas.quant.reference import as_storage as as_storage
from kernels_pallas.quant.reference import dequantize as dequantize
from kernels_pallas.quant.reference import split_blocks as split_blocks
