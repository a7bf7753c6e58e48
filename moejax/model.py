"""A model as functions: tokens and state in, hidden values and state out."""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp

from kernels_pallas.attention import KV_BLOCK, KVPlane
from kernels_pallas.dense_matmul import dense_matmul
from kernels_pallas.gated_delta_net import RecurrentPlane
from kernels_pallas.weight import MatrixStack
from moejax.config import Mixer, ModelConfig
from moejax.layers.attention import AttentionCache
from moejax.layers.delta_net import DeltaNetCache
from moejax.layers.history import HistoryPlane
from moejax.layers.norm import rms_norm
from moejax.layers.rows import Rows
from moejax.layers.weights import LayerWeights
from moejax.loading.stacks import LayerStack
from moejax.models.architecture import Architecture, LayerContext
from moejax.routing import RoutingPolicy

# A session can go back to any position among its last ROLLBACK_WINDOW tokens.
ROLLBACK_WINDOW = 16


@functools.partial(jax.tree_util.register_dataclass, data_fields=["globals", "stacks"], meta_fields=[])
@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelWeights:
    """All weights of a trunk.

    Attributes:
      globals: weights outside the layers; their stacks have one entry.
      stacks: for each LayerStack, for each place in its group, weights by name, stacked over repeats.
    """

    globals: dict[str, MatrixStack]
    stacks: tuple[tuple[dict[str, MatrixStack], ...], ...]


Caches = tuple[tuple[Any, ...], ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Model:
    """One model's computation; weights and state are arguments.

    Attributes:
      architecture: what a layer computes.
      config: sizes.
      stacks: how layers are stacked.
      routing: the routing policy.
    """

    architecture: Architecture
    config: ModelConfig
    stacks: tuple[LayerStack, ...]
    routing: RoutingPolicy

    def init_caches(self, *, slots: int, context: int, padding: int, type_k: str, type_v: str) -> Caches:
        """Empty state of all layers.

        Args:
          slots: sessions side by side.
          context: positions of a session.
          padding: tokens that a step may be padded with: the last step may begin at the last position, and its
            padding must lie inside the cache too.
          type_k: f32, bf16, f16 or q8_0.
          type_v: likewise.
        """
        length = -(-(context + padding) // KV_BLOCK) * KV_BLOCK

        def place(mixer: Mixer, layers: int) -> AttentionCache | DeltaNetCache:
            if mixer is Mixer.DELTA_NET:
                delta = self.config.delta_net
                assert delta is not None
                ring = delta.conv_kernel - 1 + ROLLBACK_WINDOW
                return DeltaNetCache(
                    conv=HistoryPlane.zeros(layers, slots, ring, delta.conv_dim),
                    recurrent=RecurrentPlane.zeros(
                        layers, slots, ROLLBACK_WINDOW + 1, delta.num_v_heads, delta.head_dim
                    ),
                )
            heads = self.config.attention
            plane = functools.partial(
                KVPlane.zeros,
                layers=layers,
                slots=slots,
                kv_heads=heads.num_kv_heads,
                context=length,
                head_dim=heads.head_dim,
            )
            return AttentionCache(k=plane(type_k), v=plane(type_v))

        return tuple(
            tuple(
                place(self.config.layers[stack.first + i].mixer, stack.repeats) for i in range(stack.period)
            )
            for stack in self.stacks
        )

    def forward(
        self, weights: ModelWeights, caches: Caches, tokens: jax.Array, rows: Rows
    ) -> tuple[jax.Array, Caches]:
        """Runs the trunk.

        Args:
          weights: all weights.
          caches: state of all layers.
          tokens: int32 `[tokens]`.
          rows: where they stand.

        Returns:
          float32 `[tokens, hidden]` after the final norm (the input of the output projection), and the state.
        """
        shared = LayerWeights(weights.globals, jnp.int32(0))
        h = shared["token_embd.weight"].rows_float32(tokens)
        new_caches = []
        for stack, stacked, cache in zip(self.stacks, weights.stacks, caches, strict=True):
            h, cache = self._run_stack(stack, stacked, cache, h, rows, shared)
            new_caches.append(cache)
        h = rms_norm(h, shared.vector("output_norm.weight"), self.config.norm_eps)
        return h, tuple(new_caches)

    def _run_stack(
        self,
        stack: LayerStack,
        stacked: tuple[dict[str, MatrixStack], ...],
        caches: tuple[Any, ...],
        h: jax.Array,
        rows: Rows,
        shared: LayerWeights,
    ) -> tuple[jax.Array, tuple[Any, ...]]:
        def group(repeat: jax.Array, carry: tuple[jax.Array, tuple[Any, ...]]):
            h, caches = carry
            after = []
            for place, (layer_weights, cache) in enumerate(zip(stacked, caches, strict=True)):
                context = LayerContext(
                    config=self.config,
                    kind=self.config.layers[stack.first + place],
                    layer=stack.first + repeat * stack.period + place,
                    rows=rows,
                    routing=self.routing,
                    globals=shared,
                )
                h, cache = self.architecture.apply_layer(
                    h, LayerWeights(layer_weights, repeat), cache, context
                )
                after.append(cache)
            return h, tuple(after)

        if stack.repeats == 1:
            return group(jnp.int32(0), (h, caches))
        return jax.lax.fori_loop(0, stack.repeats, group, (h, caches))

    def logits(self, weights: ModelWeights, hidden: jax.Array) -> jax.Array:
        """Output projection: float32 `[tokens, hidden]` (from `forward`) -> float32 `[tokens, vocab]`."""
        name = "token_embd.weight" if self.config.tied_output else "output.weight"
        return dense_matmul(hidden, weights.globals[name].at(0))
