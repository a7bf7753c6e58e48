"""A quantized weight as the kernels see it: storage blocks of several layers, and which layer is meant.

Layers of one kind are stacked so that a step has few arguments; an operation gets the whole stack and a
layer index, because slicing a stack in front of a kernel would copy it.
"""

import dataclasses
import functools

import jax
import jax.numpy as jnp
from gguf import GGMLQuantizationType

from kernels_pallas.quant import Parts, dequantize
from kernels_pallas.quant.planes import Planes, planes_float32


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


@functools.partial(
    jax.tree_util.register_dataclass, data_fields=["data", "layer"], meta_fields=["quant_type"]
)
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
        return dequantize(
            jax.lax.dynamic_index_in_dim(self.data, self.layer, keepdims=False), self.quant_type
        )

    def rows_float32(self, rows: jax.Array) -> jax.Array:
        """Values of some rows of a matrix: `rows` int32 `[n]` -> float32 `[n, columns]`."""
        return dequantize(self.data[self.layer, rows], self.quant_type)

    def expert_float32(self, expert: jax.Array) -> jax.Array:
        """Values of one expert of a `[experts, rows, row]` weight, `expert` an int32 scalar."""
        start = (self.layer, expert, jnp.int32(0), jnp.int32(0))
        block = jax.lax.dynamic_slice(self.data, start, (1, 1, *self.data.shape[2:]))
        return dequantize(block[0, 0], self.quant_type)


# Rows of a tile: its float32 values should stay in a CPU's cache between unpacking and multiplying.
_MAX_TILE = 2048


def _tile_size(num_rows: int) -> int:
    """The largest divisor up to _MAX_TILE; all rows where only small ones divide."""
    size = next(size for size in range(min(_MAX_TILE, num_rows), 0, -1) if num_rows % size == 0)
    return size if size >= 128 else num_rows


@functools.partial(jax.tree_util.register_dataclass, data_fields=["codes", "scale", "offset"], meta_fields=[])
@dataclasses.dataclass(frozen=True)
class StackedParts:
    """One matrix of several layers taken apart for a CPU: a byte a value, columns before rows, in tiles of rows.

    A CPU turns codes into floats much faster when it need not unpack bits, and multiplies faster when the
    output is the last axis; float32 weights would cost it three times the memory traffic.

    Attributes:
      codes: int8 `[layers, tiles, groups, group, tile]`.
      scale: float32 `[layers, tiles, groups, tile]`.
      offset: float32 `[layers, tiles, groups, tile]`, or None; `value = codes * scale + offset`.
    """

    codes: jax.Array
    scale: jax.Array
    offset: jax.Array | None

    @staticmethod
    def zeros(layers: int, parts: Parts) -> "StackedParts":
        """An empty stack of `layers` matrices shaped as `parts` (`[rows, groups, group]`)."""
        rows, groups, group = parts.codes.shape
        tile = _tile_size(rows)

        def scales() -> jax.Array:  # arrays of their own: a step donates them
            return jnp.zeros((layers, rows // tile, groups, tile), jnp.float32)

        return StackedParts(
            codes=jnp.zeros((layers, rows // tile, groups, group, tile), jnp.int8),
            scale=scales(),
            offset=None if parts.offset is None else scales(),
        )

    def with_layer(self, layer: jax.Array, parts: Parts) -> "StackedParts":
        """The stack with one layer replaced."""

        def put(stack: jax.Array, value: jax.Array) -> jax.Array:
            start = (layer,) + (jnp.int32(0),) * (stack.ndim - 1)
            tiles = value.reshape(*stack.shape[1:2], stack.shape[-1], *value.shape[1:])
            return jax.lax.dynamic_update_slice(stack, jnp.moveaxis(tiles, 1, -1)[None], start)

        offset = self.offset
        if offset is not None and parts.offset is not None:
            offset = put(offset, parts.offset)
        return StackedParts(
            codes=put(self.codes, parts.codes), scale=put(self.scale, parts.scale), offset=offset
        )

    def at(self, layer: jax.Array | int) -> "LayerParts":
        """The matrix of one layer, `layer` may be traced."""
        return LayerParts(stack=self, layer=jnp.asarray(layer, jnp.int32))


@functools.partial(jax.tree_util.register_dataclass, data_fields=["stack", "layer"], meta_fields=[])
@dataclasses.dataclass(frozen=True)
class LayerParts:
    """One layer of a `StackedParts`.

    Attributes:
      stack: all layers.
      layer: int32 scalar, index into the first axis.
    """

    stack: StackedParts
    layer: jax.Array

    @property
    def num_tiles(self) -> int:
        """Tiles of the matrix."""
        return self.stack.codes.shape[1]

    @property
    def tile(self) -> int:
        """Rows of a tile."""
        return self.stack.codes.shape[-1]

    def tile_float32(self, tile: jax.Array | int) -> jax.Array:
        """Values of the rows of one tile, float32 `[columns, rows of the tile]`."""

        def part(x: jax.Array) -> jax.Array:
            at = (self.layer, jnp.asarray(tile, jnp.int32)) + (jnp.int32(0),) * (x.ndim - 2)
            return jax.lax.dynamic_slice(x, at, (1, 1, *x.shape[2:]))[0, 0]

        values = part(self.stack.codes).astype(jnp.float32) * part(self.stack.scale)[:, None]
        if self.stack.offset is not None:
            values = values + part(self.stack.offset)[:, None]
        return values.reshape(-1, self.tile)

    def rows_float32(self, rows: jax.Array) -> jax.Array:
        """Values of some rows: `rows` int32 `[n]` -> float32 `[n, columns]`."""
        tile, row = rows // self.tile, rows % self.tile
        codes = self.stack.codes[self.layer, tile, :, :, row].astype(jnp.float32)
        values = codes * self.stack.scale[self.layer, tile, :, row][:, :, None]
        if self.stack.offset is not None:
            values = values + self.stack.offset[self.layer, tile, :, row][:, :, None]
        return values.reshape(rows.shape[0], -1)


@functools.partial(jax.tree_util.register_dataclass, data_fields=["planes"], meta_fields=[])
@dataclasses.dataclass(frozen=True)
class StackedPlanes:
    """One weight of several layers in the layout of GPU kernels.

    Attributes:
      planes: with leading axes `[layers]`, or `[layers, experts]`.
    """

    planes: Planes

    def with_layer(self, layer: jax.Array, planes: Planes) -> "StackedPlanes":
        """The stack with one layer replaced."""

        def put(stack: jax.Array, value: jax.Array) -> jax.Array:
            start = (layer,) + (jnp.int32(0),) * (stack.ndim - 1)
            return jax.lax.dynamic_update_slice(stack, value[None], start)

        return StackedPlanes(jax.tree.map(put, self.planes, planes))

    def at(self, layer: jax.Array | int) -> "LayerPlanes":
        """The weight of one layer, `layer` may be traced."""
        return LayerPlanes(planes=self.planes, layer=jnp.asarray(layer, jnp.int32))


@functools.partial(jax.tree_util.register_dataclass, data_fields=["planes", "layer"], meta_fields=[])
@dataclasses.dataclass(frozen=True)
class LayerPlanes:
    """One layer of a `StackedPlanes`.

    Attributes:
      planes: all layers.
      layer: int32 scalar, index into the first axis.
    """

    planes: Planes
    layer: jax.Array

    def float32(self) -> jax.Array:
        """The layer's values, `[..., rows, columns]` float32."""
        one = self.planes.map(lambda x, _: jax.lax.dynamic_index_in_dim(x, self.layer, keepdims=False))
        return planes_float32(one)

    def rows_float32(self, rows: jax.Array) -> jax.Array:
        """Values of some rows of a matrix: `rows` int32 `[n]` -> float32 `[n, columns]`."""

        def pick(x: jax.Array, rows_axis: int) -> jax.Array:
            layer = jax.lax.dynamic_index_in_dim(x, self.layer, keepdims=False)
            return jnp.take(layer, rows, axis=layer.ndim + rows_axis)

        return planes_float32(self.planes.map(pick))


MatrixStack = StackedWeight | StackedParts | StackedPlanes
Matrix = LayerWeight | LayerParts | LayerPlanes
