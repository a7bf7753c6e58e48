"""Generates text, or token ids, from a GGUF model.

moejax-generate --model=FILE.gguf --prompt="Once upon a time" --num_tokens=64
moejax-generate --model=FILE.gguf --chat --prompt="What is a mixture of experts?"
moejax-generate --model=FILE.gguf --prompt_tokens=1,2,3 --temperature=0 --output=json --dump_logits=logits.npz
"""

import os
import sys

if __name__ == "__main__":  # this folder has names that would hide the standard library's
    sys.path[0] = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

import contextlib
import dataclasses
import json
from typing import Any

import numpy as np
from absl import flags

from host_tier.errors import InputError
from moejax import flags as shared_flags
from moejax.compilation_cache import enable_compilation_cache
from moejax.engine.sampling import SamplingParams
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
flags.DEFINE_string("chat_template_kwargs", None, "further values for the chat template, a JSON object")
flags.DEFINE_integer("num_tokens", 128, "most tokens to generate")
flags.DEFINE_multi_string("stop", [], "text that ends generation; may be repeated")
flags.DEFINE_bool("ignore_eos", False, "go on after an end-of-generation token, to --num_tokens")
flags.DEFINE_enum("output", "text", ["text", "json"], "text as it comes, or one JSON object at the end")
flags.DEFINE_string("dump_logits", None, "write float32 logits of every prompt position to this .npz file")


_CHAT_ONLY = ("system", "chat_template_kwargs")
_RESERVED = ("self", "messages", "tools", "documents", "add_generation_prompt")


def _text(value: str) -> str:
    """A flag's text as UTF-8, whatever the locale made of the command line's bytes."""
    return os.fsencode(value).decode("utf-8", "replace")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Request:
    """What the command line asks for, checked before anything is loaded.

    Attributes:
      text: the prompt, None with token ids.
      tokens: prompt token ids, None with text.
      chat: whether text is a chat message.
      system: system message, or None.
      template_values: further values for the chat template.
      stops: stop strings.
    """

    text: str | None
    tokens: list[int] | None
    chat: bool
    system: str | None
    template_values: dict[str, Any]
    stops: tuple[str, ...]


def _template_values(text: str) -> dict[str, Any]:
    try:
        values = json.loads(text)
    except (json.JSONDecodeError, RecursionError) as error:
        raise InputError(f"--chat_template_kwargs is not JSON: {error}") from error
    if not isinstance(values, dict):
        raise InputError("--chat_template_kwargs must be a JSON object")
    for name in _RESERVED:
        if name in values:
            raise InputError(f"--chat_template_kwargs must not contain {name!r}: the program sets it")
    return values


def _read_request() -> Request:
    values = flags.FLAGS
    if (values.prompt is None) == (values.prompt_tokens is None):
        raise InputError("give one of --prompt and --prompt_tokens")
    tokens = None
    if values.prompt_tokens is not None:
        if values.chat:
            raise InputError("--chat needs --prompt; --prompt_tokens are taken as they are")
        if not all(token.strip().isascii() and token.strip().isdigit() for token in values.prompt_tokens):
            raise InputError("--prompt_tokens must be integers with commas between them, as 1,2,3")
        tokens = [int(token) for token in values.prompt_tokens]
    for name in _CHAT_ONLY:
        if not values.chat and values[name].value is not None:
            raise InputError(f"--{name} needs --chat")
    if any(not stop for stop in values.stop):
        raise InputError("--stop is empty; a stop string must not be")
    if values.num_tokens < 0:
        raise InputError(f"the number of tokens, --num_tokens, is {values.num_tokens}; it must be 0 or more")
    if values.dump_logits is not None:
        _check_writable(values.dump_logits)
    return Request(
        text=None if values.prompt is None else _text(values.prompt),
        tokens=tokens,
        chat=values.chat,
        system=None if values.system is None else _text(values.system),
        template_values=_template_values(values.chat_template_kwargs or "{}"),
        stops=tuple(map(_text, values.stop)),
    )


def _check_writable(path: str) -> None:
    """InputError before a long run rather than after it."""
    try:
        with open(path, "ab"):
            pass
    except OSError as error:
        raise InputError(f"--dump_logits: cannot write {path!r}: {error.strerror}") from error


def _prompt_ids(loaded: LoadedModel, request: Request) -> list[int]:
    if request.tokens is not None:
        return request.tokens
    assert request.text is not None
    tokenizer = loaded.require_tokenizer()
    if not request.chat:
        return tokenizer.encode(request.text, add_special=True, parse_special=True)
    assert loaded.chat_template is not None
    if loaded.chat_template.is_default:
        print("note: the file has no chat template; ChatML is used", file=sys.stderr)
    messages = [{"role": "user", "content": request.text}]
    if request.system is not None:
        messages.insert(0, {"role": "system", "content": request.system})
    text = loaded.chat_template.render(messages, add_generation_prompt=True, **request.template_values)
    return tokenizer.encode(text, add_special=False, parse_special=True)


def _dump_logits(loaded: LoadedModel, prompt: list[int], path: str, progress: Progress) -> None:
    with progress.bar("prompt logits", len(prompt), "tokens") as advance:
        logits = loaded.engine.prompt_logits(prompt, advance)
    with open(path, "wb") as file:
        np.savez(file, logits=logits, tokens=np.asarray(prompt, np.int32))


def _generate(
    loaded: LoadedModel, request: Request, prompt: list[int], params: SamplingParams, show
) -> TextResult:
    """Generates, with a progress bar while a long prompt is read (and not beyond)."""
    values = flags.FLAGS
    is_long = len(prompt) > loaded.plan.ubatch_size
    with contextlib.ExitStack() as stack:
        advance = stack.enter_context(Progress().bar("prompt", len(prompt) if is_long else 0, "tokens"))
        left = len(prompt)

        def on_prompt(count: int) -> None:
            nonlocal left
            left -= count
            advance(count)
            if not left:
                stack.close()

        return generate_text(
            loaded.engine,
            loaded.tokenizer,
            prompt,
            params,
            num_tokens=values.num_tokens,
            stops=request.stops,
            ignore_eos=values.ignore_eos,
            on_text=show,
            on_prompt=on_prompt if is_long else None,
        )


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
    config = shared_flags.run_config()
    params = shared_flags.sampling_params()
    request = _read_request()
    enable_compilation_cache(values.compilation_cache)
    progress = Progress()
    loaded = open_model(config, progress)
    prompt = _prompt_ids(loaded, request)
    loaded.engine.check_request(prompt, values.num_tokens, params)
    as_text = values.output == "text"
    if as_text:
        print(describe_run(loaded.plan), file=sys.stderr)
    if values.dump_logits is not None:
        _dump_logits(loaded, prompt, values.dump_logits, progress)

    def show(text: str) -> None:
        if as_text:
            print(text, end="", flush=True)

    result = _generate(loaded, request, prompt, params, show)
    if as_text:
        print("" if loaded.tokenizer else " ".join(map(str, result.tokens)))
        print(speed_line(result, params.seed if params.temperature > 0 else None), file=sys.stderr)
    else:
        print(json.dumps(_record(loaded, result, params.seed), allow_nan=False))


def cli() -> None:
    """Console command."""
    run(main)


if __name__ == "__main__":
    cli()
