"""Writes the vocabulary files beside it, compressed.

Run: python tests/data/vocab/make_vocabs.py --llama_models=.../llama.cpp/models --smollm=SmolLM2-135M-Instruct.gguf

- qwen2, gpt-2, llama-spm: llama.cpp's own test vocabularies as they are (with their test cases, .inp and .out). Its
  qwen35 is qwen2 with another `tokenizer.ggml.pre`; only the cases are kept.
- smollm: the tokenizer's metadata of SmolLM2.
- t5: the first tokens of llama.cpp's nomic-bert-moe vocabulary with its normalization table, and some user-defined
  tokens, one with a character that the table changes.
"""

import argparse
import lzma
import pathlib
import shutil
import tempfile

import make_golden

HERE = pathlib.Path(__file__).parent
T5_TOKENS = 6000
T5_USER_DEFINED = ("Q①", "<sep>")


def compress(path: pathlib.Path, name: str) -> None:
    target = HERE / f"{name}.gguf.xz"
    target.write_bytes(lzma.compress(path.read_bytes(), preset=9 | lzma.PRESET_EXTREME))
    print(f"{target.name}: {target.stat().st_size} bytes")


def small_t5(metadata: dict) -> dict:
    small = {
        key: value for key, value in metadata.items() if not key.endswith(("mask_token_id", "type_count"))
    }
    extra = len(T5_USER_DEFINED)
    small["general.architecture"] = small["general.name"] = "t5"
    small["tokenizer.ggml.tokens"] = [*metadata["tokenizer.ggml.tokens"][:T5_TOKENS], *T5_USER_DEFINED]
    small["tokenizer.ggml.scores"] = [*metadata["tokenizer.ggml.scores"][:T5_TOKENS], *[0.0] * extra]
    small["tokenizer.ggml.token_type"] = [*metadata["tokenizer.ggml.token_type"][:T5_TOKENS], *[4] * extra]
    return small


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--llama_models", type=pathlib.Path, required=True)
    parser.add_argument("--smollm", type=pathlib.Path, required=True)
    args = parser.parse_args()
    for name in ("qwen2", "gpt-2", "llama-spm", "qwen35"):
        source = args.llama_models / f"ggml-vocab-{name}.gguf"
        if name != "qwen35":
            compress(source, name)
        for suffix in (".inp", ".out"):
            shutil.copyfile(f"{source}{suffix}", HERE / f"{name}{suffix}")
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "vocab.gguf"
        make_golden.write_vocab(path, make_golden.read_metadata(args.smollm))
        compress(path, "smollm")
        nomic = make_golden.read_metadata(args.llama_models / "ggml-vocab-nomic-bert-moe.gguf")
        make_golden.write_vocab(path, small_t5(nomic))
        compress(path, "t5")


if __name__ == "__main__":
    main()
