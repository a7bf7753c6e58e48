"""The shape of the tree: imports one way, small files, a true file map, a complete package list."""

import ast
import pathlib
import re
import subprocess
import sys
import tomllib

import pytest

ROOT = pathlib.Path(__file__).parent.parent
PACKAGES = ("host_tier", "kernels_pallas", "moejax", "scripts")
# Data flows host_tier -> kernels_pallas -> moejax -> scripts; nothing imports what comes after it.
ALLOWED = {
    "host_tier": {"host_tier"},
    "kernels_pallas": {"kernels_pallas"},
    "moejax": {"host_tier", "kernels_pallas", "moejax"},
    "scripts": {"host_tier", "kernels_pallas", "moejax"},
}
MAX_LINES = 500
FILES = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))


def _imports(path: pathlib.Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            found.add(node.module or "")
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_go_one_way_and_files_are_small(path):
    package = path.relative_to(ROOT).parts[0]
    ours = {name.split(".")[0] for name in _imports(path)} & {*PACKAGES, "tests", "moejax_scripts"}
    assert ours <= ALLOWED[package]
    assert len(path.read_text().splitlines()) <= MAX_LINES


def test_flags_are_defined_by_programs_only():
    """Library code takes records; importing it must not add flags to a program of someone else."""
    users = [
        p for p in FILES if p.parts[-2] != "scripts" and "absl" in {n.split(".")[0] for n in _imports(p)}
    ]
    assert {str(path.relative_to(ROOT)) for path in users} <= {"moejax/flags.py", "moejax/program.py"}


def test_every_package_is_installed():
    listed = set(tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"])
    folders = {path.parent.relative_to(ROOT) for path in FILES}
    assert {".".join(folder.parts).replace("scripts", "moejax_scripts") for folder in folders} == listed
    for folder in folders:
        assert (ROOT / folder / "__init__.py").exists(), f"{folder} has no __init__.py"


def test_the_file_map_names_every_file():
    text = (ROOT / "README.md").read_text()
    section = text.split("## File map")[1].split("\n## ")[0]
    mapped = set(re.findall(r"^\s*- `([\w./]+\.py)`", section, flags=re.MULTILINE))
    files = {str(path.relative_to(ROOT)) for path in FILES if path.name != "__init__.py"}
    assert files - mapped == set(), "files that the map in README.md lacks"
    assert mapped - files == set(), "files that the map in README.md has too many"


def test_every_module_imports_alone():
    """Import order must not matter: each module is imported first, in a process of its own."""
    names = [
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        for path in FILES
        if path.relative_to(ROOT).parts[0] != "scripts"
    ]
    code = (
        "import importlib, sys\n"
        f"ours = {PACKAGES!r}\n"
        f"for name in {names!r}:\n"
        "    for loaded in [m for m in sys.modules if m.split('.')[0] in ours]:\n"
        "        del sys.modules[loaded]\n"
        "    importlib.import_module(name)\n"
    )
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, timeout=300)


def test_no_machine_paths_or_leftovers():
    words = re.compile(r"(?<![\w.])/(?:work|root|farm)/|TODO|FIXME|XXX")
    for path in [*FILES, ROOT / "README.md", ROOT / "BUILD.md", ROOT / "LOG.md", ROOT / "Makefile"]:
        found = words.search(path.read_text())
        assert found is None, f"{path}: {found}"
