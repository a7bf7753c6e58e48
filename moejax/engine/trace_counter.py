"""Jitted steps that know how often they were traced, so that a test can forbid recompilation."""

import functools
from collections.abc import Callable
from typing import Any

import jax


class CountedJit:
    """`jax.jit` with a counter of traces.

    Attributes:
      name: for reports.
      traces: how often the function was traced, that is: how many programs were compiled.
    """

    def __init__(self, name: str, function: Callable[..., Any], **jit_options: Any):
        """Wraps `function`; `jit_options` go to `jax.jit`."""
        self.name = name
        self.traces = 0

        @functools.wraps(function)
        def counted(*args: Any, **kwargs: Any) -> Any:
            self.traces += 1
            return function(*args, **kwargs)

        self._jitted = jax.jit(counted, **jit_options)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Calls the jitted function."""
        return self._jitted(*args, **kwargs)
