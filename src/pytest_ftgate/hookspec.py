"""The hooks by which features take part in a run and in the `ftgate` command: all that the core knows of them.

A feature is a module of `features`, or of another distribution, which names it by an entry point of the group
`ftgate`. It marks with `hookimpl` which of these it has. Features are called in the order of `features.FEATURES`, then
those of others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

import pluggy

from .kit.plugins import GROUP

if TYPE_CHECKING:
    import argparse

    import pytest

    from .declare.options import Option, Options
    from .judge.metrics import MetricRow
    from .model.report import Format, Report, Row, Shard
    from .model.spec import Cell, Group, Plan
    from .model.verdict import Verdict
    from .plugin.gate import Gate
    from .run.phase import Instead, Phase
    from .run.run import Run
    from .run.sides.worktrees import Pair
    from .run.trial import Settled

Subparsers: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"
hookimpl = pluggy.HookimplMarker(GROUP)
_hookspec = pluggy.HookspecMarker(GROUP)


# -- options, metrics and reports ----------------------------------------------------------------------------------


@_hookspec
def ftgate_options() -> Sequence[Option]:
    """Rows of the table of options. Every run of pytest loads the module that has this hook."""


@_hookspec
def ftgate_metrics() -> Sequence[MetricRow]:
    """Rows of the metric table, each with its `observer`. A module with this hook imports `judge` in the hook alone."""


@_hookspec
def ftgate_formats() -> Mapping[str, Format]:
    """The forms of a report, by the word that names each in `--ftgate-report KIND:PATH`."""


# -- a measuring run -----------------------------------------------------------------------------------------------


@_hookspec
def ftgate_begin(run: Run) -> None:
    """A run begins. A feature that keeps something of it registers an object with `run.plugins`."""


@_hookspec
def ftgate_collect(config: pytest.Config, options: Options) -> None:
    """Pytest will collect, to measure or with `--collect-only`: a feature registers what makes items here.

    Also in the workers of pytest-xdist, which have no run.
    """


@_hookspec
def ftgate_configure(gate: Gate) -> None:
    """Pytest is configured, and both sides are checked out: a feature registers its hooks of pytest's here.

    Raises pytest.UsageError to refuse the run.
    """


@_hookspec(firstresult=True)
def ftgate_part() -> Shard | None:
    """The part of the run that is measured; none of all of it, and before it was split."""


@_hookspec
def ftgate_collected(run: Run, nodeids: Sequence[str]) -> None:
    """All cells, before any was deselected. Raises FtgateError and OSError to refuse them."""


@_hookspec(firstresult=True)
def ftgate_first(run: Run, plan: Plan) -> Mapping[str, int] | None:
    """The tests that are measured before all others, by node id without parameters: the least number is the first."""


@_hookspec(firstresult=True)
def ftgate_settle(run: Run, group: Group, cells: Sequence[Cell], pair: Pair) -> Settled | None:
    """Why cells of a test need no measurement, by node id; why others need one, empty if that is not known; and the
    file and qualified name of each function that they run and that differs.
    """


@_hookspec(firstresult=True)
def ftgate_instead(run: Run) -> Callable[[Phase], Instead] | None:
    """What makes the rows of a phase in place of rounds that are timed and judged."""


@_hookspec
def ftgate_amend(run: Run, group: Group) -> Callable[[Row], Verdict] | None:
    """What makes the final verdict of a judged row of this test; hooks are chained."""


@_hookspec
def ftgate_measured(gate: Gate, session: pytest.Session) -> str | None:
    """Nothing more is measured: what is missing all the same, empty if nothing is."""


@_hookspec
def ftgate_finish(run: Run, config: pytest.Config, report: Report) -> Iterable[str]:
    """The report is final, and its files are written: may write others; lines to be shown below it."""


# -- the command ---------------------------------------------------------------------------------------------------


@_hookspec
def ftgate_commands(subparsers: Subparsers) -> None:
    """Add a command, which sets `run` to what takes its arguments and returns an exit code.

    Its help names the exit codes 0, 2 and those of `exits=` of `add_parser`.
    """
