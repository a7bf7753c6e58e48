"""Sizes of the gated delta rule kernels."""

import dataclasses
from typing import Literal

# How float32 products are made: "ieee" on the ordinary units, or on tensor cores from bfloat16 pieces of each
# operand: three pieces and six products (all but the last bit or two of float32), two pieces and three products
# (a relative error of about 2**-16).
Precision = Literal["ieee", "bf16x6", "bf16x3"]


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class NarrowConfig:
    """Sizes of the kernel for few tokens.

    Attributes:
      value_tile: columns of the state (value dims) that a program holds.
      num_warps: warps of a program.
    """

    value_tile: int = 32
    num_warps: int = 4


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class PrefillConfig:
    """Sizes of the kernels for blocks of a prompt.

    Attributes:
      value_tile: columns of the state (value dims) that a program holds, at least 16.
      precision: how products are made.
      num_warps: warps of a program of the kernel that carries the state.
      prepare_warps: warps of a program of the kernel before it.
    """

    value_tile: int = 32
    precision: Precision = "bf16x6"
    num_warps: int = 8
    prepare_warps: int = 8


def prefill_config(rocm: bool) -> PrefillConfig:
    """The sizes for a device: a wave of an AMD GPU has twice the lanes of a warp."""
    return PrefillConfig(num_warps=4, prepare_warps=4) if rocm else PrefillConfig()
