"""Generates text, or token ids, from a GGUF model.

moejax-generate --model=FILE.gguf --prompt="Once upon a time" --num_tokens=64
moejax-generate --model=FILE.gguf --chat --prompt="What is a mixture of experts?"
moejax-generate --model=FILE.gguf --prompt_tokens=1,2,3 --temperature=0 --output=json --dump_logits=logits.npz
"""

import os
import sys

if __name__ == "__main__":  # this folder has names that would hide the standard library's
    sys.path[0] = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

import dataclasses
import json

import numpy as np
from absl import flags

from host_tier.errors import InputError
from moejax import flags as shared_flags
from moejax.compilation_cache import enable_compilation_cache
from moejax.loading.open_model import LoadedModel, open_model
from moejax.program import run
from moejax.progress import Progress
from moejax.run_report import describe_run, speed_line
from moejax.text import TextResult, generate_text

shared_flags.define_run_flags()
shared_flags.define_sampling_flags()
flags.DEFINE_string("prompt", None, "text to continue; with --chat, the user's message")
flags.DEFINE_list("prompt_tokens", None, "token ids to continue, instead of --prompt")
flags.DEFINE_bool("chat", False, "put the prompt into the model's chat template")
flags.DEFINE_string("system", None, "system message, with --chat")
flags.DEFINE_string("chat_template_kwargs", "{}", "further values for the chat template, a JSON object")
flags.DEFINE_integer("num_tokens", 128, "most tokens to generate")
flags.DEFINE_multi_string("stop", [], "text that ends generation; may be repeated")
flags.DEFINE_bool("ignore_eos", False, "go on after an end-of-generation token, to --num_tokens")
flags.DEFINE_enum("output", "text", ["text", "json"], "text as it comes, or one JSON object at the end")
flags.DEFINE_string("dump_logits", None, "write float32 logits of every prompt position to this .npz file")


def _prompt_ids(loaded: LoadedModel) -> list[int]:
    values = flags.FLAGS
    if (values.prompt is None) == (values.prompt_tokens is None):
        raise InputError("give one of --prompt and --prompt_tokens")
    if values.prompt_tokens is not None:
        if values.chat:
            raise InputError("--chat needs --prompt; --prompt_tokens are taken as they are")
        try:
            return [int(token) for token in values.prompt_tokens]
        except ValueError as error:
            raise InputError("--prompt_tokens must be integers with commas between them, as 1,2,3") from error
    tokenizer = loaded.require_tokenizer()
    if not values.chat:
        return tokenizer.encode(values.prompt, add_special=True, parse_special=True)
    assert loaded.chat_template is not None
    messages = [{"role": "user", "content": values.prompt}]
    if values.system is not None:
        messages.insert(0, {"role": "system", "content": values.system})
    try:
        extra = json.loads(values.chat_template_kwargs)
    except json.JSONDecodeError as error:
        raise InputError(f"--chat_template_kwargs is not JSON: {error}") from error
    if not isinstance(extra, dict):
        raise InputError("--chat_template_kwargs must be a JSON object")
    for name in ("messages", "tools", "documents", "add_generation_prompt"):
        if name in extra:
            raise InputError(f"--chat_template_kwargs must not contain {name!r}: the program sets it")
    text = loaded.chat_template.render(messages, add_generation_prompt=True, **extra)
    return tokenizer.encode(text, add_special=False, parse_special=True)


def _dump_logits(loaded: LoadedModel, prompt: list[int], path: str, progress: Progress) -> None:
    with progress.bar("prompt logits", len(prompt), "tokens") as advance:
        logits = loaded.engine.prompt_logits(prompt, advance)
    try:
        with open(path, "wb") as file:
            np.savez(file, logits=logits, tokens=np.asarray(prompt, np.int32))
    except OSError as error:
        raise InputError(f"--dump_logits: cannot write {path}: {error.strerror}") from error


def _record(loaded: LoadedModel, result: TextResult, seed: int) -> dict[str, object]:
    experts = dict.fromkeys(("reaches", "hits", "cold", "pool_hits", "pool_faults", "bytes_read"), 0)
    timings = dataclasses.asdict(result.timings) | {"draft_n": 0, "draft_n_accepted": 0}
    return {
        "prompt_tokens": result.prompt_tokens,
        "tokens": result.tokens,
        "text": result.text,
        "logprobs": result.logprobs,
        "stop": result.stop,
        "seed": seed,
        "timings": timings,
        "experts": experts,
        "plan": loaded.plan.record(),
    }


def main(argv: list[str]) -> None:
    """Loads the model, generates, prints."""
    del argv
    values = flags.FLAGS
    progress = Progress()
    config = shared_flags.run_config()
    params = shared_flags.sampling_params()
    enable_compilation_cache(values.compilation_cache)
    loaded = open_model(config, progress)
    prompt = _prompt_ids(loaded)
    loaded.engine.check_prompt(prompt, values.num_tokens)
    as_text = values.output == "text"
    if as_text:
        print(describe_run(loaded.plan), file=sys.stderr)
    if values.dump_logits:
        _dump_logits(loaded, prompt, values.dump_logits, progress)

    def show(text: str) -> None:
        if as_text:
            print(text, end="", flush=True)

    with progress.bar("prompt", len(prompt), "tokens") as advance:
        shows_progress = len(prompt) > loaded.plan.ubatch_size
        result = generate_text(
            loaded.engine,
            loaded.tokenizer,
            prompt,
            params,
            num_tokens=values.num_tokens,
            stops=tuple(values.stop),
            ignore_eos=values.ignore_eos,
            on_text=show,
            on_prompt=advance if shows_progress else None,
        )
    if as_text:
        print((result.text and "") or " ".join(map(str, result.tokens)))
        print(speed_line(result), file=sys.stderr)
    else:
        print(json.dumps(_record(loaded, result, params.seed)))


def cli() -> None:
    """Console command."""
    run(main)


if __name__ == "__main__":
    cli()
