"""Runs a program's `main` under the project's rules for errors and exit codes."""

import os
import signal
import sys
from collections.abc import Callable

from absl import app, flags, logging

from host_tier.errors import EngineError, InputError

_HELP = ("--help", "-help", "--helpshort", "--helpfull")


def _print_error(error: BaseException | str) -> None:
    print(f"error: {' '.join(str(error).split())}", file=sys.stderr)


def _parse(argv: list[str]) -> list[str]:
    try:
        return flags.FLAGS(argv)
    except flags.Error as error:
        _print_error(f"{error}; --help lists the flags")
        sys.exit(2)


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
        text = (flag.help or "").removeprefix(f"<{kind}>: ")
        print(f"  --{flag.name}=<{kind}>  {text} (default: {flag.default_as_str})")


def _interrupt(signum: int, frame: object) -> None:
    """Ends at once: an exception here could surface inside a library's callback and be swallowed."""
    del signum, frame
    os.write(2, b"interrupted\n")
    os._exit(130)


def _prepare_streams() -> None:
    """Text that a stream cannot show must not end a run, nor must a stream that is not there."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115
        elif hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


def _give_up_stdout() -> None:
    """Nothing more can be said: what is buffered must not raise again at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def run(main: Callable[[list[str]], None]) -> None:
    """Parses absl flags, runs `main`, and exits the process.

    Exit codes: 0 done, 1 failure while running, 2 bad input or flags (one line on standard error), 130 interrupted.

    Args:
      main: called with the arguments left after flag parsing; raises `InputError` for what a user can put right.
    """
    signal.signal(signal.SIGINT, _interrupt)
    _prepare_streams()

    def guarded(argv: list[str]) -> int:
        # Library chatter about absent backends would hide what matters.
        logging.set_verbosity(logging.WARNING)
        try:
            if len(argv) > 1:
                raise InputError(f"unexpected argument {argv[1]!r}: every option is a flag, see --help")
            main(argv)
            sys.stdout.flush()
        except InputError as error:
            _print_error(error)
            return 2
        except EngineError as error:
            _print_error(error)
            return 1
        except BrokenPipeError:
            _give_up_stdout()  # the reader went away (`| head`)
            return 1
        except OSError as error:
            _print_error(error)
            _give_up_stdout()
            return 1
        return 0

    if any(argument in _HELP for argument in sys.argv[1:]):
        try:
            _print_help(main)
            sys.stdout.flush()
        except OSError as error:
            _print_error(error)
            _give_up_stdout()
            sys.exit(1)
        sys.exit(0)
    app.run(guarded, flags_parser=_parse)
