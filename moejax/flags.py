"""The flags that programs share, and the records made of them. Only programs import this module."""

import secrets

from absl import flags

from host_tier.errors import InputError
from moejax.engine.sampling import SamplingParams
from moejax.run_config import RunConfig

# Flags whose parts are not built yet: scripts may name them with the one value that is true today; any other is
# refused rather than ignored. Name -> (that value, what it asks for).
_NOT_YET = {
    "draft_model": ("", "speculative decoding"),
    "spec_type": ("none", "speculative decoding"),
    "n_cpu_moe": ("0", "experts in host memory"),
    "cpu_moe": ("false", "experts in host memory"),
    "host_experts": ("auto", "experts in host memory"),
    "host_pool_mib": ("auto", "experts in host memory"),
    "host_pool_frac": ("auto", "experts in host memory"),
    "expert_cache_mib": ("auto", "an expert cache"),
    "cache_policy": ("none", "an expert cache"),
    "device_memory_mib": ("auto", "the memory planner"),
    "split_mode": ("none", "several devices"),
    "tensor_split": ("", "several devices"),
    "num_devices": ("1", "several devices"),
    "parallel": ("1", "several sessions"),
}

CACHE_TYPES = ("auto", "f32", "bf16", "f16", "q8_0")


def define_model_flag() -> None:
    """`--model` alone, for programs that only read a file."""
    flags.DEFINE_string("model", None, "GGUF file; any shard of a split file opens all")


def require_model() -> str:
    """The value of `--model`; InputError without one."""
    if not flags.FLAGS.model:
        raise InputError("--model is needed: the path of a GGUF file")
    return flags.FLAGS.model


def define_run_flags() -> None:
    """Flags of every program that runs a model."""
    define_model_flag()
    defaults = RunConfig(model="")
    flags.DEFINE_integer("ctx_size", defaults.ctx_size, "context of a session, tokens; 0: the model's own")
    flags.DEFINE_integer("ubatch_size", defaults.ubatch_size, "most prompt tokens in one prefill call")
    flags.DEFINE_enum(
        "cache_type_k", defaults.cache_type_k, CACHE_TYPES, "key cache; auto: f32 on CPU, else bf16"
    )
    flags.DEFINE_enum("cache_type_v", defaults.cache_type_v, CACHE_TYPES, "value cache")
    flags.DEFINE_string(
        "routing_policy", defaults.routing_policy, "which experts a token uses (moejax/routing)"
    )
    flags.DEFINE_integer(
        "unpack_mib", None, "most MiB of dense weights unpacked at load (CPU); default: by free memory"
    )
    flags.DEFINE_integer("repeat_last_n", defaults.penalty_window, "recent tokens that penalties look at")
    flags.DEFINE_integer("batch_size", 2048, "most prompt tokens at once; --ubatch_size is at most this")
    flags.DEFINE_bool("strict", False, "a kernel that falls back to the plain reference is an error")
    for name, (only, what) in _NOT_YET.items():
        flags.DEFINE_string(name, only, f"{what}: not there yet, only {only or 'nothing'!r} is accepted")
    flags.DEFINE_string("compilation_cache", "default", "folder of compiled programs; 'none' for no cache")


def run_config() -> RunConfig:
    """RunConfig of the parsed flags."""
    values = flags.FLAGS
    for name, (only, what) in _NOT_YET.items():
        if str(values[name].value).lower() != only:
            hint = f"leave it out, or give {only!r}" if only else "leave it out"
            raise InputError(f"--{name}={values[name].value}: {what} is not there yet; {hint}")
    if values.batch_size < 1:
        raise InputError(f"--batch_size is {values.batch_size}; it must be at least 1")
    return RunConfig(
        model=require_model(),
        ctx_size=values.ctx_size,
        ubatch_size=min(values.ubatch_size, values.batch_size),
        cache_type_k=values.cache_type_k,
        cache_type_v=values.cache_type_v,
        routing_policy=values.routing_policy,
        unpack_mib=values.unpack_mib,
        penalty_window=values.repeat_last_n,
        strict=values.strict,
    )


def define_sampling_flags() -> None:
    """Flags of programs that sample."""
    defaults = SamplingParams()
    flags.DEFINE_float("temperature", defaults.temperature, "0 takes the most likely token")
    flags.DEFINE_integer("top_k", defaults.top_k, "keep the k most likely tokens; 0: all")
    flags.DEFINE_float("top_p", defaults.top_p, "keep the most likely tokens whose probabilities sum to this")
    flags.DEFINE_float(
        "min_p", defaults.min_p, "drop tokens less likely than this share of the most likely one"
    )
    flags.DEFINE_float("repeat_penalty", defaults.repeat_penalty, "penalty on repeated tokens; 1: none")
    flags.DEFINE_float(
        "presence_penalty", defaults.presence_penalty, "subtracted from logits of recent tokens"
    )
    flags.DEFINE_float("frequency_penalty", defaults.frequency_penalty, "the same, once per appearance")
    flags.DEFINE_multi_string(
        "logit_bias", [], "ID+VALUE or ID-VALUE, added to a token's logit; may be repeated"
    )
    flags.DEFINE_integer("seed", -1, "random seed; -1: a random one, which the result names")


def _parse_bias(text: str) -> tuple[int, float]:
    for sign in "+-":
        head, found, value = text.partition(sign)
        if found and head.strip().isdigit():
            try:
                return int(head), float(sign + value)
            except ValueError:
                break
    raise InputError(f"--logit_bias={text!r} is not of the form ID+VALUE or ID-VALUE, for example 15043-1.5")


def sampling_params(extra_bias: tuple[tuple[int, float], ...] = ()) -> SamplingParams:
    """SamplingParams of the parsed flags, with further biases."""
    values = flags.FLAGS
    return SamplingParams(
        temperature=values.temperature,
        top_k=values.top_k,
        top_p=values.top_p,
        min_p=values.min_p,
        repeat_penalty=values.repeat_penalty,
        presence_penalty=values.presence_penalty,
        frequency_penalty=values.frequency_penalty,
        logit_bias=tuple(map(_parse_bias, values.logit_bias)) + extra_bias,
        seed=secrets.randbits(32) if values.seed == -1 else values.seed,
    )
