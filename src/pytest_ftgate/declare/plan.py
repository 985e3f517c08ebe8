"""Spec x executors x targets -> Plan: pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ..kit.errors import FtgateError
from ..model.spec import Cell, Executor, Group, Param, Plan, Spec, Target


class PlanError(FtgateError):
    """A combination that is impossible; the text names the test and a fix."""


def cells_of(spec: Spec, targets: Sequence[Target]) -> dict[str, Cell]:
    """The cells of a test before parametrization, by their ids and by number of workers; none has its node id yet.

    Raises PlanError for two that would have one name.
    """
    role_counts = spec.role_counts or ((),) * len(spec.workers)
    found = [
        Cell(
            nodeid="",
            target=target,
            executor=executor,
            workers=workers,
            roles=roles,
            environment=environment,
            cores=workers == spec.cores,
        )
        for workers, roles in zip(spec.workers, role_counts, strict=True)
        for environment in spec.environments
        for target in targets
        for executor in spec.executors
        if _is_for(executor, target, targets)
    ]
    named: dict[str, Cell] = {}
    for cell in found:
        name = _id(cell, spec)
        if named.get(name, cell).executor != cell.executor:
            raise PlanError(
                f"{spec.source.path}:{spec.source.line}: {spec.source.qualname}: two cells would be named "
                f"{name}; rename one of its commands"
            )
        named[name] = cell
    return named


def _id(cell: Cell, spec: Spec) -> str:
    """`3.14t-threads-w8`, the cell's part of a node id.

    With roles `3.14t-threads-producer8-writer4`; without the number of workers for a program that does not get it;
    with `-OMP_NUM_THREADS:1` if the test has several environments. `wcores` is the same on every machine.
    """
    words = [] if cell.executor.kind == "command" else [cell.target.spec]
    words.append(cell.executor.label)
    if cell.roles:
        words += [f"{role}{count}" for role, count in cell.roles]
    elif cell.counted:
        words.append("wcores" if cell.cores and spec.cores_named else f"w{cell.workers}")
    return "-".join((*words, *cell.environment.words))


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
    return Plan(groups=tuple(_group(group) for group in grouped.values()))


def _group(group: Sequence[tuple[Spec, Cell]]) -> Group:
    cells = tuple(cell for _, cell in group)
    return Group(key=group_key(cells), spec=group[0][0], cells=cells)


def one_per_target(cells: Sequence[Cell]) -> list[Cell]:
    """The first cell of each target."""
    return list({cell.target.spec: cell for cell in reversed(cells)}.values())
