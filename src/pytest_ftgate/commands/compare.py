"""`ftgate compare`: two recorded runs, judged by the rules of stored launches."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from ..declare.options import SHORT_FORMS
from ..judge import limits, two_runs
from ..judge.judge import Policy
from ..stats import alpha_spending
from .inifile import options_of
from .last_run import FINE, REGRESSED, add_rootdir, nothing, read, rootdir
from .report import add_forms, checked, command, show, write

if TYPE_CHECKING:
    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]


def register(subparsers: Subparsers) -> None:
    """Add `ftgate compare` to the command line."""
    parser = subparsers.add_parser(
        "compare",
        help="judge two recorded runs",
        description="Judge the second of two JSON reports as if the first were its baseline. Limits and metrics are "
        "those of the reports, the environment and the project. Exits with 1 if a cell regressed, is suspect, broken "
        "or an error, and with 3 if nothing can be compared.",
    )
    parser.add_argument("before", metavar="A.json", type=Path, help="the reference, written by --ftgate-report json:")
    parser.add_argument("after", metavar="B.json", type=Path, help="the run that is judged")
    add_forms(parser)
    add_rootdir(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print the comparison, and write the files of --to. Raises FtgateError."""
    targets = checked(args.to)
    before, after = (two_runs.Run(name=str(path), report=read(path)) for path in (args.before, args.after))
    report = two_runs.judged(before, after, _policy(rootdir(args)))
    report = msgspec.structs.replace(report, command=command("compare", before.name, after.name))
    show(report, args.verbose)
    write(report, targets)
    if not two_runs.compared(report):
        return nothing(f"{before.name} and {after.name} have nothing in common that can be compared")
    return REGRESSED if report.failing else FINE


def _policy(root: Path) -> Policy:
    """What the environment and the project say about verdicts."""
    options = options_of(root, "metrics", "alpha", "probe_cost", "gate", *SHORT_FORMS)
    limits.check(cli=options.thresholds, ini=options.ini_thresholds)
    return Policy(
        metrics=options.metrics,
        cli=options.thresholds,
        ini=options.ini_thresholds,
        alpha=options.alpha,
        beta=alpha_spending.BETA,
        probe_cost=options.probe_cost,
    )
