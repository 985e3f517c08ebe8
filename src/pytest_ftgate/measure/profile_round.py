"""The pair of profile launches of a cell and its reference: not timed, the stacks of their workers sampled."""

from __future__ import annotations

import math

import msgspec

from ..model import Profile
from ..runner.protocol import COLD, MEASURED, WARMUP
from .budget import RunBudget, TimeIsUp
from .cell_run import ROLES, CellRun
from .launch import CellUnsupported, error_of
from .run_context import RunContext

WORK_S, MOST_S = 1.0, 5.0
"""How long workers are at work in a profile launch, unless it would take longer than MOST_S."""
WORK_SHARE = 0.5
"""Of the time left for a launch, what its iterations take at most: it starts, warms up and ends in the rest."""
MOMENTS = 1000
"""How often stacks are sampled in that time, about."""
LEAST_ITERATIONS, MOST_ITERATIONS = 10, 500
SAMPLING_NS = 500_000, 10_000_000
"""The mean time between two samples, at least and at most."""
NO_SAMPLES = {
    "command": "a command's stacks are not sampled",
    "server": "a server's stacks are not sampled",
    "interpreters": "stacks in sub-interpreters cannot be sampled",
}
"""Why an executor has no profile launches."""


class NoProfile(Exception):
    """Why a cell has no profiles of both sides."""


class ProfileRound:
    """One pair of profile launches, within a time of its own."""

    def __init__(self, context: RunContext, cell_run: CellRun, left_s: float) -> None:
        """`context` is that of the run in which the cell was paired; `left_s` is what is left of the time."""
        self.cell_run = cell_run
        limits = msgspec.structs.replace(context.budget.limits, budget_s=left_s)
        self.budget = RunBudget(limits, context.budget.clock)
        self.context = RunContext(
            [cell_run], context.launcher, context.rng, context.iterations, self.budget, context.listener
        )

    def measure(self) -> tuple[Profile, Profile]:
        """The profiles of the reference and of the cell. Raises NoProfile."""
        reference, executor = self.cell_run.reference, self.cell_run.cell.executor
        if executor.kind in NO_SAMPLES:
            raise NoProfile(NO_SAMPLES[executor.kind])
        if reference is None:
            raise NoProfile("it has no reference that can be measured")
        self.budget.begin_round()
        profiles: dict[CellRun, Profile] = {}
        try:
            for side in self.context.shuffled([reference, self.cell_run]):
                self.context.report(side, "sampling the stacks of")
                left_s = self.budget.left_s / (2 - len(profiles))
                profiles[side] = self._profile(side, min(MOST_S, WORK_SHARE * left_s))
        except TimeIsUp:
            raise NoProfile("no time left") from None
        except CellUnsupported as error:
            raise NoProfile(f"{ROLES['profile']}{error}") from error
        except Exception as error:
            raise NoProfile(f"{ROLES['profile']}{error_of(error).reason}") from error
        finally:
            self.budget.end_round()
        return profiles[reference], profiles[self.cell_run]

    def _profile(self, side: CellRun, most_s: float) -> Profile:
        iterations = self.context.iterations
        loops, window_ns = iterations.loops or 1, iterations.window_ns
        count, work_ns = self._planned(side, most_s)
        low, high = SAMPLING_NS
        sampling_ns = round(min(max(count * work_ns / MOMENTS, low), high))
        with self.context.ready(side, "profile", sampling_ns=sampling_ns) as launch:
            launch.handle.iteration(COLD, 1, window_ns)
            for _ in self.context.in_time(range(iterations.warmups)):
                launch.handle.iteration(WARMUP, loops, window_ns)
            for _ in self.context.in_time(range(count)):
                launch.handle.iteration(MEASURED, loops, window_ns)
            return launch.finish(self.budget.rounds).profile or Profile()

    def _planned(self, side: CellRun, most_s: float) -> tuple[int, float]:
        """How many iterations in at most `most_s`, and the time of the work of one, by that side's latest launch."""
        latest = [each for launch in side.launches[-1:] for each in launch.iterations]
        work_ns = max([1.0, *(each.work_ns for each in latest)])
        wall_ns = max([work_ns, *(each.wall_ns for each in latest)])
        wanted = max(LEAST_ITERATIONS, math.ceil(WORK_S * 1e9 / work_ns))
        return max(1, min(wanted, MOST_ITERATIONS, int(most_s * 1e9 / wall_ns))), work_ns
