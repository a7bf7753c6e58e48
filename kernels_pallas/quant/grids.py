"""Code books of the IQ and FP4 formats, taken from `gguf.quants` so that there is one copy of them."""

import functools

import numpy as np
from gguf import quants

NON_LINEAR_4BIT = np.array(quants.IQ4_NL.kvalues, np.int8)
FP4_VALUES = np.array(quants.MXFP4.kvalues, np.int8)


@functools.cache
def grid(name: str) -> np.ndarray:
    """The grid of a format ("IQ2_XS"): int8 `[entries, 4 or 8]`."""
    source = getattr(quants, name)
    source.init_grid()
    return source.grid.reshape(source.grid_shape).astype(np.int8)


@functools.cache
def sign_rows() -> np.ndarray:
    """Seven-bit sign indices -> int8 `[128, 8]` of 1 and -1 (the eighth sign makes their number even)."""
    patterns = np.frombuffer(quants.IQ2_XXS.ksigns, np.uint8)
    return np.where(patterns[:, None] >> np.arange(8) & 1, -1, 1).astype(np.int8)
