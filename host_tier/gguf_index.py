"""Opens a GGUF model, of one file or many, and finds its tensors. Bytes stay in the file until they are used.

Each file is mapped once, read-only. A tensor is a numpy view of the mapping, so the operating system reads
its pages when they are touched and may drop them again. A file must not be shortened while it is open:
touching a page that is gone ends the process (SIGBUS), as for any program that maps files.
"""

import contextlib
import dataclasses
import mmap
import os
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from host_tier.errors import InputError
from host_tier.gguf_cursor import quoted
from host_tier.gguf_reader import CheckedReader
from host_tier.gguf_split import SplitKeys, check_shards, shard_paths
from host_tier.gguf_tensors import TensorInfo


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class GGUFIndex:
    """An open model. A context manager; safe to read from several threads.

    Attributes:
      shards: its files, in order, under the names they were found by.
      version: GGUF version of the first file, 2 or 3.
      metadata: of the first file. int, float, bool, str, lists of those, and read-only numpy arrays for more
        than `gguf_values.MAX_LIST_ITEMS` numbers. Stays valid after `close`.
      tensors: of all files, by name, in file order.
    """

    shards: tuple[Path, ...]
    version: int
    metadata: Mapping[str, Any]
    tensors: Mapping[str, TensorInfo]
    _mappings: list[mmap.mmap] = dataclasses.field(repr=False)

    @property
    def total_bytes(self) -> int:
        """Bytes of all tensors."""
        return sum(info.num_bytes for info in self.tensors.values())

    @property
    def file_bytes(self) -> tuple[int, ...]:
        """Size of each file, bytes."""
        return tuple(len(mapping) for mapping in self._open_mappings())

    def tensor_data(self, name: str) -> np.ndarray:
        """A read-only view of a tensor in the mapped file.

        Returns:
          `[..., out, in]` of float32, float16, ml_dtypes.bfloat16, float64 or intN for tensors of that type;
          uint8 `[..., out, row_bytes]` for block formats. Nothing is read before the view is.

        Raises:
          InputError: the model has no such tensor.
        """
        info = self._info(name)
        mapping = self._open_mappings()[info.shard]
        count = info.num_bytes // info.view_dtype.itemsize
        return np.frombuffer(mapping, info.view_dtype, count, info.offset).reshape(info.view_shape)

    def shard_data(self, shard: int) -> np.ndarray:
        """A read-only uint8 view of a whole file."""
        return np.frombuffer(self._open_mappings()[shard], np.uint8)

    def advise_dont_need(self, name: str | None = None, *, drop_page_cache: bool = False) -> None:
        """Gives the memory of a tensor back, after upload; a hint, views stay valid and read the file again.

        Args:
          name: the tensor; None for all files.
          drop_page_cache: False releases this process's pages only, so that the next start finds the file
            still cached. True also asks the system to forget what it has cached, to make room for experts.
        """
        for shard, start, end in self._ranges(name):
            # Inwards: the pages at both ends hold parts of the neighbours.
            first = -(-start // mmap.PAGESIZE) * mmap.PAGESIZE
            last = end // mmap.PAGESIZE * mmap.PAGESIZE
            if last <= first:
                continue
            if hasattr(mmap, "MADV_DONTNEED"):
                self._open_mappings()[shard].madvise(mmap.MADV_DONTNEED, first, last - first)
            if drop_page_cache and hasattr(os, "posix_fadvise"):
                self._drop_page_cache(shard, first, last - first)

    def advise_will_need(self, name: str | None = None) -> None:
        """Starts reading a tensor (None: all files) into the page cache; a hint, returns at once."""
        for shard, start, end in self._ranges(name):
            first = start // mmap.PAGESIZE * mmap.PAGESIZE
            if end > first and hasattr(mmap, "MADV_WILLNEED"):
                self._open_mappings()[shard].madvise(mmap.MADV_WILLNEED, first, end - first)

    def close(self) -> None:
        """Ends the use of the files. A mapping that views still refer to goes away with the last of them."""
        while self._mappings:
            with contextlib.suppress(BufferError):
                self._mappings.pop().close()

    def __enter__(self) -> "GGUFIndex":
        return self

    def __exit__(self, *unused: object) -> None:
        self.close()

    def _info(self, name: str) -> TensorInfo:
        info = self.tensors.get(name)
        if info is None:
            raise InputError(f"{self.shards[0]}: has no tensor {quoted(name)}")
        return info

    def _open_mappings(self) -> list[mmap.mmap]:
        if not self._mappings:
            raise ValueError(f"{self.shards[0]} is closed")
        return self._mappings

    def _ranges(self, name: str | None) -> list[tuple[int, int, int]]:
        if name is None:
            return [(shard, 0, size) for shard, size in enumerate(self.file_bytes)]
        info = self._info(name)
        return [(info.shard, info.offset, info.end)]

    def _drop_page_cache(self, shard: int, start: int, num_bytes: int) -> None:
        try:
            descriptor = os.open(self.shards[shard], os.O_RDONLY)
        except OSError:
            return  # Moved or deleted meanwhile: the mapping lives on, and this is only a hint.
        try:
            os.posix_fadvise(descriptor, start, num_bytes, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)


def open_gguf(path: str | os.PathLike[str]) -> GGUFIndex:
    """Opens a model; reads the headers of its files and none of the tensor data.

    Args:
      path: the file, or any shard of a split model: the others are found beside it by name.

    Raises:
      InputError: a file is missing, damaged, truncated, or does not belong with the others.
    """
    path = os.fspath(path)
    entry = CheckedReader(path)
    keys = SplitKeys.read(entry.metadata, path)
    readers = [entry if shard == path else CheckedReader(shard) for shard in shard_paths(path, keys)]
    check_shards(readers)
    tensors = {
        info.name: dataclasses.replace(info, shard=shard)
        for shard, reader in enumerate(readers)
        for info in reader.infos
    }
    return GGUFIndex(
        shards=tuple(Path(reader.path) for reader in readers),
        version=readers[0].version,
        metadata=MappingProxyType(readers[0].metadata),
        tensors=MappingProxyType(tensors),
        _mappings=[reader.mapping for reader in readers],
    )
