"""Compiled programs on disk, so that a second start does not compile."""

import os
import pathlib
import sys
import tempfile

import jax

from host_tier.errors import InputError


def _default_folder() -> str:
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return os.environ.get("MOEJAX_CACHE") or os.path.join(base, "moejax")


def enable_compilation_cache(folder: str) -> None:
    """Turns on JAX's persistent cache.

    Args:
      folder: "default" (`$MOEJAX_CACHE`, else `moejax` in the user's cache folder), "none", or a path. A default
        folder that cannot be written is done without; one that was asked for is an InputError.
    """
    if folder == "none":
        return
    if not folder:
        raise InputError("--compilation_cache is empty; give a folder, 'default' or 'none'")
    is_default = folder == "default"
    path = pathlib.Path(_default_folder() if is_default else folder).expanduser() / "xla"
    try:
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            pass
    except OSError as error:
        problem = f"cannot write to {path}: {error.strerror}"
        if not is_default:
            raise InputError(f"--compilation_cache: {problem}; 'none' does without") from error
        print(f"note: {problem}; compiled programs are not kept", file=sys.stderr)
        return
    jax.config.update("jax_compilation_cache_dir", str(path))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
