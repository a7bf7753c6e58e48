"""Shows what is in a GGUF model: metadata, files, weights by type and kind, experts. Reads headers only."""

import os
import sys

if __name__ == "__main__":
    # Python puts scripts/ first, where this file and tokenize.py would hide modules of the standard library.
    sys.path[0] = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

import json

from absl import flags
from rich.console import Console

from host_tier.errors import InputError
from host_tier.gguf_index import open_gguf
from host_tier.gguf_summary import summarize, summary_document
from host_tier.gguf_tables import headline, summary_tables
from moejax.program import run

_MODEL = flags.DEFINE_string("model", None, "GGUF file; any shard of a split model opens all")
_OUTPUT = flags.DEFINE_enum("output", "text", ["text", "json"], "tables, or one JSON object on the last line")
_TENSORS = flags.DEFINE_bool("tensors", False, "also list every tensor")

_PIPE_WIDTH = 160  # rich assumes 80 columns where there is no terminal, too few for file names


def main(argv: list[str]) -> None:
    """Prints the model that `--model` names."""
    del argv
    if not _MODEL.value:
        raise InputError("--model is missing: name a GGUF file")
    with open_gguf(_MODEL.value) as index:
        summary = summarize(index)
        if _OUTPUT.value == "json":
            print(json.dumps(summary_document(index, summary, with_tensors=_TENSORS.value), allow_nan=False))
            return
        console = Console(width=None if sys.stdout.isatty() else _PIPE_WIDTH)
        for table in summary_tables(index, summary, with_tensors=_TENSORS.value):
            console.print(table)
        console.print(headline(summary), markup=False, highlight=False)


def cli() -> None:
    """Entry point of `moejax-inspect`."""
    run(main)


if __name__ == "__main__":
    cli()
