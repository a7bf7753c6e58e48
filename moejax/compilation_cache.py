"""Compiled programs on disk, so that a second start does not compile."""

import os
import pathlib

import jax

from host_tier.errors import InputError


def enable_compilation_cache(folder: str) -> None:
    """Turns on JAX's persistent cache.

    Args:
      folder: "default" (`$MOEJAX_CACHE`, else `moejax` in the user's cache folder), "none", or a path.
    """
    if folder == "none":
        return
    if folder == "default":
        base = os.environ.get("XDG_CACHE_HOME", os.path.expanduser("~/.cache"))
        folder = os.environ.get("MOEJAX_CACHE", os.path.join(base, "moejax"))
    path = pathlib.Path(folder) / "xla"
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(
            f"--compilation_cache: cannot use {path}: {error.strerror}; 'none' does without"
        ) from error
    jax.config.update("jax_compilation_cache_dir", str(path))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
