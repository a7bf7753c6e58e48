"""Dense Llama-style models (`llama`: Llama, SmolLM2, ...), with rotation of neighbouring pairs."""

import functools

from host_tier.errors import InputError
from moejax.config import ModelConfig
from moejax.loading.metadata import Metadata
from moejax.models import decoder
from moejax.models.architecture import Architecture, TensorShapes
from moejax.models.registry import ARCHITECTURES
from moejax.models.specs import Specs, vector

_FFN_NORM = "ffn_norm.weight"


def _read_config(metadata: Metadata, tensors: TensorShapes) -> ModelConfig:
    if metadata.get_int("expert_count", 0, minimum=0):
        raise InputError("llama files with experts (Mixtral) are not supported; dense llama files are")
    layers, _ = decoder.read_layers(metadata, moe=False, hybrid=False)
    return ModelConfig(
        **decoder.read_common(metadata, tensors),
        layers=layers,
        attention=decoder.read_attention(metadata, qk_norm=False, interleaved=True),
        ffn_size=metadata.get_int("feed_forward_length"),
    )


def _global_specs(config: ModelConfig) -> Specs:
    # Llama 3.1 and later divide each frequency by a factor of its own.
    factors = vector(config.attention.rope.dims // 2, optional=True)
    return {**decoder.global_specs(config), "rope_freqs.weight": factors}


ARCHITECTURES.register(
    "llama",
    Architecture(
        read_config=_read_config,
        global_specs=_global_specs,
        layer_specs=functools.partial(decoder.layer_specs, ffn_norm=_FFN_NORM),
        mtp_specs=decoder.no_mtp_specs,
        apply_layer=functools.partial(decoder.pre_norm_layer, ffn_norm=_FFN_NORM),
    ),
)
