"""`--ftgate-until`: launches a cell untimed, again and again, until it fails. `search.py` does it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ...declare.options import Option, one_of, option
from ...hookspec import hookimpl

if TYPE_CHECKING:
    from ...run.phase import Instead, Phase
    from ...run.run import Run
    from ...run.trial import Settled

UNTIL = option(
    "until",
    "",
    one_of("failure", "time"),
    "look for races instead of timing: failure launches each cell until one of its iterations fails; time goes on "
    "until the time is over and shows how often they fail; every second launch collects garbage at random moments",
    metavar="failure|time",
)


@hookimpl
def ftgate_options() -> list[Option]:
    return [UNTIL]


@hookimpl(tryfirst=True)
def ftgate_settle(run: Run) -> Settled | None:
    """A race may be on both sides: none of the cells is left out because both run the same code."""
    if not UNTIL.of(run.config):
        return None
    from ...run.trial import Settled

    return Settled()


@hookimpl
def ftgate_instead(run: Run) -> Callable[[Phase], Instead] | None:
    """The search, where the option asks for it."""
    if not UNTIL.of(run.config):
        return None
    from functools import partial

    from .search import RaceSearch

    return partial(RaceSearch, run, first_only=UNTIL.of(run.config) == "failure")
