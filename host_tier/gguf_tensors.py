"""What a GGUF says about one tensor, and the checks that its bytes are where it says."""

import dataclasses
import itertools
import math
from collections.abc import Sequence

import gguf
import ml_dtypes
import numpy as np

from host_tier.gguf_cursor import Cursor, quoted

MAX_DIMS = 4

_ELEMENT_DTYPES: dict[int, np.dtype] = {
    gguf.GGMLQuantizationType.F32: np.dtype("<f4"),
    gguf.GGMLQuantizationType.F16: np.dtype("<f2"),
    gguf.GGMLQuantizationType.BF16: np.dtype(ml_dtypes.bfloat16),
    gguf.GGMLQuantizationType.F64: np.dtype("<f8"),
    gguf.GGMLQuantizationType.I8: np.dtype("<i1"),
    gguf.GGMLQuantizationType.I16: np.dtype("<i2"),
    gguf.GGMLQuantizationType.I32: np.dtype("<i4"),
    gguf.GGMLQuantizationType.I64: np.dtype("<i8"),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class TensorInfo:
    """One tensor of a GGUF.

    Attributes:
      name: as in the file.
      shape: numpy order, row-major `[out, in]`; the file lists the dimensions the other way round.
      quant_type: how the elements are stored.
      num_bytes: bytes of the whole tensor.
      shard: index of the file that holds it.
      offset: first byte, counted from the start of that file.
    """

    name: str
    shape: tuple[int, ...]
    quant_type: gguf.GGMLQuantizationType
    num_bytes: int
    shard: int
    offset: int

    @property
    def end(self) -> int:
        """The byte after the last one."""
        return self.offset + self.num_bytes

    @property
    def view_dtype(self) -> np.dtype:
        """Type of a view: the elements' own where numpy or ml_dtypes has it, bytes for block formats."""
        return _ELEMENT_DTYPES.get(self.quant_type, np.dtype(np.uint8))

    @property
    def view_shape(self) -> tuple[int, ...]:
        """Shape of a view: `shape`, with bytes of a row in place of its elements for block formats."""
        if self.quant_type in _ELEMENT_DTYPES:
            return self.shape
        return (*self.shape[:-1], self.num_bytes // math.prod(self.shape[:-1]))


@dataclasses.dataclass(frozen=True, kw_only=True)
class TensorEntry:
    """A tensor as listed in the header, not yet checked: dimensions in file order, offset within the data."""

    name: str
    dims: tuple[int, ...]
    type_number: int
    data_offset: int


def read_entry(cursor: Cursor, position: int) -> TensorEntry:
    """Reads one line of the tensor list; `position` (from 0) names it until its name is known."""
    name = cursor.text(f"the name of tensor {position}")
    what = f"the description of tensor {quoted(name)}"
    num_dims = cursor.u32(what)
    if not 1 <= num_dims <= MAX_DIMS:
        raise cursor.error(
            f"tensor {quoted(name)} has {num_dims:,} dimensions (1 to {MAX_DIMS} are possible)"
        )
    dims = tuple(cursor.u64(what) for _ in range(num_dims))
    return TensorEntry(name=name, dims=dims, type_number=cursor.u32(what), data_offset=cursor.u64(what))


def locate(entry: TensorEntry, data_start: int, alignment: int, cursor: Cursor) -> TensorInfo:
    """Turns a header entry into a `TensorInfo`.

    Args:
      entry: from `read_entry`.
      data_start: first byte of the tensor data in the file.
      alignment: bytes that every tensor's offset is a multiple of.
      cursor: of the same file, for messages.

    Raises:
      InputError: impossible dimensions, an unknown type, or a misaligned offset.
    """
    label = f"tensor {quoted(entry.name)}"
    try:
        quant_type = gguf.GGMLQuantizationType(entry.type_number)
        block_elements, block_bytes = gguf.GGML_QUANT_SIZES[quant_type]
    except (ValueError, KeyError):
        raise cursor.error(
            f"{label} has type number {entry.type_number}, which is not a ggml type known here (known up to "
            f"{max(gguf.GGMLQuantizationType)}; types of forks and removed types are not read)"
        ) from None
    shape = entry.dims[::-1]
    if any(not 0 < dim < 2**63 for dim in shape):
        raise cursor.error(f"{label} has an impossible shape {list(shape)}: a dimension is zero or negative")
    num_elements = math.prod(shape)
    if num_elements >= 2**63:
        raise cursor.error(f"{label} has an impossible shape {list(shape)}: more than 2^63 elements")
    if shape[-1] % block_elements:
        raise cursor.error(
            f"{label} is {quant_type.name} but its rows of {shape[-1]:,} elements are not a multiple of "
            f"{block_elements}"
        )
    if entry.data_offset % alignment:
        raise cursor.error(
            f"{label} starts at the misaligned offset {entry.data_offset:,} (not a multiple of {alignment:,})"
        )
    return TensorInfo(
        name=entry.name,
        shape=shape,
        quant_type=quant_type,
        num_bytes=num_elements // block_elements * block_bytes,
        shard=0,
        offset=data_start + entry.data_offset,
    )


def check_layout(infos: Sequence[TensorInfo], file_bytes: int, cursor: Cursor) -> None:
    """Raises InputError when a name is there twice, tensors overlap, or the file ends before its last one."""
    seen: set[str] = set()
    for info in infos:
        if info.name in seen:
            raise cursor.error(f"tensor {quoted(info.name)} is listed twice")
        seen.add(info.name)
    ordered = sorted(infos, key=lambda info: info.offset)
    for first, second in itertools.pairwise(ordered):
        if first.end > second.offset:
            raise cursor.error(f"tensors {quoted(first.name)} and {quoted(second.name)} overlap")
    if ordered and ordered[-1].end > file_bytes:
        cut = next(info for info in ordered if info.end > file_bytes)
        raise cursor.error(
            f"truncated: the file has {file_bytes:,} bytes but needs {ordered[-1].end:,} "
            f"(tensor {quoted(cut.name)} is the first one cut off); download or copy it again"
        )
