"""The turns of launches by the controller's clock: one that times itself by another clock cannot pass as faster."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from itertools import chain
from typing import Final, NamedTuple

from ...model import Iteration, WorkloadError
from ..launch import Request
from ..machine import usable_cores

CLOCK: Final = "its clock disagrees with the controller's"
LONGER: Final = 1.01
LONGER_NS: Final = 1e6
"""A turn cannot take longer than the controller waited for its answer: both read the same clock of the system."""
LEAST_TURNS: Final = 20
SHARE: Final = 0.25
"""Of a turn, what its answer may come later than the launch says, besides what the machine's load explains."""
PAIRED_NS: Final = 8e6
ALONE_NS: Final = 50e6
"""How much later the answer may come, beside its reference and without one: threads that a workload leaves running
delay it by the GIL, and a reference has them too. Of 13 answers, the quickest came 4.4 ms late with eight busy
processes to a core."""
DELAYS: Final = 4.0
CORES: Final = 1.25
CORES_NS: Final = 50e6
ITERATION_NS: Final = 1e6
TICK_NS: Final = 20e6
"""CPU time beyond the cores' that is rounding: a share, and so much a launch, an iteration and a process in one."""


class Turn(NamedTuple):
    """How long the controller waited for an answer, and what the launch says it took; ns."""

    waited_ns: float
    said_ns: float

    @property
    def late_ns(self) -> float:
        """How much later the answer came."""
        return self.waited_ns - self.said_ns


class Turns:
    """The turns of all launches of a run, by cell, side and role."""

    def __init__(self) -> None:
        self._turns: dict[tuple[str, bool, str], list[Turn]] = {}

    def add(self, request: Request, waited_s: float, said_ns: float) -> None:
        """One turn of a launch."""
        key = request.cell.nodeid, request.reference, request.role
        self._turns.setdefault(key, []).append(Turn(waited_s * 1e9, said_ns))

    def disagreement(self, request: Request) -> WorkloadError | None:
        """Why the clock of a cell's launches is not the controller's; None where nothing says so.

        A turn that is too long is impossible. One that is too short may be the machine's delay: all turns of the cell
        in this run have to be, beyond the usual delay of its reference, of its control workload, or of other cells.
        """
        cell = request.cell.nodeid
        own = self._turns.get((cell, request.reference, request.role), [])
        for turn in own:
            if turn.said_ns > LONGER * turn.waited_ns + LONGER_NS:
                return _clock_error(turn, "longer")
        reference = self._turns.get((cell, True, "own"), []) if not request.reference else []
        beside = reference or self._turns.get((cell, False, "control"), []) or self._of_others(cell)
        if request.role != "own" or request.reference or len(own) < LEAST_TURNS or not beside:
            return None
        usual_ns = statistics.median(turn.late_ns for turn in beside)
        limit_ns = (PAIRED_NS if reference else ALONE_NS) + DELAYS * usual_ns
        closest = min(own, key=lambda turn: turn.late_ns - SHARE * turn.said_ns)
        if closest.late_ns > limit_ns + SHARE * closest.said_ns:
            return _clock_error(closest, "shorter")
        return None

    def _of_others(self, cell: str) -> list[Turn]:
        others = (turns for (of, _, role), turns in self._turns.items() if of != cell and role == "own")
        return list(chain.from_iterable(others))


def _clock_error(turn: Turn, how: str) -> WorkloadError:
    said, waited = turn.said_ns / 1e6, turn.waited_ns / 1e6
    return WorkloadError(
        reason=CLOCK,
        detail=f"An iteration took {said:.3g} ms by its own clock, {how} than the {waited:.3g} ms that passed here. "
        "A workload must not replace the clock (time.perf_counter_ns) of the process that is measured.",
    )


def too_many_cores(request: Request, iterations: Sequence[Iteration]) -> WorkloadError | None:
    """Whether the iterations of a launch used more CPU time than all usable cores have; None if they did not."""
    wall_ns, cpu_ns = (sum(getattr(each, name) for each in iterations) for name in ("wall_ns", "cpu_ns"))
    executor, cores = request.cell.executor, usable_cores()
    processes = request.cell.workers + 2 if executor.kind == "processes" or executor.in_processes else 0
    rounding_ns = CORES_NS + len(iterations) * (ITERATION_NS + processes * TICK_NS)
    if not wall_ns or cpu_ns <= CORES * cores * wall_ns + rounding_ns:
        return None
    return WorkloadError(
        reason=f"it says that it kept {cpu_ns / wall_ns:.3g} cores busy, and there are {cores}",
        detail="Its times are too short for its CPU time: a workload must not replace the clock of its process, nor "
        "run on cores that pytest may not use.",
    )
