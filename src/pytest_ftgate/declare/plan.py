"""Spec x executors x targets -> Plan: pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ..errors import FtgateError
from ..model import Cell, Executor, Group, Param, Plan, RoleCounts, Spec, Struct, Target

INTERPRETERS_SINCE = (3, 14)


class PlanError(FtgateError):
    """A combination that cannot be; the text names the test and the mend."""


class Choice(Struct, frozen=True, kw_only=True):
    """One cell before parameters: what differs by cell in a test."""

    target: Target
    executor: Executor
    workers: int
    roles: RoleCounts = ()

    @property
    def id(self) -> str:
        """`3.14t-threads-w8`, the cell's part of a node id.

        With roles `3.14t-threads-producer8-writer4`; of a program what it is not told is left out.
        """
        program = self.executor.program
        words = [] if self.executor.kind == "command" else [self.target.spec]
        words.append(self.executor.label)
        if self.roles:
            words += [f"{role}{count}" for role, count in self.roles]
        elif program is None or program.counted:
            words.append(f"w{self.workers}")
        return "-".join(words)


def choices(spec: Spec, targets: Sequence[Target]) -> tuple[Choice, ...]:
    """The cells of a test, tandem by tandem. Raises PlanError where a target cannot have an executor at all."""
    role_counts = spec.role_counts or ((),) * len(spec.workers)
    found = [
        Choice(target=target, executor=executor, workers=workers, roles=roles)
        for workers, roles in zip(spec.workers, role_counts, strict=True)
        for target in targets
        for executor in spec.executors
        if _is_for(executor, target, targets)
    ]
    for choice in found:
        if choice.executor.kind == "interpreters" and _too_old(choice.target):
            raise PlanError(
                f"{spec.source.path}:{spec.source.line}: @ftgate.compare of {spec.source.qualname}: "
                f"target {choice.target.spec} has no "
                "concurrent.interpreters (new in 3.14); leave the target or the executor `interpreters` out"
            )
    chosen: dict[str, Choice] = {}
    for choice in found:
        if chosen.get(choice.id, choice).executor != choice.executor:
            raise PlanError(
                f"{spec.source.path}:{spec.source.line}: {spec.source.qualname}: two cells would be called "
                f"{choice.id}; give one of its commands another name"
            )
        chosen[choice.id] = choice
    return tuple(chosen.values())


def _is_for(executor: Executor, target: Target, targets: Sequence[Target]) -> bool:
    """A command runs beside the first target alone, a server on the targets that its program is for."""
    if executor.kind == "command":
        return target == targets[0]
    program = executor.program
    return program is None or program.pythons is None or target.spec in program.pythons


def _too_old(target: Target) -> bool:
    parts = target.request.removesuffix("t").split(".")
    if len(parts) < 2 or not (parts[0].isdecimal() and parts[1].isdecimal()):
        return False  # a path: the interpreter itself will say
    return (int(parts[0]), int(parts[1])) < INTERPRETERS_SINCE


def group_key(cells: Sequence[Cell]) -> str:
    """What the cells of one tandem share, as a title: the test, its worker counts and its parameters."""
    params = [f"{param.name}={param.literal}" for param in cells[0].params]
    shared = [*_counts(cells), *params]
    return f"{_test(cells[0])} ({', '.join(shared)})" if shared else _test(cells[0])


def _counts(cells: Sequence[Cell]) -> list[str]:
    """`2 and 8 workers`, or for each role `8 producers`, `1 and 2 writers`; nothing where no cell is told a number."""
    if cells[0].roles:
        counts: dict[str, set[int]] = {}
        for cell in cells:
            for role, count in cell.roles:
                counts.setdefault(role, set()).add(count)
        return [_numbered(sorted(count), role) for role, count in counts.items()]
    told = sorted({cell.workers for cell in cells if cell.executor.program is None or cell.executor.program.counted})
    return [_numbered(told, "worker")] if told else []


def _numbered(counts: Sequence[int], what: str) -> str:
    """`1 worker`, `1, 2 and 8 workers`."""
    *others, last = map(str, counts)
    listed = f"{', '.join(others)} and {last}" if others else last
    return f"{listed} {what}{'' if list(counts) == [1] else 's'}"


def _test(cell: Cell) -> str:
    return cell.nodeid.partition("[")[0]


def plan_of(collected: Iterable[tuple[Spec, Cell]]) -> Plan:
    """The plan of the cells that were selected, in the order of their first cells.

    All worker counts of a test take turns in one tandem: how a cell scales is a ratio of neighbours in time.
    """
    grouped: dict[tuple[str, tuple[Param, ...]], list[tuple[Spec, Cell]]] = {}
    for spec, cell in collected:
        grouped.setdefault((_test(cell), cell.params), []).append((spec, cell))
    return Plan(groups=tuple(_group(group) for group in grouped.values()))


def _group(group: Sequence[tuple[Spec, Cell]]) -> Group:
    cells = tuple(cell for _, cell in group)
    return Group(key=group_key(cells), spec=group[0][0], cells=cells)
