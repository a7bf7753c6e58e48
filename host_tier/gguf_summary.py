"""What is in a GGUF, in figures: types, kinds of weights, experts. Reads headers, not tensor data."""

import collections
import dataclasses
import enum
import math
import re
from typing import Any

import numpy as np

from host_tier.errors import InputError
from host_tier.gguf_cursor import quoted
from host_tier.gguf_index import GGUFIndex
from host_tier.gguf_tensors import TensorInfo

_BLOCK = re.compile(r"blk\.([0-9]{1,6})\.")
_EXPERT = re.compile(r"blk\.[0-9]{1,6}\.ffn_(gate|up|down|gate_up)_exps\.(weight|bias)")
_JSON_ITEMS = 256  # keeps whole what is said per layer or per expert, not the vocabulary
_EMBEDDINGS = frozenset({"token_embd.weight", "output.weight", "per_layer_token_embd.weight"})


class TensorKind(enum.Enum):
    """How a tensor is used, which decides where it is best kept."""

    EXPERT = "expert"  # a token reads the rows of a few experts
    DENSE = "dense"  # every token reads all of it
    EMBEDDING = "embedding"  # token and output tables, and per-layer embedding tables


@dataclasses.dataclass(frozen=True, kw_only=True)
class Usage:
    """Tensors of one type or kind: how many, and their bytes."""

    count: int
    num_bytes: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExpertLayer:
    """The routed experts of one layer.

    Attributes:
      layer: block number.
      num_experts: experts in the layer.
      bundle_bytes: bytes of one expert: its gate, up and down rows.
      types: quant type names by projection (`gate`, `up`, `down`, or `gate_up` and `down`).
    """

    layer: int
    num_experts: int
    bundle_bytes: int
    types: dict[str, str]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Summary:
    """Figures of one model.

    Attributes:
      files: paths, in order.
      file_bytes: size of each.
      version: of the GGUF format.
      architecture: `general.architecture`, empty if the file has none.
      num_layers: blocks that have tensors, MTP blocks included.
      num_tensors: tensors in all files.
      total_bytes: of all tensors.
      by_type: usage by quant type name, largest first.
      by_kind: usage by kind name.
      expert_layers: layers with routed experts, in order; empty for a dense model.
    """

    files: tuple[str, ...]
    file_bytes: tuple[int, ...]
    version: int
    architecture: str
    num_layers: int
    num_tensors: int
    total_bytes: int
    by_type: dict[str, Usage]
    by_kind: dict[str, Usage]
    expert_layers: tuple[ExpertLayer, ...]


def tensor_kind(name: str) -> TensorKind:
    """Sorts a tensor by its name. Shared experts are dense: every token uses them."""
    if _EXPERT.fullmatch(name):
        return TensorKind.EXPERT
    return TensorKind.EMBEDDING if name in _EMBEDDINGS else TensorKind.DENSE


def layer_of(name: str) -> int | None:
    """Block number in a tensor's name, None for tensors outside the blocks."""
    match = _BLOCK.match(name)
    return int(match[1]) if match else None


def summarize(index: GGUFIndex) -> Summary:
    """Adds up a model.

    Raises:
      InputError: the expert tensors of a layer do not fit together.
    """
    infos = index.tensors.values()
    by_type = _usage([(info.quant_type.name, info) for info in infos])
    by_kind = _usage([(tensor_kind(info.name).value, info) for info in infos])
    return Summary(
        files=tuple(str(shard) for shard in index.shards),
        file_bytes=index.file_bytes,
        version=index.version,
        architecture=str(index.metadata.get("general.architecture", "")),
        num_layers=len({layer_of(name) for name in index.tensors} - {None}),
        num_tensors=len(index.tensors),
        total_bytes=index.total_bytes,
        by_type=dict(sorted(by_type.items(), key=lambda item: -item[1].num_bytes)),
        by_kind={kind.value: by_kind.get(kind.value, Usage(count=0, num_bytes=0)) for kind in TensorKind},
        expert_layers=_expert_layers(index),
    )


def summary_document(index: GGUFIndex, summary: Summary, with_tensors: bool = False) -> dict[str, Any]:
    """A summary and the metadata as one JSON-ready object, `with_tensors` the list of all tensors too."""
    document = dataclasses.asdict(summary)
    document["metadata"] = {key: shortened(value, _JSON_ITEMS) for key, value in index.metadata.items()}
    if with_tensors:
        document["tensors"] = [
            {**dataclasses.asdict(info), "quant_type": info.quant_type.name}
            for info in index.tensors.values()
        ]
    return document


def shortened(value: Any, max_items: int = 8) -> Any:
    """A metadata value for printing or JSON: long arrays become `{"count": n, "first": [...]}`.

    Numbers that JSON lacks (infinities, not-a-number) become their names as strings.
    """
    if isinstance(value, list | np.ndarray):
        first = [shortened(item, max_items) for item in value[:max_items]]
        return first if len(value) <= max_items else {"count": len(value), "first": first}
    if isinstance(value, np.generic):
        value = value.item()
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _usage(pairs: list[tuple[str, TensorInfo]]) -> dict[str, Usage]:
    counts: dict[str, int] = collections.Counter(name for name, _ in pairs)
    num_bytes: dict[str, int] = collections.Counter()
    for name, info in pairs:
        num_bytes[name] += info.num_bytes
    return {name: Usage(count=counts[name], num_bytes=num_bytes[name]) for name in counts}


def _expert_layers(index: GGUFIndex) -> tuple[ExpertLayer, ...]:
    layers: dict[int, dict[str, TensorInfo]] = collections.defaultdict(dict)
    for info in index.tensors.values():
        match = _EXPERT.fullmatch(info.name)
        layer = layer_of(info.name)
        if match is not None and layer is not None and match[2] == "weight":
            layers[layer][match[1]] = info
    return tuple(_expert_layer(index, layer, layers[layer]) for layer in sorted(layers))


def _expert_layer(index: GGUFIndex, layer: int, parts: dict[str, TensorInfo]) -> ExpertLayer:
    num_experts = next(iter(parts.values())).shape[0]
    for info in parts.values():
        if len(info.shape) != 3 or info.shape[0] != num_experts:
            raise InputError(
                f"{index.shards[info.shard]}: tensor {quoted(info.name)} has shape {list(info.shape)}, but "
                f"the experts of layer {layer} need three dimensions, the first of them {num_experts:,}"
            )
    return ExpertLayer(
        layer=layer,
        num_experts=num_experts,
        bundle_bytes=sum(info.num_bytes for info in parts.values()) // num_experts,
        types={part: info.quant_type.name for part, info in parts.items()},
    )
