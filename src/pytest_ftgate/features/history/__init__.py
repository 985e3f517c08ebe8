"""`ftgate history`: a metric over the recordings in git, and where its level changed.

`series.py` finds the changes, `drawing.py` draws them.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import msgspec

from ...declare.options import metric as known_metric
from ...hookspec import Subparsers, hookimpl
from ...judge import metrics
from ...kit.errors import FtgateError
from ...kit.git import AgainstError, Repository
from ...kit.text import did_you_mean, listed, plural
from ...kit.values import Metric, grouped
from ...store import names
from ...store.folder import Store
from ...store.schema import BaselineError, Recording, decode
from ..last_run import FINE, nothing, project, store, terminal_width, unicode
from . import drawing
from .series import History, series

LAST = 30
MOST_FILES = 1000
"""Former files that are read, the newest: one recording a night for three years."""
_ENTRY = re.compile(r":\d+ \d+ [0-9a-f]+ ([0-9a-f]+) [AM]\0([^\0]+)\0")


@hookimpl
def ftgate_commands(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser(
        "history",
        help="draw a metric over its recordings in git",
        description="Draw a metric of a test over all recordings that its baselines hold, or held in git, with their "
        "intervals, and show where its level changed. Each machine and build is a series of its own. Exits with 3 if "
        "nothing is recorded.",
        exits=(3,),
    )
    parser.add_argument("test", metavar="TEST", help="a test or a cell: a node id, its end, or a unique part of it")
    parser.add_argument("--metric", default=Metric.WALL.value, metavar="NAME", help="default: wall, at one speed")
    parser.add_argument("--last", type=int, default=LAST, metavar="N", help=f"draw N recordings (default: {LAST})")
    parser.add_argument("--json", action="store_true", help="print one JSON object, of all recordings")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print the histories; 3 without one. Raises FtgateError."""
    try:
        metric = known_metric(args.metric)
    except ValueError:
        hint = did_you_mean(args.metric, metrics.NAMES)
        raise FtgateError(f"--metric takes a metric, not {args.metric!r}{hint}; {metrics.WHICH}") from None
    if args.last < 1:
        raise FtgateError(f"--last takes a number from 1, not {args.last}")
    root, baselines = project().rootpath, store()
    stored = {
        names.join_nodeid(baseline.test, label): (baseline.test, label)
        for baseline in baselines.baselines()
        for label in baseline.cells
    }
    cells = grouped(stored[nodeid] for nodeid in names.named(args.test, stored))
    if not cells:
        return nothing(f"no baseline of {args.test} in {baselines.root}: see ftgate baseline list")
    found: list[tuple[str, History]] = []
    for test, labels in cells.items():
        histories, unread = _histories(root, baselines, test, labels, metric)
        if unread:
            files, are = plural(unread, "former file"), "is" if unread == 1 else "are"
            print(f"ftgate: {files} of {test} {are} of another format and left out", file=sys.stderr)
        found += [(names.join_nodeid(test, label), each) for label, each in histories]
    if not found:
        recordings = (
            recording
            for baseline in baselines.baselines()
            for label, builds in baseline.cells.items()
            if label in cells.get(baseline.test, ())
            for cell in builds.values()
            for recording in cell.recordings
        )
        recorded = dict.fromkeys(name for each in recordings for name in each.values if metrics.known(name))
        return nothing(f"no recording of {args.test} has {metric}; --metric takes {listed([*recorded])}")
    if args.json:
        shown_cells = [
            {
                "nodeid": nodeid,
                "label": drawing.label(history),
                **msgspec.to_builtins(history),
                "texts": [drawing.change(history, each) for each in history.changes],
            }
            for nodeid, history in found
        ]
        print(msgspec.json.format(msgspec.json.encode({"cells": shown_cells}), indent=2).decode())
        return FINE
    style: dict[str, Any] = {"width": terminal_width(), "unicode": unicode(), "color": sys.stdout.isatty()}
    print("\n".join(drawing.render(nodeid, history, last=args.last, **style) for nodeid, history in found), end="")
    return FINE


def _histories(
    root: Path, store: Store, test: str, labels: Collection[str], metric: str
) -> tuple[list[tuple[str, History]], int]:
    """Label and history of each series of these cells that has the metric, and how many files could not be read.

    A series is the recordings of one cell on one machine and build that measured the same, oldest first: those that the
    test's files hold now and held in HEAD's history. Without git there are only those of now. A folder that was renamed
    is another test's. Raises BaselineError for a present file that is not valid.
    """
    runs, unread = dict(store.runs(test)), set[str]()
    try:
        former = list(_former(Repository(root), store.path(test)))
    except AgainstError:
        former = []
    # A file may have lost cells, or been removed, when a newer recording took its place: then it is as it was before.
    for name, content in former:
        try:
            run = decode(content, name)
        except BaselineError:
            unread.add(name)
            continue
        newer = runs.get(name, run)
        runs[name] = msgspec.structs.replace(
            newer, cells=run.cells | newer.cells, interpreters=run.interpreters | newer.interpreters
        )
    # The names of files are in the order of time.
    recorded: dict[tuple[str, str, str, object], list[Recording]] = {}
    for _, run in sorted(runs.items()):
        for label in run.cells.keys() & labels:
            recording = run.cells[label]
            whole = msgspec.structs.replace(recording, recorded_at=run.recorded_at, commit=run.commit, seed=run.seed)
            place = (label, run.machine.fingerprint, recording.build, recording.measured)
            recorded.setdefault(place, []).append(whole)
    found = []
    for (label, fingerprint, build, _), each in sorted(
        recorded.items(), key=lambda at: (*at[0][:3], at[1][0].recorded_at)
    ):
        history = series(each, metric, fingerprint=fingerprint, build=build)
        if history is not None:
            found.append((label, history))
    return found, len(unread - runs.keys())


def _former(repository: Repository, folder: Path) -> Iterator[tuple[str, bytes]]:
    """Name and content of each version of a file in the folder, the newest first."""
    path = str(folder.absolute())
    # Without --full-history a recording is lost whose branch was merged after its file had been removed.
    listed = ("log", "--full-history", "--no-renames", "--diff-filter=AM", "--raw", "--no-abbrev", "-z", "--format=")
    log = repository.git("--literal-pathspecs", *listed, "--no-show-signature", "HEAD", "--", path)
    blobs = {blob: Path(name).name for blob, name in _ENTRY.findall(log)}
    wanted = dict(list(blobs.items())[:MOST_FILES])
    if not wanted:
        return
    # A partial clone would fetch each of them.
    variables = {"GIT_NO_LAZY_FETCH": "1"}
    text = repository.git("cat-file", "--batch", given="".join(f"{blob}\n" for blob in wanted), variables=variables)
    found = re.finditer(r"^([0-9a-f]{40,64}) (?:blob \d+|missing)$", text, re.MULTILINE)
    heads = [head for head in found if head[1] in wanted]  # a file may hold such a line
    for head, after in zip(heads, [*heads[1:], None], strict=True):
        content = text[head.end() + 1 : after.start() if after else len(text)]
        if content.strip():
            yield wanted[head[1]], content.encode(errors="surrogateescape")
