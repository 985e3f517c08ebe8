"""Spec x executors x targets -> Plan: pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from .errors import FtgateError
from .model import Cell, Executor, Param, Plan, Spec, Struct, Tandem, Target

INTERPRETERS_SINCE = (3, 14)


class PlanError(FtgateError):
    """A combination that cannot be; the text names the test and the mend."""


class Choice(Struct, frozen=True, kw_only=True):
    """One cell before parameters: what differs by cell in a test."""

    target: Target
    executor: Executor
    workers: int

    @property
    def id(self) -> str:
        """`3.14t-threads-w8`, the cell's part of a node id."""
        return f"{self.target.spec}-{self.executor.label}-w{self.workers}"


def choices(spec: Spec, targets: Sequence[Target]) -> tuple[Choice, ...]:
    """The cells of a test, tandem by tandem. Raises PlanError where a target cannot have an executor at all."""
    found = []
    for workers in spec.workers:
        for target in targets:
            for executor in spec.executors:
                if executor.kind == "interpreters" and _too_old(target):
                    raise PlanError(
                        f"{spec.source.path}:{spec.source.line}: @ftgate.compare of {spec.source.qualname}: "
                        f"target {target.spec} has no "
                        "concurrent.interpreters (new in 3.14); leave the target or the executor `interpreters` out"
                    )
                found.append(Choice(target=target, executor=executor, workers=workers))
    return tuple(found)


def _too_old(target: Target) -> bool:
    parts = target.request.removesuffix("t").split(".")
    if len(parts) < 2 or not (parts[0].isdecimal() and parts[1].isdecimal()):
        return False  # a path: the interpreter itself will say
    return (int(parts[0]), int(parts[1])) < INTERPRETERS_SINCE


def tandem_key(cells: Sequence[Cell]) -> str:
    """What the cells of one tandem share, as a title: the test, its worker counts and its parameters."""
    counts = sorted({cell.workers for cell in cells})
    workers = f"{' and '.join(map(str, counts))} worker{'' if counts == [1] else 's'}"
    params = [f"{param.name}={param.literal}" for param in cells[0].params]
    return f"{_test(cells[0])} ({', '.join([workers, *params])})"


def _test(cell: Cell) -> str:
    return cell.nodeid.partition("[")[0]


def plan_of(collected: Iterable[tuple[Spec, Cell]]) -> Plan:
    """The plan of the cells that were selected, in the order of their first cells.

    All worker counts of a test take turns in one tandem: how a cell scales is a ratio of neighbours in time.
    """
    grouped: dict[tuple[str, tuple[Param, ...]], list[tuple[Spec, Cell]]] = {}
    for spec, cell in collected:
        grouped.setdefault((_test(cell), cell.params), []).append((spec, cell))
    return Plan(tandems=tuple(_tandem(group) for group in grouped.values()))


def _tandem(group: Sequence[tuple[Spec, Cell]]) -> Tandem:
    cells = tuple(cell for _, cell in group)
    return Tandem(key=tandem_key(cells), spec=group[0][0], cells=cells)
