"""The recurrent state of delta net layers, with its recent past.

The state after `p` tokens stands in ring entry `p % ring`. Going back to an earlier position is therefore an
index, not a copy: the next token reads another entry.
"""

import dataclasses
import functools

import jax
import jax.numpy as jnp


@functools.partial(jax.tree_util.register_dataclass, data_fields=["data"], meta_fields=[])
@dataclasses.dataclass(frozen=True)
class RecurrentPlane:
    """Recurrent states of several layers and slots.

    Attributes:
      data: float32 `[layers, slots, ring, v_heads, head_dim, head_dim]` (key dim, then value dim).
    """

    data: jax.Array

    @staticmethod
    def zeros(layers: int, slots: int, ring: int, v_heads: int, head_dim: int) -> "RecurrentPlane":
        """States of no tokens at all."""
        return RecurrentPlane(data=jnp.zeros((layers, slots, ring, v_heads, head_dim, head_dim), jnp.float32))

    def _at(self, layer: jax.Array, slot: jax.Array, num_tokens: jax.Array) -> tuple[jax.Array, ...]:
        zero = jnp.int32(0)
        return (layer, slot, num_tokens % self.data.shape[2], zero, zero, zero)

    def read(self, layer: jax.Array, slot: jax.Array, num_tokens: jax.Array) -> jax.Array:
        """The state after `num_tokens` tokens: float32 `[v_heads, head_dim, head_dim]`."""
        at = self._at(layer, slot, num_tokens)
        state = jax.lax.dynamic_slice(self.data, at, (1, 1, 1, *self.data.shape[3:]))[0, 0, 0]
        # A slot that starts again still holds its last session's state in entry 0.
        return jnp.where(num_tokens > 0, state, 0.0)

    def write(
        self, layer: jax.Array, slot: jax.Array, num_tokens: jax.Array, state: jax.Array
    ) -> "RecurrentPlane":
        """Stores the state after `num_tokens` tokens."""
        at = self._at(layer, slot, num_tokens)
        return RecurrentPlane(data=jax.lax.dynamic_update_slice(self.data, state[None, None, None], at))
