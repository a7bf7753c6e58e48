"""Descriptions of weights: what a model needs, before any byte of it is read."""

import dataclasses
import enum
from collections.abc import Mapping

from moejax.config import AttentionConfig, DeltaNetConfig, MoEConfig


class TensorKind(enum.Enum):
    """What a weight is for, which decides where it lives and how it is held."""

    VECTOR = "vector"  # norms, biases, scales, convolution taps: small, used as float32
    ROUTER = "router"  # small matrices whose rounding changes routing: used as float32
    DENSE = "dense"
    EXPERT = "expert"
    EMBEDDING = "embedding"  # read by rows


@dataclasses.dataclass(frozen=True, kw_only=True)
class TensorSpec:
    """One weight.

    Attributes:
      shape: numpy order, `[rows, columns]`; experts `[experts, rows, columns]`.
      kind: what it is for.
      optional: the file may lack it.
    """

    shape: tuple[int, ...]
    kind: TensorKind
    optional: bool = False


Specs = Mapping[str, TensorSpec]


def vector(*shape: int, optional: bool = False) -> TensorSpec:
    """A small float weight."""
    return TensorSpec(shape=shape, kind=TensorKind.VECTOR, optional=optional)


def dense(rows: int, columns: int) -> TensorSpec:
    """A matrix."""
    return TensorSpec(shape=(rows, columns), kind=TensorKind.DENSE)


def attention_specs(hidden: int, config: AttentionConfig, *, gated: bool) -> dict[str, TensorSpec]:
    """Weights of `layers.attention.attention`."""
    q_rows = config.num_heads * config.head_dim
    kv_rows = config.num_kv_heads * config.head_dim
    specs = {
        "attn_q.weight": dense(q_rows * (2 if gated else 1), hidden),
        "attn_k.weight": dense(kv_rows, hidden),
        "attn_v.weight": dense(kv_rows, hidden),
        "attn_output.weight": dense(hidden, q_rows),
    }
    if config.qk_norm:
        specs |= {
            "attn_q_norm.weight": vector(config.head_dim),
            "attn_k_norm.weight": vector(config.head_dim),
        }
    return specs


def delta_net_specs(hidden: int, config: DeltaNetConfig) -> dict[str, TensorSpec]:
    """Weights of `layers.delta_net.delta_net`."""
    value_size = config.num_v_heads * config.head_dim
    return {
        "attn_qkv.weight": dense(config.conv_dim, hidden),
        "attn_gate.weight": dense(value_size, hidden),
        "ssm_conv1d.weight": vector(config.conv_dim, config.conv_kernel),
        "ssm_dt.bias": vector(config.num_v_heads),
        "ssm_a": vector(config.num_v_heads),
        "ssm_alpha.weight": dense(config.num_v_heads, hidden),
        "ssm_beta.weight": dense(config.num_v_heads, hidden),
        "ssm_norm.weight": vector(config.head_dim),
        "ssm_out.weight": dense(hidden, value_size),
    }


def mlp_specs(hidden: int, ffn: int, suffix: str = "") -> dict[str, TensorSpec]:
    """Weights of `layers.mlp.mlp`."""
    return {
        f"ffn_gate{suffix}.weight": dense(ffn, hidden),
        f"ffn_up{suffix}.weight": dense(ffn, hidden),
        f"ffn_down{suffix}.weight": dense(hidden, ffn),
    }


def moe_specs(hidden: int, config: MoEConfig) -> dict[str, TensorSpec]:
    """Weights of `layers.moe.moe`."""
    wide = TensorSpec(shape=(config.num_experts, config.ffn_size, hidden), kind=TensorKind.EXPERT)
    down = TensorSpec(shape=(config.num_experts, hidden, config.ffn_size), kind=TensorKind.EXPERT)
    specs = {
        "ffn_gate_inp.weight": TensorSpec(shape=(config.num_experts, hidden), kind=TensorKind.ROUTER),
        "ffn_gate_exps.weight": wide,
        "ffn_up_exps.weight": wide,
        "ffn_down_exps.weight": down,
    }
    if config.shared_ffn_size:
        specs["ffn_gate_inp_shexp.weight"] = TensorSpec(shape=(1, hidden), kind=TensorKind.ROUTER)
        specs |= mlp_specs(hidden, config.shared_ffn_size, "_shexp")
    return specs
