"""A model's figures as tables for a terminal."""

from collections.abc import Iterator
from typing import Any

from rich.table import Table
from rich.text import Text

from host_tier.gguf_index import GGUFIndex
from host_tier.gguf_summary import ExpertLayer, Summary, Usage, shortened

_MAX_VALUE_CHARACTERS = 100
_RIGHT_COLUMNS = ("count", "size", "bytes")


def size_text(num_bytes: int) -> str:
    """Bytes for people: `1.50 GiB`."""
    for unit, scale in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if num_bytes >= scale:
            return f"{num_bytes / scale:,.2f} {unit}"
    return f"{num_bytes} B"


def value_text(value: Any) -> str:
    """A metadata value on one line; control characters in it are escaped."""
    short = shortened(value)
    if isinstance(short, dict):
        return f"{short['count']:,} items: {_cut(repr(short['first']))}"
    return _cut(repr(short))


def headline(summary: Summary) -> str:
    """The model in one line."""
    return (
        f"{_cut(repr(summary.architecture))}: {summary.num_layers} layers, {summary.num_tensors:,} tensors, "
        f"{size_text(summary.total_bytes)}"
    )


def summary_tables(index: GGUFIndex, summary: Summary, with_tensors: bool = False) -> Iterator[Table]:
    """Yields the tables that describe a model, `with_tensors` the list of all tensors too."""
    rows = [[_cut(repr(key)[1:-1]), value_text(value)] for key, value in index.metadata.items()]
    yield _table("Metadata", ["key", "value"], rows)
    rows = [[file, size_text(size)] for file, size in zip(summary.files, summary.file_bytes)]
    yield _table(f"Files (GGUF version {summary.version})", ["file", "size"], rows)
    yield _usage_table("type", summary.by_type)
    yield _usage_table("kind", summary.by_kind)
    if summary.expert_layers:
        rows = [_expert_row(layer) for layer in summary.expert_layers]
        yield _table("Experts (bytes of one expert)", ["layer", "count", "bytes", "types"], rows)
    if with_tensors:
        rows = [
            [
                repr(info.name)[1:-1],
                str(list(info.shape)),
                info.quant_type.name,
                f"{info.num_bytes:,}",
                str(info.shard),
            ]
            for info in index.tensors.values()
        ]
        yield _table("Tensors", ["name", "shape", "type", "bytes", "file"], rows)


def _usage_table(noun: str, usages: dict[str, Usage]) -> Table:
    rows = [[name, f"{use.count:,}", size_text(use.num_bytes)] for name, use in usages.items()]
    return _table(f"Tensors by {noun}", [noun, "count", "size"], rows)


def _expert_row(layer: ExpertLayer) -> list[str]:
    types = ", ".join(f"{part} {quant_type}" for part, quant_type in layer.types.items())
    return [str(layer.layer), f"{layer.num_experts:,}", f"{layer.bundle_bytes:,}", types]


def _cut(text: str) -> str:
    return text if len(text) <= _MAX_VALUE_CHARACTERS else text[: _MAX_VALUE_CHARACTERS - 3] + "..."


def _table(title: str, columns: list[str], rows: list[list[str]]) -> Table:
    table = Table(title=title, title_justify="left")
    for column in columns:
        table.add_column(column, overflow="fold", justify="right" if column in _RIGHT_COLUMNS else "left")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))  # Text: brackets in a file's strings are not markup
    return table
