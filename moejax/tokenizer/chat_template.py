"""Messages to prompt text, by the Jinja template that comes with a model."""

import dataclasses
import datetime
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jinja2

from host_tier.errors import InputError
from moejax.tokenizer import template_limits
from moejax.tokenizer.template_sandbox import TemplateEnvironment

_KEY = "tokenizer.chat_template"
# For models without a template: the format that most of them understand.
CHATML = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
# Names that a message's reasoning goes by; the first is what templates read, and gpt-oss reads the second.
_REASONING_KEYS = ("reasoning_content", "thinking", "reasoning")
_SPECIAL_KEYS = {
    "bos_token": "bos_token_id",
    "eos_token": "eos_token_id",
    "unk_token": "unknown_token_id",
    "sep_token": "seperator_token_id",
    "pad_token": "padding_token_id",
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class ChatTemplate:
    """A chat template with the texts that it may refer to. Safe to share between threads.

    Attributes:
      source: the template.
      tool_use_source: another template that is used when tools are given, as some models have.
      special_tokens: `bos_token`, `eos_token` and their like -> text; what is absent is undefined in the template.
      is_default: whether `source` is the stand-in for a model that has no template.
      clock: the time that templates see.
      max_seconds: how long a rendering may take.
    """

    source: str
    tool_use_source: str | None = None
    special_tokens: Mapping[str, str] = dataclasses.field(default_factory=dict)
    is_default: bool = False
    clock: Callable[[], datetime.datetime] = datetime.datetime.now
    max_seconds: float = template_limits.MAX_SECONDS

    @classmethod
    def from_metadata(cls, metadata: Mapping[str, Any], *, override: str | None = None) -> "ChatTemplate":
        """Takes the template of a GGUF file.

        Args:
          metadata: GGUF key -> value.
          override: template to use instead; `chatml` names the built-in one.

        A template with errors is refused when it is first used, or by `check`: many programs never use it.

        Raises:
          InputError: the template is not text.
        """
        special_tokens = _read_special_tokens(metadata)
        if override is not None:
            source = CHATML if override == "chatml" else override
            return cls(source=source, special_tokens=special_tokens)
        source, tool_use = metadata.get(_KEY), metadata.get(f"{_KEY}.tool_use")
        for key, value in ((_KEY, source), (f"{_KEY}.tool_use", tool_use)):
            if value is not None and not isinstance(value, str):
                raise InputError(f"{key} must be a string, found {type(value).__name__}")
        return cls(
            source=source or tool_use or CHATML,
            tool_use_source=tool_use or None,
            special_tokens=special_tokens,
            is_default=not (source or tool_use),
        )

    def check(self) -> None:
        """Raises InputError now if the template has errors that do not depend on the conversation."""
        for source in (self.source, self.tool_use_source):
            if source is not None:
                self._compiled(source)

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        documents: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        **variables: Any,
    ) -> str:
        """Returns the prompt for a conversation.

        Args:
          messages: `role`, `content` and whatever else the template reads. Keys with None count as absent.
          tools: JSON schemas of functions.
          documents: texts to refer to, for templates that know them.
          add_generation_prompt: end with the start of an assistant message.
          **variables: more variables for the template, such as `enable_thinking` or `reasoning_effort`.

        Raises:
          InputError: the template refuses the conversation, fails on it, or takes too long.
        """
        source = self.source
        if tools is not None and self.tool_use_source is not None:
            source = self.tool_use_source
        template = self._compiled(source)
        budget = template_limits.Budget(self.max_seconds)
        try:
            with template_limits.limited(budget):
                return template.render(
                    {
                        **self.special_tokens,
                        **variables,
                        "messages": [_prepare(message) for message in messages],
                        "tools": None if tools is None else list(tools),
                        "documents": None if documents is None else list(documents),
                        "add_generation_prompt": add_generation_prompt,
                    }
                )
        except InputError:
            raise
        except Exception as error:  # a template is a program: it can fail in any way
            raise InputError(f"the chat template failed: {_describe(error)}") from None

    @functools.cached_property
    def _environment(self) -> TemplateEnvironment:
        return TemplateEnvironment(self.clock)

    @functools.cached_property
    def _cache(self) -> dict[str, jinja2.Template]:
        return {}

    def _compiled(self, source: str) -> jinja2.Template:
        if source not in self._cache:
            if len(source) > template_limits.MAX_SOURCE_CHARS:
                raise InputError(
                    f"the chat template has {len(source)} characters; at most {template_limits.MAX_SOURCE_CHARS} work"
                )
            try:
                self._cache[source] = self._environment.load(source)
            except jinja2.TemplateSyntaxError as error:
                raise InputError(
                    f"the chat template has an error in line {error.lineno}: {error.message}"
                ) from None
            except Exception as error:  # such as nesting too deep for the compiler
                raise InputError(f"the chat template cannot be compiled: {_describe(error)}") from None
        return self._cache[source]


def _prepare(message: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the message as templates expect it: no None values, reasoning under its usual names."""
    if not isinstance(message, Mapping):
        raise InputError(f"a chat message must be an object, found {type(message).__name__}")
    prepared = {key: value for key, value in message.items() if value is not None}
    reasoning = next((prepared[key] for key in _REASONING_KEYS if key in prepared), None)
    if reasoning is None:
        return prepared
    return {"thinking": reasoning, **prepared, "reasoning_content": reasoning}


def _read_special_tokens(metadata: Mapping[str, Any]) -> dict[str, str]:
    tokens = metadata.get("tokenizer.ggml.tokens", ())
    texts = {}
    for name, key in _SPECIAL_KEYS.items():
        idx = metadata.get(f"tokenizer.ggml.{key}")
        if idx is not None and 0 <= int(idx) < len(tokens):
            texts[name] = str(tokens[int(idx)])
    return texts


def _describe(error: Exception) -> str:
    text = " ".join(str(error).split()) or type(error).__name__
    return text if isinstance(error, jinja2.TemplateError) else f"{type(error).__name__}: {text}"
