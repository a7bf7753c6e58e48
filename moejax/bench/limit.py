"""The most tokens per second that memory allows: bytes that a generated token must read, against bandwidth."""

import dataclasses
import time

import jax
import jax.numpy as jnp

from moejax.loading.describe import ModelDescription
from moejax.models.specs import TensorKind

_MIB = 1024 * 1024
_REPEATS = 5


@dataclasses.dataclass(frozen=True, kw_only=True)
class MemoryLimit:
    """An upper bound on generation, one session, all weights in device memory.

    Attributes:
      token_bytes: bytes of weights, as the file has them, that one token reads.
      bytes_per_second: measured rate of the device's memory, reading and writing.
    """

    token_bytes: int
    bytes_per_second: float

    @property
    def tokens_per_second(self) -> float:
        """The bound. Keys, values and recurrent states are left out: with them it is lower."""
        return self.bytes_per_second / self.token_bytes


def token_bytes(description: ModelDescription) -> int:
    """Bytes of weights that a token reads: the experts it uses, one row of the embedding table, all the rest."""
    moe = description.config.moe
    total = 0
    for part in (description.globals, *description.layers):
        for tensor in part.values():
            share = 1.0
            if tensor.spec.kind is TensorKind.EXPERT and moe is not None:
                share = moe.num_used / moe.num_experts
            elif tensor.spec.kind is TensorKind.EMBEDDING and not description.config.tied_output:
                share = 1 / tensor.spec.shape[0]
            total += round(tensor.num_bytes * share)
    return total


def memory_rate() -> float:
    """Bytes per second of adding a constant to a large array; the best of a few runs."""
    size = (64 if jax.default_backend() == "cpu" else 1024) * _MIB
    values = jnp.zeros((size // 4,), jnp.float32)
    # In place: fresh pages would cost more than the addition.
    add = jax.jit(lambda x: x + 1.0, donate_argnums=0)
    values = add(values).block_until_ready()
    best = float("inf")
    for _ in range(_REPEATS):
        begin = time.perf_counter()
        values = add(values).block_until_ready()
        best = min(best, time.perf_counter() - begin)
    return 2 * size / best


def memory_limit(description: ModelDescription) -> MemoryLimit:
    """The bound of a model on the device at hand."""
    return MemoryLimit(token_bytes=token_bytes(description), bytes_per_second=memory_rate())
