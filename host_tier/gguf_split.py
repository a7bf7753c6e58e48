"""Models split over several files: which files belong together, and whether they do."""

import dataclasses
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

from host_tier.errors import InputError
from host_tier.gguf_cursor import quoted
from host_tier.gguf_reader import CheckedReader

_NAME_PATTERN = re.compile(r"(?P<prefix>.*)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf", re.DOTALL)
_ARCHITECTURE_KEY = "general.architecture"


@dataclasses.dataclass(frozen=True, kw_only=True)
class ShardName:
    """What a file name says, as llama.cpp writes it: `PREFIX-00001-of-00003.gguf`.

    Attributes:
      prefix: everything before the numbers, with the folder.
      number: of this shard, from 1.
      count: shards of the model.
    """

    prefix: str
    number: int
    count: int

    @classmethod
    def parse(cls, path: str) -> "ShardName | None":
        """Reads the name as given: in a download cache the link has the name, its target a hash."""
        match = _NAME_PATTERN.fullmatch(path)
        if match is None:
            return None
        return cls(prefix=match["prefix"], number=int(match["number"]), count=int(match["count"]))

    def of(self, number: int) -> str:
        """Path of another shard of the same model."""
        return f"{self.prefix}-{number:05d}-of-{self.count:05d}.gguf"


@dataclasses.dataclass(frozen=True, kw_only=True)
class SplitKeys:
    """What a file's metadata says about being split.

    Attributes:
      index: of this shard, from 0 (`split.no`).
      count: shards of the model (`split.count`); 1 for a whole model.
      num_tensors: tensors of the whole model (`split.tensors.count`), None if not said.
    """

    index: int
    count: int
    num_tensors: int | None

    @classmethod
    def read(cls, metadata: Mapping[str, Any], path: str) -> "SplitKeys":
        """Reads the three keys, any of which may be absent in a file that is not split."""

        def whole_number(key: str) -> int | None:
            value = metadata.get(key)
            if value is not None and (type(value) is not int or value < 0):
                raise InputError(f"{path}: key {key!r} is {quoted(str(value))}, not a whole number")
            return value

        index, count = whole_number("split.no"), whole_number("split.count")
        if count is not None and count > 1 and index is None:
            raise InputError(f"{path}: is one of {count} shards, but does not say which (key 'split.no')")
        # A count of 0 is written by some tools for files that are not split.
        return cls(index=index or 0, count=count or 1, num_tensors=whole_number("split.tensors.count"))


def shard_paths(path: str, keys: SplitKeys) -> list[str]:
    """Paths of all shards of a model, in order.

    Args:
      path: any one of them, as the user named it.
      keys: what that file says.

    Raises:
      InputError: its name does not fit its metadata, or a shard is missing.
    """
    name = ShardName.parse(path)
    if keys.count == 1:
        if name is not None and name.count > 1:
            raise InputError(
                f"{path}: is named as one of {name.count} shards, but its metadata says it is not split; "
                f"rename it to {os.path.basename(name.prefix)}.gguf if it is a whole model"
            )
        return [path]
    expected_end = f"-{keys.index + 1:05d}-of-{keys.count:05d}.gguf"
    if name is None:
        raise InputError(
            f"{path}: is shard {keys.index + 1} of {keys.count} of a split model, and the others are found "
            f"by name: rename it back to NAME{expected_end}"
        )
    if name.count != keys.count:
        raise InputError(
            f"{path}: is named as one of {name.count} shards, but its metadata says {keys.count}; "
            f"its name should end in {expected_end}"
        )
    paths = [name.of(number) for number in range(1, keys.count + 1)]
    missing = [shard for shard in paths if not os.path.exists(shard)]
    if missing:
        others = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise InputError(f"{path}: is one of {keys.count} shards, but {missing[0]} is missing{others}")
    return paths


def check_shards(readers: Sequence[CheckedReader]) -> None:
    """Checks that files are the shards, in order, of one and the same model.

    Raises:
      InputError: a shard is another shard's copy, is of another model, or tensors are missing or doubled.
    """
    first = readers[0]
    all_keys = [SplitKeys.read(reader.metadata, reader.path) for reader in readers]
    for position, (reader, keys) in enumerate(zip(readers, all_keys)):
        if keys.count != len(readers):
            raise InputError(
                f"{reader.path}: its metadata says one of {keys.count} shards, but {first.path} says "
                f"{len(readers)}"
            )
        if keys.index != position:
            raise _wrong_place(readers, all_keys, position)
        architecture = reader.metadata.get(_ARCHITECTURE_KEY)
        expected = first.metadata.get(_ARCHITECTURE_KEY)
        if position and architecture is not None and architecture != expected:
            raise InputError(
                f"{reader.path}: is of architecture {quoted(str(architecture))}, but {first.path} is of "
                f"{quoted(str(expected))}: these are shards of different models"
            )
    _check_tensors(readers, all_keys)


def _wrong_place(
    readers: Sequence[CheckedReader], all_keys: Sequence[SplitKeys], position: int
) -> InputError:
    path, index = readers[position].path, all_keys[position].index
    same = [other for other, keys in enumerate(all_keys) if keys.index == index and other != position]
    if same:
        return InputError(
            f"{path}: says that it is shard {index + 1} (split.no {index}), and so does "
            f"{readers[same[0]].path}: one of them is a copy; download the shard again"
        )
    return InputError(
        f"{path}: is named shard {position + 1} but says that it is shard {index + 1} (split.no {index}): "
        "it has been renamed"
    )


def _check_tensors(readers: Sequence[CheckedReader], all_keys: Sequence[SplitKeys]) -> None:
    owners: dict[str, str] = {}
    for reader in readers:
        for info in reader.infos:
            owner = owners.setdefault(info.name, reader.path)
            if owner != reader.path:
                raise InputError(f"{reader.path}: tensor {quoted(info.name)} is also in {owner}")
    for reader, keys in zip(readers, all_keys):
        if keys.num_tensors is not None and keys.num_tensors != len(owners):
            raise InputError(
                f"{reader.path}: the model has {keys.num_tensors:,} tensors (split.tensors.count), but its "
                f"{len(readers)} file(s) hold {len(owners):,}"
            )
