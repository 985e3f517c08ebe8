"""A pytest plugin, `-p collected_cells`: writes what each collected cell measures to $COLLECTED_CELLS.

Nothing is measured, and no interpreter is looked for where targets are named.
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest
from report_by_hand import GIL

from pytest_ftgate.measure.cell_run import measures
from pytest_ftgate.model.sample import Sample
from pytest_ftgate.model.spec import Cell, Spec
from pytest_ftgate.plugin.collection import CELL


def pytest_collection_finish(session: pytest.Session) -> None:
    """A sample without launches for each cell."""
    samples = [sample_of(*item.stash[CELL]) for item in session.items if CELL in item.stash]
    Path(os.environ["COLLECTED_CELLS"]).write_bytes(msgspec.json.encode(samples))


def sample_of(spec: Spec, cell: Cell) -> Sample:
    """What of a cell decides which recordings it can be compared with; the interpreter does not."""
    return Sample(
        reuse=spec.reuse,
        duration_s=spec.duration_s,
        measures=measures(cell, spec),
        cell=cell,
        interpreter=GIL,
        key="any",
    )
