"""Cells that run the same code on both sides pass unmeasured. `cells.py` finds them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...declare.options import Option, one_of, option
from ...hookspec import hookimpl

if TYPE_CHECKING:
    from ...run.run import Run

UNCHANGED = option(
    "unchanged",
    "skip",
    one_of("skip", "measure"),
    "skip (the default): pass a test unmeasured if its cells run the same code and read the same files as their "
    "reference; measure: measure it anyway, unless no file of the project differs",
    metavar="skip|measure",
    ini_only=True,
)


@hookimpl
def ftgate_options() -> list[Option]:
    return [UNCHANGED]


@hookimpl
def ftgate_begin(run: Run) -> None:
    """Read the files of both sides once for the whole run."""
    from .cells import UnchangedCells

    run.plugins.register(UnchangedCells(run))
