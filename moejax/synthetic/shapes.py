"""The shapes of real models, and smaller or larger ones made of them.

Source: the models' published configurations (docs/ARCHITECTURES.md section 8). A shape is the same record that a
file's metadata is read into, so its weights are those that the architecture itself lists.
"""

import dataclasses
from collections.abc import Mapping

from host_tier.errors import InputError
from moejax.config import (
    AttentionConfig,
    DeltaNetConfig,
    FeedForward,
    LayerKind,
    Mixer,
    ModelConfig,
    MoEConfig,
    RopeConfig,
)

_QWEN3_VOCAB = 151936
_QWEN35_VOCAB = 248320
# Rows of scaled matrices are multiples of this, so that every block format still fits.
_ROW_MULTIPLE = 256
_MIN_VOCAB = 512


def _attention(heads: int, kv_heads: int, head_dim: int, *, base: float, rotary: int) -> AttentionConfig:
    return AttentionConfig(
        num_heads=heads,
        num_kv_heads=kv_heads,
        head_dim=head_dim,
        rope=RopeConfig(dims=rotary, base=base),
        qk_norm=True,
    )


def _plain(count: int, feed_forward: FeedForward) -> tuple[LayerKind, ...]:
    return (LayerKind(mixer=Mixer.ATTENTION, feed_forward=feed_forward),) * count


def _hybrid(count: int, feed_forward: FeedForward) -> tuple[LayerKind, ...]:
    """Every fourth layer is attention, the others are gated delta nets."""
    mixers = (Mixer.GATED_ATTENTION if i % 4 == 3 else Mixer.DELTA_NET for i in range(count))
    return tuple(LayerKind(mixer=mixer, feed_forward=feed_forward) for mixer in mixers)


def _qwen3moe(
    name: str, *, layers: int, hidden: int, attention: AttentionConfig, moe: MoEConfig
) -> ModelConfig:
    return ModelConfig(
        arch="qwen3moe",
        name=name,
        layers=_plain(layers, FeedForward.MOE),
        context_length=40960,
        hidden_size=hidden,
        vocab_size=_QWEN3_VOCAB,
        norm_eps=1e-6,
        attention=attention,
        moe=moe,
    )


def _qwen3(
    name: str, *, layers: int, hidden: int, attention: AttentionConfig, ffn: int, tied: bool
) -> ModelConfig:
    return ModelConfig(
        arch="qwen3",
        name=name,
        layers=_plain(layers, FeedForward.DENSE),
        context_length=40960,
        hidden_size=hidden,
        vocab_size=_QWEN3_VOCAB,
        norm_eps=1e-6,
        ffn_size=ffn,
        attention=attention,
        tied_output=tied,
    )


_QWEN36_35B = ModelConfig(
    arch="qwen35moe",
    name="Qwen3.6-35B-A3B",
    layers=_hybrid(40, FeedForward.MOE),
    context_length=262144,
    hidden_size=2048,
    vocab_size=_QWEN35_VOCAB,
    norm_eps=1e-6,
    attention=_attention(16, 2, 256, base=1e7, rotary=64),
    delta_net=DeltaNetConfig(
        num_k_heads=16, num_v_heads=32, head_dim=128, conv_kernel=4, tiled_heads=True
    ),
    moe=MoEConfig(num_experts=256, num_used=8, ffn_size=512, shared_ffn_size=512),
)  # fmt: skip

SHAPES: Mapping[str, ModelConfig] = {
    "qwen3-30b-a3b": _qwen3moe(
        "Qwen3-30B-A3B",
        layers=48,
        hidden=2048,
        attention=_attention(32, 4, 128, base=1e6, rotary=128),
        moe=MoEConfig(num_experts=128, num_used=8, ffn_size=768),
    ),
    "qwen3-235b-a22b": _qwen3moe(
        "Qwen3-235B-A22B",
        layers=94,
        hidden=4096,
        attention=_attention(64, 4, 128, base=1e6, rotary=128),
        moe=MoEConfig(num_experts=128, num_used=8, ffn_size=1536),
    ),
    "qwen3.5-35b-a3b": dataclasses.replace(_QWEN36_35B, name="Qwen3.5-35B-A3B"),
    "qwen3.6-35b-a3b": _QWEN36_35B,
    "qwen3-0.6b": _qwen3(
        "Qwen3-0.6B",
        layers=28,
        hidden=1024,
        attention=_attention(16, 8, 128, base=1e6, rotary=128),
        ffn=3072,
        tied=True,
    ),
    "qwen3-8b": _qwen3(
        "Qwen3-8B",
        layers=36,
        hidden=4096,
        attention=_attention(32, 8, 128, base=1e6, rotary=128),
        ffn=12288,
        tied=False,
    ),
}


def _row(size: int, divisor: int) -> int:
    """A row length divided, up to the next multiple that every format fits; 0 stays 0."""
    return -(-size // (divisor * _ROW_MULTIPLE)) * _ROW_MULTIPLE


def _scaled(config: ModelConfig, divisor: int) -> ModelConfig:
    attention, moe, delta_net = config.attention, config.moe, config.delta_net
    kv_heads = max(attention.num_kv_heads // divisor, 1)
    ratio = attention.num_heads // attention.num_kv_heads
    if moe is not None:
        experts = max(moe.num_experts // divisor, 2)
        moe = dataclasses.replace(
            moe,
            num_experts=experts,
            num_used=min(moe.num_used, experts // 2),
            ffn_size=_row(moe.ffn_size, divisor),
            shared_ffn_size=_row(moe.shared_ffn_size, divisor),
        )
    if delta_net is not None:
        k_heads = max(delta_net.num_k_heads // divisor, 1)
        v_heads = k_heads * (delta_net.num_v_heads // delta_net.num_k_heads)
        delta_net = dataclasses.replace(delta_net, num_k_heads=k_heads, num_v_heads=v_heads)
    return dataclasses.replace(
        config,
        hidden_size=_row(config.hidden_size, divisor),
        ffn_size=_row(config.ffn_size, divisor),
        vocab_size=max(config.vocab_size // divisor, _MIN_VOCAB),
        attention=dataclasses.replace(attention, num_heads=kv_heads * ratio, num_kv_heads=kv_heads),
        moe=moe,
        delta_net=delta_net,
    )


def resize(
    config: ModelConfig,
    *,
    layers: int | None = None,
    scale: int = 1,
    vocab: int | None = None,
    mtp: bool = False,
) -> ModelConfig:
    """A model like `config` with other sizes.

    Args:
      config: the model to begin with.
      layers: trunk layers; the pattern of layer kinds goes on.
      scale: widths, heads, experts and vocabulary are divided by this, sizes of heads stay.
      vocab: tokens in the vocabulary.
      mtp: whether a multi-token-prediction block follows the trunk.

    Raises:
      InputError: a size that cannot be.
    """
    if scale < 1:
        raise InputError(f"--scale is {scale}; it divides the sizes and must be 1 or more")
    if layers is not None and not 1 <= layers <= 4096:
        raise InputError(f"--layers is {layers}; it must be between 1 and 4096")
    if vocab is not None and not _MIN_VOCAB <= vocab <= 2**24:
        raise InputError(f"--vocab is {vocab}; it must be between {_MIN_VOCAB} and {2**24}")
    if mtp and config.delta_net is None:
        raise InputError(f"--mtp: architecture {config.arch!r} has no multi-token-prediction block")
    if scale > 1:
        config = _scaled(config, scale)
    count = layers if layers is not None else len(config.layers)
    return dataclasses.replace(
        config,
        layers=tuple(config.layers[i % len(config.layers)] for i in range(count)),
        vocab_size=vocab if vocab is not None else config.vocab_size,
        num_mtp_layers=int(mtp),
    )
