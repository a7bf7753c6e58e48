"""What every block format comes down to: small integers, a scale per group, sometimes an offset per group."""

import dataclasses
import functools

import jax
import jax.numpy as jnp


@functools.partial(jax.tree_util.register_dataclass, data_fields=["codes", "scale", "offset"], meta_fields=[])
@dataclasses.dataclass(frozen=True, kw_only=True)
class Parts:
    """Blocks taken apart; `value = codes * scale + offset`, in float32 and this order.

    XLA may contract this to a fused multiply-add; that changes no bit, because both products of a sum are exact: d
    has 11 significant bits, a group's scale or minimum at most 6, a code at most 5, and float32 holds 24. Formats
    with wider products (Q6_K, IQ4_XS) have no offset; their group scales are exact and a value is rounded once.

    Attributes:
      codes: int8 `[..., groups, group]`.
      scale: float32 `[..., groups]`.
      offset: float32 `[..., groups]`, None for formats without one.
    """

    codes: jax.Array
    scale: jax.Array
    offset: jax.Array | None = None

    def values(self) -> jax.Array:
        """Float32 `[..., groups, group]`."""
        out = self.codes.astype(jnp.float32) * self.scale[..., None]
        return out if self.offset is None else out + self.offset[..., None]


def half_at(blocks: jax.Array, offset: int) -> jax.Array:
    """The float16 at a byte offset of each block: uint8 `[..., bytes]` -> float32 `[...]`."""
    pair = blocks[..., offset : offset + 2]
    return jax.lax.bitcast_convert_type(pair, jnp.float16).astype(jnp.float32)


def words_at(blocks: jax.Array, offset: int, count: int, dtype: jnp.dtype | type) -> jax.Array:
    """`count` little-endian unsigned integers from a byte offset: uint8 `[..., bytes]` -> `[..., count]`."""
    size = jnp.dtype(dtype).itemsize
    raw = blocks[..., offset : offset + count * size]
    return jax.lax.bitcast_convert_type(raw.reshape(*raw.shape[:-1], count, size), dtype)


def shifted(x: jax.Array, shifts: tuple[int, ...], mask: int) -> jax.Array:
    """Bit fields: `[..., n]` -> `[..., len(shifts), n]`, field-major."""
    amounts = jnp.asarray(shifts, x.dtype).reshape(*(1,) * (x.ndim - 1), -1, 1)
    return (x[..., None, :] >> amounts) & jnp.asarray(mask, x.dtype)


def fields(x: jax.Array, shifts: tuple[int, ...], mask: int) -> jax.Array:
    """Bit fields: `[..., n]` -> `[..., n * len(shifts)]`, the fields of one item side by side."""
    out = jnp.swapaxes(shifted(x, shifts, mask), -1, -2)
    return out.reshape(*x.shape[:-1], -1)


def look_up(table: jax.Array, index: jax.Array) -> jax.Array:
    """`table[index]` for a small table: `[n]` or `[n, k]`, index of any integer type."""
    return jnp.take(table, index.astype(jnp.int32), axis=0, mode="clip")
