"""Updates of baselines: what would change, and what is refused."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Literal, TypeAlias

from ..kit.files import content_of
from ..kit.text import split_nodeid
from ..kit.values import Struct, grouped
from ..model.report import Machine, Row
from ..model.verdict import Decision
from ..targets.describe import build_key
from .folder import Store
from .names import entry_key, join_nodeid, matches
from .recording import Edit, mismatch
from .schema import StoredCell

Action = Literal["record", "skip", "refuse"]


Difference: TypeAlias = tuple[Row, StoredCell | None, StoredCell | None, str]
"""A cell of a run, what is stored of it, what its recording would hold, and why there is nothing to compare."""


class Update(Struct, frozen=True, kw_only=True):
    """What an update does with one cell, and why; `record` stores `new`, with `append` in addition to `old`."""

    nodeid: str
    action: Action
    reason: str
    old: StoredCell | None = None
    new: StoredCell | None = None
    append: bool = False


# ---- a run and its baselines


def differences(
    rows: Iterable[Row], entries: Mapping[str, StoredCell], store: Store, *, fingerprint: str
) -> list[Difference]:
    """Each row with its baseline, in the rows' order; `entries` has what its recording would hold, by node id.

    Raises BaselineError.
    """
    found: list[Difference] = []
    for row in rows:
        reason = _not_measured(row)
        if row.sample is None or reason:
            found.append((row, None, None, reason))
            continue
        old = store.lookup(row.cell.nodeid, fingerprint, build_key(row.sample.interpreter))
        found.append((row, old, entries[row.cell.nodeid], mismatch(old, row.sample) if old else ""))
    return found


def _not_measured(row: Row) -> str:
    """Why a row has nothing to record; empty if it can be recorded."""
    error = row.error or (row.sample.error if row.sample else None)
    if error:
        return f"not measured: {error.reason}"
    if row.in_part:
        return "measured in part: the run was interrupted"
    if row.sample and row.sample.unsupported:
        return f"unsupported: {row.sample.unsupported}"
    if row.verdict.decision in (Decision.ERROR, Decision.UNSUPPORTED):
        return f"{row.verdict.decision}: {row.verdict.reason}" if row.verdict.reason else f"{row.verdict.decision}"
    return "" if row.sample and row.sample.launches else "not measured in this run"


def update_plan(
    modes: Sequence[str],
    rows: Sequence[Row],
    entries: Mapping[str, StoredCell],
    store: Store,
    *,
    fingerprint: str,
) -> list[Update]:
    """What an update does with each cell of a run; nothing is written. Raises BaselineError.

    `modes` are `new`, `all` and patterns as in `matches`. A cell without a baseline is always recorded, others by `all`
    or by name, a cell that regressed or may have only by name. A recording is added to the stored ones unless the cell
    changed: then it replaces them. A pattern that matches no cell gives a `skip` of its own.
    """
    patterns = [mode for mode in modes if mode not in ("new", "all")]
    everything = "all" in modes
    plan = []
    for row, old, new, why_not in differences(rows, entries, store, fingerprint=fingerprint):
        # 1. The decision against the baseline alone: without contracts and metrics that were not judged.
        of_metrics = (each for each in row.verdict.metrics if not each.contract)
        judged = (each.decision for each in of_metrics if each.launches or each.decision is not Decision.INCONCLUSIVE)
        decision = min(judged, key=lambda each: each.severity, default=row.verdict.decision)
        # 2. What is done. A refusal is reported only if the update would otherwise have recorded the cell.
        # What is open at a change within the effect is recorded, else a baseline that decides little would never learn.
        doubtful = old is not None and decision is Decision.INCONCLUSIVE and row.verdict.beyond and not why_not
        action: Action = "record"
        if new is None:
            action, reason = "skip", why_not
        elif any(matches(pattern, row.cell.nodeid) for pattern in patterns):
            reason = "named"
        elif (decision.worse or doubtful) and (everything or old is None):
            action, reason = "refuse", decision.value
        elif old is None or everything:
            reason = "new" if old is None else "changed"
        else:
            action, reason = "skip", why_not or "has a baseline"
        if action == "record" and row.sample is not None and row.sample.reference is not None:
            record = f"pytest --ftgate-update='{row.cell.nodeid}'"
            action, reason = "skip", f"measured beside its reference, without the control workload; record it: {record}"
        # 3. Whether the stored ones stay: where it is faster, the machine may be faster today.
        changed = decision.worse or decision is Decision.ACCEPTED
        append = action == "record" and old is not None and not why_not and not changed
        plan.append(Update(nodeid=row.cell.nodeid, action=action, reason=reason, old=old, new=new, append=append))
    known = [row.cell.nodeid for row in rows]
    lost = [pattern for pattern in patterns if not any(matches(pattern, nodeid) for nodeid in known)]
    unknown = "no cell of this run has that name"
    return plan + [Update(nodeid=pattern, action="skip", reason=unknown) for pattern in lost]


def apply_updates(updates: Iterable[Update], store: Store, machine: Machine) -> None:
    """Write the recordings of a plan, one file at a time.

    Raises BaselineError; the files before the faulty one are then written, those after it are unchanged.
    """
    changes: list[tuple[str, Edit]] = []
    for each in updates:
        if each.action == "record" and each.new is not None:
            test, label = split_nodeid(each.nodeid)
            key = entry_key(machine.fingerprint, each.new.recordings[-1].build)
            edit = Edit(label=label, key=key, entry=each.new, machine=machine, append=each.append)
            changes.append((test, edit))
    for test, edits in grouped(changes).items():
        store.save(test, edits)


# ---- baselines that no collected test uses


def unused(store: Store, nodeids: Iterable[str], *, fingerprint: str, rootdir: Path) -> list[tuple[str, str]]:
    """(test, cell label) of cells stored with that fingerprint that are no longer collected.

    `nodeids` are all collected cells, before any is deselected. A run may select other files and targets, so nothing is
    known of a test or a target without a collected cell: such a cell counts only if the test's source no longer exists
    below `rootdir`. Raises BaselineError as `Store.load` does.
    """
    collected = set(nodeids)
    tests = {split_nodeid(nodeid)[0] for nodeid in collected}
    targets = {_target(split_nodeid(nodeid)[1]) for nodeid in collected}
    found: list[tuple[str, str]] = []
    for baseline in store.baselines():
        known = baseline.test in tests
        gone = not known and source_is_gone(baseline.test, rootdir)
        for label, builds in sorted(baseline.cells.items()):
            lost = known and _target(label) in targets and join_nodeid(baseline.test, label) not in collected
            if (gone or lost) and any(key.partition("/")[0] == fingerprint for key in builds):
                found.append((baseline.test, label))
    return found


def _target(label: str) -> str:
    """The target in a label: `3.14t` of `3.14t-threads-w8`."""
    return label.partition("-")[0]


def source_is_gone(test: str, rootdir: Path) -> bool:
    """Whether the test's file no longer exists, or does not contain the name of the test's class or function."""
    path, _, names = test.partition("::")
    try:
        text = content_of(rootdir / path).decode(errors="replace")
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
    """Remove cells on all machines and builds. Raises BaselineError."""
    for test, labels in grouped(cells).items():
        baseline = store.load(test)
        stored = baseline.cells if baseline else {}
        store.save(test, [Edit(label=label, key=key) for label in labels for key in stored.get(label, {})])
