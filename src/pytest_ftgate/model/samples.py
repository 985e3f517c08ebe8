"""Related cells of a test, and the samples of a test. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from .launch import Sample
from .spec import Cell, Executor


def single_cell(cell: Cell, cells: Iterable[Cell]) -> Cell | None:
    """The cell with one worker that a cell's scaling refers to: of the same executor, target, parameters and
    environment."""

    def family(of: Cell) -> tuple[object, ...]:
        return of.executor, of.target, of.params, of.environment

    return next((other for other in cells if family(other) == family(cell) and other.workers == 1), None)


def executor_cell(cell: Cell, cells: Iterable[Cell], executor: Executor) -> Cell | None:
    """The cell of the reference executor that a cell's ratio refers to: on the same target, with as many workers.

    A command is measured once for all targets, and so is a server, whose first row names its target. A program that
    does not take the number of workers is measured once for all numbers.
    """
    return next((other for other in cells if other.executor == executor and _serves(other, cell)), None)


def _serves(first: Cell, cell: Cell) -> bool:
    same_target = first.executor.program is not None or first.target == cell.target
    same_count = not first.counted or (first.workers, first.roles) == (cell.workers, cell.roles)
    return same_target and same_count and first.environment == cell.environment


class TestSamples(tuple[Sample, ...]):
    """The samples of one test, in the order of its cells."""

    __slots__ = ()
    __test__ = False

    @property
    def cells(self) -> list[Cell]:
        """The cells that were measured."""
        return [sample.cell for sample in self]

    def cell(self, cell: Cell | None) -> Sample | None:
        """The sample of a cell; None where it was not measured."""
        return next((sample for sample in self if cell is not None and sample.cell.nodeid == cell.nodeid), None)

    def single_of(self, cell: Cell) -> Sample | None:
        """The sample of a cell's `single_cell`."""
        return self.cell(single_cell(cell, self.cells))

    def reference_of(self, cell: Cell, executor: Executor) -> Sample | None:
        """The sample of a cell's `executor_cell`."""
        return self.cell(executor_cell(cell, self.cells, executor))
