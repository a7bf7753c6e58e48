"""Writes a model of random weights, at the speed of the disk.

A pool of random weights is made once for each type and row length; every tensor is cut from a pool at offsets of its
own. So memory does not grow with the file, and no two tensors (or experts) are equal.
"""

import contextlib
import dataclasses
import logging
import math
import os
import pathlib
import shutil
import time
from collections.abc import Callable, Iterator
from typing import BinaryIO

import gguf
import numpy as np
from gguf import GGMLQuantizationType

from host_tier.errors import InputError
from kernels_pallas.quant import format_for
from moejax.config import ModelConfig
from moejax.models import ARCHITECTURES
from moejax.models.specs import Specs, TensorKind, TensorSpec
from moejax.synthetic.blocks import random_data
from moejax.synthetic.header import add_metadata
from moejax.synthetic.mixes import Mix

_POOL_BYTES = 32 * 1024 * 1024
_MIB = 1024 * 1024
# gguf reports its plan at level INFO, which programs print.
logging.getLogger("gguf.gguf_writer").setLevel(logging.WARNING)


@dataclasses.dataclass(frozen=True, kw_only=True)
class SyntheticTensor:
    """One tensor of the file.

    Attributes:
      name: in the file.
      spec: what it is.
      quant_type: its type.
    """

    name: str
    spec: TensorSpec
    quant_type: GGMLQuantizationType

    @property
    def num_bytes(self) -> int:
        """Bytes in the file."""
        rows = math.prod(self.spec.shape[:-1])
        return rows * format_for(self.quant_type).row_bytes(self.spec.shape[-1])


@dataclasses.dataclass(frozen=True, kw_only=True)
class WrittenModel:
    """What was written.

    Attributes:
      path: the file.
      num_bytes: its size.
      num_params: weights in it.
      seconds: time it took, the header included.
    """

    path: pathlib.Path
    num_bytes: int
    num_params: int
    seconds: float


def list_tensors(config: ModelConfig, mix: Mix) -> list[SyntheticTensor]:
    """The tensors of a model, in file order."""
    architecture = ARCHITECTURES.get(config.arch)
    parts: list[tuple[int | None, Specs]] = [(None, architecture.global_specs(config))]
    parts += [(i, architecture.layer_specs(config, kind)) for i, kind in enumerate(config.layers)]
    if config.num_mtp_layers:
        parts.append((len(config.layers), architecture.mtp_specs(config)))
    return [
        SyntheticTensor(
            name=name if layer is None else f"blk.{layer}.{name}",
            spec=spec,
            quant_type=mix.type_of(name, spec, config, layer),
        )
        for layer, specs in parts
        for name, spec in specs.items()
        if not spec.optional or name == "nextn.shared_head_norm.weight"
    ]


def _small_values(name: str, shape: tuple[int, ...], random: np.random.Generator) -> np.ndarray:
    """Norms, biases, decays, convolution taps: values of the size that trained models have."""
    if name.endswith("ssm_a"):  # minus a decay rate
        values = -random.uniform(1.0, 16.0, shape)
    elif name.endswith("ssm_dt.bias"):  # softplus of it is a time step of 0.001 to 0.1
        values = np.log(np.expm1(np.exp(random.uniform(math.log(1e-3), math.log(1e-1), shape))))
    elif name.endswith("ssm_conv1d.weight"):
        values = random.normal(0.0, 1 / math.sqrt(shape[-1]), shape)
    else:
        values = random.uniform(0.75, 1.25, shape)
    return values.astype("<f4")


class _Pools:
    """Random weights by type and row length."""

    def __init__(self, seed: int):
        self._seed = seed
        self._pools: dict[tuple[int, int], np.ndarray] = {}

    def get(self, tensor: SyntheticTensor) -> np.ndarray:
        """Blocks of the tensor's type, uint8 `[blocks, block_bytes]`, with a spread of 1/sqrt(row length)."""
        key = int(tensor.quant_type), tensor.spec.shape[-1]
        if key not in self._pools:
            random = np.random.default_rng([self._seed, *key])
            self._pools[key] = random_data(tensor.quant_type, _POOL_BYTES, 1 / math.sqrt(key[1]), random)
        return self._pools[key]


def _pieces(pool: np.ndarray, num_blocks: int, random: np.random.Generator) -> Iterator[np.ndarray]:
    """`num_blocks` blocks in pieces, each a view of the pool from a random block on, at least half of it long."""
    while num_blocks:
        start = int(random.integers(0, max(len(pool) // 2, 1)))
        piece = pool[start : start + num_blocks]
        num_blocks -= len(piece)
        yield piece


def _write_header(
    path: pathlib.Path,
    config: ModelConfig,
    mix: Mix,
    tensors: list[SyntheticTensor],
    *,
    seed: int,
    size_label: str,
) -> None:
    writer = gguf.GGUFWriter(path, config.arch)
    add_metadata(writer, config, mix, seed=seed, size_label=size_label)
    for tensor in tensors:
        # The type of array does not matter where the tensor's own type is given.
        float32 = np.dtype(np.float32)
        writer.add_tensor_info(
            tensor.name, tensor.spec.shape, float32, tensor.num_bytes, raw_dtype=tensor.quant_type
        )
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    writer.close()


def _pad(file: BinaryIO) -> None:
    file.write(bytes(-file.tell() % gguf.GGUF_DEFAULT_ALIGNMENT))


def _write_data(
    file: BinaryIO, tensors: list[SyntheticTensor], seed: int, advance: Callable[[int], None]
) -> None:
    pools = _Pools(seed)
    for number, tensor in enumerate(tensors):
        _pad(file)
        random = np.random.default_rng([seed, number])
        if tensor.spec.kind is TensorKind.VECTOR:
            file.write(_small_values(tensor.name, tensor.spec.shape, random).data)
        else:
            pool = pools.get(tensor)
            for piece in _pieces(pool, tensor.num_bytes // pool.shape[1], random):
                file.write(piece.data)
                advance(piece.nbytes)
    _pad(file)


def write_model(
    path: pathlib.Path,
    config: ModelConfig,
    mix: Mix,
    *,
    seed: int = 0,
    size_label: str = "",
    advance: Callable[[int], None] = lambda num_bytes: None,
) -> WrittenModel:
    """Writes a GGUF file; it has its name only once it is whole.

    Args:
      path: the file; an existing one is replaced.
      config: the model.
      mix: types of its weights.
      seed: equal seeds give equal files.
      size_label: the usual name of its size, as in "30B-A3B", if it has one.
      advance: called with the number of bytes of every write.

    Raises:
      InputError: the file cannot be written there, or does not fit.
    """
    begin = time.perf_counter()
    tensors = list_tensors(config, mix)
    need = sum(tensor.num_bytes for tensor in tensors)
    part = path.with_name(path.name + ".part")
    try:
        free = shutil.disk_usage(path.parent).free
        if need > free:
            raise InputError(
                f"{path} needs {need // _MIB} MiB, {free // _MIB} MiB are free there; use fewer --layers"
            )
        _write_header(part, config, mix, tensors, seed=seed, size_label=size_label)
        with part.open("ab", buffering=0) as file:
            _write_data(file, tensors, seed, advance)
        os.replace(part, path)
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror}") from error
    finally:
        with contextlib.suppress(OSError):
            part.unlink(missing_ok=True)
    return WrittenModel(
        path=path,
        num_bytes=path.stat().st_size,
        num_params=sum(math.prod(tensor.spec.shape) for tensor in tensors),
        seconds=time.perf_counter() - begin,
    )
