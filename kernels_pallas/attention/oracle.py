"""The same sums in float64 numpy, independent of JAX: what tests and benchmarks compare with."""

import numpy as np

from kernels_pallas.attention.kv_plane import KVPlane


def plane_float64(plane: KVPlane, layer: int, slot: int, length: int) -> np.ndarray:
    """Stored values of the first `length` positions, `[kv_heads, length, head_dim]`."""
    values = np.asarray(plane.data[layer, slot, :, :length]).astype(np.float64)
    if plane.scale is None:
        return values
    scale = np.asarray(plane.scale[layer, slot, :, :length]).astype(np.float64)
    return values * np.repeat(scale, values.shape[-1] // scale.shape[-1], axis=-1)


def attention(
    q: np.ndarray, k: KVPlane, v: KVPlane, layer: int, slots: np.ndarray, positions: np.ndarray
) -> np.ndarray:
    """Attention of tokens `q` `[tokens, heads, head_dim]`, each over positions 0..its own of its slot."""
    out = np.empty(q.shape, np.float64)
    for slot in np.unique(slots):
        tokens = np.flatnonzero(slots == slot)
        length = int(positions[tokens].max()) + 1
        keys, values = (plane_float64(plane, layer, int(slot), length) for plane in (k, v))
        group = q.shape[1] // keys.shape[0]
        for head in range(q.shape[1]):
            scores = q[tokens, head].astype(np.float64) @ keys[head // group].T * q.shape[-1] ** -0.5
            scores[np.arange(length)[None] > positions[tokens][:, None]] = -np.inf
            p = np.exp(scores - scores.max(axis=1, keepdims=True))
            out[tokens, head] = (p @ values[head // group]) / p.sum(axis=1, keepdims=True)
    return out
