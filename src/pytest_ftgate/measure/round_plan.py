"""How many loops, iterations and rounds a run takes, from the variance seen and the time left.

Nothing here looks at a difference between what is compared: only at the spread within a side, so the length of a
measurement cannot favour a verdict. The time comes from the clock that a `RoundPlan` is given.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Protocol

import msgspec
import numpy as np

from ..kit.values import Struct
from ..model.sample import Launch, iteration_value
from ..model.spec import Spec
from ..stats import estimators

PILOT_ITERATIONS = 5
"""The first iterations of the first launch: their spread decides how many iterations a launch has."""
LEAST_ITERATIONS = 2
LATENCY_WINDOWS = 4
"""The least windows of a launch whose latencies gate: their scatter counts, which that of the rate does not show."""
SPREAD_BETWEEN = 0.03
"""The assumed standard deviation, between launches, of the log of a launch's value; the least, once it is estimated."""
ESTIMATED_FROM = 4
"""Launches of a cell from which it is estimated."""
CHEAP_NS = 2e9
"""What more than the least iterations of a round's launches may take, or as many of each cell as of the noisiest."""
DEAR_SHARE = 0.1
"""The share of the time that the iterations which show the spread may take."""
LEAST_LAUNCHES = 2
LATER_ROUNDS = 0.5, 0.8
"""What later rounds take of the first one's time, which has what is done once: at least, and at most as a rule."""
RESOLUTIONS_PER_VALUE, LEAST_VALUE_NS = 1000, 100_000


class Listener(Protocol):
    """Receives the progress of a run."""

    def advance(self, label: str, phase: str, number: int, of: int, left_s: float | None) -> None:
        """One step: a phrase that the label of a cell or target ends, its round (or 0), `of` how many if that is known
        (else 0), the most seconds left.
        """
        ...

    def warn(self, text: str) -> None:
        """Something that the user should know before the report."""
        ...


class OutOfTime(Exception):
    """The time of a run has ended: nothing more is started, and no iteration begins."""


class Allowance(Struct, frozen=True, kw_only=True):
    """How much may be measured; seconds and counts. `launches` and `iterations` fix what else adapts.

    `budget_s` ends the measurement, whatever else is wanted. `least_iterations` are taken where they are cheap and the
    budget allows them: a tail needs that many.
    """

    budget_s: float = 60.0
    at_least: int = 5
    at_most: int = 30
    launches: int | None = None
    iterations: int | None = None
    most_iterations: int = 200
    least_iterations: int = 0
    timeout_s: float = 60.0


class RoundPlan:
    """How many rounds a measurement takes, how many iterations in each, and how much time is left for them.

    Iterations are windows of `window_ns` if the test has a duration, else `loops` calls. `loops` is None until it is
    calibrated; `count`, the iterations of a launch, is None until the pilot iterations. `limits.budget_s` is what
    iterations are planned with. Measuring ends when the time granted is over: as many seconds, unless tests share them.
    """

    def __init__(self, spec: Spec, limits: Allowance, clock: Callable[[], float], loops: int | None = None) -> None:
        self.spec = spec
        self.limits = limits
        self.clock = clock
        self.loops = 1 if spec.one_call else None if spec.duration_s is not None else loops
        self.window_ns = spec.window_ns
        self.warmups = 1 if spec.warmup is None else spec.warmup
        self.most = spec.iterations or limits.most_iterations
        """The most iterations of a launch; of windows as many as the duration holds."""
        if spec.duration_s is not None:
            self.most = max(1, round(spec.duration_s * 1e9) // spec.window_ns)
        self.count = limits.iterations
        self.counts: dict[str, int] = {}
        """Those of each cell by node id, where all together are dear: one that is steady needs fewer than others."""
        self.taken = 0
        """The iterations of the latest launches."""
        self.long = False
        """Whether an iteration of each cell is long."""
        self.rounds = 0
        self.rounds_wanted = limits.launches or limits.at_least
        self.round_ns = 0.0
        self.iteration_ns = 0.0
        self.extra_ns = 0.0
        """What the lock and memory launches of the round under way, or of the last one, took."""
        self.omitted_ns = 0.0
        """What the memory launches would have taken that the last round left out for want of time."""
        self._ended_rounds_s = 0.0
        self._began_s: float | None = None
        self._end_s = limits.budget_s

    # -- the time ----------------------------------------------------------------------------------------------

    def begin_round(self) -> None:
        """Count the time from now on."""
        self._began_s = self.clock()
        self.extra_ns = self.omitted_ns = 0.0

    @contextlib.contextmanager
    def extra(self) -> Iterator[None]:
        """What is done meanwhile is no part of the timing launches."""
        began_s = self.clock()
        try:
            yield
        finally:
            self.extra_ns += (self.clock() - began_s) * 1e9

    def end_round(self) -> None:
        """Stop counting: between two rounds other tests may be measured."""
        round_s = self.round_so_far_s
        self.round_ns = round_s * 1e9
        self._ended_rounds_s += round_s
        self._began_s = None
        self.rounds += 1

    def spend(self, seconds: float) -> None:
        """Count this time as the run's, though no round took it."""
        self._ended_rounds_s += seconds

    def grant(self, share_s: float, left_s: float) -> None:
        """Plan iterations with `share_s` more seconds, and end after `left_s` more, in place of what was left."""
        self.limits = msgspec.structs.replace(self.limits, budget_s=self.spent_s + share_s)
        self._end_s = self.spent_s + left_s

    @property
    def left_s(self) -> float:
        return max(0.0, self._end_s - self.spent_s)

    def check(self, next_ns: float = 0.0) -> None:
        """Raise OutOfTime if the time is over, or too short for what is known to take so long: it is over then."""
        if self.left_s <= next_ns / 1e9:
            self._end_s = min(self._end_s, self.spent_s)
            raise OutOfTime

    @property
    def round_so_far_s(self) -> float:
        """Seconds since the round under way began; 0 between rounds."""
        return 0.0 if self._began_s is None else self.clock() - self._began_s

    @property
    def spent_s(self) -> float:
        return self._ended_rounds_s + self.round_so_far_s

    def spares(self, cost_ns: float, share: float) -> bool:
        """Whether something that informs but does not decide takes at most this share of a round."""
        return cost_ns <= share * self.limits.budget_s * 1e9 / max(1, self.rounds_wanted)

    # -- iterations and rounds ---------------------------------------------------------------------------------

    @property
    def least(self) -> int:
        latencies = any(name.startswith("latency_") for name in self.spec.gated)
        fewest = LATENCY_WINDOWS if latencies else 1 if self.long else LEAST_ITERATIONS
        return min(fewest, self.limits.iterations or self.most)

    def pilot(self, iteration_ns: float) -> int:
        """The iterations after which the number of iterations is decided: fewer where one of each launch is long.

        Only one where two would take more than a tenth of the time: of these the spread is not known.
        """
        if PILOT_ITERATIONS * iteration_ns <= CHEAP_NS:
            return min(PILOT_ITERATIONS, self.most)
        dear = LEAST_ITERATIONS * iteration_ns > DEAR_SHARE * self.limits.budget_s * 1e9
        return self.least if dear else min(LEAST_ITERATIONS, self.most)

    @property
    def planned(self) -> int:
        """The iterations of a launch, as far as this is decided."""
        return self.count or min(PILOT_ITERATIONS, self.most)

    def values(self, launch: Launch) -> list[float]:
        """The value of each iteration of a launch, in ns; NaN where no operation ended."""
        return [iteration_value(each, launch.loops, per_op=bool(self.window_ns)) for each in launch.iterations]

    def forecast(self, done: int, needed: int, share: float = 1.0) -> tuple[int, float]:
        """How many rounds fit, of which `done` are measured, and the seconds that `needed` ones would take.

        The next ones have this `share` of the last one's launches. After the first round alone the number is rather
        too large, and so are the seconds: more may be measured of what only informs.
        """
        # What a round takes with the iterations that are planned now.
        next_ns = max(0.0, self.round_ns + self.iteration_ns * (self.planned - self.taken)) + self.omitted_ns
        next_s = share * next_ns / 1e9
        least, most = LATER_ROUNDS if self.rounds == 1 and done else (1.0, 1.0)
        left_s = max(0.0, self.limits.budget_s - self.spent_s)
        return done + math.floor(left_s / max(1e-9, least * next_s)), self.spent_s + (needed - done) * most * next_s

    def plan_iterations(
        self,
        ratios: Mapping[str, Sequence[Sequence[float]]],
        *,
        launch_ns: float,
        iteration_ns: float,
        extra_ns: float,
    ) -> None:
        """Decide how many iterations a launch has from now on; `ratios` are those of each cell's launches so far."""
        if self.limits.iterations is not None:
            return
        known = {nodeid: launches for nodeid, launches in ratios.items() if any(launches)}
        declared = self.spec.duration_s is not None or self.spec.iterations is not None
        wanted = partial(
            iterations_wanted,
            budget_ns=(self.limits.budget_s - self._ended_rounds_s) * 1e9,
            launches=(self.limits.launches or self.limits.at_least) - self.rounds,
            launch_ns=launch_ns,
            iteration_ns=iteration_ns,
            extra_ns=extra_ns,
            at_least=self.least,
            # Where no pair shows their spread, those that are declared, else the pilot's.
            at_most=self.most if known or declared else min(PILOT_ITERATIONS, self.most),
            tail=min(self.limits.least_iterations, self.most) if known else 0,
        )
        self.count = wanted([*known.values()])
        dear = self.count * iteration_ns > CHEAP_NS
        self.counts = {nodeid: wanted([launches]) for nodeid, launches in known.items()} if dear else {}

    def plan_rounds(self, until_settled: bool) -> None:
        """Decide after a round how many there are in all, as far as the time allows: `at_least`, or `at_most` where a
        stopping rule ends the run.
        """
        if self.limits.launches is not None:
            return
        launch_ns = max(0.0, self.round_ns - self.iteration_ns * self.taken)
        affordable = self.left_s * 1e9 / max(1.0, launch_ns + self.planned * self.iteration_ns)
        wanted = self.limits.at_most if until_settled else self.limits.at_least
        self.rounds_wanted = max(LEAST_LAUNCHES, math.floor(min(wanted, self.rounds + affordable)))


def iterations_wanted(
    ratios: Sequence[Sequence[Sequence[float]]],
    budget_ns: float,
    launches: int,
    *,
    launch_ns: float,
    iteration_ns: float,
    extra_ns: float = 0.0,
    at_least: int = LEAST_ITERATIONS,
    at_most: int = 60,
    tail: int = 0,
) -> int:
    """The iterations a launch needs to give most for its time: sqrt(launch_ns / iteration_ns) * within / between.

    `within` is the standard deviation of the log of an iteration, `between` that of a launch's value apart from it.
    `ratios` holds, for each cell and launch, the iterations so far over those of its reference or control workload
    (positive): the cell that needs most decides; without any it is `at_most`. A round takes `launch_ns` to start, warm
    up and end all its timing launches, `iteration_ns` for an iteration of each of them, `extra_ns` for all other
    launches. `budget_ns` is for all `launches` together; `at_least` holds even if the budget does not suffice, `tail`
    (what a tail needs) only as far as it does and where so many are cheap.
    """
    noise = max(map(_noise, ratios), default=math.inf)
    best = math.sqrt(max(1.0, launch_ns) / max(1.0, iteration_ns)) * noise
    wanted = max(tail if tail * iteration_ns <= CHEAP_NS else 0, math.ceil(min(best, at_most)))
    affordable = (budget_ns / max(1, launches) - launch_ns - extra_ns) / max(1.0, iteration_ns)
    return max(at_least, math.floor(min(wanted, affordable)))


def calibrated_loops(wall_ns: Sequence[float], resolution_ns: float) -> int:
    """The loops within an iteration that make the shortest cell's value last long enough to be read well.

    `wall_ns` holds what one loop takes in each cell. Long enough is 0.1 ms and 1000 times the clock's resolution; the
    number is rounded up to 1, 2 or 5 times a power of ten. A loop too short for the clock counts as its resolution.
    """
    if not len(wall_ns):
        return 1
    shortest = max(min(wall_ns), resolution_ns, 1.0)
    loops = max(LEAST_VALUE_NS, RESOLUTIONS_PER_VALUE * resolution_ns) / shortest
    if loops <= 1:
        return 1
    decade: int = 10 ** math.floor(math.log10(loops))
    return next(step * decade for step in (1, 2, 5, 10) if step * decade >= loops)


def _noise(launches: Sequence[Sequence[float]]) -> float:
    """The standard deviation of log ratios within launches over that between them, as if they were normal."""
    logs = [np.log(np.asarray(each)) for each in launches if len(each) > 1]
    if not logs:
        return 0.0
    weights = [len(each) - 1 for each in logs]
    squares = [estimators.gini_deviation(each) ** 2 for each in logs]
    within = float(np.average(squares, weights=weights))
    if len(logs) < ESTIMATED_FROM:
        return math.sqrt(within) / SPREAD_BETWEEN
    # The variance of a median of so many normal values is left out: it is not what differs between launches.
    of_medians = within * math.pi / 2 * float(np.mean([1 / len(each) for each in logs]))
    between = estimators.gini_deviation([float(np.median(each)) for each in logs]) ** 2 - of_medians
    return math.sqrt(within / max(SPREAD_BETWEEN**2, between))
