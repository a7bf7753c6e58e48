"""Gated delta net layer: projections, convolution, recurrence, gated norm (docs/ARCHITECTURES.md 3.2)."""

import dataclasses
import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp

from kernels_pallas.dense_matmul import dense_matmul
from kernels_pallas.gated_delta_net import RecurrentPlane, delta_net_narrow, delta_net_prefill
from moejax.config import DeltaNetConfig
from moejax.layers.history import HistoryPlane
from moejax.layers.norm import l2_norm, rms_norm
from moejax.layers.rows import Rows
from moejax.layers.weights import LayerWeights


@functools.partial(jax.tree_util.register_dataclass, data_fields=["conv", "recurrent"], meta_fields=[])
@dataclasses.dataclass(frozen=True)
class DeltaNetCache:
    """State of a stack of delta net layers, with enough of its past to go back.

    Attributes:
      conv: recent inputs of the convolution.
      recurrent: recurrent states of recent positions.
    """

    conv: HistoryPlane
    recurrent: RecurrentPlane


def _spread_heads(x: jax.Array, config: DeltaNetConfig) -> jax.Array:
    """Repeats key heads `[tokens, k_heads, dim]` to value heads in the file's order."""
    ratio = config.num_v_heads // config.num_k_heads
    if config.tiled_heads:
        return jnp.tile(x, (1, ratio, 1))
    return jnp.repeat(x, ratio, axis=1)


def delta_net(
    x: jax.Array,
    weights: LayerWeights,
    cache: DeltaNetCache,
    rows: Rows,
    config: DeltaNetConfig,
    *,
    eps: float,
    gate: Callable[[jax.Array], jax.Array] = jax.nn.silu,
) -> tuple[jax.Array, DeltaNetCache]:
    """One gated delta net mixer.

    Args:
      x: float32 `[tokens, hidden]`, normalised.
      weights: `attn_qkv`, `attn_gate`, `ssm_alpha`, `ssm_beta`, `ssm_out`, `ssm_conv1d`, `ssm_norm` (all
        `.weight`), `ssm_a`, `ssm_dt.bias`.
      cache: state, indexed by `weights.index`.
      rows: where the tokens stand.
      config: heads.
      eps: epsilon of the output norm.
      gate: activation of the output gate.

    Returns:
      float32 `[tokens, hidden]` and the new state.
    """
    num_tokens, dim, k_heads = x.shape[0], config.head_dim, config.num_k_heads
    mixed = dense_matmul(x, weights["attn_qkv.weight"])
    z = dense_matmul(x, weights["attn_gate.weight"]).reshape(num_tokens, config.num_v_heads, dim)
    beta = jax.nn.sigmoid(dense_matmul(x, weights["ssm_beta.weight"]))
    alpha = dense_matmul(x, weights["ssm_alpha.weight"])
    log_decay = weights.vector("ssm_a")[None] * jax.nn.softplus(alpha + weights.vector("ssm_dt.bias")[None])

    taps = weights.vector("ssm_conv1d.weight")
    mixed, conv = cache.conv.causal_conv(weights.index, rows, mixed, taps)
    mixed = jax.nn.silu(mixed)
    q = mixed[:, : k_heads * dim].reshape(num_tokens, k_heads, dim)
    k = mixed[:, k_heads * dim : 2 * k_heads * dim].reshape(num_tokens, k_heads, dim)
    v = mixed[:, 2 * k_heads * dim :].reshape(num_tokens, config.num_v_heads, dim)
    q = _spread_heads(l2_norm(q) * dim**-0.5, config)
    k = _spread_heads(l2_norm(k), config)

    if rows.wide:
        out, recurrent = delta_net_prefill(
            q, k, v, log_decay, beta, cache.recurrent, weights.index,
            rows.slot, rows.start, rows.num_valid, rows.keep_history,
        )  # fmt: skip
    else:
        out, recurrent = delta_net_narrow(
            q, k, v, log_decay, beta, cache.recurrent, weights.index, rows.slots, rows.positions, rows.mask
        )
    out = rms_norm(out, weights.vector("ssm_norm.weight"), eps) * gate(z)
    out = dense_matmul(out.reshape(num_tokens, -1), weights["ssm_out.weight"])
    return out, DeltaNetCache(conv=conv, recurrent=recurrent)
