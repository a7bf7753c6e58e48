"""The experts that models call: kernels where the weights are in their layout, plain jnp elsewhere."""

import dataclasses
import functools

import jax

from kernels_pallas import dispatch
from kernels_pallas.expert_matmul import reference
from kernels_pallas.expert_matmul.pallas_triton import ExpertPlanes
from kernels_pallas.expert_matmul.pallas_triton import expert_matmul_narrow as pallas_narrow
from kernels_pallas.expert_matmul.pallas_wide import expert_matmul_wide as pallas_wide
from kernels_pallas.weight import LayerPlanes, LayerWeight


@functools.partial(jax.tree_util.register_dataclass, data_fields=["gate", "up", "down"], meta_fields=[])
@dataclasses.dataclass(frozen=True)
class ExpertWeights:
    """The experts of one layer, all three weights in one kind of layout.

    Attributes:
      gate: `[experts, ffn, hidden]`.
      up: `[experts, ffn, hidden]`.
      down: `[experts, hidden, ffn]`.
    """

    gate: LayerWeight | LayerPlanes
    up: LayerWeight | LayerPlanes
    down: LayerWeight | LayerPlanes

    def in_planes(self) -> ExpertPlanes | None:
        """The experts as kernels read them, None if they are not in that layout."""
        gate, up, down = self.gate, self.up, self.down
        if isinstance(gate, LayerPlanes) and isinstance(up, LayerPlanes) and isinstance(down, LayerPlanes):
            return ExpertPlanes(gate=gate.planes, up=up.planes, down=down.planes)
        return None

    def in_blocks(self) -> reference.ExpertBlocks:
        """The experts as the reference reads them."""
        weights = (self.gate, self.up, self.down)
        assert all(isinstance(weight, LayerWeight) for weight in weights)
        return reference.ExpertBlocks(*weights)  # type: ignore[arg-type]


def expert_matmul_narrow(
    x: jax.Array, experts: ExpertWeights, expert_ids: jax.Array, expert_weights: jax.Array
) -> jax.Array:
    """Few tokens; see `reference.expert_matmul_narrow`."""
    planes = experts.in_planes()
    if planes is None:
        return reference.expert_matmul_narrow(x, experts.in_blocks(), expert_ids, expert_weights)
    assert isinstance(experts.gate, LayerPlanes)
    layer, interpret = experts.gate.layer, dispatch.interpret()
    return pallas_narrow(x, planes, None, layer, expert_ids, expert_weights, interpret=interpret)


def expert_matmul_wide(
    x: jax.Array, experts: ExpertWeights, expert_ids: jax.Array, expert_weights: jax.Array
) -> jax.Array:
    """Many tokens; see `reference.expert_matmul_wide`."""
    planes = experts.in_planes()
    if planes is None:
        return reference.expert_matmul_wide(x, experts.in_blocks(), expert_ids, expert_weights)
    assert isinstance(experts.gate, LayerPlanes)
    layer, interpret = experts.gate.layer, dispatch.interpret()
    return pallas_wide(x, planes, layer, expert_ids, expert_weights, interpret=interpret)
