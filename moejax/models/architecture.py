"""What an architecture provides: its metadata, its weights, its layer."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import jax

from moejax.config import LayerKind, ModelConfig
from moejax.layers.rows import Rows
from moejax.layers.weights import LayerWeights
from moejax.loading.metadata import Metadata
from moejax.models.specs import Specs
from moejax.routing import RoutingPolicy


@dataclasses.dataclass(frozen=True, kw_only=True)
class TensorShapes:
    """Shapes in a file, numpy order, by tensor name."""

    shapes: Mapping[str, tuple[int, ...]]

    def __contains__(self, name: str) -> bool:
        return name in self.shapes


@dataclasses.dataclass(frozen=True, kw_only=True)
class LayerContext:
    """What a layer sees besides its own weights and state.

    Attributes:
      config: the model.
      kind: what this layer is made of.
      layer: int32 scalar (traced), the layer's index in the model.
      rows: where the tokens stand.
      routing: the routing policy.
      globals: weights that belong to no layer.
    """

    config: ModelConfig
    kind: LayerKind
    layer: jax.Array
    rows: Rows
    routing: RoutingPolicy
    globals: LayerWeights


class ApplyLayer(Protocol):
    """One layer: residual stream float32 `[tokens, hidden]` and cache in, both out."""

    def __call__(
        self, h: jax.Array, weights: LayerWeights, cache: Any, context: LayerContext
    ) -> tuple[jax.Array, Any]:
        """Runs the layer."""
        ...


@dataclasses.dataclass(frozen=True, kw_only=True)
class Architecture:
    """One architecture; instances register themselves in `ARCHITECTURES` under the GGUF name.

    Attributes:
      read_config: metadata and tensor shapes of a file -> ModelConfig; InputError for what does not fit.
      global_specs: weights outside the layers, by GGUF name.
      layer_specs: weights of a trunk layer of a kind, by GGUF name without `blk.N.`.
      mtp_specs: weights of the multi-token-prediction block, empty if there is none.
      apply_layer: the layer's computation.
    """

    read_config: Callable[[Metadata, TensorShapes], ModelConfig]
    global_specs: Callable[[ModelConfig], Specs]
    layer_specs: Callable[[ModelConfig, LayerKind], Specs]
    mtp_specs: Callable[[ModelConfig], Specs]
    apply_layer: ApplyLayer
