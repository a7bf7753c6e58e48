"""The pre-norm decoder that most architectures share: their files compose these parts."""

from typing import Any

import jax

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
from moejax.layers.attention import attention
from moejax.layers.delta_net import delta_net
from moejax.layers.mlp import mlp
from moejax.layers.moe import moe
from moejax.layers.norm import rms_norm
from moejax.layers.weights import LayerWeights
from moejax.loading.metadata import Metadata
from moejax.models.architecture import LayerContext, TensorShapes
from moejax.models.specs import (
    Specs,
    TensorKind,
    TensorSpec,
    attention_specs,
    delta_net_specs,
    dense,
    mlp_specs,
    moe_specs,
    vector,
)


def pre_norm_layer(
    h: jax.Array, weights: LayerWeights, cache: Any, context: LayerContext, *, ffn_norm: str
) -> tuple[jax.Array, Any]:
    """`h += mixer(norm(h)); h += feed_forward(norm(h))`; see `ApplyLayer`. `ffn_norm` names the second norm."""
    config, rows = context.config, context.rows
    x = rms_norm(h, weights.vector("attn_norm.weight"), config.norm_eps)
    if context.kind.mixer is Mixer.DELTA_NET:
        assert config.delta_net is not None
        mixed, cache = delta_net(x, weights, cache, rows, config.delta_net, eps=config.norm_eps)
    else:
        factors = (
            context.globals.vector("rope_freqs.weight") if "rope_freqs.weight" in context.globals else None
        )
        gated = context.kind.mixer is Mixer.GATED_ATTENTION
        mixed, cache = attention(
            x, weights, cache, rows, config.attention, eps=config.norm_eps, gated=gated, rope_factors=factors
        )
    h = h + mixed
    x = rms_norm(h, weights.vector(ffn_norm), config.norm_eps)
    if context.kind.feed_forward is FeedForward.MOE:
        assert config.moe is not None
        return h + moe(x, weights, rows, config.moe, context.routing, context.layer), cache
    return h + mlp(x, weights), cache


def layer_specs(config: ModelConfig, kind: LayerKind, *, ffn_norm: str) -> Specs:
    """Weights of `pre_norm_layer`."""
    hidden = config.hidden_size
    specs: dict[str, TensorSpec] = {"attn_norm.weight": vector(hidden), ffn_norm: vector(hidden)}
    if kind.mixer is Mixer.DELTA_NET:
        assert config.delta_net is not None
        specs |= delta_net_specs(hidden, config.delta_net)
    else:
        specs |= attention_specs(hidden, config.attention, gated=kind.mixer is Mixer.GATED_ATTENTION)
    if kind.feed_forward is FeedForward.MOE:
        assert config.moe is not None
        return specs | moe_specs(hidden, config.moe)
    return specs | mlp_specs(hidden, config.ffn_size)


def global_specs(config: ModelConfig) -> Specs:
    """Embedding table, final norm and output projection (absent where it is tied to the table)."""
    table = TensorSpec(shape=(config.vocab_size, config.hidden_size), kind=TensorKind.EMBEDDING)
    specs = {"token_embd.weight": table, "output_norm.weight": vector(config.hidden_size)}
    if not config.tied_output:
        specs["output.weight"] = dense(config.vocab_size, config.hidden_size)
    return specs


def mtp_specs(config: ModelConfig, *, ffn_norm: str) -> Specs:
    """Weights of the MTP block of the hybrid architectures (docs/ARCHITECTURES.md section 5)."""
    hidden = config.hidden_size
    kind = LayerKind(
        mixer=Mixer.GATED_ATTENTION, feed_forward=FeedForward.MOE if config.moe else FeedForward.DENSE
    )
    table = TensorSpec(shape=(config.vocab_size, hidden), kind=TensorKind.EMBEDDING, optional=True)
    return {
        **layer_specs(config, kind, ffn_norm=ffn_norm),
        "nextn.eh_proj.weight": dense(hidden, 2 * hidden),
        "nextn.enorm.weight": vector(hidden),
        "nextn.hnorm.weight": vector(hidden),
        "nextn.shared_head_norm.weight": vector(hidden, optional=True),
        "nextn.embed_tokens.weight": table,
        "nextn.shared_head_head.weight": table,
    }


def no_mtp_specs(config: ModelConfig) -> Specs:
    """For architectures without a multi-token-prediction block."""
    del config
    return {}


def read_rope(
    metadata: Metadata, head_dim: int, *, default_base: float = 10000.0, **kwargs: Any
) -> RopeConfig:
    """Rotation of an architecture's attention; scaling other than linear is refused by name."""
    # A factor without a type means linear scaling, as in llama.cpp; old files call it scale_linear.
    kind = metadata.values.get(metadata.key("rope.scaling.type"), "linear")
    old_factor = metadata.get_float("rope.scale_linear", 1.0)
    factor = metadata.get_float("rope.scaling.factor", old_factor) if kind == "linear" else 1.0
    if kind not in ("none", "linear"):
        raise InputError(f"rope scaling {kind!r} is not supported; supported: none, linear")
    dims = metadata.get_int("rope.dimension_count", head_dim, maximum=head_dim)
    if dims % 2:
        raise InputError(f"{metadata.key('rope.dimension_count')} is {dims}; it must be even")
    return RopeConfig(
        dims=dims,
        base=metadata.get_float("rope.freq_base", default_base),
        position_scale=1.0 / factor,
        **kwargs,
    )


def read_attention(metadata: Metadata, *, qk_norm: bool, **rope: Any) -> AttentionConfig:
    """Heads of an architecture's attention."""
    num_heads = metadata.get_int("attention.head_count", maximum=65536)
    num_kv_heads = metadata.get_int("attention.head_count_kv", num_heads, maximum=65536)
    hidden = metadata.get_int("embedding_length")
    if num_heads % num_kv_heads:
        raise InputError(f"{num_heads} attention heads do not divide into {num_kv_heads} key/value heads")
    head_dim = metadata.get_int("attention.key_length", max(hidden // num_heads, 1), maximum=65536)
    if metadata.get_int("attention.value_length", head_dim) != head_dim:
        raise InputError("key and value heads of different sizes are not supported")
    return AttentionConfig(
        num_heads=num_heads,
        num_kv_heads=num_kv_heads,
        head_dim=head_dim,
        qk_norm=qk_norm,
        rope=read_rope(metadata, head_dim, **rope),
    )


def read_moe(metadata: Metadata, *, shared: bool) -> MoEConfig:
    """Experts of an architecture."""
    num_experts = metadata.get_int("expert_count", maximum=65536)
    return MoEConfig(
        num_experts=num_experts,
        num_used=metadata.get_int("expert_used_count", maximum=num_experts),
        ffn_size=metadata.get_int("expert_feed_forward_length"),
        shared_ffn_size=metadata.get_int("expert_shared_feed_forward_length") if shared else 0,
        weights_scale=metadata.get_float("expert_weights_scale", 1.0),
    )


def read_delta_net(metadata: Metadata, *, tiled_heads: bool) -> DeltaNetConfig:
    """Delta net heads of a hybrid architecture."""
    config = DeltaNetConfig(
        num_k_heads=metadata.get_int("ssm.group_count", maximum=65536),
        num_v_heads=metadata.get_int("ssm.time_step_rank", maximum=65536),
        head_dim=metadata.get_int("ssm.state_size", maximum=65536),
        conv_kernel=metadata.get_int("ssm.conv_kernel", minimum=2, maximum=16),
        tiled_heads=tiled_heads,
    )
    if config.num_v_heads % config.num_k_heads:
        raise InputError(
            f"{config.num_v_heads} value heads do not divide into {config.num_k_heads} key heads"
        )
    inner = metadata.get_int("ssm.inner_size")
    if inner != config.num_v_heads * config.head_dim:
        raise InputError(f"{metadata.key('ssm.inner_size')} is {inner}, expected value heads x state size")
    return config


def read_layers(metadata: Metadata, *, moe: bool, hybrid: bool) -> tuple[tuple[LayerKind, ...], int]:
    """Kinds of the trunk layers, and the number of MTP blocks behind them."""
    num_blocks = metadata.get_int("block_count", maximum=4096)
    num_mtp = metadata.get_int("nextn_predict_layers", 0, minimum=0, maximum=num_blocks - 1)
    feed_forward = FeedForward.MOE if moe else FeedForward.DENSE
    trunk = num_blocks - num_mtp
    if not hybrid:
        return (LayerKind(mixer=Mixer.ATTENTION, feed_forward=feed_forward),) * trunk, num_mtp
    interval = metadata.get_int("full_attention_interval", 4)
    default = [(i + 1) % interval != 0 and i < trunk for i in range(num_blocks)]
    recurrent = metadata.get_list("attention.recurrent_layers", num_blocks, default)
    mixers = [Mixer.DELTA_NET if r else Mixer.GATED_ATTENTION for r in recurrent[:trunk]]
    return tuple(LayerKind(mixer=mixer, feed_forward=feed_forward) for mixer in mixers), num_mtp


def _printable(name: Any, default: str) -> str:
    """A name that is safe to print in one line."""
    if not isinstance(name, str):
        return default
    shown = "".join(c if c.isprintable() else " " for c in name)
    return " ".join(shown.split())[:200] or default


def read_common(metadata: Metadata, tensors: TensorShapes) -> dict[str, Any]:
    """The fields of ModelConfig that every architecture reads alike."""
    table = tensors.shapes.get("token_embd.weight")
    if table is None or len(table) != 2:
        raise InputError("the file has no token_embd.weight matrix")
    tokens = metadata.values.get("tokenizer.ggml.tokens")
    vocab_size = len(tokens) if tokens is not None else metadata.get_int("vocab_size", table[0])
    if vocab_size != table[0]:
        raise InputError(
            f"vocabulary mismatch: the tokenizer has {vocab_size} tokens, token_embd.weight {table[0]} rows"
        )
    return {
        "arch": metadata.arch,
        "name": _printable(metadata.values.get("general.name"), metadata.arch),
        "context_length": metadata.get_int("context_length"),
        "hidden_size": metadata.get_int("embedding_length"),
        "vocab_size": vocab_size,
        "norm_eps": metadata.get_float("attention.layer_norm_rms_epsilon"),
        "tied_output": "output.weight" not in tensors,
    }
