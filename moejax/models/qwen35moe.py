"""Qwen3.5/3.6 (`qwen35moe`, dense `qwen35`): gated delta net and gated attention, docs/ARCHITECTURES.md sections 3 to 5."""

import functools

from moejax.config import ModelConfig
from moejax.loading.metadata import Metadata
from moejax.models import decoder
from moejax.models.architecture import Architecture, TensorShapes
from moejax.models.registry import ARCHITECTURES

_FFN_NORM = "post_attention_norm.weight"


def _read_config(metadata: Metadata, tensors: TensorShapes, *, moe: bool) -> ModelConfig:
    layers, num_mtp = decoder.read_layers(metadata, moe=moe, hybrid=True)
    return ModelConfig(
        **decoder.read_common(metadata, tensors),
        layers=layers,
        num_mtp_layers=num_mtp,
        attention=decoder.read_attention(metadata, qk_norm=True, default_base=1e7),
        delta_net=decoder.read_delta_net(metadata, tiled_heads=True),
        ffn_size=0 if moe else metadata.get_int("feed_forward_length"),
        moe=decoder.read_moe(metadata, shared=True) if moe else None,
    )


for _name, _moe in (("qwen35moe", True), ("qwen35", False)):
    ARCHITECTURES.register(
        _name,
        Architecture(
            read_config=functools.partial(_read_config, moe=_moe),
            global_specs=decoder.global_specs,
            layer_specs=functools.partial(decoder.layer_specs, ffn_norm=_FFN_NORM),
            mtp_specs=functools.partial(decoder.mtp_specs, ffn_norm=_FFN_NORM),
            apply_layer=functools.partial(decoder.pre_norm_layer, ffn_norm=_FFN_NORM),
        ),
    )
