"""Runs a program's `main` under the project's rules for errors and exit codes."""

import os
import sys
from collections.abc import Callable

from absl import app, flags

from host_tier.errors import InputError


def run(main: Callable[[list[str]], None]) -> None:
    """Parses absl flags, runs `main`, and exits.

    Exit codes: 0 done, 1 failure while running, 2 bad input or flags (one line on standard error).
    """

    def guarded(argv: list[str]) -> int:
        try:
            if len(argv) > 1:
                raise InputError(f"unexpected argument {argv[1]!r}; every option is a flag, see --help")
            main(argv)
            sys.stdout.flush()
        except InputError as error:
            print(f"error: {' '.join(str(error).split())}", file=sys.stderr)
            return 2
        except BrokenPipeError:
            # The reader of our output went away (e.g. `| head`): nothing more can be said to it.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 1
        except KeyboardInterrupt:
            print("interrupted", file=sys.stderr)
            return 130
        return 0

    def parse(argv: list[str]) -> list[str]:
        try:
            return flags.FLAGS(argv)
        except flags.Error as error:
            print(f"error: {' '.join(str(error).split())}", file=sys.stderr)
            sys.exit(2)

    app.run(guarded, flags_parser=parse)
