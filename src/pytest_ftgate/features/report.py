"""`ftgate report`: a report that was written before, in any form."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from ..declare.options import report_target
from ..hookspec import Subparsers, hookimpl
from ..kit.errors import FtgateError
from ..model.report import Report
from ..report import terminal
from ..report.json import formats
from ..run import libraries
from ..run.folder import write_report
from .last_run import FINE, last_run, no_run, read, terminal_width, unicode


@hookimpl
def ftgate_commands(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser(
        "report",
        help="show a recorded run, or write it in other forms",
        description="Show a recorded run as a terminal does, or write it in other forms. Nothing is measured.",
        exits=(3,),
    )
    parser.add_argument("source", metavar="FROM.json", nargs="?", type=Path, help="a JSON report (default: last run)")
    add_forms(parser)
    parser.set_defaults(run=run)


def add_forms(parser: argparse.ArgumentParser) -> None:
    """Add the options that `show` reads."""
    kinds = ", ".join(f"{kind}:PATH" for kind in ("json", *formats()))
    parser.add_argument(
        "--to", action="append", default=[], metavar="KIND:PATH", help=f"write it to a file ({kinds}; repeatable)"
    )
    parser.add_argument("-v", "--verbose", action="count", default=0, help="show each cell's phases and metrics")


def run(args: argparse.Namespace) -> int:
    """Show the report or write its files; 3 without a run. Raises FtgateError."""
    targets = checked(args.to)
    report = last_run() if args.source is None else read(args.source)
    if report is None:
        return no_run()
    if targets:
        write(report, targets)
    else:
        show(report, args.verbose)
    return FINE


def checked(targets: Sequence[str]) -> list[str]:
    """The values of --to. Raises FtgateError for one that names no kind or no path."""
    try:
        return [report_target(target) for target in targets]
    except ValueError as error:
        raise FtgateError(f"--to takes {error}") from None


def write(report: Report, targets: Sequence[str]) -> None:
    """Write the files of --to, and name each. Raises FtgateError."""
    unusable = libraries.left_out(Path.cwd(), [target.partition(":")[0] for target in targets])
    if unusable:
        raise FtgateError("; ".join(f"--to {kind}: {why}" for kind, why in unusable.items()))
    for target in targets:
        try:
            path = write_report(target, report, Path.cwd())
        except OSError as error:
            raise FtgateError(f"--to {target}: cannot be written: {error.strerror}; name another path") from error
        print(f"wrote {path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path}")


def command(*words: str) -> str:
    """The command line of a subcommand, to be repeated."""
    return shlex.join(["ftgate", *words])


def show(report: Report, verbosity: int) -> None:
    text = terminal.render(
        report, width=terminal_width(), color=sys.stdout.isatty(), unicode=unicode(), verbosity=verbosity
    )
    print(text, end="")
