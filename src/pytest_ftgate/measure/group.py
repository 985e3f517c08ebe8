"""The cells of one test while they are measured: what its rounds share (see `rounds.py`), and their launches."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias, TypeVar

from ..kit.killing import kill_marked
from ..kit.marks import run_mark
from ..model.sample import Need, Sample
from .capacity import Capacity
from .cell_run import CellRun, EmptyLaunches, RunningLaunch, disagreements
from .conditions import ConditionsMonitor
from .launch import LAUNCHES, Launcher, LaunchRole, Request
from .round_plan import Listener, RoundPlan
from .spent import Spent

T = TypeVar("T")
StoppingRule: TypeAlias = Callable[[Sequence[Sample]], Mapping[str, frozenset[Need]]]
"""Says after each round, from the samples of all cells, which kinds of launches each cell still needs, by node id."""


@dataclasses.dataclass(kw_only=True, eq=False)
class Measurement:
    """The cells of one test: `rounds.measure_round` measures one round of them, `samples` are the launches so far.

    Without a stopping rule there are as many rounds as are asked for at least, with every kind of launch unless the
    figures' rule leaves one out.
    """

    cell_runs: Sequence[CellRun]
    plan: RoundPlan
    launcher: Launcher
    rng: random.Random
    listener: Listener
    spent: Spent
    monitor: ConditionsMonitor | None = None
    stopping_rule: StoppingRule | None = None
    figures_rule: StoppingRule | None = None
    """Without a stopping rule: which kinds of launches a figure still needs. The number of rounds is not its own."""
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
        self.turns = random.Random(repr(self.rng.getstate())).sample(self.cell_runs, len(self.cell_runs))
        self._draws = self.rng.getrandbits(64)
        self.share = 1.0
        """Launches that are still needed, also of cells whose turn has not come, over those of the last round."""
        self.done = 0
        """The rounds of the cell that has the fewest and needs more."""
        self.take_turns = False

    @property
    def open(self) -> bool:
        """Whether a cell still needs a round, and the budget has room for one."""
        rounds = self.take_turns or self.plan.rounds < self.plan.rounds_wanted  # of each cell so many
        return self.undecided and rounds and self.plan.left_s > 0

    @property
    def undecided(self) -> bool:
        return any(cell_run.alive and cell_run.needs for cell_run in self.cell_runs)

    def grant(self, share_s: float, left_s: float) -> None:
        """Plan iterations with `share_s` more seconds, and end after `left_s` more, in place of what was left."""
        self.plan.grant(share_s, left_s)
        if self.plan.rounds:
            self.plan_rounds()

    def forecast(self, needed: int) -> tuple[int, float]:
        """How many rounds fit into the budget, and the seconds that `needed` ones would take: see `RoundPlan`."""
        return self.plan.forecast(self.done, needed, self.share if self.done else 1.0)

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

    def plan_rounds(self) -> None:
        """Plan how many iterations the rounds to come have, from the launches so far, and how many rounds there are."""
        plan = self.plan
        # 1. Each cell's ratios to its reference or its control workload: by launch so far, by iteration.
        timed: dict[str, list[list[float]]] = {}
        for cell_run in self.needing("time"):
            paired = cell_run.of("control") if cell_run.reference is None else cell_run.reference.of("time")
            beside = {launch.order: plan.values(launch) for launch in paired}
            there = [own for own in cell_run.of("time") if own.order in beside]
            timed[cell_run.cell.nodeid] = [ratios_of(plan.values(own), beside[own.order]) for own in there]
        # 2. The iterations of the rounds to come, by what the last one took.
        if timed and plan.taken:
            launch_ns = max(0.0, plan.round_ns - plan.extra_ns - plan.iteration_ns * plan.taken)
            more = any(cell_run.alive and cell_run.needs - {"time", "control"} for cell_run in self.cell_runs)
            extra_ns = plan.extra_ns if more else 0.0
            plan.plan_iterations(timed, launch_ns=launch_ns, iteration_ns=plan.iteration_ns, extra_ns=extra_ns)
        # 3. The rounds.
        plan.plan_rounds(until_settled=self.stopping_rule is not None)

    # -- what the steps of a round share -----------------------------------------------------------------------

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
        of = 0 if self.stopping_rule else plan.rounds_wanted
        self.listener.advance(cell_run.cell.label, phase, number, of if number <= of else 0, plan.left_s)

    def calibrate(self) -> None:
        """Look at the machine's speed, while no launch is at work."""
        if self.monitor is not None:
            with self.spent.on("controls"):
                self.monitor.time_fixed_work()

    def sample_conditions(self) -> None:
        """Read this run's CPU time before launches end: afterwards a forkserver's time is on no account."""
        if self.monitor is not None:
            self.monitor.sample()


def ratios_of(own: Sequence[float], other: Sequence[float]) -> list[float]:
    """The ratios of paired iterations; a pair in which either has no value (NaN: no operation ended) is left out."""
    ratios = (value / paired for value, paired in zip(own, other, strict=False))
    return [ratio for ratio in ratios if math.isfinite(ratio)]
