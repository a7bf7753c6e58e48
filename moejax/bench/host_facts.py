"""What a result says of the machine and of the program."""

import dataclasses
import hashlib
import os
import pathlib
import platform
import subprocess

import jax

_ROOT = pathlib.Path(__file__).parent.parent.parent


@dataclasses.dataclass(frozen=True, kw_only=True)
class HostFacts:
    """A machine and a build.

    Attributes:
      build_commit: of the checkout the program runs from, "unknown" for an installed one.
      cpu: name of the processor.
      gpus: names of the accelerators, with commas between them; empty on a CPU.
      backend: CPU, CUDA or ROCm.
      num_threads: processors that this process may use.
      xla_flags_hash: of the XLA_FLAGS variable, empty without one.
    """

    build_commit: str
    cpu: str
    gpus: str
    backend: str
    num_threads: int
    xla_flags_hash: str


def _commit() -> str:
    if not (_ROOT / ".git").exists():  # git would look in the folders above, which are not this project's
        return "unknown"
    command = ["git", "-C", str(_ROOT), "rev-parse", "--short", "HEAD"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return "unknown"
    return done.stdout.strip()


def _cpu_name() -> str:
    try:
        lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def _backend() -> str:
    if jax.default_backend() == "cpu":
        return "CPU"
    version = jax.devices()[0].client.platform_version.lower()
    return "ROCm" if "rocm" in version else "CUDA" if "cuda" in version else jax.default_backend().upper()


def read_host_facts() -> HostFacts:
    """Asks the system; the environment does not change while a program runs."""
    threads = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    flags = " ".join(sorted(os.environ.get("XLA_FLAGS", "").split()))
    backend = _backend()
    return HostFacts(
        build_commit=_commit(),
        cpu=_cpu_name(),
        gpus="" if backend == "CPU" else ", ".join(device.device_kind for device in jax.devices()),
        backend=backend,
        num_threads=threads,
        xla_flags_hash=hashlib.sha256(flags.encode()).hexdigest()[:12] if flags else "",
    )
