"""Launches of Python workloads: the runner in a fresh interpreter."""

from __future__ import annotations

import contextlib
import marshal
import math
import os
import select
import shutil
import time
from collections.abc import Mapping, Sequence
from multiprocessing import Pipe
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

from ...kit import proc
from ...kit.errors import FtgateError
from ...kit.files import remove
from ...kit.marks import MARK, marks, tool_mark
from ...kit.processes import GRACE_S, marked, tree
from ...kit.scratch import semaphore_prefix, temporary_folder
from ...kit.values import Natural
from ...model.sample import NS_PER_S, Barrier, Iteration, Launch, Loads, LockWaits, MemoryPoint, Waits, WorkloadError
from ...runner.loads import LOADS as TRACES
from ...runner.locks.sites import FOLDER, OFF, WINDOW
from ...runner.profile import PROFILE
from ...runner.protocol import BARRIER, HOLD, LEFT, LENGTH_BYTES, MARSHAL, MEASURED, PROTOCOL
from ...runner.reads import READS
from ...runner.stacks import THREADS_S
from .. import loads, profiles, stacks
from ..launch import LEFT_FIX, THREADS_FIX, Answered, CellUnsupported, HeldIteration, LaunchFailed, Request, setup_of
from ..machine import pinned
from ..marshalled import BrokenMessage, unmarshalled
from ..process_map import ProcessMap
from ..watch import lock_waits
from ..watch.memory import (
    SAMPLED,
    barrier_point,
    hold_needed_s,
    point_of_all,
    sample_cost_s,
    sample_tree,
    with_unshared,
)
from ..watch.native import waits_in
from .process import FLOOD_BYTES, Process, exit_text, left_behind
from .programs import workload_variables

# ---- messages between the controller and a launch; the runner's side of it is in `runner/main.py`

LONGEST: Final = 16 << 20
"""The bytes of a message at most; ours name the processes of a launch and no more."""
CHUNK: Final = 65536


class ControlChannel:
    """Our ends of the two control pipes of a launch, and the launch's until it has them."""

    def __init__(self) -> None:
        self.reader, self._their_writer = Pipe(duplex=False)
        self._their_reader, self.writer = Pipe(duplex=False)
        os.set_blocking(self.reader.fileno(), False)  # half a message must not keep us waiting
        # One for all messages: Connection.poll makes one each time.
        self._poll = select.poll()
        self._poll.register(self.reader.fileno(), select.POLLIN)
        self.ended = False
        """Whether every process that could send something has closed its end."""
        self._received = bytearray()

    @property
    def theirs(self) -> tuple[int, int]:
        """The descriptors that the launch gets: the one it reads from and the one it writes to."""
        return self._their_reader.fileno(), self._their_writer.fileno()

    def handed_over(self) -> None:
        self._their_reader.close()
        self._their_writer.close()

    def send(self, message: dict[str, Any]) -> None:
        """One message. A launch that has ended is noticed at the next `receive`."""
        with contextlib.suppress(BrokenPipeError):
            self.writer.send_bytes(marshal.dumps(message, MARSHAL))

    def waiting(self, wait_s: float = 0.0) -> bool:
        """Whether the launch has sent something that nobody has received yet, or has ended; waits for that."""
        return bool(self._poll.poll(1000 * wait_s)) or bool(self._received)

    def receive(self) -> dict[str, Any] | None:
        """The next message; None while nothing is there, or only its beginning. Raises BrokenMessage."""
        while (message := self._next()) is None and not self.ended:
            try:
                chunk = os.read(self.reader.fileno(), CHUNK)
            except BlockingIOError:
                return None
            self._received += chunk
            self.ended = not chunk
        return message

    def close(self) -> None:
        """Close both ends; a runner that still waits for a message ends then."""
        self.reader.close()
        self.writer.close()

    def _next(self) -> dict[str, Any] | None:
        if len(self._received) < LENGTH_BYTES:
            return None
        size = int.from_bytes(self._received[:LENGTH_BYTES], "big")
        if size > LONGEST:
            raise BrokenMessage(f"a message of {size:,} bytes")
        if len(self._received) < (end := LENGTH_BYTES + size):
            return None
        content = bytes(self._received[LENGTH_BYTES:end])
        del self._received[:end]
        message = unmarshalled(content)
        if not (isinstance(message, dict) and isinstance(message.get("event"), str)):
            raise BrokenMessage(f"{repr(message)[:80]} in place of a message")
        return message


# ---- the clock of a launch

CLOCK: Final = "its clock disagrees with the controller's"
LONGER: Final = 1.01
LONGER_NS: Final = 1e6
"""An iteration cannot take longer than the controller waited for its answer: both read the same clock of the system."""


def clock_error(waited_ns: float, said_ns: float) -> WorkloadError | None:
    """Why an answer cannot be by the system's clock, as where a library freezes or scales time; None where it can."""
    if said_ns <= LONGER * waited_ns + LONGER_NS:
        return None
    said, waited = said_ns / 1e6, waited_ns / 1e6
    return WorkloadError(
        reason=CLOCK,
        detail=f"An iteration took {said:.3g} ms by its own clock, longer than the {waited:.3g} ms that passed here. "
        "A workload must not replace the clock (time.perf_counter_ns) of the process that is measured.",
    )


# ---- launches

HELD_CALLS = 1.25
"""Calls of a body that a hold is long enough for at least, so that every part of one can be sampled."""
MOST_HELD_CALLS = 8
"""Calls of a hold where each has a setup of its own, which may be long."""
SHORT_CALL_NS = 50_000_000
SHORT_CALLS = "each call of the body has a setup of its own, and is too short to be sampled"
TOGETHER = 0
"""The loops of an iteration whose workers stop together, once its window has passed."""
START_TIMEOUT_S = 120.0
LOCKS = "locks"
STACKS = "stacks"
PROFILES = "profiles"
LOADS = "loads"
SETTLED = {"MIMALLOC_PURGE_DELAY": "0"}
"""Else the allocator of free-threaded builds keeps freed pages for a while, which hides a leak or looks like one."""
RUN = "import sys; from pytest_ftgate.runner.main import main; sys.exit(main(sys.argv[1:]))"
"""Not a file or folder: that loads runpy, which counts as memory of the workload, and spawned workers import it."""
JUNK_FIX = "A file descriptor that the workload did not open itself is not its own: it must not write to it."
NOT_INHERITED = ("PYTHON", "PYTEST_", "COV_CORE_", "COVERAGE_PROCESS_")
STARTHOOK = "pytest_ftgate/runner/starthook"
T = TypeVar("T")


class _Result(msgspec.Struct):
    """The file that the runner writes at the end of a launch."""

    protocol: int
    launch: Launch
    error: WorkloadError | None = None
    unsupported: str | None = None
    iterations: tuple[Natural, Natural] = (0, 0)
    """How many were measured or held, and their time in ns: that of its answers, or these are not its own."""
    spans: list[tuple[Natural, Natural]] = []
    """When the workers of each were at work, in ns on the runner's clock."""


def result_of(content: bytes) -> _Result:
    """The result file's content. Raises ValueError for one that a runner of this version does not write."""
    try:
        result = msgspec.convert(unmarshalled(content), _Result)
    except (BrokenMessage, MemoryError, UnicodeEncodeError) as error:
        raise ValueError(str(error)) from error
    if result.protocol != PROTOCOL:
        raise ValueError(f"its protocol is {result.protocol}, and that of this version is {PROTOCOL}")
    return result


def job_of(request: Request, result: Path, control: tuple[int, int], mark: str) -> dict[str, Any]:
    setup = setup_of(request.cell, request.spec, stand_in=request.stand_in, copies=request.copies)
    setup |= {"gil_note": None if request.expect_gil else f"{result}.gil", "held": f"{result}.held"}
    setup |= {"cpus": pinned(request.cell, request.spec), "observers": list(request.observers)}
    return {
        "protocol": PROTOCOL,
        "setup": {**setup, "stacks": [str(result.with_name(STACKS)), stacks.SIGNAL]},
        "fresh": request.spec.reuse == "fresh",
        "expect_gil": request.expect_gil,
        "control": list(control),
        "folder": temporary_folder(mark),
        "semaphores": semaphore_prefix(mark),
        "locks": request.role == "locks",
        "settled": request.settled,
        "result": str(result),
    }


def launch_environment(request: Request, mark: str, runner: Path, inherited: Mapping[str, str]) -> dict[str, str]:
    """The environment of a launch of the runner.

    With -P and -s it isolates as -I does, which would also ignore the hash seed. PYTHONPATH holds the light copy of
    the package alone, which spawned workers, the forkserver and every sub-interpreter find there.
    """
    variables = workload_variables(request.cell, request.spec, request.python)
    return {**bare_environment(request, mark, inherited), **variables, "PYTHONPATH": str(runner)}


def bare_environment(request: Request, mark: str, inherited: Mapping[str, str]) -> dict[str, str]:
    """The environment of any launch: no PYTHON* variable of the caller, but a hash seed, padding, the launch's mark.

    Nor those by which coverage.py and pytest-cov (before 7) measure the coverage of child processes, also in a launch.
    """
    kept = {name: value for name, value in inherited.items() if not name.startswith(NOT_INHERITED)}
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

    def __init__(self, runner: Path, work: Path) -> None:
        if os.name != "posix":
            raise FtgateError(
                "--ftgate measures on Linux and macOS; on this platform run without it: each cell runs once, as a test"
            )
        self.runner = runner
        self.work = work
        self.clock = time.monotonic
        self.marks = marks()
        self.sample_costs_s: dict[tuple[str, str, int], float] = {}
        """What a sample of memory costs, by interpreter, executor and workers."""

    def start(self, request: Request) -> WorkloadHandle:
        """Start the interpreter; it imports the workload and waits for messages. Raises LaunchFailed."""
        mark = next(self.marks)
        # The folder's name is padded too: its length is part of the layout that argv has on the stack.
        folder = self.work / f"{mark}{'-' * (request.padding % 16)}"
        environment = launch_environment(request, mark, self.runner, os.environ)
        channel = ControlChannel()
        try:
            (folder / STACKS).mkdir(parents=True)
            if request.settled:
                environment |= SETTLED
            if request.role == "locks":
                environment |= lock_environment(self.runner, folder / LOCKS)
            if request.role == "profile":
                (folder / PROFILES).mkdir()
                environment |= {PROFILE: f"{request.sampling_ns}:{folder / PROFILES}", **_start_hook(self.runner)}
            if request.role == "loaded":
                (folder / LOADS).mkdir()
                environment |= {TRACES: f"{request.loads}:{folder / LOADS}", **_start_hook(self.runner)}
            if request.reads:
                environment |= {READS: request.reads, **_start_hook(self.runner)}
            job = folder / "job"
            job.write_bytes(marshal.dumps(job_of(request, folder / "result", channel.theirs, mark), MARSHAL))
            words = [request.python, "-P", "-s", "-c", RUN, str(job)]
            process = Process.start(words, environment, pass_fds=channel.theirs)
        except BaseException as error:
            channel.close()
            shutil.rmtree(folder, ignore_errors=True)
            if isinstance(error, OSError):
                raise LaunchFailed(WorkloadError(reason=f"its interpreter cannot be started: {error}")) from error
            raise
        finally:
            channel.handed_over()
        return WorkloadHandle(self, process, folder, channel, request)


class WorkloadHandle:
    """One real launch, told over its control channel what to do."""

    def __init__(
        self, launcher: WorkloadLauncher, process: Process, folder: Path, channel: ControlChannel, request: Request
    ) -> None:
        self.process = process
        self.mark = process.mark
        self.folder = folder
        self.channel = channel
        self.request = request
        self.timeout_s = request.timeout_s
        self.clock = launcher.clock
        self.sample_costs_s = launcher.sample_costs_s
        self.sample_cost_s = 0.0
        self.at_rest: MemoryPoint | None = None
        """Its memory at the latest barrier."""
        self.left_calls: list[int] = []
        """Of each barrier after a collection, the calls of a worker before it."""
        self.answered = Answered()
        self.has_peak = False
        """Whether the kernel keeps the peak of its measured iterations now."""
        self.peak_bytes: int | None = None
        self.result: _Result | None = None
        self.closed_s = 0.0

    # -- iterations --------------------------------------------------------------------------------------------

    def ready(self) -> float:
        message = self.awaited("ready", max(START_TIMEOUT_S, self.timeout_s), "importing the workload")
        return min(self._read(message, "resolution_ns", float), NS_PER_S)

    def iteration(self, kind: str, loops: int = 1, window_ns: int = 0) -> Iteration:
        self._follow_peak(kind)
        began_s = self.clock()
        self.channel.send({"do": "iteration", "kind": kind, "loops": loops, "window_ns": window_ns})
        message = self.awaited("iteration", self.timeout_s + window_ns / 1e9, f"a {kind} iteration")
        waited_s = self.clock() - began_s
        iteration = self._read(message, "iteration", Iteration)
        if wrong := clock_error(waited_s * 1e9, iteration.wall_ns):
            raise LaunchFailed(wrong)
        return self.answered.add(kind, iteration)

    def _follow_peak(self, kind: str) -> None:
        """Before an iteration, or the end: begin with the first measured one, and read the peak after the last.

        Of worker processes there is a peak of each, and none of their sum.
        """
        begun, pid = bool(self.answered.iterations), self.process.pid
        if self.request.role != "own" or self.request.cell.executor.has_processes:
            return
        with contextlib.suppress(OSError):
            if kind == MEASURED and not begun:
                proc.forget_peak(pid)
                self.has_peak = True
            elif kind != MEASURED and self.has_peak:
                self.has_peak = False
                self.peak_bytes = proc.peak_bytes(pid)

    def measure_held(self, window_ns: int, sampled: bool, one_ns: float = 0.0, share: float = 1.0) -> HeldIteration:
        """One held iteration; of a long body one call, without its first and its last tenth."""
        needed_s = share * max(window_ns / 1e9, hold_needed_s(self.sample_cost_s) / SAMPLED)
        if self.request.spec.one_call:
            return self._held_calls(needed_s, sampled, one_ns)
        seconds = max(needed_s, HELD_CALLS * one_ns / 1e9)
        one_call = one_ns >= needed_s * 1e9  # else one sample of it would be of a moment, such as an import
        loops = 1 if one_call or not one_ns else TOGETHER
        after_s = 0.0 if loops == TOGETHER else seconds * (1 - SAMPLED) / 2  # workers that have only just begun
        timeout_s = max(self.timeout_s, 2 * one_ns / 1e9) + seconds
        window_ns = 0 if one_call else round(seconds * 1e9)
        return self._held(loops, window_ns, (after_s, seconds * SAMPLED) if sampled else None, timeout_s)

    def _held_calls(self, needed_s: float, sampled: bool, one_ns: float) -> HeldIteration:
        """Calls that have setups and teardowns of their own, of which nothing is sampled: enough to last `needed_s`."""
        count = max(1, min(MOST_HELD_CALLS, math.ceil(needed_s * 1e9 / max(1.0, one_ns))))
        seconds = max(needed_s, HELD_CALLS * one_ns / 1e9) if one_ns >= SHORT_CALL_NS else 0.0
        timeout_s = max(self.timeout_s, 2 * one_ns / 1e9)
        calls = [self._held(1, 0, (0.0, seconds) if sampled else None, timeout_s) for _ in range(count)]
        return HeldIteration(
            iteration=sorted((call.iteration for call in calls), key=lambda each: each.rate)[count // 2],
            memory=tuple(point for call in calls for point in call.memory),
            dropped=sum(call.dropped for call in calls),
            waits=max((call.waits for call in calls if call.waits), key=lambda each: each.span_s, default=None),
        )

    def _held(self, loops: int, window_ns: int, sampled: tuple[float, float] | None, timeout_s: float) -> HeldIteration:
        """One iteration, `sampled` after so many seconds for so many; if that gives no sample of memory, at its end.

        No worker ends before that, so every sample has all of them.
        """
        self.channel.send({"do": "iteration", "kind": HOLD, "loops": loops, "window_ns": window_ns})
        released = self.awaited("released", self.timeout_s, "starting its workers, their setups and first calls")
        processes = self.process_map(released)
        if self.request.role == "loaded":
            with loads.written(self.folder / LOADS, {processes.main, *processes.workers}):
                self.awaited("done", timeout_s, "a held iteration")
            return HeldIteration(iteration=self.answered.add(HOLD, self._let_go_on()))
        memory: tuple[MemoryPoint, ...] = ()
        dropped, waits = 0, Waits(unavailable=SHORT_CALLS) if sampled else None
        if sampled and sampled[1]:
            time.sleep(sampled[0])
            refused = self.request.waits_unavailable
            memory, dropped, waits = sample_tree(processes, sampled[1], refused=refused, over=self.channel.waiting)
        self.awaited("done", timeout_s, "a held iteration")
        if sampled and not memory:
            point = point_of_all(tree(processes.main), processes)
            memory = () if point is None else (with_unshared(point, processes),)
            dropped += point is None
        iteration = self.answered.add(HOLD, self._let_go_on())
        return HeldIteration(iteration=iteration, memory=memory, dropped=dropped, waits=waits)

    def barrier(self, loops: int, window_ns: int, *, collects: bool = False) -> Barrier:
        """One iteration, and a sample of the memory that is left after it; see Handle."""
        kind = LEFT if collects else BARRIER
        self.channel.send({"do": "iteration", "kind": kind, "loops": loops, "window_ns": window_ns})
        message = self.awaited("at_barrier", self.timeout_s + window_ns / 1e9, "an iteration")
        processes = self.process_map(message)
        try:
            point = self.at_rest = barrier_point(processes, self.at_rest)
        except ProcessLookupError as error:
            raise self.process.failure(str(error)) from error
        # Measured once for all launches with as many such workers.
        cell = self.request.cell
        key = self.request.python, cell.executor.label, cell.workers
        if key not in self.sample_costs_s:
            self.sample_costs_s[key] = sample_cost_s(processes)
        self.sample_cost_s = self.sample_costs_s[key]
        calls = max(1, round(self._let_go_on().ops / self.request.callers))
        self.left_calls += [calls] * collects
        return Barrier(ops=calls, point=point)

    def close(self) -> None:
        """Let its workers end and its interpreter begin to; its exit handlers may end what the workload started."""
        if self.result is not None:
            return
        self._follow_peak("")
        self.channel.send({"do": "finish"})
        self.awaited("closed", self.timeout_s, "ending its workers")
        result = self._result()
        answers = len(self.answered.iterations), sum(each.wall_ns for each in self.answered.iterations)
        if answers != result.iterations:
            both = (f"{count} iterations of {wall_ns / 1e6:.6g} ms" for count, wall_ns in (answers, result.iterations))
            raise self._junk(" and, in its result file, ".join(both))
        self.result = result
        self.closed_s = self.clock()

    def finish(self) -> Launch:
        """Let the launch end by itself; raises LaunchFailed when it left processes behind."""
        self.close()
        assert self.result is not None
        locks, profile, loaded = None, None, None
        try:
            # 1. It ends: neither threads of the workload nor its exit handlers hold it.
            waited_s = self.clock() - self.closed_s
            if not self.process.over(THREADS_S - waited_s) and stacks.awaits_threads(found := self._stacks([])):
                held = stacks.at_work(found)
                named = stacks.lines(held)
                reason = f"its process did not end within {THREADS_S:g} s: a thread of the workload still runs"
                text = "\n".join((stacks.shown(held), THREADS_FIX))
                raise self.process.failure(f"{reason} ({named})" if named else reason, last=text)
            if not self.process.over(self.timeout_s - waited_s):
                raise self._hung(f"did not exit within {self.timeout_s:g} s: an exit handler of the workload holds it")
            # 2. It leaves no process.
            if left := left_behind(self.mark, LEFT_FIX):
                raise LaunchFailed(left)
            # 3. What each of its processes wrote as it ended.
            if self.request.role == "locks":
                locks = self._locks(self.result)
            if self.request.role == "profile":
                profile = profiles.read(self.folder / PROFILES, self.result.spans)
            if self.request.role == "loaded":
                loaded = self._loads()
        finally:
            self.kill()
        iterations = tuple(self.answered.iterations)
        return msgspec.structs.replace(
            self.result.launch,
            cold=self.answered.cold,
            iterations=iterations,
            peak_bytes=self.peak_bytes,
            locks=locks,
            profile=profile,
            loads=loaded,
        )

    def kill(self) -> None:
        if not self.process.closed:
            self.process.kill()
            self.channel.close()
            shutil.rmtree(self.folder, ignore_errors=True)
            shutil.rmtree(temporary_folder(self.mark), ignore_errors=True)

    # -- messages ----------------------------------------------------------------------------------------------

    def _let_go_on(self) -> Iteration:
        """What a held or stopped iteration was, once its workers are told to end."""
        self.channel.send({"do": "go on"})
        return self._read(self.awaited("iteration", self.timeout_s, "ending its workers"), "iteration", Iteration)

    def process_map(self, message: dict[str, Any]) -> ProcessMap:
        processes = self._read(message, "processes", dict[str, Any])
        return self._read({**message, "processes": {**processes, "main": self.process.pid}}, "processes", ProcessMap)

    def _read(self, message: dict[str, Any], name: str, kind: type[T]) -> T:
        """What a message of the launch holds under a name. Raises LaunchFailed where it is something else."""
        try:
            return msgspec.convert(message.get(name), kind, strict=False)
        except msgspec.ValidationError as error:
            raise self._junk(f"{name} of its {message['event']!r} message: {error}") from error

    def _junk(self, what: str) -> LaunchFailed:
        return self.process.failure(f"sent invalid data on the pipe of its runner: {what}", JUNK_FIX)

    def awaited(self, event: str, timeout_s: float, doing: str) -> dict[str, Any]:
        """The next message of the launch, which has to be `event`; what ends the waiting otherwise is raised."""
        deadline = self.clock() + timeout_s
        while True:
            exited = self.process.exit  # what it sent before is there by now
            try:
                message = self.channel.receive()
            except BrokenMessage as broken:
                raise self._junk(str(broken)) from broken
            if message is not None and message["event"] == event:
                return message
            if message is not None and message["event"] == "closed":
                self._result()  # says why
                raise self.process.failure("ended early")
            if message is None and exited is not None:
                raise self._crashed(f"{exit_text(exited.code)} during {doing}")
            if message is None and self.channel.ended:  # it can always be read from: nothing would be waited for
                if not self.process.over(GRACE_S):
                    raise self.process.failure(f"closed the pipe of its runner during {doing}", JUNK_FIX)
                continue
            if self.process.flooded:
                raise self.process.failure(f"printed more than {FLOOD_BYTES >> 20} MiB")
            if self.clock() > deadline:
                raise self._hung(f"did not end {doing} within {timeout_s:g} s (its whole process tree was ended)")
            if message is None:
                self.channel.waiting(0.1)

    # -- the errors of a launch that hangs or crashes, with the stacks of its threads --------------------------

    def _hung(self, reason: str) -> LaunchFailed:
        others = [each.pid for each in marked(self.mark) if each.pid != self.process.pid]
        found = stacks.at_work(self._stacks(others))
        return self.process.failure(reason + stacks.where(found), last=stacks.shown(found))

    def _crashed(self, reason: str, detail: str = "") -> LaunchFailed:
        """The error of a launch that ended early; of a crash, such as a segmentation fault, with its Python line."""
        fatal, found = stacks.crashed(self.folder / STACKS)
        if not fatal:
            return self.process.failure(reason, detail)
        return self.process.failure(reason + stacks.at_line(found), detail, last=f"{fatal}\n{stacks.shown(found)}")

    def _stacks(self, others: Sequence[int]) -> list[stacks.Stack]:
        """Of the launch's own process and these others."""
        setup = setup_of(self.request.cell, self.request.spec, stand_in=self.request.stand_in)
        return stacks.asked([self.process.pid, *others], self.folder / STACKS, setup, waits_in=waits_in)

    # -- the result --------------------------------------------------------------------------------------------

    def _result(self) -> _Result:
        """The result file. Raises CellUnsupported or LaunchFailed where it says so, or cannot be read."""
        try:
            result = result_of((self.folder / "result").read_bytes())
        except (OSError, ValueError) as error:
            raise self.process.failure(f"its result file cannot be read: {error}") from error
        if result.unsupported is not None:
            raise CellUnsupported(result.unsupported)
        if result.error is not None:
            raise self._crashed(result.error.reason, result.error.detail)
        return result

    def _loads(self) -> Loads:
        try:
            return loads.read(self.folder / LOADS, self.process.pid, self.left_calls, unmarshalled)
        except (BrokenMessage, ValueError) as error:
            raise self.process.failure(f"its trace cannot be read: {error}") from error

    def _locks(self, result: _Result) -> LockWaits:
        """The waits of all processes and interpreters of this launch; each wrote its file as it ended."""
        try:
            sites, lifetimes = lock_waits.read(self.folder / LOCKS)
        except FtgateError as error:
            raise LaunchFailed(WorkloadError(reason=str(error))) from error
        iterations = self.answered.iterations
        # Roles that do not lead are at work until they are joined.
        joined_ns = sum(iteration.join_ns for iteration in iterations) if self.request.cell.roles else 0
        work_ns = sum(iteration.work_ns for iteration in iterations) + joined_ns
        lived_ns = lock_waits.lived_ns(lifetimes, result.spans)
        return LockWaits(
            work_ns=work_ns,
            thread_ns=lock_waits.thread_ns(self.request.cell, work_ns, lived_ns),
            ops=sum(iteration.ops for iteration in iterations),
            counted_ops=self.answered.warmed_ops,
            counted_ns=self.answered.warmed_ns,
            sites=sites,
        )


# ---- the copy of the runner that launches import

LIGHT = ("__init__.py", "runner/*.py", "runner/*/*.py")
STAND_IN = Path("pytest_ftgate", "runner", "pytest")


def install_runner(folder: Path) -> Path:
    """A copy of the light part of the package in `folder`, which is this run's alone; for sys.path.

    Beside it, `pytest` is what processes that a workload's libraries start import by that name.

    Only this copy is seen by measured interpreters: the folder that the package stands in holds the controller's
    own dependencies, built for another interpreter. A later run removes it (see `guard.sweep`). Raises FtgateError when
    `folder` cannot be written.
    """
    package = Path(__file__).parents[2]
    home = folder.absolute() / tool_mark()
    try:
        remove(home)
        for path in (path for pattern in LIGHT for path in package.glob(pattern)):
            copy = home / package.name / path.relative_to(package)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, copy)
        (home / "pytest").symlink_to(STAND_IN)
    except OSError as error:
        shutil.rmtree(home, ignore_errors=True)
        mend = "make room there, or make it writable"
        raise FtgateError(f"{folder}: the runner cannot be put there: {error.strerror}; {mend}") from error
    return home
