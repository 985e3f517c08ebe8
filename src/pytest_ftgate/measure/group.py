"""Measures the cells of one test interleaved: started together, iterations in random order, never two at once.

Each cell is paired with its reference, or with the control workload under the same executor; memory is sampled in
launches of its own. The number of iterations follows from the variance of the first ones, blind to any comparison; so
does the number of rounds, unless a stopping rule says what is still undecided. Both are planned within a budget, and
when it is over no iteration begins.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import random
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from ..kit.killing import kill_marked
from ..kit.marks import run_mark
from ..kit.values import grouped
from ..model.sample import Need, Sample
from ..runner.protocol import CHECKED_COLD, COLD
from .capacity import Capacity
from .cell_run import CellRun, EmptyLaunches, RunningLaunch, disagreements, roles
from .conditions import ConditionsMonitor
from .launch import LAUNCHES, Launcher, LaunchRole, Request
from .memory_round import measure_memory
from .round_plan import Listener, OutOfTime, RoundPlan
from .spent import Spent
from .time_round import measure_times, ratios_of

T = TypeVar("T")
LEAST_REFERENCES = 3
"""Launches of a reference before it is said not to have the error of its cell."""
LAUNCH_S = 0.25
"""What a launch takes at least, with its iterations: before the first round nothing else is known."""
FEW = 4
"""So many cells are begun together, however little time there is."""


class StoppingRule(Protocol):
    """Decides after each round which kinds of launches each cell still needs; a cell that is not named needs none."""

    def __call__(self, samples: Sequence[Sample], /) -> Mapping[str, frozenset[Need]]:
        """By node id; `samples` are all cells' so far."""
        ...


@dataclasses.dataclass(kw_only=True, eq=False)
class Measurement:
    """The cells of one test while they are measured: `step` measures one round, `samples` are the launches so far.

    Without a stopping rule the variance alone decides how many rounds there are, all with every kind of launch.
    """

    cell_runs: Sequence[CellRun]
    plan: RoundPlan
    launcher: Launcher
    rng: random.Random
    listener: Listener
    spent: Spent
    monitor: ConditionsMonitor | None = None
    stopping_rule: StoppingRule | None = None
    needed: int = 0
    """The rounds that decide about a cell: where the time is too short for so many of all, cells take turns. 0: they do
    not."""
    empty: EmptyLaunches = dataclasses.field(default_factory=dict)
    """Those that other tests of the run have measured, and share; so is the capacity."""
    capacity: Capacity = dataclasses.field(default_factory=Capacity)
    split: str = dataclasses.field(init=False, default="")
    """Whether not all cells were measured together, and why."""
    most_batches: int = dataclasses.field(init=False, default=1)

    def __post_init__(self) -> None:
        # Each of its own: whether cells take turns changes nothing else, and a round draws the same however many
        # launches and iterations came before it.
        self._turns = random.Random(repr(self.rng.getstate())).sample(self.cell_runs, len(self.cell_runs))
        self._draws = self.rng.getrandbits(64)
        self._share = 1.0
        """Launches that are still needed, also of cells whose turn has not come, over those of the last round."""
        self._done = 0
        """The rounds of the cell that has the fewest and needs more."""
        self._take_turns = False

    def step(self) -> bool:
        """One round, unless there are enough; returns whether there may be another. Others may run in between."""
        if not self.open:
            return False
        # 1. Before the first round programs are built, which must not count as the cost of a launch, and cells for
        # which the time is too short wait for their turn.
        plan = self.plan
        first = not plan.rounds
        if first:
            for side in (side for cell_run in self.cell_runs for side in cell_run.sides):
                if side.cell.executor.program is not None and side.cell.executor.program.build:
                    self.tell_progress(side, "building")
                    with side.attribute_errors(), self.ready(side, "own"):
                        pass
            if self.needed:
                self._in_turn(LAUNCH_S, FEW)
        # 2. Time and lock launches of all cells, then memory launches, between two looks at the machine's speed.
        launches = self._launches
        plan.begin_round()
        if first:
            self._calibrate()
        measure_times(self)
        with plan.extra():
            with self.spent.on("memory"):
                measure_memory(self)
            self.capacity.learn(self.cell_runs)
            self._run_references()
        self._calibrate()
        # 3. What is still undecided is measured in the next round, of the cells whose turn it is.
        if self.stopping_rule is not None:
            needs = self.stopping_rule(self.samples_so_far())
            for cell_run in self.cell_runs:
                cell_run.require(needs.get(cell_run.cell.nodeid, frozenset()))
            self._share = self._launches / max(1, launches)
            needing = [len(each.of("time")) for each in self.cell_runs if each.alive and each.needs]
            self._done = min(needing, default=plan.rounds + 1)
            if self.needed:
                self._in_turn(plan.round_so_far_s / max(1, launches), 1)
        # 4. How many rounds there are to be, and how many iterations in each.
        plan.end_round()
        self._plan_rounds()
        return self.open

    @property
    def open(self) -> bool:
        """Whether a cell still needs a round, and the budget has room for one."""
        rounds = self._take_turns or self.plan.rounds < self.plan.rounds_wanted  # of each cell so many
        return self.undecided and rounds and self.plan.left_s > 0

    @property
    def undecided(self) -> bool:
        return any(cell_run.alive and cell_run.needs for cell_run in self.cell_runs)

    def grant(self, share_s: float, left_s: float) -> None:
        """Plan iterations with `share_s` more seconds, and end after `left_s` more, in place of what was left."""
        self.plan.grant(share_s, left_s)
        if self.plan.rounds:
            self._plan_rounds()

    def forecast(self, needed: int) -> tuple[int, float]:
        """How many rounds fit into the budget, and the seconds that `needed` ones would take: see `RoundPlan`."""
        return self.plan.forecast(self._done, needed, self._share if self._done else 1.0)

    def samples(self) -> list[Sample]:
        """All cells, after a comparison of their results; of the references' if their cells differ."""
        references = [each.reference for each in self.cell_runs if each.reference is not None and each.reference.alive]
        theirs = {id(reference): error for reference, error in disagreements(references)}
        for cell_run, error in disagreements([each for each in self.cell_runs if each.alive]):
            cell_run.error = error
            if cell_run.reference is not None:
                cell_run.reference.error = cell_run.reference.error or theirs.get(id(cell_run.reference))
        return self.samples_so_far()

    def samples_so_far(self) -> list[Sample]:
        return [cell_run.sample() for cell_run in self.cell_runs]

    # -- steps of a round --------------------------------------------------------------------------------------

    @property
    def _launches(self) -> int:
        """The launches of a round, as far as they are needed now."""
        return sum(map(_launches_of, self.cell_runs))

    def _in_turn(self, launch_s: float, least: int) -> None:
        """Leave cells out of the next round where the time is too short for as many rounds of all as they need.

        Those of one executor and target go together, in a random order that is the same in all rounds: each to its end,
        then the next. At least so many cells are kept; a launch takes `launch_s`.
        """
        families = grouped((each.family, each) for each in self._turns if each.alive and each.needs)
        left_s, kept = self.plan.limits.budget_s - self.plan.spent_s, 0
        for family in families.values():
            rounds = max(1, self.needed - min(len(each.of("time")) for each in family))
            left_s -= launch_s * rounds * sum(map(_launches_of, family))
            if left_s < 0 and kept >= least:
                self._take_turns = True
                for each in family:
                    each.require(frozenset())
            else:
                kept += len(family)

    def _calibrate(self) -> None:
        if self.monitor is not None:
            with self.spent.on("controls"):
                self.monitor.time_fixed_work()

    def _run_references(self) -> None:
        """Run the reference of a cell that has failed as often as the cell itself: it may have the same error."""
        for cell_run in self.cell_runs:
            reference, error = cell_run.reference, cell_run.error
            if reference is None or error is None:
                continue
            with contextlib.suppress(OutOfTime):
                while reference.alive and reference.begun < max(LEAST_REFERENCES, error.launch):
                    self.tell_progress(reference, "trying, after an error, the reference of")
                    with reference.attribute_errors(), self.ready(reference, "own") as launch:
                        launch.unmeasured(CHECKED_COLD if launch.has_results else COLD)
                        for _ in self.in_time(range(self.plan.taken)):
                            launch.measured()
                        launch.close()
                        launch.handle.finish()

    def _plan_rounds(self) -> None:
        plan = self.plan
        # 1. Each alive cell's ratios to its reference or its control workload: by launch so far, by iteration.
        ratios: list[list[list[float]]] = []
        timed: list[list[list[float]]] = []
        for cell_run in self.cell_runs:
            if cell_run.alive:
                paired = cell_run.of("control") if cell_run.reference is None else cell_run.reference.of("time")
                beside = {launch.order: plan.values(launch) for launch in paired}
                there = [own for own in cell_run.of("time") if own.order in beside]
                ratios.append([ratios_of(plan.values(own), beside[own.order]) for own in there])
                if "time" in cell_run.needs:
                    timed.append(ratios[-1])
        # 2. The iterations of the rounds to come, by what the last one took.
        if timed and plan.taken:
            launch_ns = max(0.0, plan.round_ns - plan.extra_ns - plan.iteration_ns * plan.taken)
            more = any(cell_run.alive and cell_run.needs - {"time", "control"} for cell_run in self.cell_runs)
            extra_ns = plan.extra_ns if more else 0.0
            plan.plan_iterations(timed, launch_ns=launch_ns, iteration_ns=plan.iteration_ns, extra_ns=extra_ns)
        # 3. The rounds.
        known = [[each for each in launches if each] for launches in ratios]
        values = [[statistics.median(map(math.log, each)) for each in launches] for launches in known if launches]
        plan.plan_rounds(values, until_settled=self.stopping_rule is not None)

    # -- what the time launches and the memory launches share ---------------------------------------------------

    def needing(self, need: Need) -> list[CellRun]:
        return [each for each in self.cell_runs if each.alive and need in each.needs]

    def shuffled(self, items: Sequence[T]) -> list[T]:
        return self.rng.sample(list(items), len(items))

    def in_time(self, items: Iterable[T], next_ns: float = 0.0) -> Iterator[T]:
        """The items, one iteration of `next_ns` for each. Raises OutOfTime where there is no time for the next one."""
        for item in items:
            self.plan.check(next_ns)
            yield item

    def spares(self, cost_ns: float, share: float) -> bool:
        """Whether what informs but does not decide takes at most this share of a round, done for all cells."""
        return self.plan.spares(cost_ns * sum(each.alive for each in self.cell_runs), share)

    def most(self, counts: Sequence[int], cost_ns: float, share: float) -> int:
        """The first of these falling counts that `spares` affords at `cost_ns` each, or else the last."""
        return next((count for count in counts if self.spares(count * cost_ns, share)), counts[-1])

    def start(self, cell_run: CellRun, role: LaunchRole, *, settled: bool = False, **of_role: Any) -> RunningLaunch:
        """Start a launch with the hash seed and the memory layout of its round; `of_role` is what its request says too.

        They are the same for every launch of a round: what they cost must not lie between two sides.

        Raises LaunchFailed and CellUnsupported, and OutOfTime if the time is over.
        """
        self.plan.check()
        target = cell_run.target
        gil_on = cell_run.cell.target.settings.gil == "on"
        draw = random.Random(f"{self._draws}:{self.plan.rounds}")
        request = Request(
            cell=cell_run.cell,
            spec=cell_run.spec,
            python=target.python,
            role=role,
            expect_gil=gil_on or not target.interpreter.free_threaded,
            environment=target.environment,
            hash_seed=draw.randrange(1, 2**32),
            padding=draw.randrange(4096),
            timeout_s=cell_run.spec.timeout_s or self.plan.limits.timeout_s,
            waits_unavailable=target.waits_unavailable,
            settled=settled,
            observers=cell_run.observers if role == "observed" else (),
            **of_role,
            reference=cell_run.is_reference,
            copies=target.copies,
        )
        cell_run.begun += role == "own"
        return RunningLaunch(cell_run, request, self.launcher.start(request), self.plan)

    @contextlib.contextmanager
    def ready(
        self, cell_run: CellRun, role: LaunchRole, *, settled: bool = False, **of_role: Any
    ) -> Iterator[RunningLaunch]:
        """A launch that has imported its workload; killed at the end, whatever happens."""
        with self.spent.on(LAUNCHES[role].seconds):
            launch = self.start(cell_run, role, settled=settled, **of_role)
            try:
                launch.handle.ready()
                yield launch
            finally:
                launch.kill()

    @contextlib.contextmanager
    def started(self, wanted: Iterable[tuple[CellRun, LaunchRole]]) -> Iterator[list[RunningLaunch]]:
        """Launches of the cells that are alive, in this order; none is left at the end, however it ends."""
        launches: list[RunningLaunch] = []
        with contextlib.ExitStack() as stack:
            for cell_run, role in wanted:
                if cell_run.alive:
                    with self.spent.on(LAUNCHES[role].seconds), cell_run.attribute_errors(role):
                        launch = self.start(cell_run, role)
                        stack.callback(self._kill, launch)
                        launches.append(launch)
            try:
                yield launches
            except BaseException as error:
                if not isinstance(error, Exception):  # Ctrl-C: all of them at once, and then each finds nothing to end
                    kill_marked(run_mark())
                raise

    def _kill(self, launch: RunningLaunch) -> None:
        with self.spent.on(LAUNCHES[launch.role].seconds):
            launch.kill()

    def tell_progress(self, cell_run: CellRun, phase: str) -> None:
        plan, number = self.plan, self.plan.rounds + 1
        of = 0 if self.stopping_rule else plan.limits.launches or 0
        self.listener.advance(cell_run.cell.label, phase, number, of if number <= of else 0, plan.left_s)

    def sample_conditions(self) -> None:
        """Read this run's CPU time before launches end: afterwards a forkserver's time is on no account."""
        if self.monitor is not None:
            self.monitor.sample()


def _launches_of(cell_run: CellRun) -> int:
    """The launches of a round, of the cell and its reference, as far as they are needed now."""
    memory = cell_run.alive and "memory" in cell_run.needs
    return sum(len(roles(cell_run, side)) + memory for side in cell_run.sides)
