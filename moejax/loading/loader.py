"""Fills device arrays from the mapped file, one tensor at a time."""

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from gguf import GGMLQuantizationType

from host_tier.gguf_index import GGUFIndex
from kernels_pallas.quant import as_storage, dequantize, split_blocks
from kernels_pallas.quant.planes import to_planes
from kernels_pallas.weight import MatrixStack, StackedParts, StackedPlanes, StackedWeight
from moejax.loading.describe import BoundTensor, ModelDescription
from moejax.loading.holding import Held, Holding
from moejax.loading.stacks import LayerStack
from moejax.model import ModelWeights

Progress = Callable[[int], None]


@functools.partial(jax.jit, donate_argnums=0, static_argnames=("quant_type", "held"))
def _put_layer(
    stack: MatrixStack, storage: jax.Array, layer: jax.Array, *, quant_type: GGMLQuantizationType, held: Held
) -> MatrixStack:
    """Writes one layer of a stack in place (the stack is donated, so it is never there twice)."""
    if isinstance(stack, StackedParts):
        return stack.with_layer(layer, split_blocks(storage, quant_type))
    if isinstance(stack, StackedPlanes):
        return stack.with_layer(layer, to_planes(storage, quant_type))
    value = dequantize(storage, quant_type) if held is Held.FLOAT32 else storage
    start = (layer,) + (jnp.int32(0),) * (stack.data.ndim - 1)
    data = jax.lax.dynamic_update_slice(stack.data, value.reshape(1, *stack.data.shape[1:]), start)
    return StackedWeight(data=data, quant_type=stack.quant_type)


def _empty_stack(tensor: BoundTensor, storage: np.ndarray, held: Held, layers: int) -> MatrixStack:
    shape = tensor.spec.shape
    if held is Held.PARTS:
        parts = jax.eval_shape(functools.partial(split_blocks, quant_type=tensor.quant_type), storage)
        return StackedParts.zeros(layers, parts)
    if held is Held.PLANES:
        planes = jax.eval_shape(functools.partial(to_planes, quant_type=tensor.quant_type), storage)
        return StackedPlanes(jax.tree.map(lambda x: jnp.zeros((layers, *x.shape), x.dtype), planes))
    if held is Held.FLOAT32:
        return StackedWeight(
            data=jnp.zeros((layers, *shape), jnp.float32), quant_type=GGMLQuantizationType.F32
        )
    data = jnp.zeros((layers, *shape[:-1], storage.shape[-1]), storage.dtype)
    return StackedWeight(data=data, quant_type=tensor.quant_type)


def _load_stack(index: GGUFIndex, tensors: list[BoundTensor], held: Held, progress: Progress) -> MatrixStack:
    stack: MatrixStack | None = None
    for layer, tensor in enumerate(tensors):
        storage = as_storage(index.tensor_data(tensor.name), tensor.quant_type)
        if stack is None:
            stack = _empty_stack(tensor, storage, held, len(tensors))
        stack = _put_layer(stack, storage, np.int32(layer), quant_type=tensor.quant_type, held=held)
        jax.block_until_ready(stack)
        index.advise_dont_need(tensor.name)
        progress(tensor.num_bytes)
    assert stack is not None
    return stack


def load_weights(
    index: GGUFIndex,
    description: ModelDescription,
    holding: Holding,
    stacks: tuple[LayerStack, ...],
    progress: Progress = lambda num_bytes: None,
) -> ModelWeights:
    """Loads the trunk.

    Args:
      index: the open file.
      description: what it holds.
      holding: in which type each weight is kept.
      stacks: how layers are stacked.
      progress: called with the bytes of each tensor that has been loaded.
    """
    load = functools.partial(_load_stack, index, progress=progress)
    bound_globals = {
        name: load([tensor], holding.forms[tensor.name]) for name, tensor in description.globals.items()
    }
    loaded = []
    for stack in stacks:
        places = []
        for place in range(stack.period):
            layers = [description.layers[stack.layer(place, repeat)] for repeat in range(stack.repeats)]
            places.append(
                {
                    name: load([layer[name] for layer in layers], holding.forms[layers[0][name].name])
                    for name in layers[0]
                }
            )
        loaded.append(tuple(places))
    return ModelWeights(globals=bound_globals, stacks=tuple(loaded))
