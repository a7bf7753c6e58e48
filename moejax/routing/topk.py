"""The model's own routing: the reference for every other policy."""

import dataclasses

import jax
import jax.numpy as jnp

from moejax.routing.base import RoutingPolicy, RoutingView
from moejax.routing.registry import ROUTING_POLICIES

# llama.cpp clamps the sum of the chosen probabilities to this before it divides.
_MIN_SUM = 6.103515625e-5


@dataclasses.dataclass(frozen=True)
class TopK(RoutingPolicy):
    """Softmax over all experts, the k largest, renormalised (transformers `Qwen3NextTopKRouter`)."""

    def route(self, logits: jax.Array, view: RoutingView) -> tuple[jax.Array, jax.Array]:
        """See `RoutingPolicy.route`; ties go to the lower id."""
        values, ids = jax.lax.top_k(jax.nn.softmax(logits, axis=-1), view.num_used)
        total = jnp.maximum(jnp.sum(values, axis=-1, keepdims=True), _MIN_SUM)
        return ids.astype(jnp.int32), values / total * view.weights_scale


ROUTING_POLICIES.register("topk", TopK)
