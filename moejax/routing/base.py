"""What a routing policy is given and what it returns.

A routing policy may change results (which experts compute a token); it never moves bytes. To add one, write a
file in this folder with a frozen dataclass that subclasses `RoutingPolicy`, and register it by name:

    @dataclasses.dataclass(frozen=True)
    class Uniform(RoutingPolicy):
        def route(self, logits, view): ...

    ROUTING_POLICIES.register("uniform", Uniform)
"""

import abc
import dataclasses

import jax


@dataclasses.dataclass(frozen=True, kw_only=True)
class RoutingView:
    """What a policy may look at besides the router's logits.

    Attributes:
      layer: int32 scalar (traced), index of the layer in the model.
      positions: int32 `[tokens]`, each token's position in its sequence.
      num_used: experts per token.
      weights_scale: factor the model puts on the routing weights.
      resident: bool `[experts]`, experts that stand in device memory; None where all of them do.
    """

    layer: jax.Array
    positions: jax.Array
    num_used: int
    weights_scale: float
    resident: jax.Array | None = None


class RoutingPolicy(abc.ABC):
    """Chooses experts and their weights. Subclasses are frozen dataclasses without further subclasses."""

    @abc.abstractmethod
    def route(self, logits: jax.Array, view: RoutingView) -> tuple[jax.Array, jax.Array]:
        """Pure and traced: called inside the jitted step, once per expert layer.

        Args:
          logits: float32 `[tokens, experts]`, the router's output.
          view: what else may be used.

        Returns:
          Expert ids int32 `[tokens, num_used]`, distinct within a token, and float32 weights of that shape.
        """
