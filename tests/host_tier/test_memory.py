import pathlib

import psutil
import pytest

from host_tier.memory import available_host_bytes

GIB = 1 << 30


@pytest.fixture
def machine(tmp_path):
    """Writes fake control groups; returns what is available when the machine has 64 GiB free."""

    def measure(proc_cgroup: str, files: dict[str, str], machine_bytes: int = 64 * GIB) -> int:
        root = tmp_path / "cgroup"
        root.mkdir()
        for name, text in files.items():
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        (tmp_path / "self").write_text(proc_cgroup)
        return available_host_bytes(
            machine_bytes=machine_bytes, proc_cgroup=tmp_path / "self", cgroup_root=root
        )

    return measure


def test_this_machine():
    available = available_host_bytes()
    assert 0 < available <= psutil.virtual_memory().total


def test_no_cgroup_files():
    absent = pathlib.Path("/does/not/exist")
    assert available_host_bytes(machine_bytes=5, proc_cgroup=absent, cgroup_root=absent) == 5


def test_v2_limit_minus_use_plus_cache(machine):
    files = {
        "box/memory.max": f"{16 * GIB}\n",
        "box/memory.current": f"{10 * GIB}\n",
        "box/memory.stat": f"anon 1\nfile {5 * GIB}\ninactive_file {3 * GIB}\nactive_file {GIB}\nshmem 7\n",
    }
    assert machine("0::/box\n", files) == 10 * GIB


def test_v2_least_of_all_groups_above(machine):
    files = {
        "a/memory.max": f"{8 * GIB}",
        "a/memory.current": f"{7 * GIB}",
        "a/b/memory.max": f"{32 * GIB}",
        "a/b/memory.current": f"{GIB}",
    }
    assert machine("0::/a/b\n", files) == GIB


def test_v2_without_limit(machine):
    assert machine("0::/a\n", {"a/memory.max": "max\n", "a/memory.current": "1000\n"}) == 64 * GIB


def test_v2_path_of_the_host_falls_back_to_the_mount(machine):
    files = {"memory.max": f"{4 * GIB}", "memory.current": f"{GIB}"}
    assert machine("0::/docker/0123abcd/../x\n", files) == 3 * GIB


def test_v1(machine):
    files = {
        "memory/job/memory.limit_in_bytes": f"{16 * GIB}\n",
        "memory/job/memory.usage_in_bytes": f"{12 * GIB}\n",
        "memory/job/memory.stat": f"inactive_file 5\ntotal_inactive_file {2 * GIB}\ntotal_active_file {GIB}",
        "memory/memory.limit_in_bytes": "9223372036854771712\n",
        "memory/memory.usage_in_bytes": f"{20 * GIB}\n",
    }
    proc = "9:name=systemd:/x\n4:cpu,memory:/job\n3:cpuset:/\n0::/\n"
    assert machine(proc, files) == 7 * GIB


def test_machine_is_the_limit(machine):
    files = {"memory.max": f"{16 * GIB}", "memory.current": "0"}
    assert machine("0::/\n", files, machine_bytes=GIB) == GIB


def test_never_negative(machine):
    assert machine("0::/\n", {"memory.max": "1000", "memory.current": "2000"}) == 0


def test_damaged_files_are_ignored(machine):
    files = {"memory.max": "?", "memory.current": "", "memory.stat": "inactive_file\nx y z\n"}
    assert machine("nonsense\n0::/\n1:memory\n", files) == 64 * GIB
