"""`ftgate pythons`: find or install the target interpreters, and say which."""

from __future__ import annotations

import argparse
import contextlib
import math
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final, TextIO

from ..hookspec import Subparsers, hookimpl
from ..kit import units
from ..model.spec import Interpreter, parse_target
from ..targets.environments import required_python
from ..targets.find import default_pair
from ..targets.provide import provide
from .last_run import FINE, NOTHING_FOUND

PLAIN_LINE_EVERY_S: Final = 15.0
TERMINAL_LINE_EVERY_S: Final = 0.2


@hookimpl
def ftgate_commands(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser(
        "pythons",
        help="find or install the target interpreters",
        description="Find each target on PATH, in the user's cache folder or by uv, else install it with uv into that "
        "folder, else report what is missing.",
        exits=(3,),
    )
    parser.add_argument("--python", action="append", metavar="TARGET", help="a version such as 3.14t (repeatable)")
    parser.add_argument("--strict", action="store_true", help="exit with 3 when a default target is missing, too")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Provide each target in turn; 3 if one is missing that was named, or under --strict. Raises TargetError."""
    specs = args.python
    if not specs:
        pair = default_pair(required_python(Path.cwd()))
        print(f"targets: {' and '.join(pair.targets)}: {pair.why}", flush=True)
        specs = pair.targets
    targets = [parse_target(spec) for spec in specs]
    missing = []
    for target in targets:
        with install_progress(target.spec, sys.stdout) as progress:
            interpreter, did, notes = provide(target, progress=progress)
        print(outcome_text(target.spec, interpreter, did, notes), flush=True)
        if interpreter is None:
            missing.append(target.spec)
    if missing:
        print(f"WARNING: no interpreter for {', '.join(missing)}: cells that need it are unsupported", flush=True)
    return NOTHING_FOUND if missing and (args.strict or args.python) else FINE


def outcome_text(spec: str, interpreter: Interpreter | None, did: str, notes: Sequence[str]) -> str:
    """The outcome for a target as text: one line, with its notes indented below."""
    head = f"{spec}: {did}"
    if interpreter is not None:
        head += f": {interpreter.executable} ({interpreter.name}, {interpreter.build})"
    return "\n".join([head, *(f"  {line}" for note in notes for line in note.splitlines())])


@contextlib.contextmanager
def install_progress(label: str, stream: TextIO) -> Iterator[Callable[[str], None]]:
    """Shows the steps of a long job: one line that is rewritten on a terminal, a plain line every 15 s elsewhere."""
    terminal = stream.isatty() and os.environ.get("TERM") != "dumb"
    started, last = time.monotonic(), -math.inf

    def show(step: str) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= (TERMINAL_LINE_EVERY_S if terminal else PLAIN_LINE_EVERY_S):
            last = now
            line = f"{label}: {step} ({units.span(now - started)})"
            stream.write(f"\r\x1b[K{line[:100]}" if terminal else f"{line}\n")
            stream.flush()

    try:
        yield show
    finally:
        if terminal and last > -math.inf:
            stream.write("\r\x1b[K")
            stream.flush()
