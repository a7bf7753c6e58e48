"""What will run, decided before anything is loaded: types, bytes, programs, versions."""

import dataclasses
import importlib.metadata
import platform
from typing import Any

import jax

import moejax
from host_tier.errors import InputError
from host_tier.gguf_index import GGUFIndex
from host_tier.memory import available_host_bytes
from kernels_pallas import dispatch
from kernels_pallas.gated_delta_net import PREFILL_BLOCK
from kernels_pallas.quant import format_for
from moejax.loading.describe import BoundTensor, ModelDescription
from moejax.loading.holding import Held, Holding, plan_holding
from moejax.loading.stacks import LayerStack, plan_stacks
from moejax.model import Model
from moejax.models.specs import TensorKind
from moejax.routing import ROUTING_POLICIES
from moejax.run_config import RunConfig

_MIB = 1024 * 1024


@dataclasses.dataclass(frozen=True, kw_only=True)
class Plan:
    """The effective plan of a run.

    Attributes:
      config: what was asked for.
      description: the model.
      model: its computation.
      holding: how weights are held.
      stacks: how layers are stacked.
      context: positions of a session.
      chunk: most prompt tokens of a prefill call, a multiple of the block.
      padding: positions that the caches have beyond the context.
      ubatch_size: prompt tokens that are given to a prefill call.
      type_k: type of the key cache.
      type_v: type of the value cache.
      slots: sessions side by side.
      state_bytes: bytes of the session state.
    """

    config: RunConfig
    description: ModelDescription
    model: Model
    holding: Holding
    stacks: tuple[LayerStack, ...]
    context: int
    chunk: int
    padding: int
    ubatch_size: int
    type_k: str
    type_v: str
    slots: int
    state_bytes: int

    def record(self) -> dict[str, Any]:
        """The plan as a JSON object: what a reader of a result needs to know of the run."""
        device = jax.devices()[0]
        config = self.description.config
        return {
            "model": {
                "path": self.config.model,
                "name": config.name,
                "architecture": config.arch,
                "layers": len(config.layers),
                "mtp_layers": config.num_mtp_layers,
                "experts": config.moe.num_experts if config.moe else 0,
                "experts_used": config.moe.num_used if config.moe else 0,
            },
            "device": {"platform": device.platform, "kind": device.device_kind, "count": 1},
            "context": self.context,
            "ubatch_size": self.ubatch_size,
            "slots": self.slots,
            "cache_type_k": self.type_k,
            "cache_type_v": self.type_v,
            "routing_policy": self.config.routing_policy,
            "cache_policy": "none",
            "expert_placement": "device" if config.moe else "no experts",
            "spec_type": "none",
            "kernels": "pallas" if dispatch.use_pallas() else "reference",
            "kernel_fallbacks": [f"{f.operation}: {f.reason}" for f in dispatch.fallbacks()],
            "bytes": {
                **{f"weights_{held.value}": size for held, size in self.holding.num_bytes.items()},
                "weights": self.holding.total_bytes,
                "state": self.state_bytes,
            },
            "versions": {
                "moejax": moejax.__version__,
                "jax": jax.__version__,
                "jaxlib": importlib.metadata.version("jaxlib"),
                "python": platform.python_version(),
            },
        }


def _storage(name: str, tensor: BoundTensor, holding: Holding) -> tuple[str, str, str]:
    """What must be equal for two layers' weights to share a stack."""
    held = holding.forms[tensor.name]
    return name, held.value, "" if held is Held.FLOAT32 else tensor.quant_type.name


def _note_reference_weights(description: ModelDescription, holding: Holding) -> None:
    """Records matrices and experts whose type has no kernel: they run the plain reference on a GPU."""
    for layer in description.layers:
        for tensor in layer.values():
            is_expert = tensor.spec.kind is TensorKind.EXPERT
            is_matrix = is_expert or tensor.spec.kind is TensorKind.DENSE
            by_reference = holding.forms[tensor.name] is not Held.PLANES
            # A dense float matrix is an ordinary product, which needs no kernel of ours.
            if is_matrix and by_reference and (is_expert or format_for(tensor.quant_type).is_block_quantized):
                operation = "expert_matmul" if is_expert else "dense_matmul"
                columns = tensor.spec.shape[-1]
                reason = f"no kernel for {tensor.quant_type.name} rows of {columns}"
                dispatch.note_fallback(operation, reason)


def _max_repeats(description: ModelDescription) -> int:
    """Layers that may share an array: kernels compute offsets in signed 32 bits up to 4 GiB."""
    largest = max(tensor.num_bytes for layer in description.layers for tensor in layer.values())
    return max((2**31 - 1) // largest, 1)


def _cache_type(asked: str) -> str:
    if asked != "auto":
        return asked
    return "f32" if jax.default_backend() == "cpu" else "bf16"


def _state_bytes(model: Model, *, slots: int, context: int, padding: int, type_k: str, type_v: str) -> int:
    shapes = jax.eval_shape(
        lambda: model.init_caches(slots=slots, context=context, padding=padding, type_k=type_k, type_v=type_v)
    )
    caches = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(shapes))
    return caches + slots * (context + 2) * 4


def make_plan(config: RunConfig, index: GGUFIndex, description: ModelDescription) -> Plan:
    """Decides how the model runs; InputError for what cannot work, naming the flag and the number that would."""
    model_config = description.config
    if config.ctx_size < 0:
        raise InputError(f"--ctx_size is {config.ctx_size}; it must be positive, or 0 for the model's own")
    if config.ubatch_size < 1:
        raise InputError(f"--ubatch_size is {config.ubatch_size}; it must be at least 1")
    if not 1 <= config.penalty_window <= 2**16:
        raise InputError(f"--repeat_last_n is {config.penalty_window}; it must be between 1 and 65536")
    context = config.ctx_size or model_config.context_length
    ubatch_size = min(config.ubatch_size, context)
    type_k, type_v = _cache_type(config.cache_type_k), _cache_type(config.cache_type_v)
    head_dim = model_config.attention.head_dim
    if "q8_0" in (type_k, type_v) and head_dim % 32:
        raise InputError(
            f"a q8_0 cache needs head sizes in multiples of 32, the model has {head_dim}: use bf16"
        )

    try:
        kernels = dispatch.use_pallas()
    except ValueError as error:  # the environment variable
        raise InputError(str(error)) from error
    on_cpu = jax.default_backend() == "cpu"
    available = available_host_bytes()
    if config.unpack_mib is not None:
        if config.unpack_mib < 0:
            raise InputError(f"--unpack_mib is {config.unpack_mib}; it must be 0 or more")
        budget = config.unpack_mib * _MIB
    else:
        budget = max(available // 2 - description.trunk_bytes, 0) if on_cpu else 0
    holding = plan_holding(description, budget, kernels=kernels)
    if kernels:
        _note_reference_weights(description, holding)
        if config.strict and dispatch.fallbacks():
            first = dispatch.fallbacks()[0]
            raise InputError(f"--strict: {first.operation} would run the plain reference: {first.reason}")
    signatures = [
        (kind, tuple(sorted(_storage(name, tensor, holding) for name, tensor in layer.items())))
        for kind, layer in zip(model_config.layers, description.layers, strict=True)
    ]
    stacks = plan_stacks(signatures, _max_repeats(description) if kernels else None)
    model = Model(
        architecture=description.architecture,
        config=model_config,
        stacks=stacks,
        routing=ROUTING_POLICIES.get(config.routing_policy)(),
    )
    chunk = -(-ubatch_size // PREFILL_BLOCK) * PREFILL_BLOCK
    padding = chunk if kernels else PREFILL_BLOCK
    sizes = {"slots": 1, "padding": padding, "type_k": type_k, "type_v": type_v}
    state_bytes = _state_bytes(model, context=context, **sizes)
    weights_bytes = holding.total_bytes
    if on_cpu and weights_bytes + state_bytes > available:
        small = _state_bytes(model, context=min(context, 512), **sizes)
        advice = (
            "a smaller --ctx_size" if weights_bytes + small <= available else "a smaller model or more memory"
        )
        raise InputError(
            f"{index.shards[0]} needs {weights_bytes // _MIB} MiB for weights and {state_bytes // _MIB} MiB for a "
            f"context of {context}, {available // _MIB} MiB are free; use {advice}"
        )
    return Plan(
        config=config,
        description=description,
        model=model,
        holding=holding,
        stacks=stacks,
        context=context,
        chunk=chunk,
        padding=padding,
        ubatch_size=ubatch_size,
        type_k=type_k,
        type_v=type_v,
        slots=1,
        state_bytes=state_bytes,
    )
