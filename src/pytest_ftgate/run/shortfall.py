"""Whether the time of a phase is too short for a decision, and what would be enough."""

from __future__ import annotations

import math

from ..model import Shortfall
from .phase import ActivePhase
from .resources import RunTime

MARGIN = 1.4
"""What is recommended over the cost seen: with more time, rounds hold more iterations and samples."""
UNSEEN = 2.0
"""The same where no round was completed: its cost is not known, only that it is larger than the time was."""
STEPS_S = (10, 15, 20, 30, 45, 60, 90, 120, 180, 240, 300, 360, 480, 600, 720, 900, 1200, 1500, 1800, 2700, 3600)
"""Times to recommend; beyond them whole hours."""


def predicted(
    active: ActivePhase, test_s: float, ended_s: float, time: RunTime, tests: float | None
) -> Shortfall | None:
    """What the time lacks; None if a decision is possible, or none is left to be made.

    `test_s` is that of the test, of which its ended phases took `ended_s`; `tests` share what is left of the run's, if
    that has a limit.
    """
    if not (active.needed and active.run.undecided):
        return None
    rounds, needed_s = active.run.forecast(active.needed)
    if rounds >= active.needed:
        return None
    budget = active.run.budget
    wanted_s = (MARGIN if rounds else UNSEEN * MARGIN) * needed_s / active.share
    option, given_s = "--ftgate-test-time", test_s
    if tests is not None and time.budget_s is not None and budget.limits.budget_s < active.budget_s:
        option, given_s = "--ftgate-time", time.budget_s
        wanted_s = time.spent_s + tests * max(0.0, wanted_s - budget.spent_s)
    elif ended_s:  # the phases before take as large a part of a longer time
        wanted_s += max(ended_s, wanted_s)
    return Shortfall(
        rounds=rounds,
        needed=active.needed,
        cells=len(active.run.cell_runs),
        option=option,
        given_s=given_s,
        wanted_s=_ample(max(wanted_s, given_s)),
    )


def _ample(seconds: float) -> float:
    return next((float(step) for step in STEPS_S if step > seconds), 3600.0 * math.ceil(seconds / 3600))
