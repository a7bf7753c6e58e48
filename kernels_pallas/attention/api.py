"""Softmax attention over the cache: the public functions, which choose an implementation."""

import jax

from kernels_pallas import dispatch
from kernels_pallas.attention import reference
from kernels_pallas.attention.kv_plane import KVPlane


def attention_narrow(
    q: jax.Array, k: KVPlane, v: KVPlane, layer: jax.Array, slots: jax.Array, positions: jax.Array
) -> jax.Array:
    """A few tokens, each of any slot, over that slot's cache (which already holds the tokens' own rows).

    Args:
      q: float32 `[tokens, heads, head_dim]`.
      k: key cache.
      v: value cache.
      layer: int32 scalar, layer in the planes.
      slots: int32 `[tokens]`.
      positions: int32 `[tokens]`; a token sees positions 0..its own.

    Returns:
      float32 `[tokens, heads, head_dim]`.
    """

    def kernel() -> jax.Array:
        from kernels_pallas.attention import pallas_triton  # a CPU needs no Triton

        return pallas_triton.attention_narrow(
            q, k, v, layer, slots, positions, interpret=dispatch.interpret()
        )

    return dispatch.call(
        "attention_narrow", kernel, lambda: reference.attention_narrow(q, k, v, layer, slots, positions)
    )


def attention_prefill(
    q: jax.Array, k: KVPlane, v: KVPlane, layer: jax.Array, slot: jax.Array, positions: jax.Array
) -> jax.Array:
    """Many tokens of one slot at consecutive positions; arguments as `attention_narrow` with one `slot`."""

    def kernel() -> jax.Array:
        from kernels_pallas.attention import pallas_triton

        return pallas_triton.attention_prefill(
            q, k, v, layer, slot, positions, interpret=dispatch.interpret()
        )

    return dispatch.call(
        "attention_prefill", kernel, lambda: reference.attention_prefill(q, k, v, layer, slot, positions)
    )
