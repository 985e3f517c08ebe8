"""The hooks by which features take part in a run and in the `ftgate` command: all that the core knows of them.

A feature is a module of `features`, or of another distribution, which names it by an entry point of the group
`ftgate`. It marks with `hookimpl` which of these it has. Features are called in the order of their names in `features`,
then those of others.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, TypeAlias

import pluggy

if TYPE_CHECKING:
    import argparse

    import pytest

    from .model.report import Report, Row
    from .model.spec import Cell, Group, Plan
    from .model.verdict import Verdict
    from .plugin.gate import Gate
    from .run.run import Run
    from .run.sides.worktrees import Pair

GROUP: Final = "ftgate"
Subparsers: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"
hookimpl = pluggy.HookimplMarker(GROUP)
_hookspec = pluggy.HookspecMarker(GROUP)


# -- a measuring run -----------------------------------------------------------------------------------------------


@_hookspec
def ftgate_begin(run: Run) -> None:
    """A run begins in this process. A feature that keeps something of it registers an object with `run.plugins`."""


@_hookspec
def ftgate_configure(gate: Gate) -> None:
    """Pytest is configured, and both sides are checked out: a feature registers its hooks of pytest's here.

    Raises pytest.UsageError to refuse the run.
    """


@_hookspec(firstresult=True)
def ftgate_plan(plan: Plan) -> Plan | None:
    """The plan as it is measured here."""


@_hookspec
def ftgate_collected(run: Run, config: pytest.Config, nodeids: Sequence[str]) -> None:
    """All cells, before any was deselected. Raises FtgateError and OSError to refuse them."""


@_hookspec(firstresult=True)
def ftgate_settle(run: Run, group: Group, cells: Sequence[Cell], pair: Pair) -> tuple[Mapping[str, str], str] | None:
    """Why cells of a test need no measurement, by node id; and why others need one, empty if that is not known."""


@_hookspec
def ftgate_amend(run: Run, group: Group) -> Callable[[Row], Verdict] | None:
    """What makes the final verdict of a judged row of this test; each gets the row as the one before left it."""


@_hookspec
def ftgate_measured(gate: Gate, session: pytest.Session) -> str | None:
    """Nothing more is measured: may add rows; what is missing all the same, empty if nothing is."""


# -- the command ---------------------------------------------------------------------------------------------------


@_hookspec
def ftgate_commands(subparsers: Subparsers) -> None:
    """Add a command, which sets `run` to what takes its arguments and returns an exit code."""


def features(kind: str) -> pluggy.PluginManager:
    """The features that the names `IN_A_RUN` or `COMMANDS` of `features` list, and those of other distributions."""
    names = getattr(importlib.import_module(f"{__package__}.features"), kind)
    plugins = pluggy.PluginManager(GROUP)
    plugins.add_hookspecs(sys.modules[__name__])
    plugins.load_setuptools_entrypoints(GROUP)
    for name in reversed(names):  # pluggy calls the last one first
        plugins.register(importlib.import_module(f"{__package__}.features.{name}"), name)
    return plugins


def formats() -> Mapping[str, str]:
    """The kinds of report files."""
    found: Mapping[str, str] = importlib.import_module(f"{__package__}.features").FORMATS
    return found


def renderer(kind: str) -> Callable[[Report], str]:
    """What makes the text of a report file; imported only now, since some need a library that a run does without."""
    module, _, function = formats()[kind].rpartition(".")
    render: Callable[[Report], str] = getattr(importlib.import_module(f"{__package__}.features.{module}"), function)
    return render
