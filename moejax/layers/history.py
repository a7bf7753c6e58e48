"""The most recent inputs of a causal convolution, kept by position so that going back is an index."""

import dataclasses
import functools

import jax
import jax.numpy as jnp

from moejax.layers.rows import Rows


@functools.partial(jax.tree_util.register_dataclass, data_fields=["data"], meta_fields=[])
@dataclasses.dataclass(frozen=True)
class HistoryPlane:
    """Recent rows of several layers and slots; the row of position t stands in ring entry t % ring.

    Attributes:
      data: float32 `[layers, slots, ring, channels]`.
    """

    data: jax.Array

    @staticmethod
    def zeros(layers: int, slots: int, ring: int, channels: int) -> "HistoryPlane":
        """An empty history."""
        return HistoryPlane(data=jnp.zeros((layers, slots, ring, channels), jnp.float32))

    def _write(self, layer: jax.Array, rows: Rows, values: jax.Array) -> "HistoryPlane":
        ring = self.data.shape[2]
        kept = rows.mask
        if rows.wide:  # more tokens than entries: only the last ones may be written
            index = jnp.arange(values.shape[0], dtype=jnp.int32)
            kept = kept & (index >= rows.num_valid - ring)
        entry = jnp.where(kept, rows.positions % ring, ring)  # out of range, dropped
        return HistoryPlane(data=self.data.at[layer, rows.slots, entry].set(values, mode="drop"))

    def _read(self, layer: jax.Array, slots: jax.Array, positions: jax.Array) -> jax.Array:
        """Rows at `positions` (zeros before the start): `[*positions.shape, channels]`."""
        values = self.data[layer, slots, positions % self.data.shape[2]]
        return jnp.where((positions >= 0)[..., None], values, 0.0)

    def causal_conv(
        self, layer: jax.Array, rows: Rows, values: jax.Array, taps: jax.Array
    ) -> tuple[jax.Array, "HistoryPlane"]:
        """Depthwise causal convolution of the step's rows, continued from the history.

        `out_t = sum_j taps[:, j] * value_{t - (K-1) + j}`, zeros before the start (docs/ARCHITECTURES.md 3.2).

        Args:
          layer: int32 scalar.
          rows: where the tokens stand.
          values: float32 `[tokens, channels]`.
          taps: float32 `[channels, K]`.

        Returns:
          float32 `[tokens, channels]`, and the history with the step's rows.
        """
        num_tokens, num_taps = values.shape[0], taps.shape[1]
        back = jnp.arange(num_taps - 1, dtype=jnp.int32) - (num_taps - 1)
        if rows.wide:
            positions = rows.start + back
            before = self._read(layer, jnp.broadcast_to(rows.slot, back.shape), positions)
            extended = jnp.concatenate([before, values], axis=0)
            windows = [extended[j : j + num_tokens] for j in range(num_taps)]
            after = self._write(layer, rows, values)
        else:
            after = self._write(layer, rows, values)
            positions = rows.positions[:, None] + back[None, :]
            slots = jnp.broadcast_to(rows.slots[:, None], positions.shape)
            before = after._read(layer, slots, positions)
            windows = [before[:, j] for j in range(num_taps - 1)] + [values]
        out = windows[0] * taps[None, :, 0]
        for j in range(1, num_taps):
            out = out + windows[j] * taps[None, :, j]
        return out, after
