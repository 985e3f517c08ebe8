"""Spec x executors x targets -> Plan: pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from .errors import FtgateError
from .model import Cell, Executor, Plan, Spec, Struct, Tandem, Target

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


def tandem_key(cell: Cell) -> str:
    """What the cells of one tandem share: the test, its parameters and the worker count."""
    test = cell.nodeid.partition("[")[0]
    params = ", ".join(f"{param.name}={param.literal}" for param in cell.params)
    workers = f"{cell.workers} worker{'s' if cell.workers != 1 else ''}"
    return f"{test} ({workers}{', ' if params else ''}{params})"


def plan_of(collected: Iterable[tuple[Spec, Cell]]) -> Plan:
    """The plan of the cells that were selected, in the order of their first cells."""
    specs: dict[str, Spec] = {}
    grouped: dict[str, list[Cell]] = {}
    for spec, cell in collected:
        key = tandem_key(cell)
        specs.setdefault(key, spec)
        grouped.setdefault(key, []).append(cell)
    return Plan(tandems=tuple(Tandem(key=key, spec=specs[key], cells=tuple(cells)) for key, cells in grouped.items()))
