"""Writes a GGUF of a real model's shape with random weights, to measure speed without a download.

moejax-make_synthetic --shape=qwen3-30b-a3b --quant=Q4_K_M --output=30b.gguf
moejax-make_synthetic --shape=qwen3.6-35b-a3b --mtp --layers=4 --scale=8 --quant=Q8_0 --output=tiny.gguf
"""

import os
import sys

if __name__ == "__main__":  # this folder has names that would hide the standard library's
    sys.path[0] = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

import dataclasses
import pathlib

from absl import flags

from host_tier.errors import InputError
from moejax.program import run
from moejax.progress import Progress
from moejax.synthetic import MIXES, SHAPES, resize, write_model
from moejax.synthetic.writer import list_tensors

_SHAPE = flags.DEFINE_enum("shape", "qwen3-30b-a3b", sorted(SHAPES), "model whose sizes to take")
_QUANT = flags.DEFINE_enum("quant", "Q4_K_M", list(MIXES), "types of the weights, as llama.cpp mixes them")
_OUTPUT = flags.DEFINE_string("output", None, "file to write")
_LAYERS = flags.DEFINE_integer("layers", None, "trunk layers; default: the model's own")
_SCALE = flags.DEFINE_integer("scale", 1, "divide widths, heads, experts and vocabulary by this, for tests")
_VOCAB = flags.DEFINE_integer("vocab", None, "tokens in the vocabulary; default: the model's own")
_MTP = flags.DEFINE_bool("mtp", False, "add a multi-token-prediction block")
_SEED = flags.DEFINE_integer("seed", 0, "equal seeds give equal files", lower_bound=0)


def main(argv: list[str]) -> None:
    """Writes the file, says what is in it."""
    del argv
    if not _OUTPUT.value:
        raise InputError("--output is missing: name the file to write")
    path = pathlib.Path(_OUTPUT.value)
    shape = SHAPES[_SHAPE.value]
    config = resize(shape, layers=_LAYERS.value, scale=_SCALE.value, vocab=_VOCAB.value, mtp=_MTP.value)
    # "qwen3-30b-a3b" -> "30B-A3B": only for the whole model, whatever else is in the file.
    whole = dataclasses.replace(config, num_mtp_layers=0) == shape
    size_label = _SHAPE.value.partition("-")[2].upper() if whole else ""
    config = dataclasses.replace(config, name=f"{config.name} shape, {len(config.layers)} layers, random")
    mix = MIXES[_QUANT.value]
    total = sum(tensor.num_bytes for tensor in list_tensors(config, mix))
    with Progress().bar("writing", total, "bytes") as advance:
        written = write_model(path, config, mix, seed=_SEED.value, size_label=size_label, advance=advance)
    print(
        f"wrote {written.path}: {written.num_bytes / 2**20:.0f} MiB, {written.num_params / 1e6:.0f} M weights, "
        f"{written.seconds:.1f} s, {written.num_bytes / written.seconds / 1e9:.2f} GB/s",
        file=sys.stderr,
    )


def cli() -> None:
    """Console command."""
    run(main)


if __name__ == "__main__":
    cli()
