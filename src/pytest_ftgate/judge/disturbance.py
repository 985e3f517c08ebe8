"""Whether the conditions on the machine put a verdict in doubt. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, NamedTuple

from ..model import Conditions


class Limits(NamedTuple):
    """The largest values that leave a verdict standing: shares, except `throttles` (a count) and `moved` (a ratio).

    `others` is the share of the usable cores that other processes kept busy; the rest is as in Conditions.
    """

    others: float
    steal: float
    quota: float
    throttles: float
    moved: float


MOVED: Final = 10.0
"""How many times the usual deviation between recordings (`MetricRow.between`) a run is moved where no worker has a core
to itself. It grows with the square of the share of workers that have none.

By benchmarks/verdicts/stored.py, of two cores: beside one busy process most times over the control moved by 1 to 3 %,
of two workers that make objects under the GIL by +20 %, and beside two processes by +60 %. A contended lock became 43 %
faster, and its share of waits beside two processes rose from 6 to 39 %.
"""
# Of a change of the controller's own speed the control left 2 to 25 % in interpreter-bound work, about half in
# memory-bound work: 1.2x leaves up to 9 %, half of it on average over a run. Single samples differ by 2x and more at an
# unchanged speed, so their range is not used.
ALONE: Final = Limits(others=0.25, steal=0.05, quota=0.05, throttles=0, moved=1.2)
"""Where a time is compared with none that was taken together with it."""
# Both sides of paired launches meet the same machine, which favours neither; their noise grows, and the test takes that
# into account. Beyond these limits, workers mostly wait to be scheduled.
PAIRED: Final = Limits(others=math.inf, steal=0.25, quota=0.5, throttles=math.inf, moved=math.inf)
"""For interleaved sides: the remaining risk is that the workers of an iteration did not run at the same time."""
CROWDED: Final = PAIRED._replace(others=ALONE.others, steal=ALONE.steal)
"""For interleaved cells that may need different numbers of cores: others leave too few for one of them."""
REPORTED: Final = Limits(others=0.1, steal=0.01, quota=0.0, throttles=0, moved=1.1)
"""What is worth a line in the report."""


def unfit(conditions: Conditions | None, limits: Limits) -> str:
    """Why what was found is in doubt; empty if it is not."""
    return "" if conditions is None else "; ".join(_beyond(conditions, limits))


def deviation(conditions: Conditions | None, workers: int) -> float:
    """What the conditions add to the deviation between recordings, in multiples of what it usually is."""
    if conditions is None or not conditions.cores:
        return 0.0
    taken = (conditions.others or 0.0) + (conditions.steal or 0.0) * conditions.cores
    crowded = (min(workers, conditions.cores) + taken - conditions.cores) / workers
    others = _beyond(conditions, ALONE._replace(others=math.inf, steal=math.inf))
    return MOVED * min(1.0, max(crowded, 0.5 if others else 0.0)) ** 2


def remarks(conditions: Conditions | None, workers: int) -> tuple[str, ...]:
    """Lines for the report on the conditions of a group with this many workers; none if all was quiet."""
    if conditions is None:
        return ()
    found = _beyond(conditions, REPORTED)
    if 0 < conditions.cores < workers:
        found.append(f"oversubscribed: {workers} workers on {_cores(conditions)}")
    return tuple(found)


def moved(calibration_ns: Sequence[int]) -> float:
    """How many times longer the fixed work took in the last third of the samples than in the first; 1 for fewer than 3.

    The lower quartile of each third is compared, because single samples vary by far more at an unchanged speed.
    """
    third = len(calibration_ns) // 3
    if not third or min(calibration_ns) <= 0:
        return 1.0
    first, last = sorted(calibration_ns[:third]), sorted(calibration_ns[-third:])
    return last[third // 4] / first[third // 4]


def _beyond(conditions: Conditions, limits: Limits) -> list[str]:
    """A phrase for each condition beyond its limit."""
    found = []
    others, steal, quota, throttles = (conditions.others, conditions.steal, conditions.quota, conditions.throttles)
    # `cores` is 0 if unknown.
    if others is not None and others > limits.others * max(1, conditions.cores):
        found.append(f"other processes kept {others:.1f} of {_cores(conditions)} busy")
    if steal is not None and steal > limits.steal:
        found.append(f"the hypervisor gave {steal:.1%} of the cores' time to others")
    if quota is not None and quota > limits.quota:
        found.append(f"the CPU quota stopped the run in {max(quota, 0.01):.0%} of its periods")
    if throttles is not None and throttles > limits.throttles:
        found.append(f"the CPU throttled {throttles} time{'' if throttles == 1 else 's'} because of heat")
    change = moved(conditions.calibration_ns)
    factor, word = max(change, 1 / change), "slower" if change > 1 else "faster"
    if factor > limits.moved:
        found.append(f"the machine became {factor:.2f}x {word} during the measurement")
    return found


def _cores(conditions: Conditions) -> str:
    return f"{conditions.cores} core{'' if conditions.cores == 1 else 's'}"
