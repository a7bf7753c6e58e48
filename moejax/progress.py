"""Progress bars for long work, on standard error, only where a person looks."""

import contextlib
import sys
from collections.abc import Callable, Iterator

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as RichProgress


class Progress:
    """Makes progress bars, or does nothing."""

    def __init__(self, *, enabled: bool | None = None):
        """`enabled` None shows bars if standard error is a terminal."""
        self._enabled = sys.stderr.isatty() if enabled is None else enabled

    @contextlib.contextmanager
    def bar(self, what: str, total: int, unit: str) -> Iterator[Callable[[int], None]]:
        """Shows a bar while the block runs.

        Args:
          what: label.
          total: amount of work.
          unit: "bytes", or the name of what is counted.

        Yields:
          A function to call with each amount of work done.
        """
        if not self._enabled or total <= 0:
            yield lambda amount: None
            return
        count = DownloadColumn() if unit == "bytes" else MofNCompleteColumn()
        columns = (TextColumn(what), BarColumn(), count, TimeRemainingColumn())
        # Our text goes to standard output as it is, not through the bars' console.
        bars = RichProgress(
            *columns,
            console=Console(stderr=True),
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        with bars:
            task = bars.add_task(what, total=total)
            yield lambda amount: bars.advance(task, amount)
