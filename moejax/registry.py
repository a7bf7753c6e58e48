"""Names for plug-ins: a name registers once, an unknown name is an error that lists the known ones."""

import importlib
import pkgutil
from types import ModuleType
from typing import Generic, TypeVar

from host_tier.errors import InputError

T = TypeVar("T")


class Registry(Generic[T]):
    """Maps names to plug-ins found in a package: every module of the package is imported once.

    Adding a plug-in is adding a file; no list has to be edited.
    """

    def __init__(self, kind: str, package: str):
        """Creates a registry.

        Args:
          kind: what is registered, for error messages ("routing policy").
          package: dotted name of the package whose modules register themselves.
        """
        self._kind = kind
        self._package = package
        self._entries: dict[str, T] = {}
        self._loaded = False

    def register(self, name: str, entry: T) -> T:
        """Adds an entry; a name that is taken is a programming error."""
        if name in self._entries:
            raise ValueError(f"{self._kind} {name!r} is registered twice")
        self._entries[name] = entry
        return entry

    def _load(self) -> None:
        if self._loaded:
            return
        self._loaded = True
        package: ModuleType = importlib.import_module(self._package)
        for module in pkgutil.iter_modules(package.__path__, f"{self._package}."):
            importlib.import_module(module.name)

    def names(self) -> list[str]:
        """All registered names, sorted."""
        self._load()
        return sorted(self._entries)

    def get(self, name: str) -> T:
        """The entry of a name; InputError with the known names otherwise."""
        self._load()
        if name not in self._entries:
            raise InputError(f"unknown {self._kind} {name!r}; known: {', '.join(self.names())}")
        return self._entries[name]
