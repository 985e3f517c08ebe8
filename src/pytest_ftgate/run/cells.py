"""Cells of a test that belong together."""

from __future__ import annotations

from collections.abc import Sequence

from ..model import Cell


def one_per_target(cells: Sequence[Cell]) -> list[Cell]:
    """The first cell of each target."""
    return list({cell.target.spec: cell for cell in reversed(cells)}.values())
