"""Makes the report of a run from the rows of its cells."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from ..measure.launchers import cpus
from ..model import Group, Interpreter, Plan, Row, RowMessage, Table


def positions_of(plan: Plan) -> dict[str, int]:
    """By node id: the place of each cell in the report."""
    return {cell.nodeid: place for place, cell in enumerate(cell for group in plan.groups for cell in group.cells)}


def message_of(position: int, group: Group, row: Row) -> RowMessage:
    """A row with its place in the report."""
    return RowMessage(
        table=group.key,
        reference=_reference(group),
        position=position,
        row=row,
        thresholds=group.spec.thresholds,
        gated=group.spec.gated,
    )


def tables_of(messages: Iterable[RowMessage]) -> tuple[Table, ...]:
    """One table for each group, in the order of the plan."""
    grouped: dict[str, list[RowMessage]] = {}
    for message in sorted(messages, key=lambda message: message.position):
        grouped.setdefault(message.table, []).append(message)
    return tuple(
        Table(
            title=title,
            rows=tuple(message.row for message in group),
            reference=group[0].reference,
            note="; ".join(filter(None, (_note(group), *dict.fromkeys(message.note for message in group)))),
            thresholds=group[0].thresholds,
            gated=group[0].gated,
        )
        for title, group in grouped.items()
    )


def interpreters_of(tables: Iterable[Table]) -> tuple[Interpreter, ...]:
    """Every interpreter that was measured, once."""
    by_key: dict[str, Interpreter] = {}
    for table in tables:
        for row in table.rows:
            for sample in (row.sample, row.sample and row.sample.reference):
                if sample is not None:
                    by_key.setdefault(sample.key, sample.interpreter)
    return tuple(by_key.values())


def commit_of(root: Path, run: Callable[..., subprocess.CompletedProcess[str]] = subprocess.run) -> str:
    """The commit of the worktree at `root`, with `+` if it has uncommitted changes; empty without git."""
    try:
        head = run(["git", "rev-parse", "HEAD"], cwd=root, capture_output=True, text=True, check=True).stdout.strip()
        status = run(
            ["git", "status", "--porcelain", "-uno"], cwd=root, capture_output=True, text=True, check=True
        ).stdout
    except (OSError, subprocess.CalledProcessError):
        return ""
    return head + ("+" if status.strip() else "")


def _reference(group: Group) -> str:
    """What the ratios of a test refer to: its first executor, of servers on the first target."""
    label = group.spec.executors[0].label
    first = next((cell for cell in group.cells if cell.executor.label == label), group.cells[0])
    return f"{first.target.spec}-{label}" if first.body == "server" else label


def _note(group: Sequence[RowMessage]) -> str:
    """A note on all rows of a table: whether a server and its load generator share CPUs."""
    return cpus.cpus_note() if group[0].row.cell.body == "server" else ""
