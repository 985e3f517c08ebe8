"""Launches of programs: a native limit, or any other command that prints its metrics as a JSON object."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, NamedTuple

import msgspec

from ...kit.killing import kill_marked
from ...kit.marks import marks
from ...kit.text import expanded
from ...kit.values import LARGEST, Figure, Natural
from ...model.sample import Iteration, Launch, MemoryPoint, WorkloadError
from ...model.spec import Cell, Program, Spec
from ...runner.clock import resolution_ns
from ...runner.protocol import HOLD, LONGEST_NAME, MEASURED
from ...runner.record import LaunchRecord
from ..launch import Answered, HeldIteration, LaunchFailed, Request, recorded, request_here
from ..process_map import ProcessMap
from ..watch.memory import SAMPLED, sample_tree
from .process import Process, exit_text, left_behind
from .programs import decimal, path_with, required, values_of, variables_of, which
from .workload import bare_environment

BUILD_TIMEOUT_S = 1800.0
SHORTEST_SAMPLED_S = 0.05
"""A sample of a shorter run would be one of its start or of its end, by chance."""
OVERSTATED = 1.2
"""How much longer than it ran a program may report to have worked, before `seconds` are taken for another unit."""
WAITS_UNKNOWN = "the waits of a program that is not a Python workload cannot be classified"


# ---- the output of a run

_Ns = Annotated[float, msgspec.Meta(ge=0, lt=2**63)]


class _OutputTimer(msgspec.Struct):
    count: Natural
    total_ns: _Ns
    max_ns: _Ns = 0.0


_OwnName = Annotated[str, msgspec.Meta(max_length=LONGEST_NAME)]


class ProgramOutput(msgspec.Struct):
    """The metrics that a run printed; `seconds` is the time that its operations took. Other fields are ignored."""

    ops: Annotated[float, msgspec.Meta(ge=0, lt=2**63)] = 1.0
    seconds: Annotated[float, msgspec.Meta(ge=1e-9, le=LARGEST)] | None = None
    counters: dict[_OwnName, Figure] = {}
    timers: dict[_OwnName, _OutputTimer] = {}
    peaks: dict[_OwnName, Figure] = {}

    def report(self) -> dict[str, Any]:
        """Its own metrics, as a LaunchRecord takes them."""
        timers = {name: (each.count, round(each.total_ns), round(each.max_ns)) for name, each in self.timers.items()}
        return {"counters": self.counters, "timers": timers, "peaks": self.peaks}


def program_output(text: str) -> ProgramOutput | None:
    """The last line of `text` that is a JSON object; None without one. Raises ValueError for one with wrong fields."""
    broken: msgspec.DecodeError | None = None
    for line in reversed(text.splitlines()):
        try:
            decoded = msgspec.json.decode(line)
        except msgspec.DecodeError as error:
            broken = broken or (error if line.lstrip().startswith("{") else None)
            continue
        if isinstance(decoded, dict):
            return msgspec.convert(decoded, ProgramOutput)
    if broken is not None:
        raise ValueError(str(broken)) from broken
    return None


def program_environment(request: Request, mark: str, values: Mapping[str, str]) -> dict[str, str]:
    """The environment of a program: that of any launch, its interpreter's folder first on PATH, and its cell's.

    A server in Python that crashes prints its stack; what makes it do so costs 0.3 ms of a start, which commands time.
    """
    crashes = {"PYTHONFAULTHANDLER": "1"} if request.cell.body == "server" else {}
    return {
        **bare_environment(request, mark, os.environ),
        **crashes,
        "PATH": path_with(request.python),
        **variables_of(request.cell, values),
    }


# ---- launches


class CommandLauncher:
    """Launches of commands: each iteration of one is a run of its program."""

    def __init__(self) -> None:
        self.marks = marks()
        self.builds: dict[tuple[str, ...], WorkloadError | None] = {}
        """The error of each command line that builds a program, or None: it is run once."""
        self.starts_s: dict[tuple[str, str], float] = {}
        """The time of a cell's latest run outside its work, by folder and node id: mostly its start."""

    def start(self, request: Request) -> CommandHandle:
        """A launch; nothing runs yet. Raises CellUnsupported where a program is missing."""
        program = request.cell.executor.program
        assert program is not None
        values = values_of(request.cell, request.spec, request.python)
        required(request, *expanded((program.build or program.argv)[:1], values))
        return CommandHandle(self, request, program, values, next(self.marks))


class CommandHandle:
    """One launch of a command; between iterations nothing of it runs."""

    def __init__(
        self, launcher: CommandLauncher, request: Request, program: Program, values: Mapping[str, str], mark: str
    ) -> None:
        self.launcher = launcher
        self.request = request
        self.program = program
        self.values = values
        self.mark = mark
        self.key = (values["folder"], request.cell.nodeid)
        self.process: Process | None = None
        """The latest run."""
        self.answered = Answered()
        self.record = LaunchRecord()

    def ready(self) -> float:
        """Build the program, unless that was done in this run; the resolution of our clock, in ns."""
        words, builds = expanded(self.program.build, self.values), self.launcher.builds
        key = (self.values["folder"], *words)
        if words and key not in builds:
            what = f"its build `{shlex.join(words)}` "
            (program,) = expanded(self.program.argv[:1], self.values)
            try:
                process = self._begun(words, self.values)
                if (code := process.wait(BUILD_TIMEOUT_S, what).code) != 0:
                    raise process.failure(what + exit_text(code))
                if which(program, self.request.python, self.values["folder"]) is None:
                    raise process.failure(f"{what}succeeded, but there is no {program}")
            except LaunchFailed as failure:
                builds[key] = failure.error
            else:
                builds[key] = None
        if (error := builds.get(key)) is not None:
            raise LaunchFailed(error)
        return float(resolution_ns())

    def iteration(self, kind: str, loops: int = 1, window_ns: int = 0) -> Iteration:
        """`loops` runs one after the other, or one of `window_ns`."""
        return self._recorded(kind, [self._ended(self._started(window_ns), window_ns) for _ in range(loops)])

    def measure_held(self, window_ns: int, sampled: bool, one_ns: float = 0.0, share: float = 1.0) -> HeldIteration:
        """One run, sampled in its middle: of `window_ns`, or as long as it takes, which is about `one_ns`."""
        seconds = one_ns / 1e9 if one_ns else window_ns / 1e9
        memory: tuple[MemoryPoint, ...] = ()
        dropped, waits = 0, None
        process = self._started(0 if one_ns else window_ns)
        before_s = self.launcher.starts_s.get(self.key, 0.0) + seconds * (1 - SAMPLED) / 2
        if sampled and seconds >= SHORTEST_SAMPLED_S and not process.over(before_s):
            tree = ProcessMap(main=process.pid, all_work=True)
            memory, dropped, waits = sample_tree(tree, seconds * SAMPLED, refused=WAITS_UNKNOWN, over=process.over)
            if process.over():  # the last sample may be of its end
                memory, dropped = memory[:-1], dropped + len(memory[-1:])
        run = self._ended(process, 0 if one_ns else window_ns)
        return HeldIteration(iteration=self._recorded(HOLD, [run]), memory=memory, dropped=dropped, waits=waits)

    def finish(self) -> Launch:
        """The record; raises LaunchFailed when runs left processes behind."""
        left = left_behind(self.mark, "A program has to end what it started before it ends itself.")
        if left:
            raise LaunchFailed(left)
        self._let_go()
        return recorded(self.answered, self.record.as_json())

    def kill(self) -> None:
        """End the run that is under way, and everything that runs left behind."""
        if self.process is not None:
            self._let_go()
            kill_marked(self.mark)

    def _recorded(self, kind: str, runs: Sequence[ProgramRun]) -> Iteration:
        iteration = iteration_of(runs)
        self.record.add(kind, iteration.wall_ns, [run.output.report() for run in runs])
        return self.answered.add(kind, iteration)

    def _started(self, window_ns: int) -> Process:
        values = {**self.values, "seconds": decimal(window_ns / 1e9)}
        return self._begun(expanded(self.program.argv, values), values)

    def _begun(self, words: list[str], values: Mapping[str, str]) -> Process:
        if self.process is not None:
            self.process.release()
        program = which(words[0], self.request.python, self.values["folder"]) or words[0]
        environment = program_environment(self.request, self.mark, values)
        words = [program, *words[1:]]
        try:
            self.process = Process.start(words, environment, folder=values["folder"], shown_lines=(10, 20))
        except OSError as error:
            raise LaunchFailed(WorkloadError(reason=f"{program} cannot be started: {error.strerror}")) from error
        return self.process

    def _let_go(self) -> None:
        """Let go of the latest run; it is killed if it has not ended."""
        if self.process is not None:
            self.process.release()
            self.process = None

    def _ended(self, process: Process, window_ns: int) -> ProgramRun:
        ended = process.wait(self.request.timeout_s + window_ns / 1e9)
        if ended.code != 0:
            raise process.failure(exit_text(ended.code))
        try:
            output = program_output(process.outputs[0].text)
        except ValueError as error:
            raise process.failure(f"printed metrics that cannot be used: {error}") from error
        if output is None and window_ns:
            raise process.failure("printed no JSON object, so what it did in its window is unknown")
        run = ProgramRun(wall_ns=process.wall_ns, cpu_ns=ended.cpu_ns, output=output or ProgramOutput())
        if run.seconds * 1e9 > OVERSTATED * run.wall_ns:
            ran = f"{run.wall_ns / 1e9:.3g}"
            raise process.failure(f"reports {run.seconds:g} s of work but ran {ran} s: `seconds` are not seconds")
        self.launcher.starts_s[self.key] = max(0.0, run.wall_ns / 1e9 - run.seconds)
        return run


class ProgramRun(NamedTuple):
    """One run of a program, and what it printed."""

    wall_ns: int
    cpu_ns: int
    output: ProgramOutput

    @property
    def seconds(self) -> float:
        """What its operations took by its own account, else all of it."""
        return self.wall_ns / 1e9 if self.output.seconds is None else self.output.seconds


def iteration_of(runs: Sequence[ProgramRun]) -> Iteration:
    """Runs one after the other as an iteration: the time outside the work that they report counts as its start."""
    wall_ns = sum(run.wall_ns for run in runs)
    seconds, ops = sum(run.seconds for run in runs), sum(run.output.ops for run in runs)
    work_ns = min(wall_ns, round(seconds * 1e9))
    return Iteration(
        start_ns=wall_ns - work_ns,
        work_ns=work_ns,
        join_ns=0,
        wall_ns=wall_ns,
        cpu_ns=sum(run.cpu_ns for run in runs),
        ops=round(ops),
        rate=ops / seconds if seconds > 0 else 0.0,
    )


def run_here(cell: Cell, spec: Spec, python: str, window_s: float) -> None:
    """One run of a cell's program as a functional test. Raises CellUnsupported and LaunchFailed."""
    handle = CommandLauncher().start(request_here(cell, spec, python, spec.timeout_s or 60.0))
    try:
        handle.ready()
        handle.iteration(MEASURED, 1, round(window_s * 1e9) if spec.duration_s is not None else 0)
        handle.finish()
    finally:
        handle.kill()
