#!/bin/sh
# Makes every golden-*.json again. Needs LLAMA_TOKENIZE (llama.cpp's program); run it with the project installed.
set -eu
cd "$(dirname "$0")"
ulimit -s unlimited
python make_corpus.py
for name in qwen2 gpt-2 llama-spm smollm t5; do
  python make_golden.py --model=$name.gguf.xz --name=$name
done
python make_golden.py --model=qwen2.gguf.xz --name=qwen35 --pre=qwen35
for pre in default gpt-2 smollm llama-bpe qwen2 qwen35 gpt-4o tekken deepseek-v3 deepseek-coder falcon \
  seed-coder; do
  python make_golden.py --model=pairs --name=pre-$pre --pre=$pre
done
