"""Launches the cells of a test again and again, untimed, and counts the iterations that fail, on both sides."""

from __future__ import annotations

import contextlib
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from ...kit.text import plural
from ...measure.cell_run import CellRun, disagreements
from ...measure.launch import CellUnsupported, LaunchRole, error_of
from ...measure.round_plan import OutOfTime
from ...model.report import Row
from ...model.sample import Launch, WorkloadError, outcomes
from ...model.verdict import Decision, Verdict
from ...report import errors, said
from ...run.phase import Phase
from ...run.run import Run
from ...runner.protocol import CHECK, WARMUP

STRESS: Final = str(Path(__file__).with_name("stress.py"))
KINDS: Final[dict[LaunchRole, str]] = {"own": "plain", "observed": "stressed"}
"""The kinds of launches, by the role in which they are started."""
LAUNCH_S: Final = 1.0
"""The shortest time for which a launch iterates, if it did not take longer to start."""
LEAST_ITERATIONS: Final = 6
"""A cell passes after so many that did not fail: fewer do not rule out, at 95 %, that every second one does."""
HANG_S, HANG_TIMES = 10.0, 100
"""An iteration hangs if it takes so many times as long as the longest one before it, and so many seconds."""


class CountedSide:
    """A cell, or its reference, with what was counted of it."""

    def __init__(self, cell_run: CellRun, timeout_s: float) -> None:
        self.cell_run = cell_run
        self.timeout_s = cell_run.spec.timeout_s or timeout_s
        self.iterations = 0
        self.raised = 0
        """Iterations that failed otherwise than by their result."""
        self.launches: Counter[str] = Counter()
        self.failed: Counter[str] = Counter()
        """Launches, and those in which an iteration failed, by their kind."""
        self.longest_s = 0.0
        self.error: WorkloadError | None = None
        """The first one."""

    @property
    def failures(self) -> int:
        """All iterations that failed: of different results the most frequent one is right."""
        times = [count for _, count in outcomes(self.cell_run.of("time"))]
        return self.raised + sum(times) - max(times, default=0)

    @property
    def text(self) -> str:
        """`1 in 41,200 iterations (...); 1 of 12 stressed and 0 of 12 plain launches`"""
        if self.error and not self.failures:  # its result is always the same, and not that of the other cells
            return f"in all of {self.iterations:,} iterations"
        launches = (
            f"{self.failed[kind]} of {self.launches[kind]} {kind}"
            for kind in reversed(KINDS.values())
            if self.launches[kind]
        )
        return f"{errors.rate_text(self.failures, self.iterations)}; {' and '.join(launches)} launches"


class RaceSearch:
    """The cells of a phase, launched by turns: plain in one round, stressed in the next, beside their references."""

    def __init__(self, run: Run, phase: Phase, first_only: bool) -> None:
        """With `first_only` a cell ends with its first failure, and so does its reference."""
        self.run = run
        self.first_only = first_only
        self.measurement = phase.measurement
        every = [side for cell_run in self.measurement.cell_runs for side in cell_run.sides]
        self.sides = {each: CountedSide(each, run.config.timeout) for each in every}
        for each in every:
            each.observers = (STRESS,)

    # -- launches ----------------------------------------------------------------------------------------------

    @property
    def _open(self) -> list[CellRun]:
        """The cells that are still launched."""
        return [
            each
            for each in self.measurement.cell_runs
            if each.alive and not (self.first_only and self.sides[each].error)
        ]

    def step(self) -> bool:
        """One launch of each cell that is open, and of its reference."""
        plan = self.measurement.plan
        role: LaunchRole = "observed" if plan.rounds % 2 else "own"
        plan.begin_round()
        with contextlib.suppress(OutOfTime):
            for cell_run in self.measurement.shuffled(self._open):
                for each in self.measurement.shuffled(cell_run.sides):
                    if each.alive and (role == "own" or each.probed):  # in a program there is no thread of ours
                        self._launch(self.sides[each], role)
        plan.end_round()
        # Results that differ in a launch, between launches, or between cells.
        for cell_run, error in disagreements([each for each in self.measurement.cell_runs if each.alive]):
            if not self.sides[cell_run].raised:
                self.sides[cell_run].error = error
        return bool(self._open) and plan.left_s > 0

    def _launch(self, side: CountedSide, role: LaunchRole) -> None:
        """One launch: iterations until one fails, or its time is over. Raises OutOfTime where it cannot begin."""
        cell_run, plan, kind = side.cell_run, self.measurement.plan, KINDS[role]
        # 1. Earlier iterations show how long a hang must last; the first launch has the timeout.
        hang_s = max(HANG_S, HANG_TIMES * side.longest_s) if side.longest_s else side.timeout_s
        cell_run.spec = replace(cell_run.spec, timeout_s=min(side.timeout_s, hang_s))
        told = f"{plural(side.failures, 'failure')} in {side.iterations:,} iterations, a {kind} launch of"
        self.run.listener.advance(cell_run.cell.label, told, 0, 0, plan.left_s)
        checks = cell_run.probed and not plan.window_ns
        done, failing = 0, True
        try:
            began_s = plan.clock()
            with self.measurement.ready(cell_run, role) as launch:
                # 2. Iterations, untimed.
                lasts_s = max(LAUNCH_S, plan.clock() - began_s)
                began_s = plan.clock()
                while not done or (plan.clock() - began_s < lasts_s and plan.left_s > 0):
                    iteration = launch.unmeasured(CHECK if checks else WARMUP)
                    side.longest_s = max(side.longest_s, iteration.wall_ns / 1e9)
                    done += 1
                failing = False
                record = launch.finish("time")
            # 3. It has failed if it gave another result than most iterations so far.
            cell_run.all_launches = [_together([*cell_run.all_launches, record])]
            right = max(outcomes(cell_run.all_launches), key=lambda each: each[1], default=("", 0))[0]
            side.failed[kind] += any(result != right for result in record.results)
        except OutOfTime:
            raise
        except CellUnsupported as reason:
            cell_run.unsupported = str(reason)
            return
        except Exception as failure:  # noqa: BLE001 -- whatever it is, it is the cell's error
            done += failing  # the iteration that failed; what fails at the end is the last one's
            side.failed[kind] += 1
            side.raised += 1
            side.error = side.error or _told(error_of(failure), kind)
        side.launches[kind] += 1
        side.iterations += done

    # -- rows --------------------------------------------------------------------------------------------------

    def rows(self) -> Iterator[Row]:
        """A cell that has failed has its error, with the rates of both sides; the others pass with their bounds."""
        for cell_run in self.measurement.cell_runs:
            cell, side = cell_run.cell, self.sides[cell_run]
            decision, text, error = Decision.PASSED, "", side.error
            if cell_run.unsupported is not None:
                decision, text = Decision.UNSUPPORTED, cell_run.unsupported
            elif not side.iterations:
                decision, text = Decision.NOT_MEASURED, "the time ended before its first iteration: give it more time"
            else:
                reference = cell_run.reference and self.sides[cell_run.reference]
                there = f"; of the reference: {reference.text}" if reference and reference.iterations else ""
                text = side.text + there
                if side.iterations < LEAST_ITERATIONS:
                    decision, text = Decision.NOT_MEASURED, f"{text}: too few to tell, give it more time"
            if error is not None:
                # The command that repeats it, with the seed of the launches and of the moments of stress.
                options = (*self.run.config.rerun, f"--ftgate-seed={self.run.config.seed}")
                decision = Decision.ERROR
                repeated = Row(cell=cell, verdict=Verdict(decision=decision), options=options)
                again = f"again: {said.commands([repeated], {})[0]}"
                error = replace(error, detail="\n".join(filter(None, (error.detail.rstrip(), again))))
            yield Row(cell=cell, verdict=Verdict(decision=decision, reason=text), error=error)


def _together(launches: list[Launch]) -> Launch:
    """One launch with the results of all: there may be thousands."""
    found = outcomes(launches)
    return Launch(results=tuple(each for each, _ in found), result_counts=tuple(times for _, times in found))


def _told(error: WorkloadError, kind: str) -> WorkloadError:
    """The error of a launch, with what our own thread has to do with it."""
    lines = [error.detail.rstrip(), f"It came in a {kind} launch."]
    if os.path.basename(STRESS) in error.detail:
        alone = "" if "worker " in error.detail else ", and no worker is at work: it may be what hangs"
        lines.append(f"The thread in {os.path.basename(STRESS)} is pytest-ftgate's, and collects garbage{alone}.")
    return replace(error, detail="\n".join(filter(None, lines)))
