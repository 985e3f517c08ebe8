"""Launches of programs: a native limit, or any other command that prints its metrics as a JSON object."""

from __future__ import annotations

import os
import selectors
import shlex
import signal
import subprocess
import threading
from collections.abc import Mapping, Sequence
from typing import Annotated, NamedTuple

import msgspec

from ...model import Barrier, Cell, Iteration, MemoryPoint, Program, Spec, Timer, Waits, WorkloadError
from ...runner.clock import now_ns, resolution_ns
from ...runner.protocol import CHECK, COLD, HOLD, MEASURED
from ...text import expanded
from ..launch import CellUnsupported, Finished, Held, LaunchFailed, Request, request_here
from ..watch import processes
from ..watch.process_roles import Roles
from . import program_words
from .output import FLOOD_BYTES, Output, left_behind
from .workload import WATCHED, bare_environment, watch_tree

BUILD_TIMEOUT_S = 1800.0
KEPT_BYTES = 256 << 10
"""Of what a program prints: its JSON object is among the last of it."""
SHORTEST_WATCHED_S = 0.05
"""A look at a shorter run would be one at its start or its end, whichever it happened to be."""
OVERSTATED = 1.2
"""How much longer than it ran a program may say it has worked, before its seconds are taken for another unit."""
WAITS_UNKNOWN = "what a program that is no workload of Python's waits for cannot be told"
NOTHING = Iteration(start_ns=0, work_ns=0, join_ns=0, wall_ns=0, cpu_ns=0, ops=0, rate=0.0)


# ---- what a run says


class _SaidTimer(msgspec.Struct):
    count: Annotated[int, msgspec.Meta(ge=0)]
    total_ns: Annotated[float, msgspec.Meta(ge=0)]
    max_ns: Annotated[float, msgspec.Meta(ge=0)] = 0.0


class Said(msgspec.Struct):
    """What a run printed of itself; `seconds` is the time that its operations took. Other fields are left alone."""

    ops: Annotated[float, msgspec.Meta(ge=0)] = 1.0
    seconds: Annotated[float, msgspec.Meta(gt=0)] | None = None
    counters: dict[str, float] = {}
    timers: dict[str, _SaidTimer] = {}
    peaks: dict[str, float] = {}


def said(text: str) -> Said | None:
    """The last line of `text` that is a JSON object; None without one. Raises ValueError for one that has it wrong."""
    broken: msgspec.DecodeError | None = None
    for line in reversed(text.splitlines()):
        try:
            found = msgspec.json.decode(line)
        except msgspec.DecodeError as error:
            broken = broken or (error if line.lstrip().startswith("{") else None)
            continue
        if isinstance(found, dict):
            return msgspec.convert(found, Said)
    if broken is not None:
        raise ValueError(str(broken)) from broken
    return None


# ---- a program under way


class Ended(NamedTuple):
    """How a program ended: its exit code, negative for a signal, and its time with that of its children, in ns."""

    code: int
    ended_ns: int
    cpu_ns: int


class Running:
    """A program in a session of its own; what it prints is drained while it is waited for.

    A thread of ours waits for its end, so that its time is right whatever else is looked at meanwhile.
    """

    def __init__(self, words: Sequence[str], folder: str, environment: Mapping[str, str], mark: str) -> None:
        """Start it. Raises LaunchFailed where that cannot be."""
        self.mark = mark
        self.began_ns = now_ns()
        try:
            self.process = subprocess.Popen(
                words,
                cwd=folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
        except OSError as error:
            raise LaunchFailed(WorkloadError(reason=f"{words[0]} cannot be started: {error.strerror}")) from error
        self.ended: Ended | None = None
        self.waiter = threading.Thread(target=self._wait, name=f"ftgate waits for {words[0]}", daemon=True)
        self.waiter.start()
        self.stdout, self.stderr = Output(KEPT_BYTES), Output()
        self.selector = selectors.DefaultSelector()
        for stream, output in ((self.process.stdout, self.stdout), (self.process.stderr, self.stderr)):
            assert stream is not None
            os.set_blocking(stream.fileno(), False)
            self.selector.register(stream, selectors.EVENT_READ, output)

    @property
    def pid(self) -> int:
        """Its process id."""
        return self.process.pid

    @property
    def wall_ns(self) -> int:
        """From its start until it ended, or until now."""
        return (self.ended.ended_ns if self.ended else now_ns()) - self.began_ns

    def wait(self, timeout_s: float, what: str = "") -> Ended:
        """Wait for its end. Raises LaunchFailed for a flood, or when it takes longer than `timeout_s`."""
        while self.ended is None:
            self._drain(0.1)
            if self.stdout.flooded or self.stderr.flooded:
                raise self._ended_for(f"{what}printed more than {FLOOD_BYTES >> 20} MiB")
            if self.wall_ns > timeout_s * 1e9:
                raise self._ended_for(f"{what}did not end within {timeout_s:g} s (its whole process tree was ended)")
        self._drain_rest()
        return self.ended

    def over(self, wait_s: float = 0.0) -> bool:
        """Whether it has ended; waits for that at most `wait_s`, and drains what it prints meanwhile."""
        ends = now_ns() + wait_s * 1e9
        self._drain(0.0)
        while self.ended is None and (left_ns := ends - now_ns()) > 0:
            self._drain(min(0.1, left_ns / 1e9))
        return self.ended is not None

    def failure(self, reason: str) -> LaunchFailed:
        """The error of a program that failed, with the last lines that it printed."""
        self._drain_rest()
        tail = "\n".join(filter(None, (self.stdout.tail(10), self.stderr.tail())))
        return LaunchFailed(WorkloadError(reason=reason, detail=f"the last lines it printed:\n{tail}" if tail else ""))

    def kill(self) -> None:
        """End it and everything it started. Safe at any time, also twice."""
        if self.ended is None:
            processes.kill_all(self.pid, self.mark)
        self.waiter.join()
        self.selector.close()
        for stream in (self.process.stdout, self.process.stderr):
            if stream is not None:
                stream.close()

    def _ended_for(self, reason: str) -> LaunchFailed:
        """The error of a program that was ended at once: others would be measured beside it."""
        failure = self.failure(reason)
        self.kill()
        return failure

    def _wait(self) -> None:
        try:
            _, status, usage = os.wait4(self.pid, 0)
        except ChildProcessError:  # who killed it has waited for it, too, and was faster
            code, cpu_s = -signal.SIGKILL, 0.0
        else:
            code, cpu_s = os.waitstatus_to_exitcode(status), usage.ru_utime + usage.ru_stime
        # The process object must not wait for a pid that may be another's by now.
        self.process.returncode = code
        self.ended = Ended(code, now_ns(), round(cpu_s * 1e9))

    def _drain(self, wait_s: float) -> None:
        if not self.selector.get_map():  # it has closed both: its end is near, or nothing more is to be read
            self.waiter.join(wait_s)
            return
        for key, _ in self.selector.select(wait_s):
            if not key.data.drain(key.fd):
                self.selector.unregister(key.fileobj)

    def _drain_rest(self) -> None:
        """What is there by now; a child of its may hold the other end for long."""
        while self.selector.get_map() and (ready := self.selector.select(0)):
            for key, _ in ready:
                if not key.data.drain(key.fd):
                    self.selector.unregister(key.fileobj)


def exit_text(code: int) -> str:
    """How a program ended, for people."""
    if code >= 0:
        return f"exited with code {code}"
    names = {int(each): each.name for each in signal.Signals}
    return f"was killed by {names.get(-code, f'signal {-code}')}"


def program_environment(request: Request, mark: str, values: Mapping[str, str]) -> dict[str, str]:
    """The environment of a program: that of any launch, its interpreter's folder first on PATH, and its own."""
    program = request.cell.executor.program
    own = dict(program.environment) if program else {}
    return {
        **bare_environment(request, mark, os.environ),
        "PATH": program_words.path_with(request.python),
        **dict(zip(own, expanded(own.values(), values), strict=True)),
    }


# ---- launches


class CommandLauncher:
    """Launches of commands: each turn of one is a run of its program."""

    def __init__(self) -> None:
        self.marks = processes.marks()
        self.builds: dict[tuple[str, ...], WorkloadError | None] = {}
        """What came of each command line that builds a program: it is run once."""
        self.starts_s: dict[tuple[str, str], float] = {}
        """What a cell's latest run took beside its work, by folder and node id: mostly its start."""

    def start(self, request: Request) -> CommandHandle:
        """A launch; nothing runs yet. Raises CellUnsupported where a program is missing."""
        program = request.cell.executor.program
        assert program is not None
        values = program_words.values_of(request.cell, request.spec, request.python)
        words = expanded((program.build or program.argv)[:1], values)
        reason = program_words.missing(request.spec.needs, request.python)
        if not reason and program_words.found(words[0], request.python, values["folder"]) is None:
            reason = program_words.absent(words[0], request.spec.needs)
        if reason:
            raise CellUnsupported(reason)
        return CommandHandle(self, request, program, values, next(self.marks))


class CommandHandle:
    """One launch of a command; between turns nothing of it runs."""

    def __init__(
        self, launcher: CommandLauncher, request: Request, program: Program, values: Mapping[str, str], mark: str
    ) -> None:
        self.launcher = launcher
        self.request = request
        self.program = program
        self.values = values
        self.mark = mark
        self.key = (values["folder"], request.cell.nodeid)
        self.running: Running | None = None
        self.begun = False
        self.record = Record()

    def ready(self) -> float:
        """Build the program, unless that was done in this run; the resolution of our clock, in ns."""
        words, builds = expanded(self.program.build, self.values), self.launcher.builds
        key = (self.values["folder"], *words)
        if words and key not in builds:
            try:
                self._build(words)
            except LaunchFailed as failure:
                builds[key] = failure.error
            else:
                builds[key] = None
        error = builds.get(key)
        if error is not None:
            raise LaunchFailed(error)
        return float(resolution_ns())

    def iteration(self, kind: str, loops: int = 1, window_ns: int = 0) -> Iteration:
        """`loops` runs one after the other, or one of `window_ns`; results are not compared, so a check is none."""
        if kind == CHECK:
            return NOTHING
        return self.record.add(kind, [self._run(window_ns) for _ in range(loops)])

    def hold(self, window_ns: int, watched: bool, one_ns: float = 0.0) -> Held:
        """One run, watched in its middle: of `window_ns`, or as long as it takes, which is about `one_ns`."""
        seconds = one_ns / 1e9 if one_ns else window_ns / 1e9
        memory: tuple[MemoryPoint, ...] = ()
        waits: Waits | None = None
        running = self._started(0 if one_ns else window_ns)
        before_s = self.launcher.starts_s.get(self.key, 0.0) + seconds * (1 - WATCHED) / 2
        if watched and seconds >= SHORTEST_WATCHED_S and not running.over(before_s):
            roles = Roles(main=running.pid, all_work=True)
            memory, waits = watch_tree(roles, seconds * WATCHED, refused=WAITS_UNKNOWN, over=running.over, grows=True)
        run = self._ended(running, 0 if one_ns else window_ns)
        return Held(iteration=self.record.add(HOLD, [run]), memory=memory, waits=waits)

    def barrier(self, loops: int, window_ns: int) -> Barrier:
        """Not for programs: nobody can park them, so that nobody asks."""
        raise LaunchFailed(WorkloadError(reason="is a program, which cannot be parked"))

    def finish(self) -> Finished:
        """The record; raises LaunchFailed when runs left processes behind."""
        left = left_behind(0, self.mark)
        if left:
            raise LaunchFailed(left)
        if self.running is not None:
            self.running.kill()
            self.running = None
        self.begun = False
        return self.record.finished()

    def kill(self) -> None:
        """End what is under way, and everything that runs have left."""
        if self.running is not None:
            self.running.kill()
            self.running = None
        if self.begun:  # there may also be one that was interrupted while it was started
            processes.kill_marked(self.mark)
            self.begun = False

    def _build(self, words: list[str]) -> None:
        what = f"its build `{shlex.join(words)}` "
        running = self._begun(words, self.values)
        code = running.wait(BUILD_TIMEOUT_S, what).code
        if code:
            raise running.failure(what + exit_text(code))
        (program,) = expanded(self.program.argv[:1], self.values)
        if program_words.found(program, self.request.python, self.values["folder"]) is None:
            raise running.failure(f"{what}ended well, but there is no {program}")

    def _run(self, window_ns: int) -> Run:
        return self._ended(self._started(window_ns), window_ns)

    def _started(self, window_ns: int) -> Running:
        values = {**self.values, "seconds": _decimal(window_ns / 1e9)}
        return self._begun(expanded(self.program.argv, values), values)

    def _begun(self, words: list[str], values: Mapping[str, str]) -> Running:
        if self.running is not None:
            self.running.kill()
            self.running = None
        found = program_words.found(words[0], self.request.python, self.values["folder"])
        environment = program_environment(self.request, self.mark, values)
        self.begun = True
        self.running = Running([found or words[0], *words[1:]], values["folder"], environment, self.mark)
        return self.running

    def _ended(self, running: Running, window_ns: int) -> Run:
        ended = running.wait(self.request.timeout_s + window_ns / 1e9)
        if ended.code:
            raise running.failure(exit_text(ended.code))
        try:
            found = said(running.stdout.kept.decode("utf-8", "replace"))
        except ValueError as error:
            raise running.failure(f"printed metrics that cannot be used: {error}") from error
        if found is None and window_ns:
            raise running.failure("printed no JSON object, so that nobody knows what it did in the time it was given")
        run = Run(wall_ns=running.wall_ns, cpu_ns=ended.cpu_ns, said=found or Said())
        if run.seconds * 1e9 > OVERSTATED * run.wall_ns:
            ran = f"{run.wall_ns / 1e9:.3g}"
            raise running.failure(
                f"says that it worked for {run.seconds:g} s and ran {ran} s: `seconds` are not seconds"
            )
        self.launcher.starts_s[self.key] = max(0.0, run.wall_ns / 1e9 - run.seconds)
        return run


class Run(NamedTuple):
    """One run of a program, and what it said."""

    wall_ns: int
    cpu_ns: int
    said: Said

    @property
    def seconds(self) -> float:
        """What its operations took by its own account, else all of it."""
        return self.wall_ns / 1e9 if self.said.seconds is None else self.said.seconds


class Record:
    """What a launch has measured so far, as the runner keeps it of a workload in Python."""

    def __init__(self) -> None:
        self.cold: Iteration | None = None
        self.iterations: list[Iteration] = []
        self.counters: dict[str, float] = {}
        self.timers: dict[str, Timer] = {}
        self.peaks: dict[str, float] = {}

    def add(self, kind: str, runs: Sequence[Run]) -> Iteration:
        """A turn of these runs; what they counted is kept of measured and held ones."""
        iteration = iteration_of(runs)
        if kind == COLD:
            self.cold = iteration
        if kind in (MEASURED, HOLD):
            self.iterations.append(iteration)
            for run in runs:
                self._count(run.said)
        return iteration

    def _count(self, run: Said) -> None:
        for name, n in run.counters.items():
            self.counters[name] = self.counters.get(name, 0.0) + n
        for name, peak in run.peaks.items():
            self.peaks[name] = max(peak, self.peaks.get(name, peak))
        for name, timer in run.timers.items():
            kept = self.timers.get(name, Timer(count=0, total_ns=0, max_ns=0))
            self.timers[name] = Timer(
                count=kept.count + timer.count,
                total_ns=kept.total_ns + round(timer.total_ns),
                max_ns=max(kept.max_ns, round(timer.max_ns)),
            )

    def finished(self) -> Finished:
        """The record at the end of its launch."""
        return Finished(
            cold=self.cold,
            iterations=tuple(self.iterations),
            counters=self.counters,
            timers=self.timers,
            peaks=self.peaks,
            results=(),
            gil_enabled=False,
        )


def iteration_of(runs: Sequence[Run]) -> Iteration:
    """Runs one after the other as a turn: what is not the work that they tell of counts as their start."""
    wall_ns = sum(run.wall_ns for run in runs)
    seconds, ops = sum(run.seconds for run in runs), sum(run.said.ops for run in runs)
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


def _decimal(seconds: float) -> str:
    """`0.2` or `2`: never an exponent, which not every program reads."""
    return f"{seconds:.6f}".rstrip("0").rstrip(".")


def run_here(cell: Cell, spec: Spec, python: str, window_s: float) -> None:
    """One run of a cell's program as a functional test. Raises CellUnsupported and LaunchFailed."""
    handle = CommandLauncher().start(request_here(cell, spec, python, spec.timeout_s or 60.0))
    try:
        handle.ready()
        handle.iteration(MEASURED, 1, round(window_s * 1e9) if spec.duration_s is not None else 0)
        handle.finish()
    finally:
        handle.kill()
