"""From a GGUF index to a checked description: which tensor of the file is which weight of the model."""

import dataclasses
import re

from gguf import GGMLQuantizationType

from host_tier.errors import InputError
from host_tier.gguf_index import GGUFIndex
from kernels_pallas.quant import UnsupportedFormatError, format_for
from moejax.config import ModelConfig
from moejax.loading.metadata import Metadata
from moejax.models import ARCHITECTURES
from moejax.models.architecture import Architecture, TensorShapes
from moejax.models.specs import Specs, TensorSpec

# Values that follow from the metadata; llama.cpp recomputes them too.
_IGNORED = re.compile(r".*\.rotary_emb\.inv_freq")


@dataclasses.dataclass(frozen=True, kw_only=True)
class BoundTensor:
    """A weight of the model that the file has.

    Attributes:
      name: the tensor's name in the file.
      spec: what the model expects.
      quant_type: how the file encodes it.
      num_bytes: its size in the file.
    """

    name: str
    spec: TensorSpec
    quant_type: GGMLQuantizationType
    num_bytes: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelDescription:
    """A model as a file holds it; nothing has been read but the header.

    Attributes:
      architecture: how to compute it.
      config: its sizes.
      globals: weights outside the layers.
      layers: weights of each trunk layer, by name without `blk.N.`.
      mtp: weights of the multi-token-prediction block, empty if the file has none.
    """

    architecture: Architecture
    config: ModelConfig
    globals: dict[str, BoundTensor]
    layers: tuple[dict[str, BoundTensor], ...]
    mtp: dict[str, BoundTensor]

    @property
    def trunk_bytes(self) -> int:
        """Bytes of the file that the trunk needs."""
        parts = [self.globals, *self.layers]
        return sum(tensor.num_bytes for part in parts for tensor in part.values())


def _same_shape(have: tuple[int, ...], want: tuple[int, ...]) -> bool:
    """Whether shapes agree up to axes of length one (files write `[d]` for `[1, d]`)."""
    return [n for n in have if n != 1] == [n for n in want if n != 1]


def _bind(index: GGUFIndex, prefix: str, specs: Specs) -> dict[str, BoundTensor]:
    bound = {}
    for name, spec in specs.items():
        full = prefix + name
        info = index.tensors.get(full)
        if info is None:
            if spec.optional:
                continue
            raise InputError(
                f"{index.shards[0]}: tensor {full} is missing; the model needs it, shape {list(spec.shape)}"
            )
        if not _same_shape(info.shape, spec.shape):
            raise InputError(
                f"{index.shards[0]}: tensor {full} has shape {list(info.shape)}, the model expects {list(spec.shape)}"
            )
        try:
            format_for(info.quant_type)
        except UnsupportedFormatError as error:
            raise InputError(f"{index.shards[0]}: tensor {full}: {error}") from error
        bound[name] = BoundTensor(name=full, spec=spec, quant_type=info.quant_type, num_bytes=info.num_bytes)
    return bound


def describe_model(index: GGUFIndex) -> ModelDescription:
    """Reads the model's configuration and binds every weight; InputError for whatever does not fit."""
    arch = index.metadata.get("general.architecture")
    if not isinstance(arch, str):
        raise InputError(f"{index.shards[0]}: no general.architecture in the metadata")
    if arch not in ARCHITECTURES.names():
        known = ", ".join(ARCHITECTURES.names())
        raise InputError(f"{index.shards[0]}: architecture {arch!r} is not supported; supported: {known}")
    architecture = ARCHITECTURES.get(arch)
    shapes = TensorShapes(shapes={name: info.shape for name, info in index.tensors.items()})
    try:
        config = architecture.read_config(Metadata(arch=arch, values=index.metadata), shapes)
    except InputError as error:
        raise InputError(f"{index.shards[0]}: {error}") from error
    trunk_missing = "blk.0.attn_norm.weight" not in shapes and config.num_mtp_layers > 0
    if trunk_missing:
        raise InputError(
            f"{index.shards[0]}: only a multi-token-prediction block, no model: it goes with the model's own file"
        )
    bound_globals = _bind(index, "", architecture.global_specs(config))
    layers = tuple(
        _bind(index, f"blk.{i}.", architecture.layer_specs(config, kind))
        for i, kind in enumerate(config.layers)
    )
    mtp: dict[str, BoundTensor] = {}
    num_trunk = len(config.layers)
    has_mtp = config.num_mtp_layers == 1 and f"blk.{num_trunk}.nextn.eh_proj.weight" in index.tensors
    if has_mtp:
        mtp = _bind(index, f"blk.{num_trunk}.", architecture.mtp_specs(config))
    used = {tensor.name for part in (bound_globals, *layers, mtp) for tensor in part.values()}
    extra = sorted(name for name in index.tensors if name not in used and not _IGNORED.fullmatch(name))
    if extra:
        shown = ", ".join(extra[:3]) + (", ..." if len(extra) > 3 else "")
        raise InputError(
            f"{index.shards[0]}: wrong tensor count: {len(index.tensors)} in the file, {len(used)} known to "
            f"architecture {arch!r}; unknown: {shown}"
        )
    return ModelDescription(
        architecture=architecture, config=config, globals=bound_globals, layers=layers, mtp=mtp
    )
