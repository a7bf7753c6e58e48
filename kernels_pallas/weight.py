"""A quantized weight as the kernels see it: storage blocks of several layers, and which layer is meant.

Layers of one kind are stacked so that a step has few arguments; an operation gets the whole stack and a
layer index, because slicing a stack in front of a kernel would copy it.
"""

import dataclasses
import functools

import jax
import jax.numpy as jnp
from gguf import GGMLQuantizationType

from kernels_pallas.quant import dequantize


@functools.partial(jax.tree_util.register_dataclass, data_fields=["data"], meta_fields=["quant_type"])
@dataclasses.dataclass(frozen=True)
class StackedWeight:
    """One weight of several layers.

    Attributes:
      data: storage `[layers, ..., rows, row]`: the native float type, or uint8 blocks as the GGUF stores them.
      quant_type: how the last axis is encoded.
    """

    data: jax.Array
    quant_type: GGMLQuantizationType

    def at(self, layer: jax.Array | int) -> "LayerWeight":
        """The weight of one layer, `layer` may be traced."""
        return LayerWeight(data=self.data, quant_type=self.quant_type, layer=jnp.asarray(layer, jnp.int32))


@functools.partial(jax.tree_util.register_dataclass, data_fields=["data", "layer"], meta_fields=["quant_type"])
@dataclasses.dataclass(frozen=True)
class LayerWeight:
    """One layer of a stack.

    Attributes:
      data: the whole stack, see `StackedWeight`.
      quant_type: how the last axis is encoded.
      layer: int32 scalar, index into the first axis.
    """

    data: jax.Array
    quant_type: GGMLQuantizationType
    layer: jax.Array

    def float32(self) -> jax.Array:
        """The layer's values, `[..., rows, columns]` float32."""
        return dequantize(jax.lax.dynamic_index_in_dim(self.data, self.layer, keepdims=False), self.quant_type)

    def rows_float32(self, rows: jax.Array) -> jax.Array:
        """Values of some rows of a matrix: `rows` int32 `[n]` -> float32 `[n, columns]`."""
        return dequantize(self.data[self.layer, rows], self.quant_type)

    def expert_float32(self, expert: jax.Array) -> jax.Array:
        """Values of one expert of a `[experts, rows, row]` weight, `expert` an int32 scalar."""
        start = (self.layer, expert, jnp.int32(0), jnp.int32(0))
        block = jax.lax.dynamic_slice(self.data, start, (1, 1, *self.data.shape[2:]))
        return dequantize(block[0, 0], self.quant_type)
