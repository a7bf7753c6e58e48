"""Turns text into token ids with a GGUF file's vocabulary: one list of id lists, as JSON. Reads no weights."""

import os
import sys

if __name__ == "__main__":
    # Python puts scripts/ first, where this file and inspect.py would hide modules of the standard library.
    sys.path[0] = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

import json

from absl import flags

from host_tier.errors import InputError
from host_tier.gguf_index import open_gguf
from moejax.program import run
from moejax.tokenizer import Tokenizer

_MODEL = flags.DEFINE_string("model", None, "GGUF file; any shard of a split model will do")
_LINES = flags.DEFINE_string("lines", None, "file with one JSON string a line")
_ADD_SPECIAL = flags.DEFINE_bool("add_special", True, "add BOS and EOS if the vocabulary asks for it")
_PARSE_SPECIAL = flags.DEFINE_bool(
    "parse_special", True, "control tokens written in the text become those tokens"
)


def read_lines(path: str) -> list[str]:
    """Reads the texts of a JSON-lines file.

    Raises:
      InputError: the file cannot be read, or a line (named by its number) is not a JSON string.
    """
    try:
        with open(path, "rb") as file:
            content = file.read()
    except OSError as error:
        raise InputError(f"--lines: cannot read {path}: {error.strerror}") from None
    # Only "\n" ends a line: JSON strings may hold the other line separators of Unicode.
    lines = content.split(b"\n")
    if not lines[-1]:
        lines.pop()
    texts = []
    for number, line in enumerate(lines, 1):
        try:
            text = json.loads(line.decode("utf-8"))
        except (ValueError, RecursionError) as error:
            raise InputError(f"{path}, line {number}: not JSON: {error}") from None
        if not isinstance(text, str):
            raise InputError(f"{path}, line {number}: must be a JSON string, found {type(text).__name__}")
        texts.append(text)
    return texts


def main(argv: list[str]) -> None:
    """Prints the ids of the texts that `--lines` names."""
    del argv
    if not _MODEL.value:
        raise InputError("--model is missing: name a GGUF file")
    if not _LINES.value:
        raise InputError("--lines is missing: name a file with one JSON string a line")
    texts = read_lines(_LINES.value)
    with open_gguf(_MODEL.value) as index:
        tokenizer = Tokenizer.from_metadata(index.metadata)
    print(json.dumps([tokenizer.encode(text, _ADD_SPECIAL.value, _PARSE_SPECIAL.value) for text in texts]))


def cli() -> None:
    """Entry point of `moejax-tokenize`."""
    run(main)


if __name__ == "__main__":
    cli()
