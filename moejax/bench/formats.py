"""Rows as text, piece by piece as they are measured: llama-bench's five formats."""

import abc
import json
from collections.abc import Mapping

from moejax.bench.cases import BenchCase
from moejax.bench.record import COLUMNS, Row, flat_text
from moejax.run_config import RunConfig


class BenchFormat(abc.ABC):
    """Writes rows. Each function returns the text that comes next, line ends included."""

    def header(self, first: Row) -> str:
        """What comes before the rows; `first` is the first of them."""
        del first
        return ""

    @abc.abstractmethod
    def row(self, row: Row) -> str:
        """One row."""

    def footer(self, last: Row) -> str:
        """What comes after the rows; `last` is the last of them."""
        del last
        return ""


class Markdown(BenchFormat):
    """A table for people: the model, what differs from the defaults, the rate."""

    # Column -> (heading, width; negative: to the left). llama-bench's widths.
    _SHOWN: Mapping[str, tuple[str, int]] = {
        "model_type": ("model", -30),
        "model_size": ("size", 10),
        "model_n_params": ("params", 10),
        "backends": ("backend", -10),
        "n_gpu_layers": ("ngl", 3),
        "n_cpu_moe": ("n_cpu_moe", 10),
        "n_threads": ("threads", 7),
        "n_ubatch": ("n_ubatch", 8),
        "type_k": ("type_k", 6),
        "type_v": ("type_v", 6),
        "routing_policy": ("routing", -10),
        "residency_policy": ("cache", -10),
        "spec_type": ("spec", -10),
        "n_parallel": ("parallel", 8),
        "test": ("test", 15),
        "t/s": ("t/s", 20),
        "limit_ts": ("memory allows", 13),
    }
    _ALWAYS = frozenset({"model_type", "model_size", "model_n_params", "backends", "test", "t/s", "limit_ts"})

    def __init__(self) -> None:
        """Columns are chosen by the first row."""
        self._columns: list[str] = []

    def _is_shown(self, column: str, row: Row) -> bool:
        on_cpu = row["backends"] == "CPU"
        defaults = {
            "n_cpu_moe": 0,
            "n_ubatch": RunConfig.ubatch_size,
            "type_k": "f32" if on_cpu else "bf16",
            "type_v": "f32" if on_cpu else "bf16",
            "routing_policy": RunConfig.routing_policy,
            "residency_policy": "none",
            "spec_type": "none",
            "n_parallel": 1,
        }
        if column in ("n_gpu_layers", "n_threads"):
            return on_cpu == (column == "n_threads")
        return column in self._ALWAYS or row[column] != defaults[column]

    def _line(self, cells: list[str]) -> str:
        widths = [self._SHOWN[column][1] for column in self._columns]
        padded = (c.ljust(-width) if width < 0 else c.rjust(width) for c, width in zip(cells, widths))
        return "| " + " | ".join(padded) + " |\n"

    def header(self, first: Row) -> str:
        """See `BenchFormat.header`."""
        self._columns = [column for column in self._SHOWN if self._is_shown(column, first)]
        shown = [self._SHOWN[column] for column in self._columns]
        rules = ("-" * (abs(width) - 1) + (":" if width > 0 else "-") for _, width in shown)
        return self._line([heading for heading, _ in shown]) + "| " + " | ".join(rules) + " |\n"

    def row(self, row: Row) -> str:
        """See `BenchFormat.row`."""
        case = BenchCase(n_prompt=row["n_prompt"], n_gen=row["n_gen"], n_depth=row["n_depth"])
        size, params = row["model_size"], row["model_n_params"]
        texts = {
            "model_size": f"{size / 2**20:.2f} MiB" if size < 2**30 else f"{size / 2**30:.2f} GiB",
            "model_n_params": f"{params / 1e6:.2f} M" if params < 1e9 else f"{params / 1e9:.2f} B",
            "test": case.label,
            "t/s": f"{row['avg_ts']:.2f} ± {row['stddev_ts']:.2f}",
            "limit_ts": "" if row["limit_ts"] is None else f"{row['limit_ts']:.2f}",
        }
        return self._line([texts[c] if c in texts else flat_text(row[c]) for c in self._columns])

    def footer(self, last: Row) -> str:
        """See `BenchFormat.footer`."""
        return f"\nbuild: {last['build_commit']} ({last['build_number']})\n"


class Csv(BenchFormat):
    """Every value in quotes."""

    def header(self, first: Row) -> str:
        """See `BenchFormat.header`."""
        del first
        return ",".join(COLUMNS) + "\n"

    def row(self, row: Row) -> str:
        """See `BenchFormat.row`."""
        values = (flat_text(row[column]).replace('"', '""') for column in COLUMNS)
        return ",".join(f'"{value}"' for value in values) + "\n"


class JsonLines(BenchFormat):
    """One object a line."""

    def row(self, row: Row) -> str:
        """See `BenchFormat.row`."""
        return json.dumps(row, allow_nan=False) + "\n"


class Json(BenchFormat):
    """One list of objects."""

    def __init__(self) -> None:
        """Rows after the first have a comma in front."""
        self._comma = ""

    def header(self, first: Row) -> str:
        """See `BenchFormat.header`."""
        del first
        return "[\n"

    def row(self, row: Row) -> str:
        """See `BenchFormat.row`."""
        before, self._comma = self._comma, ",\n"
        lines = (f"    {json.dumps(key)}: {json.dumps(value, allow_nan=False)}" for key, value in row.items())
        return before + "  {\n" + ",\n".join(lines) + "\n  }"

    def footer(self, last: Row) -> str:
        """See `BenchFormat.footer`."""
        del last
        return "\n]\n"


class Sql(BenchFormat):
    """A table `llama_bench`, as llama-bench names it, and an INSERT for each row."""

    def header(self, first: Row) -> str:
        """See `BenchFormat.header`."""
        del first
        columns = ",\n".join(f"  {column} {kind}" for column, kind in COLUMNS.items())
        return f"CREATE TABLE IF NOT EXISTS llama_bench (\n{columns}\n);\n\n"

    def row(self, row: Row) -> str:
        """See `BenchFormat.row`."""
        texts = (flat_text(row[column]).replace("'", "''") for column in COLUMNS)
        values = ("NULL" if row[column] is None else f"'{text}'" for column, text in zip(COLUMNS, texts))
        return f"INSERT INTO llama_bench ({', '.join(COLUMNS)}) VALUES ({', '.join(values)});\n"


FORMATS: Mapping[str, type[BenchFormat]] = {
    "md": Markdown,
    "csv": Csv,
    "json": Json,
    "jsonl": JsonLines,
    "sql": Sql,
}
