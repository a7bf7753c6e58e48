"""Which type each weight of a quantized model has, as llama.cpp's quantizer chooses it.

Source: `llama_tensor_get_type_impl` and `tensor_type_fallback` in llama.cpp's `llama-quant.cpp`, without its special
case for models of exactly eight experts. IQ1 to IQ3 are the mixes with an importance matrix, which those types need.
"""

import dataclasses
from collections.abc import Callable, Mapping

from gguf import GGMLQuantizationType, LlamaFileType

from kernels_pallas.quant import format_for
from moejax.config import ModelConfig
from moejax.models.specs import TensorKind, TensorSpec

_T = GGMLQuantizationType
_F = LlamaFileType
_ATTN_V = ("attn_v.", "attn_qkv.")

# What takes the place of a type whose blocks do not fit a row; F16 where that does not fit either.
_FALLBACKS = {
    **dict.fromkeys((_T.IQ1_S, _T.IQ1_M, _T.IQ2_XXS, _T.IQ2_XS, _T.IQ2_S), _T.IQ4_NL),
    **dict.fromkeys((_T.IQ3_XXS, _T.IQ3_S, _T.IQ4_XS), _T.IQ4_NL),
    **dict.fromkeys((_T.Q2_K, _T.Q3_K), _T.Q4_0),
    _T.Q4_K: _T.Q5_0,
    _T.Q5_K: _T.Q5_1,
    _T.Q6_K: _T.Q8_0,
}


def _every(layer: int, count: int) -> bool:
    del layer, count
    return True


def _more_bits(layer: int, count: int) -> bool:
    """The first and the last eighth, and every third layer between."""
    eighth = count // 8
    return layer < eighth or layer >= 7 * count // 8 or (layer - eighth) % 3 == 2


def _first_eighth(layer: int, count: int) -> bool:
    return layer < count // 8


def _first_sixteenth(layer: int, count: int) -> bool:
    return layer < count // 16


def _first(number: int) -> Callable[[int, int], bool]:
    return lambda layer, count: layer < number


@dataclasses.dataclass(frozen=True, kw_only=True)
class Rule:
    """Weights that get another type than the mix's base.

    Attributes:
      parts: what a weight's name begins with.
      type: their type.
      layers: of (layer, number of layers): where the rule holds.
      min_gqa: the rule needs this many query heads per key/value head.
    """

    parts: tuple[str, ...]
    type: GGMLQuantizationType
    layers: Callable[[int, int], bool] = _every
    min_gqa: int = 0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Mix:
    """A quantization by its name in file names, as in "Q4_K_M".

    Attributes:
      file_type: value of `general.file_type`.
      base: type of every matrix that no rule names.
      output: type of the output projection, and of an embedding table that serves as one.
      embedding: type of the embedding table.
      rules: the first that fits wins.
    """

    file_type: LlamaFileType
    base: GGMLQuantizationType
    output: GGMLQuantizationType
    embedding: GGMLQuantizationType
    rules: tuple[Rule, ...] = ()

    def type_of(
        self, name: str, spec: TensorSpec, config: ModelConfig, layer: int | None
    ) -> GGMLQuantizationType:
        """The type of one weight.

        Args:
          name: without `blk.N.`.
          spec: what the weight is.
          config: its model.
          layer: its block, None outside the blocks.
        """
        if spec.kind in (TensorKind.VECTOR, TensorKind.ROUTER):
            return _T.F32
        row = spec.shape[-1]
        chosen = self._choose(name, config, layer)
        if name.startswith("output.") and row % format_for(self.base).block_elements:
            chosen = _T.Q8_0
        return _fitting(chosen, row)

    def _choose(self, name: str, config: ModelConfig, layer: int | None) -> GGMLQuantizationType:
        if name.startswith("output.") or (name.startswith("token_embd.") and config.tied_output):
            return self.output
        if name.startswith("token_embd."):
            return self.embedding
        count = len(config.layers) + config.num_mtp_layers
        gqa = config.attention.num_heads // config.attention.num_kv_heads
        for rule in self.rules:
            fits = layer is not None and rule.layers(layer, count) and gqa >= rule.min_gqa
            if fits and name.startswith(rule.parts):
                return rule.type
        return self.base


def _fitting(chosen: GGMLQuantizationType, row: int) -> GGMLQuantizationType:
    if row % format_for(chosen).block_elements == 0:
        return chosen
    chosen = _FALLBACKS.get(chosen, chosen)
    return chosen if row % format_for(chosen).block_elements == 0 else _T.F16


def _mix(
    file_type: LlamaFileType,
    base: GGMLQuantizationType,
    *rules: Rule,
    output: GGMLQuantizationType = _T.Q6_K,
    embedding: GGMLQuantizationType | None = None,
) -> Mix:
    return Mix(
        file_type=file_type,
        base=base,
        output=output,
        embedding=base if embedding is None else embedding,
        rules=rules,
    )


def _uniform(file_type: LlamaFileType, base: GGMLQuantizationType) -> Mix:
    """One type for every matrix."""
    return _mix(file_type, base, output=base)


def _attn_v(quant_type: GGMLQuantizationType, layers: Callable = _every, min_gqa: int = 0) -> Rule:
    return Rule(parts=_ATTN_V, type=quant_type, layers=layers, min_gqa=min_gqa)


def _down(quant_type: GGMLQuantizationType, layers: Callable = _every) -> Rule:
    return Rule(parts=("ffn_down",), type=quant_type, layers=layers)


def _attn_output(quant_type: GGMLQuantizationType) -> Rule:
    return Rule(parts=("attn_output.",), type=quant_type)


def _low(file_type: LlamaFileType, base: GGMLQuantizationType, *rules: Rule) -> Mix:
    """The mixes of less than 2.5 bits: attention values and the first layers get more."""
    small = (_attn_v(_T.Q4_K), _down(_T.Q2_K, _first_eighth))
    return _mix(file_type, base, *small, *rules, output=_T.Q5_K, embedding=_T.Q2_K)


def _iq4(file_type: LlamaFileType, base: GGMLQuantizationType) -> Mix:
    return _mix(file_type, base, _attn_v(_T.Q5_K, min_gqa=4), _down(_T.Q5_K, _first_eighth))


MIXES: Mapping[str, Mix] = {
    "F32": _uniform(_F.ALL_F32, _T.F32),
    "F16": _uniform(_F.MOSTLY_F16, _T.F16),
    "BF16": _uniform(_F.MOSTLY_BF16, _T.BF16),
    "Q8_0": _uniform(_F.MOSTLY_Q8_0, _T.Q8_0),
    "Q6_K": _mix(_F.MOSTLY_Q6_K, _T.Q6_K),
    "Q5_K_M": _mix(_F.MOSTLY_Q5_K_M, _T.Q5_K, _attn_v(_T.Q6_K, _more_bits), _down(_T.Q6_K, _more_bits)),
    "Q5_K_S": _mix(_F.MOSTLY_Q5_K_S, _T.Q5_K),
    "Q5_1": _mix(_F.MOSTLY_Q5_1, _T.Q5_1),
    "Q5_0": _mix(_F.MOSTLY_Q5_0, _T.Q5_0),
    "Q4_K_M": _mix(_F.MOSTLY_Q4_K_M, _T.Q4_K, _attn_v(_T.Q6_K, _more_bits), _down(_T.Q6_K, _more_bits)),
    "Q4_K_S": _mix(_F.MOSTLY_Q4_K_S, _T.Q4_K, _attn_v(_T.Q5_K, _first(4)), _down(_T.Q5_K, _first_eighth)),
    "Q4_1": _mix(_F.MOSTLY_Q4_1, _T.Q4_1),
    "Q4_0": _mix(_F.MOSTLY_Q4_0, _T.Q4_0),
    "IQ4_NL": _iq4(_F.MOSTLY_IQ4_NL, _T.IQ4_NL),
    "IQ4_XS": _iq4(_F.MOSTLY_IQ4_XS, _T.IQ4_XS),
    # Experts in MXFP4, everything else in Q8_0.
    "MXFP4_MOE": _mix(
        _F.MOSTLY_MXFP4_MOE,
        _T.Q8_0,
        Rule(parts=("ffn_gate_exps.", "ffn_up_exps.", "ffn_down_exps."), type=_T.MXFP4),
        output=_T.Q8_0,
    ),
    "Q3_K_L": _mix(_F.MOSTLY_Q3_K_L, _T.Q3_K, _attn_v(_T.Q5_K), _down(_T.Q5_K), _attn_output(_T.Q5_K)),
    "Q3_K_M": _mix(
        _F.MOSTLY_Q3_K_M,
        _T.Q3_K,
        _attn_v(_T.Q5_K, _first(2)),
        _attn_v(_T.Q4_K),
        _down(_T.Q5_K, _first_sixteenth),
        _down(_T.Q4_K),
        _attn_output(_T.Q4_K),
    ),
    "Q3_K_S": _mix(_F.MOSTLY_Q3_K_S, _T.Q3_K),
    "Q2_K": _mix(
        _F.MOSTLY_Q2_K,
        _T.Q2_K,
        _attn_v(_T.Q4_K, min_gqa=4),
        _attn_v(_T.Q3_K),
        _down(_T.Q3_K),
        _attn_output(_T.Q3_K),
    ),
    "IQ3_S": _mix(_F.MOSTLY_IQ3_S, _T.IQ3_S, _attn_v(_T.Q4_K, min_gqa=4)),
    "IQ3_XXS": _mix(
        _F.MOSTLY_IQ3_XXS,
        _T.IQ3_XXS,
        _attn_v(_T.Q4_K, min_gqa=4),
        Rule(parts=("attn_q.", "attn_k."), type=_T.IQ2_S),
        _attn_output(_T.IQ3_S),
        output=_T.Q5_K,
        embedding=_T.IQ3_S,
    ),
    "IQ2_M": _mix(
        _F.MOSTLY_IQ2_M,
        _T.IQ2_S,
        _attn_v(_T.Q4_K),
        _down(_T.IQ3_S, _first_eighth),
        _attn_output(_T.IQ3_S),
        output=_T.Q5_K,
        embedding=_T.IQ3_S,
    ),
    "IQ2_XS": _low(_F.MOSTLY_IQ2_XS, _T.IQ2_XS),
    "IQ2_XXS": _low(_F.MOSTLY_IQ2_XXS, _T.IQ2_XXS),
    "IQ1_M": _low(_F.MOSTLY_IQ1_M, _T.IQ1_M, _attn_output(_T.IQ2_XXS)),
    "IQ1_S": _low(_F.MOSTLY_IQ1_S, _T.IQ1_S, _attn_output(_T.IQ2_XXS)),
}
