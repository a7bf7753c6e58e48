"""How each weight is held in device memory: as the file encodes it, or as float32.

On a GPU weights stay as they are. On a CPU a dense weight that is used in every step is better dequantized once,
as long as memory allows; experts are dequantized when they are used.
"""

import dataclasses
import math

from gguf import GGMLQuantizationType

from moejax.loading.describe import BoundTensor, ModelDescription
from moejax.models.specs import TensorKind

_F32 = GGMLQuantizationType.F32


@dataclasses.dataclass(frozen=True, kw_only=True)
class Holding:
    """Types in which weights are held.

    Attributes:
      types: held type by the tensor's name in the file.
      float_bytes: bytes of the weights held as float32.
      quantized_bytes: bytes of the weights held as the file encodes them.
      float_budget_bytes: the limit that was given for dequantized weights.
    """

    types: dict[str, GGMLQuantizationType]
    float_bytes: int
    quantized_bytes: int
    float_budget_bytes: int


def _float_bytes(tensor: BoundTensor) -> int:
    return 4 * math.prod(tensor.spec.shape)


def plan_holding(description: ModelDescription, float_budget_bytes: int) -> Holding:
    """Decides for every trunk weight; equal weights of all layers are decided together so that they stack.

    Args:
      description: the model.
      float_budget_bytes: most bytes that dequantized matrices may take, 0 to keep all quantized.
    """
    groups: dict[str, list[BoundTensor]] = {}
    for name, tensor in description.globals.items():
        groups.setdefault(name, []).append(tensor)
    for layer in description.layers:
        for name, tensor in layer.items():
            groups.setdefault(name, []).append(tensor)
    chosen: dict[str, bool] = {}
    optional = []
    for name, tensors in groups.items():
        kind = tensors[0].spec.kind
        used_whole = kind is TensorKind.DENSE or (kind is TensorKind.EMBEDDING and description.config.tied_output)
        if used_whole:
            optional.append(name)
        chosen[name] = kind in (TensorKind.VECTOR, TensorKind.ROUTER)
    left = float_budget_bytes
    # Small groups first: the more groups fit, the fewer dequantizations a step has.
    for name in sorted(optional, key=lambda name: sum(map(_float_bytes, groups[name]))):
        size = sum(map(_float_bytes, groups[name]))
        if size <= left:
            chosen[name], left = True, left - size
    types, float_bytes, quantized_bytes = {}, 0, 0
    for name, tensors in groups.items():
        for tensor in tensors:
            types[tensor.name] = _F32 if chosen[name] else tensor.quant_type
            if chosen[name]:
                float_bytes += _float_bytes(tensor)
            else:
                quantized_bytes += tensor.num_bytes
    return Holding(
        types=types,
        float_bytes=float_bytes,
        quantized_bytes=quantized_bytes,
        float_budget_bytes=float_budget_bytes,
    )
