"""Softmax attention over the session's cache, plain and with an output gate."""

import dataclasses
import functools

import jax

from kernels_pallas.attention import KVPlane, attention_narrow, attention_prefill
from kernels_pallas.dense_matmul import dense_matmul
from moejax.config import AttentionConfig
from moejax.layers.norm import rms_norm
from moejax.layers.rope import apply_rope
from moejax.layers.rows import Rows
from moejax.layers.weights import LayerWeights


@functools.partial(jax.tree_util.register_dataclass, data_fields=["k", "v"], meta_fields=[])
@dataclasses.dataclass(frozen=True)
class AttentionCache:
    """Keys and values of a stack of attention layers. Going back is an index: later positions are not read.

    Attributes:
      k: keys, after norm and rotation.
      v: values.
    """

    k: KVPlane
    v: KVPlane


def attention(
    x: jax.Array,
    weights: LayerWeights,
    cache: AttentionCache,
    rows: Rows,
    config: AttentionConfig,
    *,
    eps: float,
    gated: bool,
    rope_factors: jax.Array | None = None,
) -> tuple[jax.Array, AttentionCache]:
    """Causal grouped-query attention (docs/ARCHITECTURES.md 2 and 3.1).

    Args:
      x: float32 `[tokens, hidden]`, normalised.
      weights: `attn_{q,k,v,output}.weight`, with `qk_norm` also `attn_{q,k}_norm.weight`.
      cache: keys and values, indexed by `weights.index`.
      rows: where the tokens stand.
      config: heads and rotation.
      eps: epsilon of the head norms.
      gated: `attn_q` holds a query and a gate per head; the output is multiplied by sigmoid(gate).
      rope_factors: see `apply_rope`.

    Returns:
      float32 `[tokens, hidden]` and the cache with the tokens' keys and values.
    """
    num_tokens, head_dim = x.shape[0], config.head_dim
    q = dense_matmul(x, weights["attn_q.weight"]).reshape(num_tokens, config.num_heads, -1)
    k = dense_matmul(x, weights["attn_k.weight"]).reshape(num_tokens, config.num_kv_heads, head_dim)
    v = dense_matmul(x, weights["attn_v.weight"]).reshape(num_tokens, config.num_kv_heads, head_dim)
    q, gate = q[..., :head_dim], q[..., head_dim:]
    if config.qk_norm:
        q = rms_norm(q, weights.vector("attn_q_norm.weight"), eps)
        k = rms_norm(k, weights.vector("attn_k_norm.weight"), eps)
    q = apply_rope(q, rows.positions, config.rope, rope_factors)
    k = apply_rope(k, rows.positions, config.rope, rope_factors)
    layer = weights.index
    if rows.wide:
        cache = AttentionCache(
            k=cache.k.write_block(layer, rows.slot, rows.start, rows.mask, k),
            v=cache.v.write_block(layer, rows.slot, rows.start, rows.mask, v),
        )
        out = attention_prefill(q, cache.k, cache.v, layer, rows.slot, rows.positions)
    else:
        cache = AttentionCache(
            k=cache.k.write_rows(layer, rows.slots, rows.positions, rows.mask, k),
            v=cache.v.write_rows(layer, rows.slots, rows.positions, rows.mask, v),
        )
        out = attention_narrow(q, cache.k, cache.v, layer, rows.slots, rows.positions)
    if gated:
        out = out * jax.nn.sigmoid(gate)
    return dense_matmul(out.reshape(num_tokens, -1), weights["attn_output.weight"]), cache
