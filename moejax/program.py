"""Runs a program's `main` under the project's rules for errors and exit codes."""

import os
import sys
from collections.abc import Callable

from absl import app, flags

from host_tier.errors import InputError


def _print_error(error: BaseException) -> None:
    print(f"error: {' '.join(str(error).split())}", file=sys.stderr)


def _parse(argv: list[str]) -> list[str]:
    try:
        return flags.FLAGS(argv)
    except flags.Error as error:
        _print_error(error)
        print("see --help for the flags of this program", file=sys.stderr)
        sys.exit(2)


def _help_requested(argv: list[str]) -> bool:
    return any(
        argument.lstrip("-") in ("help", "helpshort", "h") for argument in argv[1:] if argument[:1] == "-"
    )


def _print_help(main: Callable[[list[str]], None]) -> None:
    """Prints the program's docstring and the flags that this project defines (not absl's own)."""
    print((sys.modules[main.__module__].__doc__ or "").strip())
    print("\nflags:")
    ours = [
        flag
        for module, module_flags in sorted(flags.FLAGS.flags_by_module_dict().items())
        if not module.startswith("absl")
        for flag in module_flags
    ]
    for flag in sorted(ours, key=lambda flag: flag.name):
        choices = getattr(flag.parser, "enum_values", None)
        kind = "|".join(choices) if choices else flag.flag_type()
        print(f"  --{flag.name}=<{kind}>  {flag.help} (default: {flag.default_as_str})")


def run(main: Callable[[list[str]], None]) -> None:
    """Parses absl flags, runs `main`, and exits the process.

    Exit codes: 0 done, 1 failure while running, 2 bad input or flags (one line on standard error).

    Args:
      main: called with the arguments left after flag parsing; raises `InputError` for what a user can put right.
    """

    def guarded(argv: list[str]) -> int:
        try:
            if len(argv) > 1:
                raise InputError(f"unexpected argument {argv[1]!r}: every option is a flag, see --help")
            main(argv)
            sys.stdout.flush()
        except InputError as error:
            _print_error(error)
            return 2
        except BrokenPipeError:
            # The reader of our output went away (`| head`): nothing more can be said to it.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 1
        except KeyboardInterrupt:
            print("interrupted", file=sys.stderr)
            return 130
        return 0

    if _help_requested(sys.argv):
        _print_help(main)
        sys.exit(0)
    app.run(guarded, flags_parser=_parse)
