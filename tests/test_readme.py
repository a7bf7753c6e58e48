"""What the documents show is what happens."""

import pathlib
import re
import shlex
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
PROGRAMS = sorted(path.stem for path in (ROOT / "scripts").glob("*.py") if not path.stem.startswith("_"))


def _flags_shown() -> list[tuple[str, str]]:
    """(program, flag) for every command line in the documents."""
    found = []
    for document in (README, (ROOT / "BUILD.md").read_text()):
        for line in re.findall(r"^(moejax-\w+ .*)$", document, flags=re.MULTILINE):
            program, *flags = shlex.split(line)
            found += [(program.removeprefix("moejax-"), flag.split("=")[0]) for flag in flags]
    return found


@pytest.fixture(scope="session")
def help_texts() -> dict[str, str]:
    texts = {}
    for program in PROGRAMS:
        script = str(ROOT / "scripts" / f"{program}.py")
        done = subprocess.run([sys.executable, script, "--help"], capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        texts[program] = done.stdout
    return texts


def test_every_flag_shown_exists(help_texts):
    shown = _flags_shown()
    assert len(shown) > 8
    for program, flag in shown:
        assert f"{flag}=" in help_texts[program], f"moejax-{program} has no {flag}"


def test_the_policy_in_the_readme_works(tmp_path, fixture_dir):
    """The example is put where the README says, and runs by its name with no other edit."""
    code = README.split("<!-- test: policy -->\n```python\n")[1].split("```")[0]
    assert len([line for line in code.splitlines() if line.strip()]) <= 22
    for package in ("moejax", "host_tier", "kernels_pallas", "scripts"):
        (tmp_path / package).symlink_to(ROOT / package)
    (tmp_path / "moejax").unlink()
    copy = tmp_path / "moejax"
    subprocess.run(["cp", "-r", str(ROOT / "moejax"), str(copy)], check=True)
    (copy / "routing" / "noisy_topk.py").write_text(code)
    model = fixture_dir / "gguf" / "qwen3moe-BF16.gguf"
    command = [sys.executable, "-m", "scripts.generate", f"--model={model}", "--prompt_tokens=1,2,3"]
    command += ["--num_tokens=4", "--routing_policy=noisy_topk", "--output=json", "--temperature=0"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=300)
    assert done.returncode == 0, done.stderr
    assert '"routing_policy": "noisy_topk"' in done.stdout


def test_the_table_of_types_is_the_code_s():
    from kernels_pallas.quant import FORMATS

    section = README.split("Weights may be")[1].split("\n\n")[0]
    for form in FORMATS.values():
        is_in_range = re.fullmatch(r"Q[3-5]_K", form.name) is not None  # "Q2_K to Q6_K"
        assert is_in_range or form.name in section, form.name


def test_the_table_of_architectures_is_the_code_s():
    from moejax.models import ARCHITECTURES

    section = README.split("| architecture")[1].split("\n\n")[0]
    assert sorted(re.findall(r"`(\w+)`", section)) == ARCHITECTURES.names()
