"""Cells of a test that belong together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..model import Cell, Group, Sample


def executor_cell(group: Group, cell: Cell) -> Cell | None:
    """The cell of the first executor that a cell's ratio refers to: on the same target, with as many workers.

    A command is measured once for all targets, so is a server, whose first row says on which target; and a program
    that does not take the number of workers is measured once for all numbers.
    """
    of_first = (other for other in group.cells if other.executor == group.spec.executors[0])
    return next((other for other in of_first if _serves(other, cell)), None)


def reference_of(group: Group, cell: Cell, samples: Mapping[str, Sample]) -> Sample | None:
    """The sample of a cell's `executor_cell`."""
    first = executor_cell(group, cell)
    return samples.get(first.nodeid) if first else None


def single_cells(group: Group, cell: Cell) -> list[Cell]:
    """The cells with one worker on the same target under the same executor."""
    family = (cell.target, cell.executor)
    return [other for other in group.cells if other.workers == 1 and (other.target, other.executor) == family]


def one_per_target(cells: Sequence[Cell]) -> list[Cell]:
    """The first cell of each target."""
    return list({cell.target.spec: cell for cell in reversed(cells)}.values())


def _serves(first: Cell, cell: Cell) -> bool:
    program = first.executor.program
    counted = program is None or program.counted
    same_target = program is not None or first.target == cell.target
    return same_target and (not counted or (first.workers, first.roles) == (cell.workers, cell.roles))
