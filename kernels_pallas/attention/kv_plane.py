"""One plane of an attention cache (keys or values) in its stored type."""

import dataclasses
import functools

import jax
import jax.numpy as jnp

# Attention sums in blocks of this many positions, counted from 0, whatever the step. A token's result then
# depends on its own position only. Cache lengths are multiples of it.
KV_BLOCK = 256

_Q8_BLOCK = 32
_Q8_MAX = 127.0


@functools.partial(jax.tree_util.register_dataclass, data_fields=["data", "scale"], meta_fields=[])
@dataclasses.dataclass(frozen=True)
class KVPlane:
    """Keys or values of several layers and slots.

    Attributes:
      data: `[layers, slots, kv_heads, context, head_dim]`: float32, bfloat16, float16, or int8 (q8_0).
      scale: None, or float16 `[layers, slots, kv_heads, context, head_dim / 32]` for q8_0: value = int8 * scale.
    """

    data: jax.Array
    scale: jax.Array | None

    @staticmethod
    def zeros(dtype: str, layers: int, slots: int, kv_heads: int, context: int, head_dim: int) -> "KVPlane":
        """An empty plane; `dtype` is f32, bf16, f16 or q8_0."""
        shape = (layers, slots, kv_heads, context, head_dim)
        if dtype == "q8_0":
            if head_dim % _Q8_BLOCK:
                raise ValueError(f"a q8_0 cache needs head sizes in multiples of {_Q8_BLOCK}, not {head_dim}")
            scale = jnp.zeros((*shape[:-1], head_dim // _Q8_BLOCK), jnp.float16)
            return KVPlane(data=jnp.zeros(shape, jnp.int8), scale=scale)
        dtypes = {"f32": jnp.float32, "bf16": jnp.bfloat16, "f16": jnp.float16}
        return KVPlane(data=jnp.zeros(shape, dtypes[dtype]), scale=None)

    def _encode(self, values: jax.Array) -> tuple[jax.Array, jax.Array | None]:
        """Float32 `[..., head_dim]` in the stored type; q8_0 as ggml's `quantize_row_q8_0_ref`."""
        if self.scale is None:
            return values.astype(self.data.dtype), None
        blocks = values.reshape(*values.shape[:-1], -1, _Q8_BLOCK)
        scale = jnp.max(jnp.abs(blocks), axis=-1) / _Q8_MAX
        inverse = jnp.where(scale > 0, 1.0 / jnp.where(scale > 0, scale, 1.0), 0.0)
        scaled = blocks * inverse[..., None]
        # C's roundf: halves away from zero.
        rounded = jnp.trunc(scaled + jnp.where(scaled < 0, -0.5, 0.5))
        return rounded.astype(jnp.int8).reshape(values.shape), scale.astype(jnp.float16)

    def _map(self, fn, values: jax.Array) -> "KVPlane":
        data, scale = self._encode(values)
        if self.scale is None:
            return KVPlane(data=fn(self.data, data), scale=None)
        assert scale is not None
        return KVPlane(data=fn(self.data, data), scale=fn(self.scale, scale))

    def write_rows(
        self, layer: jax.Array, slots: jax.Array, positions: jax.Array, mask: jax.Array, values: jax.Array
    ) -> "KVPlane":
        """Stores scattered tokens: `values` float32 `[tokens, kv_heads, head_dim]`; masked rows change nothing."""
        target = jnp.where(mask, positions, self.data.shape[3])  # out of range, dropped

        def put(plane: jax.Array, rows: jax.Array) -> jax.Array:
            return plane.at[layer, slots, :, target].set(rows, mode="drop")

        return self._map(put, values)

    def write_block(
        self, layer: jax.Array, slot: jax.Array, start: jax.Array, mask: jax.Array, values: jax.Array
    ) -> "KVPlane":
        """Stores tokens at `start, start + 1, ...`: `values` as in `write_rows`; masked rows change nothing.

        The cache must reach to `start + tokens` (else the write would be moved).
        """
        zero = jnp.int32(0)

        def put(plane: jax.Array, rows: jax.Array) -> jax.Array:
            block = jnp.swapaxes(rows, 0, 1)[None, None]
            at = (layer, slot, zero, start, zero)
            old = jax.lax.dynamic_slice(plane, at, block.shape)
            return jax.lax.dynamic_update_slice(
                plane, jnp.where(mask[None, None, None, :, None], block, old), at
            )

        return self._map(put, values)

    def read_block(self, layer: jax.Array, slot: jax.Array, block: jax.Array) -> jax.Array:
        """The `block`-th KV_BLOCK positions of a slot: float32 `[kv_heads, KV_BLOCK, head_dim]`."""
        zero = jnp.int32(0)

        def get(plane: jax.Array) -> jax.Array:
            size = (1, 1, plane.shape[2], KV_BLOCK, plane.shape[4])
            return jax.lax.dynamic_slice(plane, (layer, slot, zero, block * KV_BLOCK, zero), size)[0, 0]

        values = get(self.data).astype(jnp.float32)
        if self.scale is None:
            return values
        scale = get(self.scale).astype(jnp.float32)
        blocks = values.reshape(*values.shape[:-1], -1, _Q8_BLOCK) * scale[..., None]
        return blocks.reshape(values.shape)
