"""Launches that explain: of a cell and what it is compared with, in a time of their own, and not timed.

The stacks of workers are sampled, memory is traced, imports are timed.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Literal

import msgspec

from ..kit.errors import FtgateError
from ..model.sample import Launch, Loads, Profile
from ..model.spec import can_grow
from ..runner.protocol import COLD, MEASURED, WARMUP
from .cell_run import CellRun, RunningLaunch
from .group import Measurement
from .launch import LAUNCHES, CellUnsupported, LaunchRole, error_of
from .memory_round import HOLD_S
from .round_plan import OutOfTime, RoundPlan

WORK_S, MOST_S = 1.0, 5.0
"""How long workers are at work in a profile launch, unless it would take longer than MOST_S."""
WORK_SHARE = 0.5
"""Of the time left for a launch, what its iterations take at most: it starts, warms up and ends in the rest."""
MOMENTS = 1000
"""How often stacks are sampled in that time, about."""
LOCK_ITERATIONS, MOST_ITERATIONS = 10, 500
LOCK_LAUNCHES: Final = 2
"""One a side shows a site from 7.7 points of the time on, two from 6."""
SAMPLING_NS = 500_000, 10_000_000
"""The mean time between two samples, at least and at most."""
BARRIERS: Final = 4
"""Barriers at which a launch shows what calls leave behind, after one more."""
UNSEEN: Final[Mapping[str, str]] = {
    "command": "a command cannot be traced",
    "server": "a server cannot be traced",
    "interpreters": "sub-interpreters cannot be traced",
}
"""Why an executor has no launches that explain."""


def measure_profiles(measurement: Measurement, sides: Sequence[CellRun], left_s: float) -> list[Profile]:
    """The profile of each side. Raises FtgateError."""

    def one(measurement: Measurement, side: CellRun, most_s: float) -> Launch:
        # How many iterations, and how often they are sampled, by that side's latest launch.
        work_ns, count = _planned(side, min(MOST_S, most_s), WORK_S)
        low, high = SAMPLING_NS
        sampling_ns = round(min(max(count * work_ns / MOMENTS, low), high))
        with measurement.ready(side, "profile", sampling_ns=sampling_ns) as launch:
            _iterate(measurement, side, launch, count)
            return launch.finish("profile")

    return [each.profile or Profile() for each in _measured(measurement, sides, left_s, "profile", one)]


def measure_locks(measurement: Measurement, sides: Sequence[CellRun], left_s: float) -> list[list[Launch]]:
    """Launches of each side with the lock probe: LOCK_LAUNCHES where there is time. Raises FtgateError."""

    def one(measurement: Measurement, side: CellRun, most_s: float) -> Launch:
        plan, (_, count) = measurement.plan, _planned(side, most_s)
        with measurement.ready(side, "locks") as launch:
            _iterate(measurement, side, launch, count)
            return launch.finish("locks", loops=plan.loops or 1, window_ns=plan.window_ns)

    clock = measurement.plan.clock
    began_s = clock()
    found = [_measured(measurement, sides, left_s, "locks", one)]
    while len(found) < LOCK_LAUNCHES and left_s > (1 + 1 / len(found)) * (clock() - began_s):
        try:
            found.append(_measured(measurement, sides, left_s - (clock() - began_s), "locks", one))
        except FtgateError:  # what the others show stays
            break
    return [list(launches) for launches in zip(*found, strict=True)]


def _planned(side: CellRun, most_s: float, work_s: float = 0.0) -> tuple[float, int]:
    """What an iteration of a side takes in ns, by its latest launch, and how many fit and are enough for that work."""
    work_ns = max([1.0, *(each.work_ns for each in side.latest)])
    wanted = min(MOST_ITERATIONS, math.ceil(work_s * 1e9 / work_ns) or LOCK_ITERATIONS)
    return work_ns, max(1, min(wanted, int(most_s * 1e9 / _wall_ns(side))))


def _wall_ns(side: CellRun) -> float:
    return max([1.0, *(max(each.work_ns, each.wall_ns) for each in side.latest)])


def _iterate(measurement: Measurement, side: CellRun, launch: RunningLaunch, count: int) -> None:
    """Warm a launch up and measure so many iterations. Raises OutOfTime."""
    plan = measurement.plan
    launch.handle.iteration(COLD, 1, plan.window_ns)
    for kind, times in ((WARMUP, plan.warmups), (MEASURED, count)):
        for _ in measurement.in_time(range(times), _wall_ns(side)):
            launch.handle.iteration(kind, plan.loops or 1, plan.window_ns)


def measure_loads(
    measurement: Measurement, sides: Sequence[CellRun], left_s: float, known: Literal["lines", "imports"]
) -> list[Loads]:
    """What each side holds by line, or imports. Raises FtgateError."""

    def one(measurement: Measurement, side: CellRun, most_s: float) -> Launch:
        plan, began_s = measurement.plan, measurement.plan.clock()
        with measurement.ready(side, "loaded", loads=known) as launch:
            # Traced it may take a hundred times as long, as the cold iteration shows.
            one_ns = launch.handle.iteration(COLD, 1, plan.window_ns).wall_ns
            call_ns = 0.0 if plan.window_ns else max(1.0, one_ns)
            launch.handle.measure_held(max(round(HOLD_S * 1e9), plan.window_ns), False, call_ns)
            if known == "lines" and can_grow(side.cell, side.spec):
                left_ns = 1e9 * (most_s - (plan.clock() - began_s))
                loops = max(1, min(plan.loops or 1, int(left_ns / (1 + BARRIERS) / max(1, one_ns))))
                for _ in range(max(2, min(1 + BARRIERS, int(left_ns / max(1, one_ns) / loops)))):
                    launch.barrier(loops, plan.window_ns, collects=True)
            return launch.finish("loaded")

    return [each.loads or Loads() for each in _measured(measurement, sides, left_s, "loaded", one)]


def _measured(
    measurement: Measurement,
    sides: Sequence[CellRun],
    left_s: float,
    role: LaunchRole,
    one: Callable[[Measurement, CellRun, float], Launch],
) -> list[Launch]:
    """A launch of each side, in random order; `one` gets how long its iterations may take. Raises FtgateError."""
    whole = measurement.plan
    limits = msgspec.structs.replace(whole.limits, budget_s=left_s)
    plan = RoundPlan(whole.spec, limits, whole.clock, whole.loops)
    measurement = dataclasses.replace(measurement, cell_runs=list(sides), plan=plan)
    for kind in (each.cell.executor.kind for each in sides):
        if kind in UNSEEN and (role, kind) != ("locks", "interpreters"):
            raise FtgateError(UNSEEN[kind])
    plan.begin_round()
    found: dict[CellRun, Launch] = {}
    try:
        for side in measurement.shuffled(sides):
            measurement.tell_progress(side, LAUNCHES[role].sees)
            found[side] = one(measurement, side, WORK_SHARE * plan.left_s / (len(sides) - len(found)))
    except OutOfTime:
        raise FtgateError("no time left") from None
    except CellUnsupported as error:
        raise FtgateError(f"{LAUNCHES[role].failed}{error}") from error
    except Exception as error:
        raise FtgateError(f"{LAUNCHES[role].failed}{error_of(error).reason}") from error
    finally:
        plan.end_round()
    return [found[side] for side in sides]
