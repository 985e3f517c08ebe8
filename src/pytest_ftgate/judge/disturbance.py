"""Whether what else ran on the machine makes a verdict doubtful."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, NamedTuple

from ..model import Basis, Conditions


class Limits(NamedTuple):
    """What is too much, each a share but `moved`, the ratio of two times; a verdict stands at the limit itself.

    `others` is that of the usable cores kept busy by others, the rest as in Conditions.
    """

    others: float
    steal: float
    quota: float
    throttles: float
    moved: float


# Measured by benchmarks/verdicts/variates.py. One more busy process on 2 cores (others kept 0.3 to 0.5 cores more
# busy) moved the ratio of a launch to its candle by 10 to 15 %, either way, and the raw time by 13 to 49 %: two workers
# cannot count on a core each then, and which of them waits is not what the candle met. Of a change of the controller's
# own speed the candle left 2 to 25 % in interpreter-bound work, about half in memory-bound work: 1.2x leaves up to 9 %,
# half of it on average over a run. Single looks differ by 2x and more at an unchanged speed: their range says nothing.
STORED: Final = Limits(others=0.25, steal=0.05, quota=0.05, throttles=0, moved=1.2)
"""Where the reference was measured at another time."""
# The two sides of the same launches, equal code, showed no bias at any load, also with a quota that stopped 64 to 100 %
# of the periods. Their noise grows, which the exact test accounts for. Beyond these limits a time is rather that of
# workers which wait for each other to be let run.
PAIRED: Final = Limits(others=math.inf, steal=0.25, quota=0.5, throttles=math.inf, moved=math.inf)
"""Where the sides took turns: what is left is that the workers of an iteration did not run at the same time."""
SAID: Final = Limits(others=0.1, steal=0.01, quota=0.0, throttles=0, moved=1.1)
"""What is worth a line in the report."""


def unfit(conditions: Conditions | None, basis: Basis) -> str:
    """Why a regression found by this road is not to be believed; empty where it is."""
    if conditions is None:
        return ""
    return "; ".join(_beyond(conditions, STORED if basis in ("stored", "predicted", "portable") else PAIRED))


def remarks(conditions: Conditions | None, workers: int) -> tuple[str, ...]:
    """Lines on what went on beside a tandem of so many workers, for the report; none where all was quiet."""
    if conditions is None:
        return ()
    found = _beyond(conditions, SAID)
    if 0 < conditions.cores < workers:
        found.append(f"oversubscribed: {workers} workers on {_cores(conditions)}")
    return tuple(found)


def moved(calibration_ns: Sequence[int]) -> float:
    """How many times longer the fixed work took in the last third of the looks than in the first; 1 for fewer than 3.

    The lower quartile of each third is compared: single looks differ by far more, for which no speed need have changed.
    """
    third = len(calibration_ns) // 3
    if not third or min(calibration_ns) <= 0:
        return 1.0
    first, last = sorted(calibration_ns[:third]), sorted(calibration_ns[-third:])
    return last[third // 4] / first[third // 4]


def _beyond(conditions: Conditions, limits: Limits) -> list[str]:
    """What is beyond the limits, a phrase each."""
    found = []
    others, steal, quota, throttles = (conditions.others, conditions.steal, conditions.quota, conditions.throttles)
    if others is not None and others > limits.others * max(1, conditions.cores):
        found.append(f"other processes kept {others:.1f} of {_cores(conditions)} busy")
    if steal is not None and steal > limits.steal:
        found.append(f"the hypervisor gave {steal:.1%} of the cores' time to others")
    if quota is not None and quota > limits.quota:
        found.append(f"the CPU quota stopped the run in {quota:.0%} of its periods")
    if throttles is not None and throttles > limits.throttles:
        found.append(f"the CPU throttled {throttles} time{'' if throttles == 1 else 's'} because of heat")
    change = moved(conditions.calibration_ns)
    if max(change, 1 / change) > limits.moved:
        found.append(
            f"the machine became {max(change, 1 / change):.2f}x {'slower' if change > 1 else 'faster'} during the measurement"
        )
    return found


def _cores(conditions: Conditions) -> str:
    return f"{conditions.cores} core{'' if conditions.cores == 1 else 's'}"
