"""What a model is: one frozen record, read from a GGUF's metadata by the architecture's file."""

import dataclasses
import enum


class Mixer(enum.Enum):
    """How a layer mixes tokens."""

    ATTENTION = "attention"
    GATED_ATTENTION = "gated_attention"
    DELTA_NET = "gated_delta_net"


class FeedForward(enum.Enum):
    """A layer's second half."""

    DENSE = "dense"
    MOE = "moe"


@dataclasses.dataclass(frozen=True, kw_only=True)
class LayerKind:
    """What one layer is made of; layers of one kind share one program."""

    mixer: Mixer
    feed_forward: FeedForward


@dataclasses.dataclass(frozen=True, kw_only=True)
class RopeConfig:
    """Rotary position embedding.

    Attributes:
      dims: rotated dimensions of each head, from the front; the rest pass through.
      base: the frequency base.
      interleaved: True pairs (2i, 2i+1) (`llama` files), False pairs (i, i + dims/2) (NeoX style).
      position_scale: positions are multiplied by this (linear scaling), 1.0 for none.
    """

    dims: int
    base: float
    interleaved: bool = False
    position_scale: float = 1.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class AttentionConfig:
    """Softmax attention with grouped keys and values.

    Attributes:
      num_heads: query heads.
      num_kv_heads: key/value heads; query head i reads head i // (num_heads / num_kv_heads).
      head_dim: width of a query, key and value head.
      rope: rotary embedding.
      qk_norm: RMS norm of each query and key head before the rotation.
    """

    num_heads: int
    num_kv_heads: int
    head_dim: int
    rope: RopeConfig
    qk_norm: bool


@dataclasses.dataclass(frozen=True, kw_only=True)
class DeltaNetConfig:
    """Gated delta net (docs/ARCHITECTURES.md 3.2, transformers `Qwen3_5GatedDeltaNet`).

    Attributes:
      num_k_heads: query/key heads.
      num_v_heads: value heads, a multiple of num_k_heads.
      head_dim: width of key and of value heads.
      conv_kernel: taps of the causal convolution.
      tiled_heads: value head j uses key head j % num_k_heads (True) or j // ratio (False).
    """

    num_k_heads: int
    num_v_heads: int
    head_dim: int
    conv_kernel: int
    tiled_heads: bool

    @property
    def conv_dim(self) -> int:
        """Channels that pass the convolution: queries, keys and values."""
        return (2 * self.num_k_heads + self.num_v_heads) * self.head_dim


@dataclasses.dataclass(frozen=True, kw_only=True)
class MoEConfig:
    """Routed experts.

    Attributes:
      num_experts: experts in a layer.
      num_used: experts a token uses.
      ffn_size: width of one expert.
      shared_ffn_size: width of the shared expert, 0 without one.
      weights_scale: factor on the normalised routing weights.
    """

    num_experts: int
    num_used: int
    ffn_size: int
    shared_ffn_size: int = 0
    weights_scale: float = 1.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """One model, as its file describes it.

    Attributes:
      arch: GGUF architecture name.
      name: the model's name, from the file.
      layers: kind of each trunk layer.
      num_mtp_layers: multi-token-prediction blocks that follow the trunk in the file.
      context_length: training context, tokens.
      hidden_size: width of the residual stream.
      vocab_size: rows of the embedding table.
      norm_eps: epsilon of every RMS norm.
      ffn_size: width of a dense feed-forward layer, 0 if there is none.
      attention: softmax attention layers.
      delta_net: gated delta net layers, None if there are none.
      moe: expert layers, None for a dense model.
      tied_output: the output projection is the embedding table.
    """

    arch: str
    name: str
    layers: tuple[LayerKind, ...]
    num_mtp_layers: int = 0
    context_length: int
    hidden_size: int
    vocab_size: int
    norm_eps: float
    ffn_size: int = 0
    attention: AttentionConfig
    delta_net: DeltaNetConfig | None = None
    moe: MoEConfig | None = None
    tied_output: bool = False
