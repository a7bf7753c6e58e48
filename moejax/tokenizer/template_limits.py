"""Keeps a chat template from hanging or filling memory.

Templates come inside model files. Jinja's sandbox keeps them from reaching Python; it does not keep them from nesting
loops or doubling strings. These limits are for runaway templates, far above what any real one needs.
"""

import contextvars
import re
import string
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from jinja2 import nodes
from jinja2.exceptions import SecurityError
from jinja2.visitor import NodeTransformer

MAX_SOURCE_CHARS = 1 << 20
MAX_TEXT_CHARS = 1 << 26
MAX_WIDTH = 10_000
MAX_SECONDS = 10.0
_MAX_INT_BITS = 4096
_MAX_NODES = 1_000_000
# A width or precision of five digits, or one taken from the arguments.
_WIDE_PERCENT = re.compile(r"%(?:\([^)]*\))?[-+ #0]*(?:\d{5}|\*|\d*\.(?:\d{5}|\*))")
_WIDE_FIELD = re.compile(r"\d{5}|\{")


class Budget:
    """What is left of one rendering's time and text."""

    def __init__(self, max_seconds: float = MAX_SECONDS):
        self._max_seconds = max_seconds
        self._deadline = time.monotonic() + max_seconds
        self._num_chars = 0

    def charge(self, num_chars: int) -> None:
        """Accounts for text about to be written, and looks at the clock."""
        self._num_chars += num_chars
        if self._num_chars > MAX_TEXT_CHARS:
            raise SecurityError(f"it writes more than {MAX_TEXT_CHARS} characters")
        if time.monotonic() > self._deadline:
            raise SecurityError(f"it runs longer than {self._max_seconds:g} s")


# None while a template is compiled: constants are folded then.
_budget: contextvars.ContextVar[Budget | None] = contextvars.ContextVar("chat_template_budget", default=None)


@contextmanager
def limited(budget: Budget) -> Iterator[None]:
    """Renderings inside the block draw on this budget."""
    token = _budget.set(budget)
    try:
        yield
    finally:
        _budget.reset(token)


def charge(num_chars: int) -> None:
    """Draws on the budget of the rendering that is running, if one is."""
    budget = _budget.get()
    if budget is not None:
        budget.charge(num_chars)


class ChargeLoops(NodeTransformer):
    """Makes each round of a loop and each call of a macro draw on the budget."""

    def visit_For(self, node: nodes.For) -> nodes.For:
        """Charges for the loop's literal text, once a round."""
        return self._charged(node)

    def visit_Macro(self, node: nodes.Macro) -> nodes.Macro:
        """Charges for the macro's literal text, once a call."""
        return self._charged(node)

    def visit_Concat(self, node: nodes.Concat) -> nodes.Call:
        """Turns `a ~ b` into a call, so that its length can be looked at first."""
        self.generic_visit(node)
        call = nodes.Call(nodes.EnvironmentAttribute("concatenate"), node.nodes, [], None, None)
        call.set_lineno(node.lineno)
        return call

    def _charged(self, node: Any) -> Any:
        num_chars = sum(len(data.data) for child in node.body for data in _literals(child))
        self.generic_visit(node)
        call = nodes.Call(nodes.EnvironmentAttribute("charge"), [nodes.Const(num_chars)], [], None, None)
        node.body.insert(0, nodes.ExprStmt(call).set_lineno(node.lineno))
        return node


def _literals(node: nodes.Node) -> Iterator[nodes.TemplateData]:
    if isinstance(node, nodes.TemplateData):
        yield node
    yield from node.find_all(nodes.TemplateData)


def text_length(value: Any) -> int:
    """Returns about how long `str(value)` is, refusing containers that unfold into too much."""
    if isinstance(value, str):
        return len(value)
    total = 0
    pending = [value]
    num_nodes = 0
    while pending:
        item = pending.pop()
        num_nodes += 1
        if num_nodes > _MAX_NODES or total > MAX_TEXT_CHARS:
            raise SecurityError("a list or mapping is too large to be written")
        if isinstance(item, str):
            total += len(item)
        elif isinstance(item, dict):
            pending += item.keys()
            pending += item.values()
        elif isinstance(item, list | tuple):
            pending += item
        else:
            total += 8
    return total


def check_operands(operator: str, left: Any, right: Any) -> None:
    """Refuses an operation whose result would be huge."""
    if isinstance(left, int) and isinstance(right, int):
        bits = {"*": left.bit_length() + right.bit_length(), "**": left.bit_length() * max(right, 0)}
        if bits.get(operator, 0) > _MAX_INT_BITS:
            raise SecurityError("a number is too large")
    elif operator == "*":
        for sequence, times in ((left, right), (right, left)):
            if isinstance(sequence, str | list | tuple) and isinstance(times, int):
                check_length(len(sequence) * max(times, 0))
    elif operator == "+" and isinstance(left, str | list | tuple) and isinstance(right, str | list | tuple):
        check_length(len(left) + len(right))
    elif operator == "%" and isinstance(left, str):
        check_percent_format(left, right)


def check_length(num_items: int) -> None:
    """Refuses texts and lists that are too long."""
    if num_items > MAX_TEXT_CHARS:
        raise SecurityError(f"a text or list is longer than {MAX_TEXT_CHARS}")


def check_percent_format(pattern: str, arguments: Any) -> None:
    """Refuses `pattern % arguments` that pads to huge widths or takes huge arguments."""
    if _WIDE_PERCENT.search(pattern):
        raise SecurityError(f"the format {pattern[:40]!r} is too wide")
    check_length(len(pattern) + pattern.count("%") * text_length(arguments))


def check_brace_format(pattern: str, arguments: Any) -> None:
    """Refuses `pattern.format(arguments)` that pads to huge widths or takes huge arguments."""
    fields = [spec for _, name, spec, _ in string.Formatter().parse(pattern) if name is not None]
    if any(_WIDE_FIELD.search(spec or "") for spec in fields):
        raise SecurityError(f"the format {pattern[:40]!r} is too wide")
    check_length(len(pattern) + len(fields) * text_length(arguments))


def check_widths(*arguments: Any) -> None:
    """Refuses widths, indents and counts that no prompt needs."""
    if any(isinstance(argument, int) and argument > MAX_WIDTH for argument in arguments):
        raise SecurityError(f"a width or count is larger than {MAX_WIDTH}")


def check_replace(text: Any, old: Any, new: Any) -> None:
    """Refuses replacements that blow a text up."""
    text, old, new = str(text), str(old), str(new)
    check_length(len(text) + (text.count(old) if old else len(text) + 1) * len(new))
