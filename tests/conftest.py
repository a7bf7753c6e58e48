"""Strict settings for every test, and the fixtures that most tests share."""

import lzma
import os
import pathlib

os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=1")

import jax
import pytest

jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")

DATA = pathlib.Path(__file__).parent / "data"


@pytest.fixture(scope="session")
def repo_root() -> pathlib.Path:
    return DATA.parent.parent


@pytest.fixture(scope="session")
def fixture_dir(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """Tiny GGUFs of real architectures with their references: `gguf/`, `gguf/split/`, `ref_hf/`, `ref_llama/`.

    `MOEJAX_FIXTURES` names a folder with the whole set (more quantizations); the packed subset is used otherwise.
    """
    whole = os.environ.get("MOEJAX_FIXTURES")
    if whole:
        return pathlib.Path(whole)
    target = tmp_path_factory.mktemp("fixtures")
    for packed in sorted((DATA / "fixtures").rglob("*")):
        relative = packed.relative_to(DATA / "fixtures")
        if packed.suffix == ".xz":
            out = target / relative.with_suffix("")
            out.parent.mkdir(parents=True, exist_ok=True)
            out.write_bytes(lzma.decompress(packed.read_bytes()))
        elif packed.is_file():
            out = target / relative
            out.parent.mkdir(parents=True, exist_ok=True)
            out.write_bytes(packed.read_bytes())
    return target
