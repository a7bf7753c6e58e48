"""How each weight is held in device memory.

On a GPU weights stay as the file encodes them. A CPU uses a dense weight in every step, so it is better unpacked
once, as long as memory allows; experts are dequantized when they are used.
"""

import dataclasses
import enum
import math

from kernels_pallas.quant import format_for
from kernels_pallas.quant.planes import has_planes, plane_bytes
from moejax.loading.describe import BoundTensor, ModelDescription
from moejax.models.specs import TensorKind


class Held(enum.Enum):
    """A form of a weight in memory."""

    FILE = "file"  # as the file encodes it
    FLOAT32 = "float32"
    PARTS = "parts"  # a byte a value with float32 scales, see kernels_pallas.weight.StackedParts (CPU)
    PLANES = "planes"  # the file's bits in the layout of GPU kernels, see kernels_pallas.quant.planes


@dataclasses.dataclass(frozen=True, kw_only=True)
class Holding:
    """Forms in which the weights of a model are held.

    Attributes:
      forms: by the tensor's name in the file.
      num_bytes: bytes in each form.
      unpack_budget_bytes: the limit that was given for unpacked matrices.
    """

    forms: dict[str, Held]
    num_bytes: dict[Held, int]
    unpack_budget_bytes: int

    @property
    def total_bytes(self) -> int:
        """Bytes of all weights."""
        return sum(self.num_bytes.values())


_EXPERTS = ("ffn_gate_exps.weight", "ffn_up_exps.weight", "ffn_down_exps.weight")
_ALWAYS_FLOAT = (TensorKind.VECTOR, TensorKind.ROUTER)


def _unpacked(tensor: BoundTensor) -> Held:
    return Held.PARTS if format_for(tensor.quant_type).is_block_quantized else Held.FLOAT32


def _held_bytes(tensor: BoundTensor, held: Held) -> int:
    count = math.prod(tensor.spec.shape)
    if held is Held.PARTS:  # a code a value, and at most two float32 for each 16 values
        return count + count // 2
    if held is Held.PLANES:  # scales of a few bits take a byte each
        return plane_bytes(tensor.spec.shape, tensor.quant_type)
    return 4 * count if held is Held.FLOAT32 else tensor.num_bytes


def _planes_fit(tensors: list[BoundTensor]) -> bool:
    return all(has_planes(tensor.quant_type, tensor.spec.shape[-1]) for tensor in tensors)


def plan_holding(description: ModelDescription, unpack_budget_bytes: int, *, kernels: bool) -> Holding:
    """Decides for every trunk weight; a weight of all layers is decided at once so that layers stack.

    Args:
      description: the model.
      unpack_budget_bytes: most bytes that unpacked matrices may take, 0 to keep all as in the file (CPU).
      kernels: Pallas kernels will run: matrices and experts take their layout where it exists.
    """
    groups: dict[str, list[BoundTensor]] = {}
    for part in (description.globals, *description.layers):
        for name, tensor in part.items():
            groups.setdefault(name, []).append(tensor)

    def size(name: str) -> int:
        return sum(_held_bytes(tensor, _unpacked(tensor)) for tensor in groups[name])

    def used_whole(name: str) -> bool:
        kind = groups[name][0].spec.kind
        return kind is TensorKind.DENSE or (kind is TensorKind.EMBEDDING and description.config.tied_output)

    def is_multiplied(name: str) -> bool:
        return used_whole(name) or groups[name][0].spec.kind is TensorKind.EXPERT

    left, unpacked = unpack_budget_bytes, set()
    # Small groups first: the more groups fit, the fewer weights are unpacked again in every step.
    for name in sorted(filter(used_whole, groups), key=size):
        if size(name) <= left:
            unpacked.add(name)
            left -= size(name)
    in_planes = {name for name in groups if kernels and _planes_fit(groups[name]) and is_multiplied(name)}
    if not in_planes.issuperset(_EXPERTS):
        in_planes -= set(_EXPERTS)  # the three weights of an expert go together
    forms: dict[str, Held] = {}
    num_bytes = dict.fromkeys(Held, 0)
    for name, tensors in groups.items():
        for tensor in tensors:
            held = Held.FILE
            if tensor.spec.kind in _ALWAYS_FLOAT:
                held = Held.FLOAT32
            elif name in in_planes:
                held = Held.PLANES
            elif name in unpacked:
                held = _unpacked(tensor)
            forms[tensor.name] = held
            num_bytes[held] += _held_bytes(tensor, held)
    return Holding(forms=forms, num_bytes=num_bytes, unpack_budget_bytes=unpack_budget_bytes)
