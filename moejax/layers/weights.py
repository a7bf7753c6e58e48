"""The weights of one layer by their GGUF names."""

import dataclasses
from collections.abc import Mapping

import jax

from kernels_pallas.weight import LayerPlanes, LayerWeight, Matrix, MatrixStack


@dataclasses.dataclass(frozen=True)
class LayerWeights:
    """A view of stacked weights at one layer.

    Attributes:
      stacked: weights by name without the `blk.N.` prefix.
      index: int32 scalar, the layer within the stacks.
    """

    stacked: Mapping[str, MatrixStack]
    index: jax.Array

    def __contains__(self, name: str) -> bool:
        return name in self.stacked

    def __getitem__(self, name: str) -> Matrix:
        return self.stacked[name].at(self.index)

    def blocks(self, name: str) -> LayerWeight:
        """A weight in the file's own encoding, or in floats."""
        weight = self[name]
        assert isinstance(weight, LayerWeight), name
        return weight

    def expert(self, name: str) -> LayerWeight | LayerPlanes:
        """An expert weight, in the file's encoding or in the layout of kernels."""
        weight = self[name]
        assert isinstance(weight, LayerWeight | LayerPlanes), name
        return weight

    def vector(self, name: str) -> jax.Array:
        """A small float weight (norm, bias), whole, float32."""
        return self.blocks(name).float32()
