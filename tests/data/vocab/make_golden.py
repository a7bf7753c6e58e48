"""Writes golden-NAME.json: what llama.cpp makes of corpus.json with a vocabulary.

Run: python tests/data/vocab/make_golden.py --binary=.../llama-tokenize --model=VOCAB.gguf[.xz] --name=NAME

With --pre=PRE, the vocabulary is given another pre-tokenizer first; --model=pairs is the one of pair_vocab.py, with
the shorter cases only. The binary can also be named by LLAMA_TOKENIZE. Patterns that it runs by std::regex need
`ulimit -s unlimited`. golden.sh makes all.

File: `plain` has the ids of each case without, `special` those with special tokens parsed, where they differ (by index
of the case). Ids of long cases are kept as their number and SHA-256.
"""

import argparse
import ast
import hashlib
import json
import lzma
import os
import pathlib
import subprocess
import tempfile

import gguf
from pair_vocab import pair_metadata

HERE = pathlib.Path(__file__).parent
SHORT_CASE_CHARS = 80
SPECIAL_TYPES = (2, 3, 4)  # unknown, control, user-defined


def read_metadata(path: pathlib.Path) -> dict:
    fields = gguf.GGUFReader(path).fields
    return {
        key: field.contents() for key, field in fields.items() if key.startswith(("tokenizer.", "general."))
    }


def write_vocab(path: pathlib.Path, metadata: dict) -> None:
    """Writes a file that has the tokenizer's metadata and nothing else."""
    writer = gguf.GGUFWriter(path, metadata["general.architecture"])
    writer.add_name(metadata["general.name"])
    for key, value in metadata.items():
        if not key.startswith("tokenizer."):
            continue
        if key.endswith("precompiled_charsmap"):
            writer.add_precompiled_charsmap(bytes(value))
        elif isinstance(value, bool):
            writer.add_bool(key, value)
        elif key.endswith("_token_id"):
            writer.add_uint32(key, int(value))
        elif isinstance(value, str):
            writer.add_string(key, value)
        elif isinstance(value, list):
            writer.add_array(key, value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()


def llama_tokenize(binary: str, model: pathlib.Path, text: str, parse_special: bool) -> list[int]:
    flags = ["--ids", "--stdin", "--no-bos", "--no-escape", "--log-disable"]
    if not parse_special:
        flags.append("--no-parse-special")
    command = [binary, "-m", str(model), *flags]
    done = subprocess.run(
        command, input=text.encode(), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True
    )
    return ast.literal_eval(done.stdout.decode().strip().splitlines()[-1])


def expected_ids(
    binary: str, model: pathlib.Path, metadata: dict, texts: list[str]
) -> tuple[list[list[int]], dict[int, list[int]]]:
    """Returns the ids of each text, and where they differ, the ids with special tokens parsed."""
    types, tokens = metadata["tokenizer.ggml.token_type"], metadata["tokenizer.ggml.tokens"]
    special = [text for text, kind in zip(tokens, types) if kind in SPECIAL_TYPES]
    special += [text for text in tokens if text.startswith("<") and text.endswith(">")]
    alone = {
        index
        for index, text in enumerate(texts)
        if any(token in text for token in special) or len(text) > 4000
    }
    together = [index for index in range(len(texts)) if index not in alone]
    # A control token cuts text into parts that do not see each other: one run does for all cases without any.
    separator = next(i for i, kind in enumerate(types) if kind == 3 and tokens[i] not in ("<unk>",))
    joined = tokens[separator].join(["", *(texts[index] for index in together)])
    plain: list[list[int]] = [[] for _ in texts]
    position = -1
    for idx in llama_tokenize(binary, model, joined, True):
        if idx == separator:
            position += 1
        else:
            plain[together[position]].append(idx)
    assert position + 1 == len(together), (position, len(together))
    for index in together[::40]:
        assert llama_tokenize(binary, model, texts[index], False) == plain[index], texts[index]
    parsed = {}
    for index in sorted(alone):
        plain[index] = llama_tokenize(binary, model, texts[index], False)
        if (ids := llama_tokenize(binary, model, texts[index], True)) != plain[index]:
            parsed[index] = ids
    return plain, parsed


def digest(ids: list[int]) -> list:
    return [len(ids), hashlib.sha256(",".join(map(str, ids)).encode()).hexdigest()]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--binary", default=os.environ.get("LLAMA_TOKENIZE"))
    parser.add_argument("--model", type=pathlib.Path, required=True)
    parser.add_argument("--name", required=True)
    parser.add_argument("--pre")
    parser.add_argument("--out", type=pathlib.Path, default=HERE)
    args = parser.parse_args()
    cases = json.loads((HERE / "corpus.json").read_text())
    indices = list(range(len(cases)))
    with tempfile.TemporaryDirectory() as folder:
        model = args.model
        if args.model.name == "pairs":
            indices = [i for i in indices if isinstance(cases[i], str) and len(cases[i]) <= SHORT_CASE_CHARS]
            metadata = pair_metadata(args.pre)
        else:
            if model.suffix == ".xz":
                model = pathlib.Path(folder) / "vocab.gguf"
                model.write_bytes(lzma.decompress(args.model.read_bytes()))
            metadata = read_metadata(model)
        if args.pre:
            metadata["tokenizer.ggml.pre"] = args.pre
            model = pathlib.Path(folder) / "relabelled.gguf"
            write_vocab(model, metadata)
        texts = [cases[i] if isinstance(cases[i], str) else cases[i][0] * cases[i][1] for i in indices]
        plain, parsed = expected_ids(args.binary, model, metadata, texts)
    golden = {
        "pre": args.pre,
        "cases": len(indices) if len(indices) == len(cases) else indices,
        "plain": [ids if isinstance(cases[i], str) else digest(ids) for i, ids in zip(indices, plain)],
        "special": {str(indices[at]): ids for at, ids in parsed.items()},
    }
    path = args.out / f"golden-{args.name}.json"
    path.write_text(json.dumps(golden, separators=(",", ":")) + "\n")
    print(f"{path}: {len(indices)} cases, {len(parsed)} differ with special tokens parsed")


if __name__ == "__main__":
    main()
