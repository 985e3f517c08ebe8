"""Memory launches: held at work while memory and threads are sampled, stopped at barriers, empty, and for growth."""

from __future__ import annotations

import ast
import contextlib
import functools
import math
import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from ..model.sample import Barrier, Function, Launch, Profile, Role, SamplingCost, StackSamples, iteration_value
from ..runner.profile import END
from ..runner.protocol import COLD, MEASURED, WARMUP
from . import stacks
from .context import LONG_NS, ROLES, CellRun, RunContext, RunningLaunch
from .launch import CellUnsupported, Handle, Held, error_of
from .plan import LEAST_LAUNCHES, RunBudget, TimeIsUp

HOLD_S, PAIRED_HOLD_S = 0.25, 0.1
"""How long workers are held at least; in a paired comparison long enough for what is judged."""
BARRIERS = 3, 2, 1
"""Samples at barriers in a memory launch: as many of them as take a part of a round; the first is its warm-up."""
GROWTH_WARMUPS, GROWTH_AT_LEAST, GROWTH_AT_MOST = 4, 4, 8
GROWTH_S = 0.5
"""Samples at barriers in a growth launch: as many as fit this time, between these numbers."""
BARRIER_WINDOW_NS = 50_000_000
BARE_HOLDS, GROWTHS = 5, 5
"""Memory launches of a cell that are also held unsampled, and launches that show growth."""


class MemoryRound:
    """The memory launches of one round, one cell at a time."""

    def __init__(self, context: RunContext) -> None:
        self.context = context
        self.iterations = context.iterations
        self.number = context.budget.rounds

    def measure(self) -> None:
        """One memory launch of each cell that needs one, and of its reference; some launches that only inform.

        None is started while a second round of time launches would not fit beside them. If the time is over before a
        cell and its reference were held, neither counts.
        """
        budget, needing = self.context.budget, self.context.needing("memory")
        cost_ns = sum(self.cost_ns(side, side.longest_ns) for each in needing for side in each.with_reference)
        early = budget.rounds + 1 < min(LEAST_LAUNCHES, budget.rounds_wanted)
        if early and budget.left_s < budget.round_so_far_s + cost_ns / 1e9:
            timing_ns = budget.round_so_far_s * 1e9 - budget.iteration_ns * self.iterations.taken
            budget.omitted_ns = cost_ns + timing_ns / 3  # they have to be started too
            return
        with contextlib.suppress(TimeIsUp):
            for cell_run in self.context.shuffled(needing):
                self._measure_sides(cell_run)

    def _measure_sides(self, cell_run: CellRun) -> None:
        self.context.report(cell_run, "measuring memory of")
        with self._started(cell_run) as launches:
            for act in (self._ready, self._hold, self._close, self._finish):
                for launch in launches:
                    if cell_run.alive and launch.cell_run.alive:
                        with launch.cell_run.attribute_errors():
                            act(launch)
        if cell_run.alive and cell_run.informs and cell_run.probed:
            with cell_run.attribute_errors():
                self._inform(cell_run)

    @contextlib.contextmanager
    def _started(self, cell_run: CellRun) -> Iterator[list[RunningLaunch]]:
        """The memory launches of a cell and its reference; none is left at the end."""
        launches = []
        with contextlib.ExitStack() as stack:
            for side in self.context.shuffled(cell_run.with_reference):
                if cell_run.alive and side.alive:
                    with side.attribute_errors():
                        launch = self.context.start(side, "own")
                        stack.callback(launch.kill)
                        launches.append(launch)
            yield launches

    def cost_ns(self, cell_run: CellRun, wall_ns: float) -> float:
        """What the memory launches of a cell will take once they are started, with iterations of `wall_ns`."""
        held_ns = (2 if cell_run.informs else 1) * max(self._hold_ns(cell_run), wall_ns)
        if not cell_run.probed:
            return held_ns
        barrier_ns = min(self.iterations.window_ns, BARRIER_WINDOW_NS) or wall_ns
        count = self._barrier_count(cell_run)
        if cell_run.informs:
            count += GROWTH_WARMUPS + (self._growth_barriers(wall_ns) if self._affords_growth(cell_run) else 0)
        return count * barrier_ns + held_ns

    # -- what only informs -------------------------------------------------------------------------------------

    def _inform(self, cell_run: CellRun) -> None:
        """Growth, where the memory launch has not shown it, and the interpreter's own memory."""
        if not cell_run.frees_at_once and self._growth_is_due(cell_run):
            cell_run.all_launches.append(self._growth_launch(cell_run, "growth"))
        with cell_run.attribute_errors("empty"):
            if not cell_run.of("empty") and self.context.spares(BARRIERS[0] * cell_run.longest_ns, 0.15):
                cell_run.all_launches.append(self._shared(cell_run, "empty"))
            if cell_run.of("growth") and not cell_run.of("growth_empty"):
                cell_run.all_launches.append(self._shared(cell_run, "growth_empty"))

    def _growth_is_due(self, cell_run: CellRun) -> bool:
        return cell_run.informs and self.number < GROWTHS and self._affords_growth(cell_run)

    def _shared(self, cell_run: CellRun, role: Role) -> Launch:
        """A launch of an empty workload: one for all cells that differ in nothing else.

        Where memory is freed at once, one launch has both roles.
        """
        floors, key = self.context.floors, cell_run.floor_key
        if (key, role) not in floors:
            if cell_run.frees_at_once:
                settling = BARRIERS[0] + GROWTH_WARMUPS
                launch = self._barrier_launch(cell_run, "empty", settling + GROWTH_AT_MOST)
                steady, grown = launch.barriers[: BARRIERS[0]], launch.barriers[settling:]
                floors[key, "empty"] = msgspec.structs.replace(launch, barriers=steady)
                floors[key, "growth_empty"] = msgspec.structs.replace(launch, role="growth_empty", barriers=grown)
            elif role == "growth_empty":
                floors[key, role] = self._growth_launch(cell_run, role)
            else:
                floors[key, role] = self._barrier_launch(cell_run, role, BARRIERS[0])
        return floors[key, role]

    # -- held launches -----------------------------------------------------------------------------------------

    def _ready(self, launch: RunningLaunch) -> None:
        launch.handle.ready()

    def _hold(self, launch: RunningLaunch) -> None:
        """Barriers first, which also warm it up; then it is held at work, sampled and not, in random order."""
        cell_run, handle = launch.cell_run, launch.handle
        wall_ns, hold_ns = cell_run.longest_ns, self._hold_ns(cell_run)
        barriers = self._warm_up(cell_run, handle)
        both = cell_run.informs and self.number < BARE_HOLDS and self.context.spares(hold_ns + wall_ns, 0.1)
        ways = self.context.shuffled([True, False]) if both else [True]
        call_ns = 0.0 if self.iterations.window_ns else cell_run.call_ns
        held = {sampled: handle.measure_held(hold_ns, sampled, call_ns) for sampled in self.context.in_time(ways)}
        launch.sampled = {
            "memory": held[True].memory,
            "dropped": held[True].dropped,
            "waits": held[True].waits,
            "barriers": barriers,
            "sampling_cost": _sampling_cost(held),
        }
        if cell_run.frees_at_once and self._growth_is_due(cell_run):
            launch.grown = self._barriers(handle, 1 + self._growth_barriers(wall_ns))[1:]  # the first settles it
        self.context.sample_conditions()

    def _close(self, launch: RunningLaunch) -> None:
        launch.handle.close()

    def _finish(self, launch: RunningLaunch) -> None:
        record = launch.finish("memory", self.number, **launch.sampled)
        launches = launch.cell_run.all_launches
        launches.append(record)
        if launch.grown:
            nothing = {"memory": (), "dropped": 0, "waits": None, "sampling_cost": None}
            launches.append(msgspec.structs.replace(record, role="growth", barriers=launch.grown, **nothing))

    def _warm_up(self, cell_run: CellRun, handle: Handle) -> tuple[Barrier, ...]:
        """A server is warmed up as for its iterations; a command needs nothing, as each iteration is a new process."""
        if cell_run.probed:
            return self._barriers(handle, self._barrier_count(cell_run))
        if cell_run.cell.executor.kind == "server":
            for _ in self.context.in_time(range(self.iterations.warmups)):
                handle.iteration(WARMUP, 1, self.iterations.window_ns)
        return ()

    def _barrier_count(self, cell_run: CellRun) -> int:
        """One in a paired comparison, where it only shows the memory of each process group; none where that is long."""
        if cell_run.paired:
            return int(cell_run.longest_ns < LONG_NS)
        return self.context.most(BARRIERS, cell_run.longest_ns, 0.15)

    def _growth_launch(self, cell_run: CellRun, role: Role) -> Launch:
        """More barriers after some warm-ups; the allocator keeps nothing of what is freed."""
        count = GROWTH_WARMUPS + self._growth_barriers(cell_run.longest_ns)
        launch = self._barrier_launch(cell_run, role, count, settled=True)
        return msgspec.structs.replace(launch, barriers=launch.barriers[GROWTH_WARMUPS:])

    def _barrier_launch(self, cell_run: CellRun, role: Role, count: int, *, settled: bool = False) -> Launch:
        with self.context.ready(cell_run, "own" if role == "growth" else "empty", settled=settled) as launch:
            barriers = self._barriers(launch.handle, count)
            self.context.sample_conditions()
            return launch.finish(role, self.number, barriers=barriers)

    def _barriers(self, handle: Handle, count: int) -> tuple[Barrier, ...]:
        window_ns = min(self.iterations.window_ns, BARRIER_WINDOW_NS)
        loops = 1 if window_ns else self.iterations.loops or 1
        return tuple(handle.barrier(loops, window_ns) for _ in self.context.in_time(range(count)))

    def _affords_growth(self, cell_run: CellRun) -> bool:
        wall_ns = cell_run.longest_ns
        cost_ns = (GROWTH_WARMUPS + self._growth_barriers(wall_ns)) * wall_ns
        return cell_run.can_grow and self.context.spares(cost_ns, 0.2)

    def _growth_barriers(self, wall_ns: float) -> int:
        one_ns = max(BARRIER_WINDOW_NS if self.iterations.window_ns else wall_ns, 1.0)
        return max(GROWTH_AT_LEAST, min(GROWTH_AT_MOST, int(GROWTH_S * 1e9 / one_ns)))

    def _hold_ns(self, cell_run: CellRun) -> int:
        """How long its workers are held at least: all that happens in a window can be sampled."""
        hold_s = PAIRED_HOLD_S if cell_run.paired else HOLD_S
        return max(round(hold_s * 1e9), self.iterations.window_ns)


def _sampling_cost(held: Mapping[bool, Held]) -> SamplingCost | None:
    """The time of an operation unsampled and sampled; None unless it was held both ways and did something."""
    values = {sampled: iteration_value(each.iteration, 1, per_op=True) for sampled, each in held.items()}
    if len(values) < 2 or not all(map(math.isfinite, values.values())):
        return None
    return SamplingCost(bare_ns=(values[False],), watched_ns=(values[True],))


# The pair of profile launches of a cell and its reference: not timed, the stacks of their workers sampled.

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
            return launch.finish("profile", self.budget.rounds).profile or Profile()

    def _planned(self, side: CellRun, most_s: float) -> tuple[int, float]:
        """How many iterations in at most `most_s`, and the time of the work of one, by that side's latest launch."""
        latest = [each for launch in side.launches[-1:] for each in launch.iterations]
        work_ns = max([1.0, *(each.work_ns for each in latest)])
        wall_ns = max([work_ns, *(each.wall_ns for each in latest)])
        wanted = max(LEAST_ITERATIONS, math.ceil(WORK_S * 1e9 / work_ns))
        return max(1, min(wanted, MOST_ITERATIONS, int(most_s * 1e9 / wall_ns))), work_ns


# The stacks that a profile launch has written (see runner/profile.py), as functions.

LEAST_BLOCKS: Final = 10
"""Fewer iterations are cut into parts: the scatter between blocks is an estimate of what samples vary by."""
_DRIVER: Final = "pytest_ftgate/runner/executors/pool.py"
_SERVER: Final = re.compile(r"/(?:multiprocessing|loky/backend)/(?:forkserver|managers|resource_tracker)\.py$")
_ESCAPED: Final = re.compile(r"\\(?:x([0-9a-f]{2})|u([0-9a-f]{4})|U([0-9a-f]{8}))")  # as faulthandler writes them


def read(folder: Path, spans: Sequence[tuple[int, int]]) -> Profile:
    """All samples of a launch that fall into its measured iterations. Raises OSError.

    `spans` is when the workers of each iteration were at work, in ns on the runner's clock, in ascending order.
    """
    indices: dict[Function, int] = {}
    counted: Counter[tuple[int, tuple[int, ...]]] = Counter()
    parts = math.ceil(LEAST_BLOCKS / max(1, len(spans)))
    begins = [begin for begin, _ in spans]
    for path in sorted(folder.iterdir()):
        for at_ns, text in _moments(path):
            number = bisect_right(begins, at_ns) - 1
            if number < 0 or at_ns > spans[number][1]:
                continue
            begin, end = spans[number]
            block = number * parts + min(parts - 1, (at_ns - begin) * parts // max(1, end - begin))
            for functions in _at_work(text):
                key = tuple(indices.setdefault(function, len(indices)) for function in functions)
                counted[block, key] += 1
    samples = tuple(
        StackSamples(block=block, functions=functions, count=count)
        for (block, functions), count in sorted(counted.items())
    )
    return Profile(functions=tuple(indices), samples=samples)


def _moments(path: Path) -> Iterator[tuple[int, str]]:
    """The time of each sample in ns, and what faulthandler wrote; what a process left half written has no time."""
    mark = END.decode()
    lines: list[str] = []
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        if line.startswith(mark):
            yield int(line.removeprefix(mark)), "\n".join(lines)
            lines = []
        else:
            lines.append(line)


def _at_work(text: str) -> Iterator[list[Function]]:
    """The functions of each thread that does the workload's work, the outermost first, each once.

    What drives a pool counts while it works itself, and not while it waits for the pool. The processes of
    multiprocessing itself do not count.
    """
    for _, _, written in stacks.parsed(text):
        frames = stacks.unwrapped(written)
        own = stacks.own(frames)
        waits = bool(own) and own[0].standard and any(_DRIVER in frame.path for frame in frames)
        serves = any(_SERVER.search(frame.path) for frame in frames[len(own) - 1 : len(own) + 1])
        if own and not waits and not serves:
            yield list(dict.fromkeys(map(_function, reversed(own))))


def _function(frame: stacks.Frame) -> Function:
    return _found(frame.path, int(frame.line) if frame.line.isdigit() else 0, frame.function)


@functools.lru_cache(maxsize=1 << 14)
def _found(path: str, line: int, name: str) -> Function:
    """The function that a frame is of, by the source; where that is unknown, by its bare name."""
    path, name = _unescaped(path), _unescaped(name)
    inner = [each for each in _definitions(path) if each.first <= line <= each.last]
    named = [each for each in inner if each.name == name]
    if named:
        return Function(file=path, line=named[-1].line, name=named[-1].qualname)
    if inner and name.startswith("<"):  # a lambda or a generator expression
        return Function(file=path, line=inner[-1].line, name=f"{inner[-1].qualname}.{name}")
    return Function(file=path, line=0, name=name)


def _unescaped(text: str) -> str:
    return _ESCAPED.sub(lambda match: chr(int(match[1] or match[2] or match[3], 16)), text)


class _Definition(NamedTuple):
    """A function in a source: the lines it takes, with its decorators, that of its `def`, its name."""

    first: int
    last: int
    line: int
    name: str
    qualname: str


@functools.lru_cache(maxsize=256)
def _definitions(path: str) -> tuple[_Definition, ...]:
    """The functions of a file, an outer one before those in it; none where it cannot be read."""
    try:
        tree = ast.parse(Path(path).read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError):
        return ()
    return tuple(_below(tree.body, ""))


def _below(nodes: Iterable[ast.AST], prefix: str) -> Iterator[_Definition]:
    for node in nodes:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            first = min([node.lineno, *(each.lineno for each in node.decorator_list)])
            qualname = prefix + node.name
            yield _Definition(first, node.end_lineno or node.lineno, node.lineno, node.name, qualname)
            yield from _below(node.body, f"{qualname}.<locals>.")
        elif isinstance(node, ast.ClassDef):
            yield from _below(node.body, f"{prefix}{node.name}.")
        else:
            yield from _below(ast.iter_child_nodes(node), prefix)
