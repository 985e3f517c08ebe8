"""Spec x executors x targets -> Plan: pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ..kit.errors import FtgateError
from ..kit.text import listed, split_nodeid
from ..kit.values import grouped
from ..model.spec import Cell, Group, Plan, Spec, Target, cells_of


def choices(spec: Spec, targets: Sequence[Target]) -> tuple[Cell, ...]:
    """The cells of a test, by number of workers. Raises FtgateError for two that would have one name."""
    chosen: dict[str, Cell] = {}
    for cell in cells_of(spec, targets):
        # A command runs once, with the first target; a server runs on the targets that its program is for.
        program = cell.executor.program
        pythons = None if program is None else program.pythons
        here = (targets[0].spec,) if cell.executor.kind == "command" else pythons
        if here is not None and cell.target.spec not in here:
            continue
        if chosen.setdefault(cell.label, cell).executor != cell.executor:
            raise FtgateError(
                f"{spec.source.path}:{spec.source.line}: {spec.source.qualname}: two cells would be named "
                f"{cell.label}; rename one of its commands"
            )
        chosen[cell.label] = cell
    return tuple(chosen.values())


def group_key(cells: Sequence[Cell]) -> str:
    """The title of a group: what its cells share, that is the test, its worker counts and its parameters.

    The counts are `2 and 8 workers`, or for each role `8 producers`, `1 and 2 writers`; none if no cell has a number.
    """
    counts: dict[str, set[int]] = {}
    for cell in cells:
        for role, count in cell.roles or ([("worker", cell.workers)] if cell.counted else []):
            counts.setdefault(role, set()).add(count)
    shared = [
        f"{listed([*map(str, sorted(found))], 'and')} {role}{'' if found == {1} else 's'}"
        for role, found in counts.items()
    ]
    shared += [f"{param.name}={param.literal.removeprefix('builtins:')}" for param in cells[0].params]
    return f"{_test(cells[0])} ({', '.join(shared)})" if shared else _test(cells[0])


def _test(cell: Cell) -> str:
    return split_nodeid(cell.nodeid)[0]


def plan_of(collected: Iterable[tuple[Spec, Cell]]) -> Plan:
    """The plan of the selected cells; groups are in the order of their first cells.

    All worker counts of a test are interleaved in one group, because scaling is a ratio of their times.
    """
    of_tests = grouped(((_test(cell), cell.params), (spec, cell)) for spec, cell in collected)
    groups = [(found[0][0], tuple(cell for _, cell in found)) for found in of_tests.values()]
    return tuple(Group(key=group_key(cells), spec=spec, cells=cells) for spec, cells in groups)


def one_per_target(cells: Sequence[Cell]) -> list[Cell]:
    """The first cell of each target."""
    return list({cell.target.spec: cell for cell in reversed(cells)}.values())
