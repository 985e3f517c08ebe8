"""How long single waits for the GIL last, from samples of threads: pure.

A sample sees that a thread waits, not since when. So a wait counts if its beginning lay between two samples (those
already under way at the first sample are left out: long ones would be there too often), and is followed until a sample
finds it ended, or until the samples stop. The lengths then follow by the product-limit estimator (Kaplan and Meier,
1958) with delayed entry (Tsai, Jewell and Wang, 1987). Waits that fall between two samples are made up for, see
`lengths`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import groupby
from statistics import median
from typing import NamedTuple

from ...kit.proc import Slices
from ...runner.locks.sites import bucket_of

_ARM_NS = 25_000  # CPU time of a wake-up in which a waiter only asks for the GIL again: learned, this to begin with
_ARM_AT_MOST_NS = 40_000
_ARMS = 5  # wake-ups between two samples, at most: of more the CPU time does not say what they were
_SPREAD = 1.25  # of the CPU time of several arms
_ASKED_NS, _RAN_NS = 25_000, 50_000  # more CPU time than that of the arms: so much may be theirs, so much is not
_UNCLEAR = 0.2  # of the waits
_ENOUGH = 20  # waits that ended, for what a pace of sampling says of them
_SHORTER = 0.15  # of the waits


class Asking(NamedTuple):
    """A sample of a thread that waits for the GIL. `stack` is its stack pointer, 0 where the call has no timeout."""

    slices: Slices
    stack: int = 0


class Wait(NamedTuple):
    """One wait whose beginning was seen. `gap_s` is the longer of the pauses between samples at its two ends.

    `ended` is False where the samples stopped before it did: `length_s` is then how long it was followed.
    """

    length_s: float
    gap_s: float
    ended: bool


class Lengths(NamedTuple):
    """Waits by length. `histogram` maps a bucket of ns (see runner/locks/sites.py) to a weight.

    The weights and `unended`, that of waits longer than could be followed, add up to the number of waits that were
    seen to end. `pause_s` is that between the samples that give the short ones. All zero where nothing was seen.
    """

    histogram: dict[int, float]
    unended: float
    pause_s: float


class _Seen:
    """A thread as samples saw it; while it waits, `asking` and `asked_s` are of the latest sample that says so."""

    def __init__(self, at_s: float) -> None:
        self.at_s = at_s
        self.asking: Asking | None = None
        self.asked_s = self.first_s = at_s
        self.began_s: float | None = None  # None: it waited already in the first sample
        self.gap_s = 0.0
        self.doubt_s: float | None = None  # the first sample since that saw it on a core

    def begin(self, asking: Asking, at_s: float, began_s: float | None, gap_s: float) -> None:
        self.asking, self.asked_s, self.first_s, self.doubt_s = asking, at_s, at_s, None
        self.began_s, self.gap_s = began_s, gap_s


class Episodes:
    """Makes waits of the samples at one pace; `waits` are those whose beginning was seen.

    `longest_s` is the longest time from the first sample of any wait to the last, so a lower bound.
    """

    def __init__(self) -> None:
        self.waits: list[Wait] = []
        self.unclear = 0
        self.longest_s = 0.0
        self._arm_ns = float(_ARM_NS)
        self._threads: dict[int, _Seen] = {}

    def see(self, thread: int, at_s: float, asking: Asking | None, *, awake: bool = False) -> None:
        """One sample: it waits for the GIL (`asking`), is on a core (`awake`), or neither."""
        seen = self._threads.get(thread)
        if seen is None:
            seen = self._threads[thread] = _Seen(at_s)
            if asking:
                seen.begin(asking, at_s, None, 0.0)
        elif asking:
            self._see_asking(seen, at_s, asking)
        elif seen.asking and awake:  # who asks once more is on a core for a moment too: the next sample tells
            seen.doubt_s = seen.doubt_s or at_s
        elif seen.asking:
            self._end(seen, seen.doubt_s or at_s)
        seen.at_s = at_s

    def leave(self, thread: int) -> None:
        """The samples of a thread stop: it ended, or a burst of others begins."""
        seen = self._threads.pop(thread, None)
        if seen is not None and seen.asking:
            if seen.doubt_s is None:
                self._cut(seen)
            else:
                self._end(seen, seen.doubt_s)

    def stop(self) -> None:
        for thread in tuple(self._threads):
            self.leave(thread)

    def _see_asking(self, seen: _Seen, at_s: float, asking: Asking) -> None:
        if seen.asking is None:
            seen.begin(asking, at_s, (seen.at_s + at_s) / 2, at_s - seen.at_s)
            return
        same = self._same(seen.asking, asking)
        if same:
            seen.asking, seen.asked_s, seen.doubt_s = asking, at_s, None
        elif same is None:
            self.unclear += 1
            self._cut(seen)
            seen.begin(asking, at_s, None, 0.0)
        elif seen.doubt_s is not None:
            last_s = seen.at_s
            self._end(seen, seen.doubt_s)
            seen.begin(asking, at_s, (last_s + at_s) / 2, at_s - last_s)
        else:  # what it did not run of the pause is the end of one wait and the beginning of the next: half of it each
            gap_s = at_s - seen.asked_s
            half_s = max(0.0, gap_s - (asking.slices.running_ns - seen.asking.slices.running_ns) / 1e9) / 2
            self._end(seen, at_s, seen.asked_s + half_s)
            seen.begin(asking, at_s, at_s - half_s, gap_s)

    def _same(self, before: Asking, now: Asking) -> bool | None:
        """Whether two samples saw one wait; None where that cannot be known.

        A waiter wakes once in a switch interval, asks the holder to drop the GIL and waits again: one wait is many
        calls to the kernel, with little CPU time between them. Who had the GIL meanwhile and was asked to drop it ran
        for a switch interval. A wait from another place in the program stands elsewhere on the stack.
        """
        ran_ns, arms = now.slices.running_ns - before.slices.running_ns, now.slices.times - before.slices.times
        if before.stack and now.stack and before.stack != now.stack:
            return False
        theirs_ns = _SPREAD * self._arm_ns * arms if arms else 0.0
        if ran_ns > theirs_ns + _RAN_NS:
            return False
        if arms > _ARMS or ran_ns > theirs_ns + _ASKED_NS:
            return None
        if arms == 1:
            self._arm_ns = min(_ARM_AT_MOST_NS, 0.95 * self._arm_ns + 0.05 * ran_ns)
        return True

    def _end(self, seen: _Seen, at_s: float, ended_s: float | None = None) -> None:
        """A sample at `at_s` found it over."""
        ended_s = (seen.asked_s + at_s) / 2 if ended_s is None else ended_s
        if seen.began_s is not None:
            self.waits.append(Wait(ended_s - seen.began_s, max(seen.gap_s, at_s - seen.asked_s), ended=True))
        self._close(seen)

    def _cut(self, seen: _Seen) -> None:
        if seen.began_s is not None:
            self.waits.append(Wait(seen.asked_s - seen.began_s, seen.gap_s, ended=False))
        self._close(seen)

    def _close(self, seen: _Seen) -> None:
        self.longest_s = max(self.longest_s, seen.asked_s - seen.first_s)
        seen.asking = None

    @property
    def clear(self) -> bool:
        """Whether these samples tell one wait from the next: they rarely had to leave it open."""
        return self.unclear <= _UNCLEAR * len(self.waits)


def estimated_lengths(paces: Iterable[Sequence[Wait]]) -> Lengths:
    """The lengths of the waits that samples at one or more paces saw; none where no pace saw enough of them end.

    The short waits come from the slowest pace of which no quicker one says that many waits are shorter than two of its
    pauses: it saw most. Slower paces only count for waits longer than their own pause, which they cannot miss.
    Of waits shorter than a pause P one of length x is seen with probability x / P. So what k or more samples saw is the
    number of all waits times the mean of their survival function over (k - 1) P to k P; the function is continued to
    length 0 in a straight line, and what that says was missed is counted as P / 3 long.
    That is exact where no wait is shorter than P, or where it is a line up to 2 P; each length is known to within P.
    """
    known = [list(waits) for waits in paces if sum(wait.ended for wait in waits) >= _ENOUGH]
    known.sort(key=lambda waits: median(wait.gap_s for wait in waits))
    known = known[_short_pace(known) :]
    if not known:
        return Lengths({}, 0.0, 0.0)
    pause_s = median(wait.gap_s for wait in known[0])
    # The share that only one sample saw; without those whose samples stopped then.
    followed = [wait for wait in known[0] if wait.ended or wait.length_s > 0.75 * wait.gap_s]
    once = sum(wait.ended and wait.length_s <= 1.01 * wait.gap_s for wait in followed) / len(followed)
    steps, rest = _product_limit([_Pace(waits, 1.5 * (number > 0)) for number, waits in enumerate(known)])
    weight = sum(wait.ended for waits in known for wait in waits) / (1 + once / 2)
    histogram: dict[int, float] = {}
    for length_s, mass in [(pause_s / 3, once / 2), *steps]:
        bucket = bucket_of(round(length_s * 1e9))
        histogram[bucket] = histogram.get(bucket, 0.0) + mass * weight
    return Lengths(dict(sorted(histogram.items())), rest * weight, pause_s)


def _short_pace(paces: Sequence[Sequence[Wait]]) -> int:
    """Which of `paces`, the quickest first, gives the short waits."""
    for place in range(len(paces) - 1, 0, -1):
        steps, _ = _product_limit([_Pace(paces[place - 1], 0.0)])
        pause_s = median(wait.gap_s for wait in paces[place])
        if sum(mass for length_s, mass in steps if length_s < 2 * pause_s) < _SHORTER:
            return place
    return 0


class _Pace:
    """The waits of one pace, each at risk of its end from `entry` pauses on, and how many are at any length."""

    def __init__(self, waits: Sequence[Wait], entry: float) -> None:
        self.waits = [wait for wait in waits if wait.length_s > entry * wait.gap_s]
        self._begins = sorted(entry * wait.gap_s for wait in self.waits)
        self._leaves = sorted(wait.length_s for wait in self.waits)

    def at_risk(self, length_s: float) -> int:
        return bisect_left(self._begins, length_s) - bisect_left(self._leaves, length_s)


def _product_limit(paces: Sequence[_Pace]) -> tuple[list[tuple[float, float]], float]:
    """(length in s, share of the waits), ascending, and the share of those that are longer.

    At each length the finest pace that still follows enough waits says how many end there, failing that any.
    Source: Kaplan and Meier (1958), with delayed entry.
    """
    ends = sorted((wait.length_s, number) for number, pace in enumerate(paces) for wait in pace.waits if wait.ended)
    steps: list[tuple[float, float]] = []
    survival = 1.0
    for (length_s, number), group in groupby(ends):
        at_risk = [pace.at_risk(length_s) for pace in paces]
        finest = next((one for one, count in enumerate(at_risk) if count >= _ENOUGH), at_risk.index(max(at_risk)))
        if number == finest and at_risk[number] > 0:
            mass = survival * min(1.0, sum(1 for _ in group) / at_risk[number])
            steps.append((length_s, mass))
            survival -= mass
    return steps, max(0.0, survival)
