"""Typed look-ups in GGUF metadata, with errors that name the key."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from host_tier.errors import InputError


@dataclasses.dataclass(frozen=True, kw_only=True)
class Metadata:
    """Keys of one architecture: `get_int("block_count")` reads `{arch}.block_count`.

    Attributes:
      arch: the file's `general.architecture`.
      values: the file's whole metadata.
    """

    arch: str
    values: Mapping[str, Any]

    def key(self, name: str) -> str:
        """The full key of an architecture's own `name`."""
        return f"{self.arch}.{name}"

    def has(self, name: str) -> bool:
        """Whether the file has the key."""
        return self.key(name) in self.values

    def _get(self, name: str, default: Any) -> Any:
        value = self.values.get(self.key(name), default)
        if value is None:
            raise InputError(f"the file has no {self.key(name)}, which architecture {self.arch!r} needs")
        return value

    def get_int(
        self, name: str, default: int | None = None, *, minimum: int = 1, maximum: int = 2**31 - 1
    ) -> int:
        """An integer between `minimum` and `maximum`; InputError names the key otherwise."""
        value = self._get(name, default)
        if isinstance(value, list | tuple | np.ndarray) and len(value) and all(v == value[0] for v in value):
            value = value[0]  # some converters write one value per layer even when all are equal
        if isinstance(value, bool | np.bool_) or not isinstance(value, int | np.integer):
            raise InputError(f"{self.key(name)} must be one integer, the file has {value!r}"[:300])
        if not minimum <= int(value) <= maximum:
            raise InputError(f"{self.key(name)} is {int(value)}, outside {minimum}..{maximum}")
        return int(value)

    def get_float(self, name: str, default: float | None = None) -> float:
        """A finite positive number; InputError names the key otherwise."""
        value = self._get(name, default)
        if not isinstance(value, int | float | np.number) or not np.isfinite(value) or value <= 0:
            raise InputError(f"{self.key(name)} must be a positive number, the file has {value!r}"[:300])
        return float(value)

    def get_list(self, name: str, length: int, default: list[Any] | None = None) -> list[Any]:
        """An array of exactly `length` values; InputError names the key otherwise."""
        value = self._get(name, default)
        if not isinstance(value, list | tuple | np.ndarray) or len(value) != length:
            raise InputError(f"{self.key(name)} must be an array of {length} values")
        return [v.item() if isinstance(v, np.generic) else v for v in value]
