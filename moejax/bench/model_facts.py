"""What a result says of its model: the figures of llama-bench's `model_*` columns."""

import dataclasses
import math
from typing import Any

from gguf import LlamaFileType

from host_tier.gguf_index import open_gguf

_SIZES = {"S": "Small", "M": "Medium", "L": "Large"}


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelFacts:
    """A model in figures.

    Attributes:
      filename: as it was given.
      type: architecture, size and quantization, as in "qwen3moe 30B.A3B Q4_K - Medium".
      num_bytes: of all tensors in the file.
      num_params: weights in the file.
    """

    filename: str
    type: str
    num_bytes: int
    num_params: int


def file_type_name(file_type: Any) -> str:
    """llama.cpp's name of a `general.file_type`, as in "Q4_K - Medium"; "unknown" without one."""
    try:
        name = LlamaFileType(file_type).name
    except ValueError:
        return "unknown"
    name = name.removeprefix("MOSTLY_").replace("MXFP4_MOE", "MXFP4 MoE").replace("ALL_F32", "all F32")
    head, found, size = name.rpartition("_K_")
    return f"{head}_K - {_SIZES[size]}" if found and size in _SIZES else name


def read_model_facts(path: str) -> ModelFacts:
    """Reads the header of a GGUF; any shard of a split file stands for all."""
    with open_gguf(path) as index:
        size = str(index.metadata.get("general.size_label", "?B")).replace("-", ".")
        quant = file_type_name(index.metadata.get("general.file_type"))
        return ModelFacts(
            filename=path,
            type=f"{index.metadata.get('general.architecture')} {size} {quant}",
            num_bytes=index.total_bytes,
            num_params=sum(math.prod(info.shape) for info in index.tensors.values()),
        )
