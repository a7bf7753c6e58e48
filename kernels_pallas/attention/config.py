"""Tile sizes of the attention kernels."""

import dataclasses

from kernels_pallas.attention.kv_plane import KV_BLOCK

# A prefill program holds this many tokens whatever the length of the chunk: the arithmetic is then the same.
BLOCK_TOKENS = 64


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class NarrowConfig:
    """Sizes of the kernel for few tokens. `tile` and `num_splits` decide the order of sums.

    Attributes:
      tile: positions loaded at once; divides KV_BLOCK.
      num_splits: programs that share the KV blocks of one token and head: block b belongs to b % num_splits.
      num_warps: warps of a program.
      num_stages: depth of the load pipeline.
    """

    tile: int = 64
    num_splits: int = 64
    num_warps: int = 4
    num_stages: int = 3

    def __post_init__(self):
        """Checks the sizes."""
        if KV_BLOCK % self.tile or self.num_splits & (self.num_splits - 1):
            raise ValueError(f"tile must divide {KV_BLOCK} and num_splits be a power of two: {self}")


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class PrefillConfig:
    """Sizes of the kernel for a chunk of a prompt. `tile` decides the order of sums.

    Attributes:
      tile: positions loaded at once; divides KV_BLOCK.
      heads: query heads of one kv head that a program takes together, at most (a power of two).
      whole: multiply all bits of queries and probabilities, at twice the products, instead of rounding them.
      num_warps: warps of a program.
      num_stages: depth of the load pipeline.
    """

    tile: int = 64
    heads: int = 2
    whole: bool = False
    num_warps: int = 8
    num_stages: int = 2

    def __post_init__(self):
        """Checks the sizes."""
        if KV_BLOCK % self.tile or self.heads & (self.heads - 1):
            raise ValueError(f"tile must divide {KV_BLOCK} and heads be a power of two: {self}")


def narrow_config(head_dim: int, value_bytes: int, rocm: bool) -> NarrowConfig:
    """The sizes for a head size and a cache type (bytes a value of the wider plane)."""
    if value_bytes == 4:
        return NarrowConfig(tile=32, num_stages=1)
    if head_dim >= 256:
        return NarrowConfig(tile=32, num_warps=8, num_stages=1 if rocm else 3)
    return NarrowConfig(num_stages=1 if rocm else 3)


def prefill_config(head_dim: int, value_bytes: int, rocm: bool) -> PrefillConfig:
    """The sizes for a head size and a cache type (bytes a value of the wider plane)."""
    if value_bytes == 4:
        return PrefillConfig(tile=32, heads=1, num_stages=1)
    if head_dim >= 256:
        return PrefillConfig(tile=32 if rocm else 64, heads=1, num_stages=1 if rocm else 2)
    return PrefillConfig(num_stages=1 if rocm else 2)
