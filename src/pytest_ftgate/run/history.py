"""The recordings of a test in its baselines' git history."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import msgspec

from ..judge import history as judge_history
from ..kit.git import AgainstError, Repository
from ..kit.values import Metric
from ..model.report import History, Report, Row
from ..store import history as store_history
from ..store import names
from ..store.folder import Store
from ..store.history import Everything, Series
from ..targets.describe import build_key

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
    return store_history.everything(current, former)


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
            every = store_history.series_of(recordings(root, store, test).runs)
            tests[test] = {
                (label, history.points[-1].fingerprint, history.build): history
                for label, history in histories(every, metric)
            }
        found = tests[test].get((label, report.machine.fingerprint, build_key(row.sample.interpreter)))
        return msgspec.structs.replace(row, history=(found,)) if found else row

    tables = (msgspec.structs.replace(table, rows=tuple(of(row) for row in table.rows)) for table in report.tables)
    return msgspec.structs.replace(report, tables=tuple(tables))
