"""Fills device arrays from the mapped file, one tensor at a time."""

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from gguf import GGMLQuantizationType

from host_tier.gguf_index import GGUFIndex
from kernels_pallas.quant import as_storage, dequantize
from kernels_pallas.weight import StackedWeight
from moejax.loading.describe import BoundTensor, ModelDescription
from moejax.loading.holding import Holding
from moejax.loading.stacks import LayerStack
from moejax.model import ModelWeights

Progress = Callable[[int], None]


@functools.partial(jax.jit, donate_argnums=0, static_argnames=("quant_type", "dequantized"))
def _put_layer(
    stack: jax.Array, storage: jax.Array, layer: jax.Array, *, quant_type: GGMLQuantizationType, dequantized: bool
) -> jax.Array:
    """Writes one layer of a stack in place (the stack is donated, so it is never there twice)."""
    value = dequantize(storage, quant_type) if dequantized else storage
    start = (layer,) + (jnp.int32(0),) * (stack.ndim - 1)
    return jax.lax.dynamic_update_slice(stack, value.reshape(1, *stack.shape[1:]).astype(stack.dtype), start)


def _storage_shape(tensor: BoundTensor, storage: np.ndarray, dequantized: bool) -> tuple[int, ...]:
    shape = tensor.spec.shape
    return shape if dequantized else (*shape[:-1], storage.shape[-1])


def _load_stack(
    index: GGUFIndex, tensors: list[BoundTensor], held: GGMLQuantizationType, progress: Progress
) -> StackedWeight:
    stack: jax.Array | None = None
    for layer, tensor in enumerate(tensors):
        storage = as_storage(index.tensor_data(tensor.name), tensor.quant_type)
        dequantized = held != tensor.quant_type
        if stack is None:
            dtype = jnp.float32 if dequantized else storage.dtype
            stack = jnp.zeros((len(tensors), *_storage_shape(tensor, storage, dequantized)), dtype)
        stack = _put_layer(
            stack, storage, jnp.int32(layer), quant_type=tensor.quant_type, dequantized=dequantized
        )
        stack.block_until_ready()
        index.advise_dont_need(tensor.name)
        progress(tensor.num_bytes)
    assert stack is not None
    return StackedWeight(data=stack, quant_type=held)


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
        name: load([tensor], holding.types[tensor.name]) for name, tensor in description.globals.items()
    }
    loaded = []
    for stack in stacks:
        places = []
        for place in range(stack.period):
            layers = [description.layers[stack.layer(place, repeat)] for repeat in range(stack.repeats)]
            places.append(
                {
                    name: load([layer[name] for layer in layers], holding.types[layers[0][name].name])
                    for name in layers[0]
                }
            )
        loaded.append(tuple(places))
    return ModelWeights(globals=bound_globals, stacks=tuple(loaded))
