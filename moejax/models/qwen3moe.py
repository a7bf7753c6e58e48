"""Qwen3-MoE (`qwen3moe`) and its dense sibling (`qwen3`): docs/ARCHITECTURES.md section 2."""

import functools

from moejax.config import ModelConfig
from moejax.loading.metadata import Metadata
from moejax.models import decoder
from moejax.models.architecture import Architecture, TensorShapes
from moejax.models.registry import ARCHITECTURES

_FFN_NORM = "ffn_norm.weight"


def _read_config(metadata: Metadata, tensors: TensorShapes, *, moe: bool) -> ModelConfig:
    layers, _ = decoder.read_layers(metadata, moe=moe, hybrid=False)
    return ModelConfig(
        **decoder.read_common(metadata, tensors),
        layers=layers,
        attention=decoder.read_attention(metadata, qk_norm=True, default_base=1e6),
        ffn_size=0 if moe else metadata.get_int("feed_forward_length"),
        moe=decoder.read_moe(metadata, shared=False) if moe else None,
    )


for _name, _moe in (("qwen3moe", True), ("qwen3", False)):
    ARCHITECTURES.register(
        _name,
        Architecture(
            read_config=functools.partial(_read_config, moe=_moe),
            global_specs=decoder.global_specs,
            layer_specs=functools.partial(decoder.layer_specs, ffn_norm=_FFN_NORM),
            mtp_specs=decoder.no_mtp_specs,
            apply_layer=functools.partial(decoder.pre_norm_layer, ffn_norm=_FFN_NORM),
        ),
    )
