"""Baselines that no collected test uses."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from ..model import Row
from .folder import Store
from .names import join_nodeid, split_nodeid
from .recording import Change
from .schema import StoredCell
from .update import grouped

# ---- cells that no longer exist


def unused(
    store: Store, nodeids: Iterable[str], *, fingerprint: str | None = None, rootdir: Path | None = None
) -> list[tuple[str, str]]:
    """(test, cell label) of stored cells, with that fingerprint or any, that are no longer collected.

    `nodeids` are all collected cells, before any is deselected. A run may select other files and targets, so nothing is
    known of a test or a target without a collected cell: such a cell counts only if `rootdir` is given and the test's
    source no longer exists there. Raises BaselineError as `Store.load` does.
    """
    collected = set(nodeids)
    tests = {split_nodeid(nodeid)[0] for nodeid in collected}
    targets = {_target(split_nodeid(nodeid)[1]) for nodeid in collected}
    found: list[tuple[str, str]] = []
    for baseline in store.baselines():
        gone = rootdir is not None and baseline.test not in tests and source_is_gone(baseline.test, rootdir)
        if baseline.test in tests or gone:
            labels = (label for label, builds in sorted(baseline.cells.items()) if _has(builds, fingerprint))
            cells = ((baseline.test, label) for label in labels if gone or _target(label) in targets)
            found += [pair for pair in cells if join_nodeid(*pair) not in collected]
    return found


def _target(label: str) -> str:
    """The target in a label: `3.14t` of `3.14t-threads-w8`."""
    return label.partition("-")[0]


def _has(builds: Mapping[str, StoredCell], fingerprint: str | None) -> bool:
    return fingerprint is None or any(key.partition("/")[0] == fingerprint for key in builds)


def source_is_gone(test: str, rootdir: Path) -> bool:
    """Whether the test's file no longer exists, or does not contain the name of the test's class or function."""
    path, _, names = test.partition("::")
    try:
        text = (rootdir / path).read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        return False
    # A star import may define a name that the text does not contain.
    outermost = names.partition("::")[0]
    return not re.search(rf"\b{re.escape(outermost)}\b|\bimport\s*\*", text)


def prunable(
    store: Store, rows: Iterable[Row], collected_no_more: Iterable[str], rootdir: Path
) -> list[tuple[str, str]]:
    """(test, cell label) to remove: unused according to a run with the test, or of a test whose source is gone.

    `rows` and `collected_no_more` (full node ids) are those of the run's report. Raises BaselineError.
    """
    measured = {row.cell.nodeid for row in rows}
    tests = {split_nodeid(nodeid)[0] for nodeid in measured}
    named = set(collected_no_more) - measured
    found: list[tuple[str, str]] = []
    for baseline in store.baselines():
        gone = baseline.test not in tests and source_is_gone(baseline.test, rootdir)
        cells = [(baseline.test, label) for label in sorted(baseline.cells)]
        found += [pair for pair in cells if gone or (baseline.test in tests and join_nodeid(*pair) in named)]
    return found


def prune(store: Store, cells: Iterable[tuple[str, str]]) -> None:
    """Remove these cells on all machines and builds. Raises BaselineError."""
    for test, labels in grouped(cells).items():
        baseline = store.load(test)
        stored = baseline.cells if baseline else {}
        store.save(test, [Change(label=label, key=key) for label in labels for key in stored.get(label, {})])
