"""Which implementation an operation uses: Pallas kernels on a GPU, the plain reference on a CPU.

The choice is made while a function is traced, so an override must surround the first call of a jitted one.
"""

import collections.abc
import contextlib
import contextvars
import dataclasses
import os
import typing

import jax
import jax.extend.backend

# "pallas", "reference" or "auto" (the default): overrides the choice by platform.
VARIABLE = "MOEJAX_KERNELS"

_CHOICES = {"pallas": True, "reference": False, "auto": None}
_override: contextvars.ContextVar[bool | None] = contextvars.ContextVar("kernels_override", default=None)
_fallbacks: list["Fallback"] = []

Result = typing.TypeVar("Result")


@dataclasses.dataclass(frozen=True)
class Fallback:
    """An operation that used the reference although kernels were wanted.

    Attributes:
      operation: name of the public function.
      reason: what the kernel cannot do.
    """

    operation: str
    reason: str


def use_pallas() -> bool:
    """Whether operations should use their Pallas kernels."""
    choice = _override.get()
    if choice is None:
        name = os.environ.get(VARIABLE, "auto")
        if name not in _CHOICES:
            raise ValueError(f"{VARIABLE} is {name!r}; it must be one of {', '.join(_CHOICES)}")
        choice = _CHOICES[name]
    return jax.default_backend() != "cpu" if choice is None else choice


def interpret() -> bool:
    """Whether Pallas kernels run interpreted: wanted where there is no GPU, so for tests."""
    return jax.default_backend() == "cpu"


def is_rocm() -> bool:
    """Whether the GPU is an AMD one; its shared memory is smaller, so tiles are too."""
    return jax.default_backend() != "cpu" and "rocm" in jax.extend.backend.get_backend().platform_version


@contextlib.contextmanager
def override(pallas: bool) -> collections.abc.Iterator[None]:
    """Inside, operations use their kernels (True) or their references (False), whatever the platform."""
    token = _override.set(pallas)
    try:
        yield
    finally:
        _override.reset(token)


def note_fallback(operation: str, reason: str) -> None:
    """Records once that `operation` could not use its kernel."""
    entry = Fallback(operation=operation, reason=reason)
    if entry not in _fallbacks:
        _fallbacks.append(entry)


def fallbacks() -> tuple[Fallback, ...]:
    """All fallbacks so far, in order."""
    return tuple(_fallbacks)


def forget_fallbacks() -> None:
    """Empties the record (a new plan, a new test)."""
    _fallbacks.clear()


def call(
    operation: str,
    kernel: collections.abc.Callable[[], Result],
    reference: collections.abc.Callable[[], Result],
) -> Result:
    """`kernel()` where kernels are wanted and can do it, else `reference()`.

    Args:
      operation: name for the record.
      kernel: raises NotImplementedError, naming the obstacle, for an input that it cannot do.
      reference: can do every input.

    Returns:
      What the chosen one returns.
    """
    if use_pallas():
        try:
            return kernel()
        except NotImplementedError as error:
            note_fallback(operation, str(error))
    return reference()
