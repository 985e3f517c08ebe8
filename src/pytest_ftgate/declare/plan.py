"""Spec x executors x targets -> Plan: pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ..kit.errors import FtgateError
from ..model.spec import Cell, Executor, Group, Param, Plan, Spec, Target, cells_of


class PlanError(FtgateError):
    """A combination that is impossible; the text names the test and a fix."""


def choices(spec: Spec, targets: Sequence[Target]) -> tuple[Cell, ...]:
    """The cells of a test, by number of workers. Raises PlanError for two that would have one name."""
    chosen: dict[str, Cell] = {}
    for cell in cells_of(spec, targets):
        if not _is_for(cell.executor, cell.target, targets):
            continue
        if chosen.setdefault(cell.label, cell).executor != cell.executor:
            raise PlanError(
                f"{spec.source.path}:{spec.source.line}: {spec.source.qualname}: two cells would be named "
                f"{cell.label}; rename one of its commands"
            )
        chosen[cell.label] = cell
    return tuple(chosen.values())


def _is_for(executor: Executor, target: Target, targets: Sequence[Target]) -> bool:
    """A command runs once, with the first target; a server runs on the targets that its program is for."""
    if executor.kind == "command":
        return target == targets[0]
    program = executor.program
    return program is None or program.pythons is None or target.spec in program.pythons


def group_key(cells: Sequence[Cell]) -> str:
    """The title of a group: what its cells share, that is the test, its worker counts and its parameters."""
    params = [f"{param.name}={param.literal.removeprefix('builtins:')}" for param in cells[0].params]
    shared = [*_counts(cells), *params]
    return f"{_test(cells[0])} ({', '.join(shared)})" if shared else _test(cells[0])


def _counts(cells: Sequence[Cell]) -> list[str]:
    """`2 and 8 workers`, or for each role `8 producers`, `1 and 2 writers`; empty if no cell has a number."""
    if cells[0].roles:
        counts: dict[str, set[int]] = {}
        for cell in cells:
            for role, count in cell.roles:
                counts.setdefault(role, set()).add(count)
        return [_numbered(sorted(count), role) for role, count in counts.items()]
    counts_given = sorted({cell.workers for cell in cells if cell.counted})
    return [_numbered(counts_given, "worker")] if counts_given else []


def _numbered(counts: Sequence[int], what: str) -> str:
    """`1 worker`, `1, 2 and 8 workers`."""
    *others, last = map(str, counts)
    listed = f"{', '.join(others)} and {last}" if others else last
    return f"{listed} {what}{'' if list(counts) == [1] else 's'}"


def _test(cell: Cell) -> str:
    return cell.nodeid.partition("[")[0]


def plan_of(collected: Iterable[tuple[Spec, Cell]]) -> Plan:
    """The plan of the selected cells; groups are in the order of their first cells.

    All worker counts of a test are interleaved in one group, because scaling is a ratio of their times.
    """
    grouped: dict[tuple[str, tuple[Param, ...]], list[tuple[Spec, Cell]]] = {}
    for spec, cell in collected:
        grouped.setdefault((_test(cell), cell.params), []).append((spec, cell))
    return tuple(_group(group) for group in grouped.values())


def _group(group: Sequence[tuple[Spec, Cell]]) -> Group:
    cells = tuple(cell for _, cell in group)
    return Group(key=group_key(cells), spec=group[0][0], cells=cells)


# Cells of a test that belong together.


def one_per_target(cells: Sequence[Cell]) -> list[Cell]:
    """The first cell of each target."""
    return list({cell.target.spec: cell for cell in reversed(cells)}.values())
