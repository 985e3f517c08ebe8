"""Makes the report of a run from the rows of its cells."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from msgspec.structs import replace

from ..kit import git
from ..kit.errors import FtgateError
from ..measure.launchers import words
from ..model.report import Host, Machine, Row, RowMessage, Table
from ..model.spec import Group, Interpreter, Plan
from ..targets import environments

_BRANCHES = ("GITHUB_HEAD_REF", "GITHUB_REF_NAME", "CI_COMMIT_REF_NAME")
"""What GitHub and GitLab call the branch of a run; the first only for a pull request."""


def positions_of(plan: Plan) -> dict[str, int]:
    """By node id: the place of each cell in the report."""
    return {cell.nodeid: place for place, cell in enumerate(cell for group in plan.groups for cell in group.cells)}


def message_of(position: int, group: Group, row: Row, note: str = "") -> RowMessage:
    """A row with its place in the report, and a note on how its test was measured."""
    return RowMessage(
        table=group.key,
        reference=_reference(group),
        position=position,
        row=row,
        thresholds=group.spec.thresholds,
        gated=group.spec.gated,
        note=note,
    )


def tables_of(messages: Iterable[RowMessage]) -> tuple[Table, ...]:
    """One table for each group, in the order of the plan; of unlike machines one for each, which its title names."""
    ordered = sorted(messages, key=lambda message: message.position)
    unlike = len({each.machine.fingerprint for each in ordered if each.machine}) > 1
    grouped: dict[str, list[RowMessage]] = {}
    for message in ordered:
        on = f" on {message.machine.fingerprint}" if unlike and message.machine else ""
        grouped.setdefault(f"{message.table}{on}", []).append(message)
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


def hosts_of(messages: Iterable[RowMessage]) -> tuple[Host, ...]:
    """The hosts that rows name, by name."""
    found = {each.row.host: each.machine for each in messages if each.machine is not None}
    return tuple(Host(name=name, machine=machine) for name, machine in sorted(found.items()))


def on_host(message: RowMessage, name: str, machine: Machine) -> RowMessage:
    """A row as another host sends it."""
    note = "; ".join(filter(None, (f"measured on {name} ({machine.fingerprint})", message.note)))
    return replace(message, row=replace(message.row, host=name), machine=machine, note=note)


def interpreters_of(tables: Iterable[Table]) -> tuple[Interpreter, ...]:
    """Every interpreter that was measured, once."""
    by_key: dict[str, Interpreter] = {}
    for table in tables:
        for row in table.rows:
            for sample in (row.sample, row.sample and row.sample.reference):
                if sample is not None:
                    by_key.setdefault(sample.key, sample.interpreter)
    return tuple(by_key.values())


def commit_of(root: Path) -> str:
    """The commit of the worktree at `root`, with `+` if it has uncommitted changes; empty without git."""
    try:
        repository = git.Repository(root)
        head = repository.git("rev-parse", "HEAD").strip()
        return head + ("+" if repository.git("status", "--porcelain", "-uno").strip() else "")
    except git.AgainstError:
        return ""


def project_of(root: Path) -> str:
    """The name of the project at `root`: that of its distribution, else of its folder."""
    try:
        return environments.project_name(root) or root.name
    except FtgateError:  # its pyproject.toml cannot be read: whoever needs more of it says so
        return root.name


def branch_of(root: Path, environ: Mapping[str, str] = os.environ) -> str:
    """The branch that is checked out at `root`; in CI, which checks out a commit, what that says; else empty."""
    try:
        own = git.Repository(root).git("symbolic-ref", "--quiet", "--short", "HEAD", allowed=(0, 1)).strip()
    except git.AgainstError:
        return ""
    return own or next(filter(None, map(environ.get, _BRANCHES)), "")


def _reference(group: Group) -> str:
    """What the ratios of a test refer to: its first executor, of servers on the first target."""
    label = group.spec.executors[0].label
    first = next((cell for cell in group.cells if cell.executor.label == label), group.cells[0])
    return f"{first.target.spec}-{label}" if first.body == "server" else label


def _note(group: Sequence[RowMessage]) -> str:
    """A note on all rows of a table: whether a server and its load generator share CPUs."""
    return words.cpus_note() if group[0].row.cell.body == "server" else ""
