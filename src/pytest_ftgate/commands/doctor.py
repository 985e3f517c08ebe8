"""`ftgate doctor`: the interpreters, the machine and the probes, and each problem with a fix."""

from __future__ import annotations

import argparse
from pathlib import Path

import msgspec

from ..hookspec import Subparsers, hookimpl
from .diagnosis import diagnose, to_text


@hookimpl
def ftgate_commands(subparsers: Subparsers) -> None:
    """Add `ftgate doctor` to the command line."""
    parser = subparsers.add_parser(
        "doctor",
        help="show what measurements are possible here",
        description="Show each target's interpreter and environment, the machine, and what can be observed; each "
        "problem with a fix. Exits with 3 when no target has an interpreter.",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--python", action="append", metavar="SPEC", help="a target such as 3.14t (repeatable)")
    parser.add_argument("--rootdir", type=Path, default=Path(), help="the project whose environments are shown")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print the diagnosis; 0, or 3 when no target has an interpreter. Raises TargetError."""
    diagnosis = diagnose(args.python, args.rootdir.resolve())
    if args.json:
        print(msgspec.json.format(msgspec.json.encode(diagnosis), indent=2).decode())
    else:
        print(to_text(diagnosis))
    return 0 if any(state.interpreter for state in diagnosis.targets) else 3
