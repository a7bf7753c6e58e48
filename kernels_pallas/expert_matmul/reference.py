"""Expert matmul in plain jnp: experts are dequantized when they are used, one at a time.

Source of the formula: `y = sum_k w_k * W_down(silu(W_gate x) * (W_up x))` (docs/ARCHITECTURES.md section 1).
"""

import dataclasses
import functools

import jax
import jax.numpy as jnp

from kernels_pallas.weight import LayerWeight


@functools.partial(jax.tree_util.register_dataclass, data_fields=["gate", "up", "down"], meta_fields=[])
@dataclasses.dataclass(frozen=True)
class ExpertBlocks:
    """The experts of one layer, as the file encodes them or in floats.

    Attributes:
      gate: `[experts, ffn, hidden]`.
      up: `[experts, ffn, hidden]`.
      down: `[experts, hidden, ffn]`.
    """

    gate: LayerWeight
    up: LayerWeight
    down: LayerWeight

    @property
    def num_experts(self) -> int:
        """Experts in the layer."""
        return self.gate.data.shape[1]


def _one_expert(x: jax.Array, experts: ExpertBlocks, expert: jax.Array) -> jax.Array:
    """One expert on `x` `[tokens, hidden]`, float32 in and out."""
    contract = functools.partial(
        jax.lax.dot_general,
        dimension_numbers=(((1,), (1,)), ((), ())),
        precision=jax.lax.Precision.HIGHEST,
        preferred_element_type=jnp.float32,
    )
    gate = contract(x, experts.gate.expert_float32(expert))
    up = contract(x, experts.up.expert_float32(expert))
    return contract(jax.nn.silu(gate) * up, experts.down.expert_float32(expert))


def expert_matmul_narrow(
    x: jax.Array, experts: ExpertBlocks, expert_ids: jax.Array, expert_weights: jax.Array
) -> jax.Array:
    """Few tokens: every (token, expert) pair in order, so that a token's sum runs in its own routing order.

    Args:
      x: float32 `[tokens, hidden]`.
      experts: the layer's experts.
      expert_ids: int32 `[tokens, k]`, each in 0..experts-1; duplicates are allowed.
      expert_weights: float32 `[tokens, k]`.

    Returns:
      float32 `[tokens, hidden]`.
    """
    num_tokens, num_used = expert_ids.shape

    def add_pair(pair: jax.Array, out: jax.Array) -> jax.Array:
        token, rank = pair // num_used, pair % num_used
        row = jax.lax.dynamic_slice_in_dim(x, token, 1)
        y = _one_expert(row, experts, expert_ids[token, rank])
        return out.at[token].add(expert_weights[token, rank] * y[0])

    return jax.lax.fori_loop(0, num_tokens * num_used, add_pair, jnp.zeros(x.shape, jnp.float32))


def expert_matmul_wide(
    x: jax.Array, experts: ExpertBlocks, expert_ids: jax.Array, expert_weights: jax.Array
) -> jax.Array:
    """Many tokens: every expert that is used once, on all tokens, in ascending order of expert id.

    A token's sum skips the experts it did not choose, so its result does not depend on its neighbours.
    Arguments and result as `expert_matmul_narrow`; an id equal to the number of experts is a masked entry.
    """
    num_experts = experts.num_experts
    used = jnp.zeros((num_experts + 1,), jnp.bool_).at[expert_ids].set(True)[:num_experts]
    order = jnp.nonzero(used, size=num_experts, fill_value=0)[0].astype(jnp.int32)

    def add_expert(i: jax.Array, out: jax.Array) -> jax.Array:
        expert = order[i]
        chosen = expert_ids == expert
        weight = jnp.sum(jnp.where(chosen, expert_weights, 0.0), axis=1, keepdims=True)
        y = _one_expert(x, experts, expert)
        return out + jnp.where(jnp.any(chosen, axis=1, keepdims=True), weight * y, 0.0)

    return jax.lax.fori_loop(0, jnp.sum(used.astype(jnp.int32)), add_expert, jnp.zeros(x.shape, jnp.float32))
