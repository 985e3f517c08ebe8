"""`--ftgate-existing`: undecorated tests are measured, several workers at once. `tests.py` says which can be."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...declare.options import Option, option
from ...hookspec import hookimpl

if TYPE_CHECKING:
    from ...plugin.gate import Gate

EXISTING = option(
    "existing",
    (),
    str,
    "measure the tests without a decorator whose node id matches, such as 'tests/test_cache.py::*', as bodies that "
    "threads run at once; repeatable, comma-separated; what cannot be measured so is skipped with the reason",
    metavar="GLOB",
    many=True,
    required=True,
    commas=True,
    measures=True,
)


@hookimpl
def ftgate_options() -> list[Option]:
    return [EXISTING]


@hookimpl
def ftgate_configure(gate: Gate) -> None:
    """Of every process of such a run."""
    if patterns := EXISTING.of(gate.run.config):
        from .tests import ExistingTests

        gate.config.pluginmanager.register(ExistingTests(patterns))
