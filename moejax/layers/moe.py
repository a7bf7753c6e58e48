"""Routed experts and the shared expert."""

import jax
import jax.numpy as jnp

from kernels_pallas.dense_matmul import dense_matmul
from kernels_pallas.expert_matmul import ExpertWeights, expert_matmul_narrow, expert_matmul_wide
from moejax.config import MoEConfig
from moejax.layers.mlp import mlp
from moejax.layers.rows import Rows
from moejax.layers.weights import LayerWeights
from moejax.routing import RoutingPolicy, RoutingView


def moe(
    x: jax.Array,
    weights: LayerWeights,
    rows: Rows,
    config: MoEConfig,
    policy: RoutingPolicy,
    layer: jax.Array,
) -> jax.Array:
    """Router, routed experts, shared expert (docs/ARCHITECTURES.md section 1).

    Args:
      x: float32 `[tokens, hidden]`, normalised.
      weights: `ffn_gate_inp.weight`, `ffn_{gate,up,down}_exps.weight`, with a shared expert also
        `ffn_{gate,up,down}_shexp.weight` and `ffn_gate_inp_shexp.weight`.
      rows: where the tokens stand.
      config: sizes.
      policy: chooses the experts.
      layer: int32 scalar, index of the layer in the model.

    Returns:
      float32 `[tokens, hidden]`.
    """
    logits = dense_matmul(x, weights["ffn_gate_inp.weight"])
    view = RoutingView(
        layer=layer,
        positions=rows.positions,
        num_used=config.num_used,
        weights_scale=config.weights_scale,
    )
    ids, mix = policy.route(logits, view)
    experts = ExpertWeights(
        gate=weights.expert("ffn_gate_exps.weight"),
        up=weights.expert("ffn_up_exps.weight"),
        down=weights.expert("ffn_down_exps.weight"),
    )
    if rows.wide:
        # Padding must not touch an expert: its id is past the last one.
        ids = jnp.where(rows.mask[:, None], ids, config.num_experts)
        out = expert_matmul_wide(x, experts, ids, mix)
    else:
        out = expert_matmul_narrow(x, experts, ids, mix)
    if not config.shared_ffn_size:
        return out
    gate = dense_matmul(x, weights["ffn_gate_inp_shexp.weight"])
    return out + jax.nn.sigmoid(gate) * mlp(x, weights, "_shexp")
