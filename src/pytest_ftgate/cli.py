"""The `ftgate` command with its sub-commands."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
import traceback
from collections.abc import Iterable, Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Final

from .kit.errors import FtgateError
from .kit.platforms import unsupported
from .kit.plugins import features
from .kit.text import plain

CODES: Final = {0: "success", 1: "regression", 2: "usage or file error", 3: "nothing measured or found"}


class Parser(argparse.ArgumentParser):
    """A parser whose help names the exit codes: 0, 2 and those of `exits`; none where `exits` is left out."""

    def __init__(self, *args: Any, exits: Iterable[int] | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if exits is not None:
            self.epilog = f"exit codes: {', '.join(f'{code} {CODES[code]}' for code in sorted({0, 2, *exits}))}"


def main(argv: Sequence[str] | None = None) -> int:
    """Run one sub-command; its exit code: 0 success, 1 regression, 2 usage or file error, 3 nothing found."""
    try:
        try:
            args = build_parser().parse_args((sys.argv[1:] if argv is None else argv) or ["--help"])
            return int(args.run(args))
        finally:
            sys.stdout.flush()
    except BrokenPipeError:  # what reads the output has read enough, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141  # as a shell says of a program that SIGPIPE ended
    except FtgateError as error:
        print(f"ftgate: error: {plain(str(error))}", file=sys.stderr)
        return 2
    except (ImportError, NotImplementedError):  # the latter is psutil's
        why = unsupported()
        if not why:
            raise
        print(f"ftgate: error: {why}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("ftgate: interrupted", file=sys.stderr)
        return 130
    except Exception as error:  # noqa: BLE001 -- whatever it is, it is told and ends the command
        print(plain(traceback.format_exc()), end="", file=sys.stderr)
        files = importlib.import_module(f"{__package__}.features.last_run").read_so_far()
        edited = f", unless {files} was changed by hand" if files else ""
        why = f"a mistake of pytest-ftgate{edited}: {type(error).__name__}: {error}"
        print(f"ftgate: error: {plain(why)}", file=sys.stderr)
        return 2


def build_parser() -> Parser:
    """The parser with every sub-command registered."""
    parser = Parser(prog="ftgate", description="Threads or processes, measured and gated.", exits=CODES)
    parser.add_argument("--version", action="version", version=f"pytest-ftgate {_version()}")
    subparsers = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    features("command").hook.ftgate_commands(subparsers=subparsers)
    return parser


def _version() -> str:
    try:
        return version("pytest-ftgate")
    except PackageNotFoundError:
        return "unknown (not installed)"


if __name__ == "__main__":
    sys.exit(main())
