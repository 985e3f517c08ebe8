"""`--ftgate-existing`: undecorated tests are measured, several workers at once. `tests.py` says which can be."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...declare.options import Option, option
from ...hookspec import hookimpl

if TYPE_CHECKING:
    import pytest

    from ...declare.options import Options
    from ...plugin.gate import Gate

EXISTING = option(
    "existing",
    (),
    str,
    "measure the tests without a decorator whose node id matches, such as 'tests/test_cache.py::*', as bodies that "
    "threads run at once; repeatable, comma-separated; a test that cannot run this way is skipped with the reason",
    metavar="GLOB",
    many=True,
    commas=True,
    measures=True,
)


@hookimpl
def ftgate_options() -> list[Option]:
    return [EXISTING]


@hookimpl
def ftgate_collect(config: pytest.Config, options: Options) -> None:
    """Register the collection hooks in every process of such a run."""
    if patterns := EXISTING.of(options):
        from .tests import ExistingTests

        config.pluginmanager.register(ExistingTests(patterns))


@hookimpl
def ftgate_measured(gate: Gate, session: pytest.Session) -> str:
    """Say that no matching test can be measured; a glob without a match is an error before this."""
    if session.exitstatus or gate.collected or gate.run.part or not EXISTING.of(gate.run.config):
        return ""
    return "--ftgate-existing skips every test that matches (pytest -rs says why)"
