"""`ftgate history`: a metric over the recordings in git, and where its level changed."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from ..declare.options import metric as known_metric
from ..hookspec import Subparsers, hookimpl
from ..judge import history as judge_history
from ..kit.errors import FtgateError
from ..kit.git import AgainstError, Repository
from ..kit.values import Metric, to_builtins
from ..model.report import History, Report, Row
from ..report import history as shown
from ..store import names
from ..store.folder import Runs, Store
from ..store.schema import BaselineError, RecordedRun, Recording, decode
from ..targets.describe import build_key
from .last_run import FINE, add_rootdir, nothing, rootdir, store, terminal_width, unicode

# All recordings of a test that its files ever held, as series of what can be compared. Pure.


class Everything(NamedTuple):
    """Files by name, those of former commits included; `unread` are those that this version cannot read."""

    runs: Mapping[str, RecordedRun]
    unread: int = 0


class Series(NamedTuple):
    """Recordings of one cell on one machine and build that measured the same, oldest first."""

    label: str
    fingerprint: str
    build: str
    recordings: tuple[Recording, ...]


def everything(current: Runs, former: Iterable[tuple[str, bytes]]) -> Everything:
    """The files that are there, and name and content of former ones, the newest first.

    A file may have lost cells, or been removed, when a newer recording took its place: then it is as it was before.
    """
    runs = dict(current)
    unread = set()
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
    return Everything(dict(sorted(runs.items())), len(unread - runs.keys()))


def series_of(runs: Mapping[str, RecordedRun]) -> list[Series]:
    """The series of a test's files, which are in the order of time; by cell, machine and build."""
    found: dict[tuple[object, ...], list[Recording]] = {}
    for run in runs.values():
        for label, recording in run.cells.items():
            whole = msgspec.structs.replace(recording, recorded_at=run.recorded_at, commit=run.commit, seed=run.seed)
            place = (label, run.machine.fingerprint, recording.build, recording.measured)
            found.setdefault(place, []).append(whole)
    ordered = sorted(found.items(), key=lambda item: (*map(str, item[0][:3]), item[1][0].recorded_at))
    return [Series(str(place[0]), str(place[1]), str(place[2]), tuple(each)) for place, each in ordered]


# The recordings of a test in its baselines' git history.

MOST_FILES = 1000
"""Former files that are read, the newest: one recording a night for three years."""
_ENTRY = re.compile(r":\d+ \d+ [0-9a-f]+ ([0-9a-f]+) [AM]\0([^\0]+)\0")


def recordings(root: Path, store: Store, test: str) -> Everything:
    """All recordings of a test that its files hold now and held in HEAD's history; two git processes read them.

    Without git there are only those of now. A folder that was renamed is another test's. Raises BaselineError for a
    present file that is not valid.
    """
    current = store.runs(test)
    try:
        former = list(_former(Repository(root), store.path(test)))
    except AgainstError:
        former = []
    return everything(current, former)


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


def histories(series: Iterable[Series], metric: str) -> list[tuple[str, History]]:
    """Cell label and history of each series that has the metric."""
    found = []
    for each in series:
        history = judge_history.history(each.recordings, metric, fingerprint=each.fingerprint, build=each.build)
        if history is not None:
            found.append((each.label, history))
    return found


def with_history(report: Report, root: Path, store: Store, metric: str = Metric.WALL) -> Report:
    """The report with the history of a metric in git, for each cell that was recorded on its machine and build."""
    tests: dict[str, Mapping[tuple[str, str, str], History]] = {}

    def of(row: Row) -> Row:
        test, label = names.split_nodeid(row.cell.nodeid)
        if row.sample is None:
            return row
        if test not in tests:
            every = series_of(recordings(root, store, test).runs)
            tests[test] = {
                (label, history.points[-1].fingerprint, history.build): history
                for label, history in histories(every, metric)
            }
        found = tests[test].get((label, report.machine.fingerprint, build_key(row.sample.interpreter)))
        return msgspec.structs.replace(row, history=(found,)) if found else row

    tables = (msgspec.structs.replace(table, rows=tuple(of(row) for row in table.rows)) for table in report.tables)
    return msgspec.structs.replace(report, tables=tuple(tables))


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
        every = recordings(root, baselines, test)
        if every.unread:
            files = "1 former file" if every.unread == 1 else f"{every.unread} former files"
            are = "is" if every.unread == 1 else "are"
            print(f"ftgate: {files} of {test} {are} of another format and left out", file=sys.stderr)
        wanted = [each for each in series_of(every.runs) if (test, each.label) in cells]
        found += [(names.join_nodeid(test, label), each) for label, each in histories(wanted, metric)]
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
