"""Which layers share a program: runs of equal layers, or of equal groups of layers.

A hybrid model repeats groups (three delta net layers, one attention layer); a mixed quantization changes types
from layer to layer. A stack is a group of `period` layers that repeats; its weights are stacked over repeats.
"""

import dataclasses
from collections.abc import Hashable, Sequence

_MAX_PERIOD = 8


@dataclasses.dataclass(frozen=True, kw_only=True)
class LayerStack:
    """A group of layers that repeats.

    Attributes:
      first: index of its first layer in the model.
      period: layers in a group.
      repeats: how often the group follows itself.
    """

    first: int
    period: int
    repeats: int

    @property
    def num_layers(self) -> int:
        """Layers in all."""
        return self.period * self.repeats

    def layer(self, place: int, repeat: int) -> int:
        """Index in the model of the layer at `place` of the group's `repeat`-th appearance."""
        return self.first + repeat * self.period + place


def _split(stack: LayerStack, max_repeats: int) -> list[LayerStack]:
    """Cuts a stack into stacks of at most `max_repeats`."""
    return [
        LayerStack(
            first=stack.layer(0, start),
            period=stack.period,
            repeats=min(max_repeats, stack.repeats - start),
        )
        for start in range(0, stack.repeats, max_repeats)
    ]


def plan_stacks(signatures: Sequence[Hashable], max_repeats: int | None = None) -> tuple[LayerStack, ...]:
    """Covers the layers with as few and as regular stacks as a greedy walk finds.

    Args:
      signatures: one per layer; equal signatures mean equal programs and equal storage.
      max_repeats: most layers that may share an array, None for no limit.
    """
    stacks: list[LayerStack] = []
    at = 0
    while at < len(signatures):
        best = LayerStack(first=at, period=1, repeats=1)
        for period in range(1, _MAX_PERIOD + 1):
            group = tuple(signatures[at : at + period])
            repeats = 1
            while tuple(signatures[at + repeats * period : at + (repeats + 1) * period]) == group:
                repeats += 1
            candidate = LayerStack(first=at, period=period, repeats=repeats)
            if len(group) == period and repeats > 1 and candidate.num_layers > best.num_layers:
                best = candidate
        stacks += [best] if max_repeats is None else _split(best, max_repeats)
        at += best.num_layers
    return tuple(stacks)
