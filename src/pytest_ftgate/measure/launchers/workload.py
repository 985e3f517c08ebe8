"""Launches of Python workloads: the runner in a fresh interpreter."""

from __future__ import annotations

import contextlib
import marshal
import math
import os
import select
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from ...errors import FtgateError
from ...model import (
    Barrier,
    Iteration,
    Launch,
    LockWaits,
    MemoryPoint,
    Waits,
    WorkloadError,
)
from ...runner.locks.sites import FOLDER, OFF, WINDOW
from ...runner.protocol import BARRIER, HOLD, LENGTH_BYTES, MARSHAL, PROTOCOL, framed
from ...runner.reads import READS
from ...runner.stacks import THREADS_S
from .. import stacks
from ..cores import pinned
from ..launch import CellUnsupported, Held, LaunchFailed, Request, setup_of
from ..watch import lock_waits
from ..watch.memory import barrier_point, hold_needed_s, memory_point
from ..watch.process_map import ProcessMap
from ..watch.processes import MARK, marked, marks, tree
from ..watch.sampling import SAMPLED, sample_cost_s, sample_tree
from . import program_words
from .output import FLOOD_BYTES, PipeOutput, exit_text, left_behind
from .process import Process

START_TIMEOUT_S = 120.0
LOCKS = "locks"
STACKS = "stacks"
SETTLED = {"MIMALLOC_PURGE_DELAY": "0"}
"""Else the allocator of free-threaded builds keeps freed pages for a while, which hides a leak or looks like one."""
HELD_CALLS = 1.25
"""Calls of a body that a hold is long enough for at least, so that every part of one can be sampled."""
MOST_HELD_CALLS = 8
"""Calls of a hold where each has a setup of its own, which may be long."""
SHORT_CALL_NS = 50_000_000
SHORT_CALLS = "each call of the body has a setup of its own, and is too short to be sampled"
TOGETHER = 0
"""The loops of an iteration whose workers stop together, once its window has passed."""
RUN = "import sys; from pytest_ftgate.runner.main import main; sys.exit(main(sys.argv[1:]))"
"""Not a file or folder: that loads runpy, which counts as memory of the workload, and spawned workers import it."""
STARTHOOK = "pytest_ftgate/runner/starthook"
THREADS_FIX = 'End it in `@<test>.teardown("launch")`, or make it a daemon thread.'
LEFT_FIX = 'End what the workload starts in `@<test>.teardown("launch")`, or in an exit handler (atexit).'


class _Result(msgspec.Struct):
    """The file that the runner writes at the end of a launch.

    `warmed_ops` are the body calls of the warm-ups; `spans` is when the workers of each measured iteration were at
    work, in ns on the runner's clock.
    """

    protocol: int
    launch: Launch
    error: WorkloadError | None = None
    unsupported: str | None = None
    warmed_ops: int = 0
    spans: list[tuple[int, int]] = []


def job_of(request: Request, result: Path, control: tuple[int, int]) -> dict[str, Any]:
    """The job file's content, plain values."""
    setup = setup_of(request.cell, request.spec, stand_in=request.stand_in, copies=request.copies)
    setup |= {"gil_note": None if request.expect_gil else f"{result}.gil", "held": f"{result}.held"}
    setup |= {"cpus": pinned(request.cell, request.spec)}
    return {
        "protocol": PROTOCOL,
        "setup": {**setup, "stacks": [str(result.with_name(STACKS)), stacks.SIGNAL]},
        "fresh": request.spec.reuse == "fresh",
        "expect_gil": request.expect_gil,
        "control": list(control),
        "locks": request.role == "locks",
        "settled": request.settled,
        "result": str(result),
    }


def launch_environment(request: Request, mark: str, runner: Path, inherited: Mapping[str, str]) -> dict[str, str]:
    """The environment of a launch of the runner.

    With -P and -s it isolates as -I does, which would also ignore the hash seed. PYTHONPATH holds the light copy of
    the package alone, which spawned workers, the forkserver and every sub-interpreter find there.
    """
    variables = program_words.workload_variables(request.cell, request.spec, request.python)
    return {**bare_environment(request, mark, inherited), **variables, "PYTHONPATH": str(runner)}


def bare_environment(request: Request, mark: str, inherited: Mapping[str, str]) -> dict[str, str]:
    """The environment of any launch: no PYTHON* variable of the caller, but a hash seed, padding, the launch's mark."""
    kept = {name: value for name, value in inherited.items() if not name.startswith(("PYTHON", "PYTEST_"))}
    return {
        **kept,
        **request.environment,
        "PYTHONHASHSEED": str(request.hash_seed),
        "FTGATE_PADDING": "x" * request.padding,
        MARK: mark,
    }


def lock_environment(runner: Path, folder: Path) -> dict[str, str]:
    """Turns the lock probe on in every process and interpreter of a launch; makes the folder that they write to."""
    folder.mkdir()
    (folder / WINDOW).write_bytes(bytes((OFF,)))
    return {FOLDER: str(folder), **_start_hook(runner)}


def _start_hook(runner: Path) -> dict[str, str]:
    return {"PYTHONPATH": os.pathsep.join((str(runner / STARTHOOK), str(runner)))}


class WorkloadLauncher:
    """Real launches: one fresh interpreter each, in a session of its own."""

    def __init__(self, runner: Path, work: Path, clock: Callable[[], float] = time.monotonic) -> None:
        if os.name != "posix":
            raise FtgateError(
                "--ftgate measures on Linux and macOS; on this platform run without it: each cell runs once, as a test"
            )
        self.runner = runner
        self.work = work
        self.clock = clock
        self.marks = marks()
        self.sample_costs_s: dict[tuple[str, str, int], float] = {}
        """What a sample of memory costs, by interpreter, executor and workers."""

    def start(self, request: Request) -> WorkloadHandle:
        """Start the interpreter; it imports the workload and waits for messages. Raises LaunchFailed."""
        mark = next(self.marks)
        # The folder's name is padded too: its length is part of the layout that argv has on the stack.
        folder = self.work / f"{mark}{'-' * (request.padding % 16)}"
        environment = launch_environment(request, mark, self.runner, os.environ)
        channel, (to_child, from_child) = ControlChannel.open()
        try:
            (folder / STACKS).mkdir(parents=True)
            if request.settled:
                environment |= SETTLED
            if request.role == "locks":
                environment |= lock_environment(self.runner, folder / LOCKS)
            if request.reads:
                environment |= {READS: request.reads, **_start_hook(self.runner)}
            job = folder / "job"
            job.write_bytes(marshal.dumps(job_of(request, folder / "result", (to_child, from_child)), MARSHAL))
            words = [request.python, "-P", "-s", "-c", RUN, str(job)]
            process = Process.start(words, environment, stdout=PipeOutput(), pass_fds=(to_child, from_child))
        except BaseException as error:
            channel.close()
            shutil.rmtree(folder, ignore_errors=True)
            if isinstance(error, OSError):
                raise LaunchFailed(WorkloadError(reason=f"its interpreter cannot be started: {error}")) from error
            raise
        finally:
            os.close(to_child)
            os.close(from_child)
        process.wake_on(channel.reader)
        return WorkloadHandle(process, folder, channel, request, self.clock, self.sample_costs_s)


class ControlChannel:
    """Our ends of the two control pipes of a launch."""

    def __init__(self, reader: int, writer: int) -> None:
        self.reader = reader
        self.writer = writer
        self.inbox = b""

    @classmethod
    def open(cls) -> tuple[ControlChannel, tuple[int, int]]:
        """A channel, and the child's ends of its pipes: the one it reads from and the one it writes to."""
        to_child, from_parent = os.pipe()
        to_parent, from_child = os.pipe()
        return cls(to_parent, from_parent), (to_child, from_child)

    def send(self, message: dict[str, Any]) -> None:
        """One message. A launch that has ended is noticed at the next `receive`."""
        with contextlib.suppress(BrokenPipeError):
            os.write(self.writer, framed(message))

    def _complete(self) -> bool:
        """Whether a whole message has been read."""
        return len(self.inbox) >= LENGTH_BYTES and len(self.inbox) >= self._end()

    def _end(self) -> int:
        return LENGTH_BYTES + int.from_bytes(self.inbox[:LENGTH_BYTES], "little")

    def waiting(self) -> bool:
        """Whether the launch has sent something that nobody has received yet."""
        return self._complete() or bool(select.select([self.reader], [], [], 0)[0])

    def receive(self) -> dict[str, Any] | None:
        """The next message; None while there is none."""
        if self.waiting() and not self._complete():
            self.inbox += os.read(self.reader, 65536)
        if not self._complete():
            return None
        end = self._end()
        message: dict[str, Any] = marshal.loads(self.inbox[LENGTH_BYTES:end])
        self.inbox = self.inbox[end:]
        return message

    def close(self) -> None:
        """Close both ends; a runner that still waits for a message ends then."""
        os.close(self.reader)
        os.close(self.writer)


class WorkloadHandle:
    """One real launch, told over its control channel what to do; its output is drained while it is waited for."""

    def __init__(
        self,
        process: Process,
        folder: Path,
        channel: ControlChannel,
        request: Request,
        clock: Callable[[], float],
        sample_costs_s: dict[tuple[str, str, int], float],
    ) -> None:
        self.process = process
        self.folder = folder
        self.channel = channel
        self.request = request
        self.timeout_s = request.timeout_s
        self.clock = clock
        self.sample_costs_s = sample_costs_s
        self.sample_cost_s = 0.0
        self.result: _Result | None = None
        self.closed_s = 0.0

    @property
    def mark(self) -> str:
        """What its processes carry in their environment."""
        return self.process.mark

    # -- iterations --------------------------------------------------------------------------------------------

    def ready(self) -> float:
        """Wait until the workload is imported; the clock's resolution there, in ns."""
        message = self._await("ready", max(START_TIMEOUT_S, self.timeout_s), "importing the workload")
        return float(message["resolution_ns"])

    def iteration(self, kind: str, loops: int = 1, window_ns: int = 0) -> Iteration:
        """One iteration; see Handle."""
        self.channel.send({"do": "iteration", "kind": kind, "loops": loops, "window_ns": window_ns})
        return self._iteration(self.timeout_s + window_ns / 1e9, f"a {kind} iteration")

    def measure_held(self, window_ns: int, sampled: bool, one_ns: float = 0.0) -> Held:
        """One held iteration, its end not sampled; of a long body one call, without its first tenth."""
        needed_s = max(window_ns / 1e9, hold_needed_s(self.sample_cost_s) / SAMPLED)
        if self.request.spec.one_call:
            return self._held_calls(needed_s, sampled, one_ns)
        seconds = max(needed_s, HELD_CALLS * one_ns / 1e9)
        one_call = one_ns >= needed_s * 1e9  # else one sample of it would be of a moment, such as an import
        loops = 1 if one_call or not one_ns else TOGETHER
        window_ns = 0 if one_call else round(seconds * 1e9)
        self.channel.send({"do": "iteration", "kind": HOLD, "loops": loops, "window_ns": window_ns})
        released = self._await("released", self.timeout_s, "starting its workers and their first calls")
        memory: tuple[MemoryPoint, ...] = ()
        dropped, waits = 0, None
        if sampled:
            if loops != TOGETHER:  # workers that have only just begun
                time.sleep(seconds * (1 - SAMPLED) / 2)
            refused = self.request.waits_unavailable
            memory, dropped, waits = sample_tree(
                self._process_map(released), seconds * SAMPLED, refused=refused, over=self.channel.waiting
            )
        timeout_s = max(self.timeout_s, 2 * one_ns / 1e9) + seconds
        iteration = self._iteration(timeout_s, "a held iteration")
        return Held(iteration=iteration, memory=memory, dropped=dropped, waits=waits)

    def _held_calls(self, needed_s: float, sampled: bool, one_ns: float) -> Held:
        """Calls that have setups and teardowns of their own, of which nothing is sampled: enough to last `needed_s`."""
        count = max(1, min(MOST_HELD_CALLS, math.ceil(needed_s * 1e9 / max(1.0, one_ns))))
        calls = [self._held_call(max(needed_s, HELD_CALLS * one_ns / 1e9), sampled, one_ns) for _ in range(count)]
        return Held(
            iteration=sorted((call.iteration for call in calls), key=lambda each: each.rate)[count // 2],
            memory=tuple(point for call in calls for point in call.memory),
            dropped=sum(call.dropped for call in calls),
            waits=max((call.waits for call in calls if call.waits), key=lambda each: each.span_s, default=None),
        )

    def _held_call(self, seconds: float, sampled: bool, one_ns: float) -> Held:
        """One of them; its memory also at its end, where it is too short to be sampled before that."""
        self.channel.send({"do": "iteration", "kind": HOLD, "loops": 1, "window_ns": 0, "pauses": True})
        processes = self._process_map(self._await("released", self.timeout_s, "its setups"))
        memory: tuple[MemoryPoint, ...] = ()
        dropped, waits = 0, Waits(unavailable=SHORT_CALLS)
        if sampled and one_ns >= SHORT_CALL_NS:
            refused = self.request.waits_unavailable
            memory, dropped, waits = sample_tree(processes, seconds, refused=refused, over=self.channel.waiting)
        self._await("done", max(self.timeout_s, 2 * one_ns / 1e9), "a held iteration")
        if sampled and not memory and (point := memory_point(tree(processes.main), processes)):
            memory = (point,)
        self.channel.send({"do": "go on"})
        iteration = self._iteration(self.timeout_s, "its teardowns")
        return Held(iteration=iteration, memory=memory, dropped=dropped, waits=waits if sampled else None)

    def barrier(self, loops: int, window_ns: int) -> Barrier:
        """One iteration, and a sample of the memory that is left after it; see Handle."""
        self.channel.send({"do": "iteration", "kind": BARRIER, "loops": loops, "window_ns": window_ns})
        message = self._await("at_barrier", self.timeout_s + window_ns / 1e9, "an iteration")
        processes = self._process_map(message)
        try:
            point = barrier_point(processes)
        except ProcessLookupError as error:
            raise self.process.failure(str(error)) from error
        self.sample_cost_s = self._cost_of_a_sample(processes)
        self.channel.send({"do": "go on"})
        iteration = self._iteration(self.timeout_s, "ending its workers")
        return Barrier(ops=max(1, round(iteration.ops / self.request.callers)), point=point)

    def close(self) -> None:
        """Let its workers end and its interpreter begin to; its exit handlers may end what the workload started."""
        if self.result is not None:
            return
        self.channel.send({"do": "finish"})
        self._await("closed", self.timeout_s, "ending its workers")
        self.result = self._result()
        self.closed_s = self.clock()
        self.process.wake_no_more_on(self.channel.reader)

    def finish(self) -> Launch:
        """Let the launch end by itself; raises LaunchFailed when it left processes behind."""
        self.close()
        assert self.result is not None
        try:
            waited_s = self.clock() - self.closed_s
            if not self.process.over(THREADS_S - waited_s):
                self._look_for_threads()
            if not self.process.over(self.timeout_s - waited_s):
                raise self._hung(f"did not exit within {self.timeout_s:g} s: an exit handler of the workload holds it")
            if left := left_behind(self.mark, LEFT_FIX):
                raise LaunchFailed(left)
            locks = self._locks(self.result) if self.request.role == "locks" else None
        finally:
            self.kill()
        return msgspec.structs.replace(self.result.launch, locks=locks)

    def kill(self) -> None:
        """End it and everything that it started."""
        if not self.process.closed:
            self.process.kill()
            self.channel.close()
            shutil.rmtree(self.folder, ignore_errors=True)

    def _cost_of_a_sample(self, processes: ProcessMap) -> float:
        """CPU time of a sample of its memory in s, measured once for all launches with as many such workers."""
        cell = self.request.cell
        key = self.request.python, cell.executor.label, cell.workers
        if key not in self.sample_costs_s:
            self.sample_costs_s[key] = sample_cost_s(processes)
        return self.sample_costs_s[key]

    # -- messages ----------------------------------------------------------------------------------------------

    def _iteration(self, timeout_s: float, doing: str) -> Iteration:
        return msgspec.convert(self._await("iteration", timeout_s, doing)["iteration"], Iteration)

    def _process_map(self, message: dict[str, Any]) -> ProcessMap:
        return msgspec.convert({**message["processes"], "main": self.process.pid}, ProcessMap, strict=False)

    def _await(self, event: str, timeout_s: float, doing: str) -> dict[str, Any]:
        """The next message of the launch, which has to be `event`; what ends the waiting otherwise is raised."""
        deadline = self.clock() + timeout_s
        while True:
            message = self.channel.receive()
            if message is not None:
                if message["event"] == event:
                    return message
                if message["event"] == "closed":
                    self._result()  # says why
                    raise self.process.failure("ended early")
            elif self.process.exit is not None:
                raise self._crashed(f"{exit_text(self.process.exit.code)} during {doing}")
            elif self.process.flooded:
                raise self.process.failure(f"printed more than {FLOOD_BYTES >> 20} MiB")
            elif self.clock() > deadline:
                raise self._hung(f"did not end {doing} within {timeout_s:g} s (its whole process tree was ended)")
            else:
                self.process.drain(0.1)

    # -- the result --------------------------------------------------------------------------------------------

    def _result(self) -> _Result:
        """The result file. Raises CellUnsupported or LaunchFailed where it says so, or cannot be read."""
        try:
            content = marshal.loads((self.folder / "result").read_bytes())
            result = msgspec.convert(content, _Result)
        except (OSError, EOFError, ValueError, TypeError) as error:  # the last three: of marshal and of msgspec
            raise self.process.failure(f"its result file cannot be read: {error}") from error
        if result.unsupported is not None:
            raise CellUnsupported(result.unsupported)
        if result.error is not None:
            raise self._crashed(result.error.reason, result.error.detail)
        return result

    # -- where it was ------------------------------------------------------------------------------------------

    def _look_for_threads(self) -> None:
        """Raise LaunchFailed where nothing but threads of the workload keeps the process from ending."""
        found = self._stacks([])
        if stacks.awaits_threads(found):
            held = stacks.at_work(found)
            named = stacks.lines(held)
            reason = f"its process did not end within {THREADS_S:g} s: a thread of the workload still runs"
            text = "\n".join((stacks.shown(held), THREADS_FIX))
            raise self.process.failure(f"{reason} ({named})" if named else reason, last=text)

    def _stacks(self, others: Sequence[int]) -> list[stacks.Stack]:
        """Of the launch's own process and these others."""
        setup = setup_of(self.request.cell, self.request.spec, stand_in=self.request.stand_in)
        return stacks.asked([self.process.pid, *others], self.folder / STACKS, setup)

    def _hung(self, reason: str) -> LaunchFailed:
        """The error of a launch that takes too long, with the stacks of all its threads."""
        others = [process.pid for process in marked(self.mark) if process.pid != self.process.pid]
        found = stacks.at_work(self._stacks(others))
        return self.process.failure(reason + stacks.where(found), last=stacks.shown(found))

    def _crashed(self, reason: str, detail: str = "") -> LaunchFailed:
        """The error of a launch that ended early; of a crash, such as a segmentation fault, with its Python line."""
        fatal, found = stacks.crashed(self.folder / STACKS)
        if not fatal:
            return self.process.failure(reason, detail)
        return self.process.failure(reason + stacks.at_line(found), detail, last=f"{fatal}\n{stacks.shown(found)}")

    def _locks(self, result: _Result) -> LockWaits:
        """The waits of all processes and interpreters of this launch; each wrote its file as it ended."""
        try:
            recorded = lock_waits.read(self.folder / LOCKS)
        except FtgateError as error:
            raise LaunchFailed(WorkloadError(reason=str(error))) from error
        iterations = result.launch.iterations
        # Roles that do not lead are at work until they are joined.
        joined_ns = sum(iteration.join_ns for iteration in iterations) if self.request.cell.roles else 0
        work_ns = sum(iteration.work_ns for iteration in iterations) + joined_ns
        return LockWaits(
            work_ns=work_ns,
            thread_ns=lock_waits.thread_ns(self.request.cell, work_ns, recorded.lived_ns(result.spans)),
            ops=sum(iteration.ops for iteration in iterations),
            counted_ops=result.warmed_ops,
            sites=recorded.sites,
        )
