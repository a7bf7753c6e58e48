"""The Jinja environment of chat templates: what `transformers` offers them, with limits on time and memory."""

import datetime
import json
from collections.abc import Callable
from typing import Any

import jinja2
from jinja2 import ext, nodes
from jinja2.parser import Parser
from jinja2.runtime import Macro, markup_join, str_join
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace, pass_eval_context

from moejax.tokenizer import template_limits as limits

_WIDTH_METHODS = frozenset({"center", "ljust", "rjust", "zfill", "expandtabs"})
_WIDTH_FILTERS = ("center", "indent", "batch", "slice")


class GenerationTag(ext.Extension):
    """`{% generation %} ... {% endgeneration %}` marks a model's own text for training; here it does nothing."""

    tags = {"generation"}  # noqa: RUF012 - the attribute that Jinja looks for

    def parse(self, parser: Parser) -> nodes.CallBlock:
        """Reads the block and wraps its body in a call that returns it."""
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        block = nodes.CallBlock(self.call_method("_unchanged"), [], [], body)
        block.set_lineno(line)
        return block

    def _unchanged(self, caller: Macro) -> str:
        return caller()


class _Dict:
    """Stands in for `dict`, whose attributes would be more than templates need."""

    def __call__(self, *args: Any, **kwargs: Any) -> dict[Any, Any]:
        return dict(*args, **kwargs)

    def fromkeys(self, *args: Any) -> dict[Any, Any]:
        return dict.fromkeys(*args)


class _Namespace(Namespace):
    """Jinja's namespace without private names."""

    def __init__(*args: Any, **kwargs: Any) -> None:  # `self` may be one of the names
        self, args = args[0], args[1:]
        values = dict(*args, **kwargs)
        for name in values:
            _check_public(name)
        Namespace.__init__(self, values)

    def __setitem__(self, name: str, value: Any) -> None:
        _check_public(name)
        super().__setitem__(name, value)


def _check_public(name: Any) -> None:
    if isinstance(name, str) and name.startswith("_"):
        raise jinja2.exceptions.SecurityError(f"a namespace cannot hold the private name {name!r}")


class TemplateEnvironment(ImmutableSandboxedEnvironment):
    """Compiles chat templates."""

    intercepted_binops = frozenset({"+", "*", "**", "%"})

    def __init__(self, clock: Callable[[], datetime.datetime]):
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            extensions=[GenerationTag, ext.loopcontrols],
            finalize=_charge_output,
        )
        self.globals.update(
            {
                "raise_exception": _raise_exception,
                "strftime_now": lambda form: clock().strftime(form),
                "dict": _Dict(),
                "namespace": _Namespace,
            }
        )
        del self.globals["lipsum"]
        self.filters.update(_limit_filters(self.filters))

    def load(self, source: str) -> jinja2.Template:
        """Compiles a template whose loops and macros draw on the running budget."""
        tree = limits.ChargeLoops().visit(self.parse(source))
        tree.set_environment(self)
        return self.template_class.from_code(self, self.compile(tree), self.make_globals(None), None)

    def charge(self, num_chars: int) -> str:
        """What loops and macros call; see `template_limits.ChargeLoops`."""
        limits.charge(num_chars)
        return ""

    @pass_eval_context
    def concatenate(self, eval_ctx: nodes.EvalContext, *parts: Any) -> str:
        """What `a ~ b` calls."""
        limits.check_length(sum(map(limits.text_length, parts)))
        return (markup_join if eval_ctx.autoescape else str_join)(parts)

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        """Runs an operator of `intercepted_binops`."""
        limits.check_operands(operator, left, right)
        return super().call_binop(context, operator, left, right)

    def call(self, __context: Any, __obj: Any, *args: Any, **kwargs: Any) -> Any:
        """Runs a call, looking first at methods of strings that can make long ones."""
        # The sandbox wraps `str.format`; what it wraps is the method.
        method = getattr(__obj, "__wrapped__", __obj)
        owner = getattr(method, "__self__", None)
        if isinstance(owner, str):
            name = method.__name__
            if name in _WIDTH_METHODS:
                limits.check_widths(*args, *kwargs.values())
            elif name == "replace" and len(args) >= 2:
                limits.check_replace(owner, *args[:2])
            elif name == "join" and len(args) == 1:
                limits.check_length(_joined_length(owner, args[0]))
            elif name in ("format", "format_map"):
                limits.check_brace_format(owner, [*args, *kwargs.values()])
        return super().call(__context, __obj, *args, **kwargs)


def _charge_output(value: Any) -> Any:
    limits.charge(limits.text_length(value))
    return value


def _raise_exception(message: Any) -> None:
    raise jinja2.TemplateError(str(message))


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | str | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    # Jinja's own filter escapes HTML; prompts are not HTML.
    limits.check_widths(indent)
    limits.check_length(limits.text_length(value))
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def _joined_length(separator: str, values: Any) -> int:
    if not isinstance(values, list | tuple):
        return 0
    return limits.text_length(values) + len(separator) * len(values)


def _limit_filters(filters: dict[str, Callable[..., Any]]) -> dict[str, Callable[..., Any]]:
    """Returns guarded versions of the filters that can turn a little into a lot."""

    def guard(name: str, check: Callable[..., None], num_passed: int = 0) -> Callable[..., Any]:
        original = filters[name]

        def guarded(*args: Any, **kwargs: Any) -> Any:
            check(*args[num_passed:], **kwargs)
            return original(*args, **kwargs)

        # Says which of Jinja's objects come before the value.
        if hasattr(original, "jinja_pass_arg"):
            guarded.jinja_pass_arg = original.jinja_pass_arg  # pyright: ignore[reportFunctionMemberAccess]
        return guarded

    def check_widths(value: Any, *args: Any, **kwargs: Any) -> None:
        limits.check_widths(*args, *kwargs.values())

    def check_replace(value: Any, old: Any, new: Any, *args: Any) -> None:
        limits.check_replace(value, old, new)

    def check_join(value: Any, d: Any = "", attribute: Any = None) -> None:
        limits.check_length(_joined_length(str(d), value))

    def check_format(value: Any, *args: Any, **kwargs: Any) -> None:
        limits.check_percent_format(str(value), [*args, *kwargs.values()])

    def check_size(value: Any) -> None:
        limits.check_length(limits.text_length(value))

    # How many of Jinja's own objects each filter gets first is in `jinja_pass_arg`.
    passed = {name: int(hasattr(filters[name], "jinja_pass_arg")) for name in filters}
    limited = {name: guard(name, check_widths, passed[name]) for name in _WIDTH_FILTERS}
    limited["replace"] = guard("replace", check_replace, passed["replace"])
    limited["join"] = guard("join", check_join, passed["join"])
    limited["format"] = guard("format", check_format, passed["format"])
    limited["string"] = guard("string", check_size, passed["string"])
    limited["tojson"] = _to_json
    return limited
