"""The tokens that share one step."""

import dataclasses
import functools

import jax
import jax.numpy as jnp


@functools.partial(
    jax.tree_util.register_dataclass,
    data_fields=["slots", "positions", "mask", "keep_history"],
    meta_fields=["wide"],
)
@dataclasses.dataclass(frozen=True, kw_only=True)
class Rows:
    """Where each token of a step stands.

    Attributes:
      slots: int32 `[tokens]`, the session slot of each token; one and the same for a wide step.
      positions: int32 `[tokens]`, consecutive in a wide step.
      mask: bool `[tokens]`, False for padding, which follows the real tokens in a wide step and changes no state.
      keep_history: bool scalar; whether a wide step stores the recurrent states before its last token too.
      wide: True for a block of one prompt, False for a few tokens of any slots.
    """

    slots: jax.Array
    positions: jax.Array
    mask: jax.Array
    keep_history: jax.Array
    wide: bool

    @property
    def slot(self) -> jax.Array:
        """The slot of a wide step, int32 scalar."""
        return self.slots[0]

    @property
    def start(self) -> jax.Array:
        """Position of the first token of a wide step, int32 scalar."""
        return self.positions[0]

    @property
    def num_valid(self) -> jax.Array:
        """Tokens that count, int32 scalar."""
        return jnp.sum(self.mask.astype(jnp.int32))
