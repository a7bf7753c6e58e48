"""How much host memory this process can still take: the machine's, or its container's if that is less."""

from collections.abc import Iterator
from pathlib import Path

import psutil

_CGROUP_ROOT = Path("/sys/fs/cgroup")
_PROC_CGROUP = Path("/proc/self/cgroup")


def available_host_bytes(
    *,
    machine_bytes: int | None = None,
    proc_cgroup: Path = _PROC_CGROUP,
    cgroup_root: Path = _CGROUP_ROOT,
) -> int:
    """Bytes that can be allocated without swapping or running into a container's limit.

    The least of the kernel's MemAvailable and, for the control group of this process and each one above it
    (versions 1 and 2), its limit minus its use. Cached file pages count as available: the kernel drops them
    first, and a mapped model would otherwise look like memory in use.

    Args:
      machine_bytes: in place of MemAvailable (tests).
      proc_cgroup: in place of /proc/self/cgroup (tests).
      cgroup_root: in place of /sys/fs/cgroup (tests).

    Returns:
      Bytes, at least 0.
    """
    available = psutil.virtual_memory().available if machine_bytes is None else machine_bytes
    for folder, version in _group_folders(proc_cgroup, cgroup_root):
        room = _room_v2(folder) if version == 2 else _room_v1(folder)
        if room is not None:
            available = min(available, room)
    return max(available, 0)


def _group_folders(proc_cgroup: Path, cgroup_root: Path) -> Iterator[tuple[Path, int]]:
    """Yields the folders of this process's groups and all above them, with the version (1 or 2)."""
    try:
        lines = proc_cgroup.read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = (*line.split(":", 2), "", "")[:3]
        if controllers == "":
            # Systems that run both versions mount the second at `unified`, without a memory controller.
            base, version = cgroup_root, 2
        elif "memory" in controllers.split(","):
            base, version = cgroup_root / "memory", 1
        else:
            continue
        # In a container the path is often the host's and not to be found here; the mount's root is then ours.
        parts = [part for part in path.split("/") if part not in ("", "..")]
        for depth in range(len(parts), -1, -1):
            yield base.joinpath(*parts[:depth]), version


def _room_v2(folder: Path) -> int | None:
    limit, used = _number(folder / "memory.max"), _number(folder / "memory.current")
    if limit is None or used is None:
        return None  # "max" (no limit), or the root group, which has no such files
    return limit - used + _cached_bytes(folder, "inactive_file", "active_file")


def _room_v1(folder: Path) -> int | None:
    # No limit is a number near 2^63 here, so that the result is large and changes nothing.
    limit, used = _number(folder / "memory.limit_in_bytes"), _number(folder / "memory.usage_in_bytes")
    if limit is None or used is None:
        return None
    return limit - used + _cached_bytes(folder, "total_inactive_file", "total_active_file")


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None


def _cached_bytes(folder: Path, *names: str) -> int:
    """Adds up lines of `memory.stat`; 0 if it cannot be read."""
    try:
        lines = (folder / "memory.stat").read_text().splitlines()
    except OSError:
        return 0
    words = [line.split() for line in lines]
    return sum(int(word[1]) for word in words if len(word) == 2 and word[0] in names and word[1].isdecimal())
