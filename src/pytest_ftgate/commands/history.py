"""`ftgate history`: a metric over the recordings in git, and where its level changed."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import msgspec

from ..declare.options import metric as known_metric
from ..hookspec import Subparsers, hookimpl
from ..kit.errors import FtgateError
from ..kit.values import Metric, to_builtins
from ..model.report import History
from ..report import history as shown
from ..run import history as recorded
from ..store import names
from ..store.history import series_of
from .last_run import FINE, add_rootdir, nothing, rootdir, store, terminal_width, unicode

LAST = 30


@hookimpl
def ftgate_commands(subparsers: Subparsers) -> None:
    """Add `ftgate history` to the command line."""
    parser = subparsers.add_parser(
        "history",
        help="draw a metric over its recordings in git",
        description="Draw a metric of a test over all recordings that its baselines hold or held in git, with their "
        "intervals, and say where its level changed. Each machine and build is a series of its own. Exits with 3 if "
        "nothing is recorded.",
    )
    parser.add_argument("test", metavar="TEST", help="a test or a cell: a node id, its end, or a unique part of it")
    parser.add_argument("--metric", default=Metric.WALL.value, metavar="NAME", help="default: wall, over the control")
    parser.add_argument("--last", type=int, default=LAST, metavar="N", help=f"draw N recordings (default: {LAST})")
    parser.add_argument("--json", action="store_true", help="print one JSON object, of all recordings")
    add_rootdir(parser)
    parser.add_argument("--baselines", type=Path, metavar="DIR", help="default: as in a run")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print the histories; 3 without one. Raises FtgateError."""
    metric = _metric(args.metric)
    if args.last < 1:
        raise FtgateError(f"--last takes a number from 1, not {args.last}")
    root, baselines = rootdir(args), store(args)
    stored = {
        names.join_nodeid(baseline.test, label): (baseline.test, label)
        for baseline in baselines.baselines()
        for label in baseline.cells
    }
    cells = [stored[nodeid] for nodeid in names.named(args.test, stored)]
    if not cells:
        return nothing(f"no baseline of {args.test} in {baselines.root}: see ftgate baseline list")
    found: list[tuple[str, History]] = []
    for test in dict.fromkeys(test for test, _ in cells):
        every = recorded.recordings(root, baselines, test)
        if every.unread:
            files = "1 former file" if every.unread == 1 else f"{every.unread} former files"
            are = "is" if every.unread == 1 else "are"
            print(f"ftgate: {files} of {test} {are} of another format and left out", file=sys.stderr)
        wanted = [each for each in series_of(every.runs) if (test, each.label) in cells]
        found += [(names.join_nodeid(test, label), each) for label, each in recorded.histories(wanted, metric)]
    if not found:
        return nothing(f"no recording of {args.test} has {metric}: take another --metric")
    print(_json(found) if args.json else _drawn(found, args.last), end="")
    return FINE


def _metric(text: str) -> str:
    try:
        return known_metric(text)
    except ValueError as error:
        raise FtgateError(f"--metric takes {error}") from None


def _drawn(found: list[tuple[str, History]], last: int) -> str:
    style: dict[str, Any] = {"width": terminal_width(), "unicode": unicode(), "color": sys.stdout.isatty()}
    return "\n".join(shown.render(nodeid, history, last=last, **style) for nodeid, history in found)


def _json(found: list[tuple[str, History]]) -> str:
    cells = [
        {
            "nodeid": nodeid,
            "label": shown.label(history),
            **to_builtins(history),
            "texts": [shown.change(history, each) for each in history.changes],
        }
        for nodeid, history in found
    ]
    return msgspec.json.format(msgspec.json.encode({"cells": cells}), indent=2).decode() + "\n"
