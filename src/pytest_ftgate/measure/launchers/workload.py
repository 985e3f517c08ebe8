"""Launches of Python workloads: the runner in a fresh interpreter."""

from __future__ import annotations

import marshal
import os
import shutil
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from ...errors import FtgateError
from ...model import (
    NS_PER_S,
    Barrier,
    Iteration,
    Launch,
    LockWaits,
    Natural,
    WorkloadError,
)
from ...runner.locks.sites import FOLDER, OFF, WINDOW
from ...runner.profile import PROFILE
from ...runner.protocol import BARRIER, MARSHAL, MEASURED, PROTOCOL
from ...runner.reads import READS
from ...runner.stacks import THREADS_S
from .. import profiles, stacks
from ..cores import pinned
from ..launch import LEFT_FIX, CellUnsupported, Held, LaunchFailed, Request, setup_of
from ..watch import lock_waits
from ..watch.abandoned import temporary_folder
from ..watch.marks import MARK, marks
from ..watch.memory import barrier_point
from ..watch.process_map import ProcessMap
from ..watch.sampling import sample_cost_s
from . import program_words
from .control_channel import BrokenMessage, ControlChannel, unmarshalled
from .held_iteration import measure_held
from .launch_errors import LaunchErrors
from .output import FLOOD_BYTES, PipeOutput, exit_text, left_behind
from .process import Process
from .turns import Turns, too_many_cores

START_TIMEOUT_S = 120.0
LOCKS = "locks"
STACKS = "stacks"
PROFILES = "profiles"
SETTLED = {"MIMALLOC_PURGE_DELAY": "0"}
"""Else the allocator of free-threaded builds keeps freed pages for a while, which hides a leak or looks like one."""
RUN = "import sys; from pytest_ftgate.runner.main import main; sys.exit(main(sys.argv[1:]))"
"""Not a file or folder: that loads runpy, which counts as memory of the workload, and spawned workers import it."""
JUNK_FIX = "A file descriptor that the workload did not open itself is not its own: it must not write to it."
NOT_INHERITED = ("PYTHON", "PYTEST_", "COV_CORE_", "COVERAGE_PROCESS_")
STARTHOOK = "pytest_ftgate/runner/starthook"


T = TypeVar("T")


class _Result(msgspec.Struct):
    """The file that the runner writes at the end of a launch.

    `warmed_ops` are the body calls of the warm-ups; `spans` is when the workers of each measured iteration were at
    work, in ns on the runner's clock.
    """

    protocol: int
    launch: Launch
    error: WorkloadError | None = None
    unsupported: str | None = None
    warmed_ops: Natural = 0
    spans: list[tuple[Natural, Natural]] = []


def result_of(content: bytes) -> _Result:
    """The result file's content. Raises ValueError for one that a runner of this version does not write."""
    try:
        result = msgspec.convert(unmarshalled(content), _Result)
    except (BrokenMessage, MemoryError, UnicodeEncodeError) as error:
        raise ValueError(str(error)) from error
    if result.protocol != PROTOCOL:
        raise ValueError(f"its protocol is {result.protocol}, and that of this version is {PROTOCOL}")
    return result


def job_of(request: Request, result: Path, control: tuple[int, int], temporary: str = "") -> dict[str, Any]:
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
        "folder": temporary,
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


def profile_environment(runner: Path, folder: Path, sampling_ns: int) -> dict[str, str]:
    """Lets every process and interpreter of a launch sample stacks; makes the folder that they write to."""
    folder.mkdir()
    return {PROFILE: f"{sampling_ns}:{folder}", **_start_hook(runner)}


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
        self.turns = Turns()

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
                environment |= profile_environment(self.runner, folder / PROFILES, request.sampling_ns)
            if request.reads:
                environment |= {READS: request.reads, **_start_hook(self.runner)}
            job = folder / "job"
            job.write_bytes(
                marshal.dumps(job_of(request, folder / "result", channel.theirs, temporary_folder(mark)), MARSHAL)
            )
            words = [request.python, "-P", "-s", "-c", RUN, str(job)]
            process = Process.start(words, environment, stdout=PipeOutput(), pass_fds=channel.theirs)
        except BaseException as error:
            channel.close()
            shutil.rmtree(folder, ignore_errors=True)
            if isinstance(error, OSError):
                raise LaunchFailed(WorkloadError(reason=f"its interpreter cannot be started: {error}")) from error
            raise
        finally:
            channel.handed_over()
        process.wake_on(channel.reader.fileno())
        return WorkloadHandle(process, folder, channel, request, self.clock, self.sample_costs_s, self.turns)


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
        turns: Turns,
    ) -> None:
        self.process = process
        self.folder = folder
        self.channel = channel
        self.request = request
        self.errors = LaunchErrors(process, folder / STACKS, request)
        self.timeout_s = request.timeout_s
        self.clock = clock
        self.sample_costs_s = sample_costs_s
        self.sample_cost_s = 0.0
        self.turns = turns
        self.measured: list[Iteration] = []
        self.result: _Result | None = None
        self.closed_s = 0.0

    @property
    def mark(self) -> str:
        """What its processes carry in their environment."""
        return self.process.mark

    # -- iterations --------------------------------------------------------------------------------------------

    def ready(self) -> float:
        """Wait until the workload is imported; the clock's resolution there, in ns."""
        message = self.awaited("ready", max(START_TIMEOUT_S, self.timeout_s), "importing the workload")
        return min(self._read(message, "resolution_ns", float), NS_PER_S)

    def iteration(self, kind: str, loops: int = 1, window_ns: int = 0) -> Iteration:
        """One iteration; see Handle."""
        began_s = self.clock()
        self.channel.send({"do": "iteration", "kind": kind, "loops": loops, "window_ns": window_ns})
        message = self.awaited("iteration", self.timeout_s + window_ns / 1e9, f"a {kind} iteration")
        waited_s = self.clock() - began_s
        iteration = self._read(message, "iteration", Iteration)
        self.turns.add(self.request, waited_s, max(self._read(message, "turn_ns", int), iteration.wall_ns))
        if kind == MEASURED:
            self.measured.append(iteration)
        return iteration

    def measure_held(self, window_ns: int, sampled: bool, one_ns: float = 0.0) -> Held:
        """One held iteration; see Handle."""
        return measure_held(self, window_ns, sampled, one_ns)

    def barrier(self, loops: int, window_ns: int) -> Barrier:
        """One iteration, and a sample of the memory that is left after it; see Handle."""
        self.channel.send({"do": "iteration", "kind": BARRIER, "loops": loops, "window_ns": window_ns})
        message = self.awaited("at_barrier", self.timeout_s + window_ns / 1e9, "an iteration")
        processes = self.process_map(message)
        try:
            point = barrier_point(processes)
        except ProcessLookupError as error:
            raise self.process.failure(str(error)) from error
        self.sample_cost_s = self._cost_of_a_sample(processes)
        self.channel.send({"do": "go on"})
        iteration = self.awaited_iteration(self.timeout_s, "ending its workers")
        return Barrier(ops=max(1, round(iteration.ops / self.request.callers)), point=point)

    def close(self) -> None:
        """Let its workers end and its interpreter begin to; its exit handlers may end what the workload started."""
        if self.result is not None:
            return
        self.channel.send({"do": "finish"})
        self.awaited("closed", self.timeout_s, "ending its workers")
        self.result = self._believed(self._result())
        self.closed_s = self.clock()
        self.process.wake_no_more_on(self.channel.reader.fileno())

    def finish(self) -> Launch:
        """Let the launch end by itself; raises LaunchFailed when it left processes behind."""
        self.close()
        assert self.result is not None
        try:
            waited_s = self.clock() - self.closed_s
            if not self.process.over(THREADS_S - waited_s):
                self.errors.look_for_threads(THREADS_S)
            if not self.process.over(self.timeout_s - waited_s):
                raise self.errors.hung(
                    f"did not exit within {self.timeout_s:g} s: an exit handler of the workload holds it"
                )
            if left := left_behind(self.mark, LEFT_FIX):
                raise LaunchFailed(left)
            locks = self._locks(self.result) if self.request.role == "locks" else None
            profile = None
            if self.request.role == "profile":
                profile = profiles.read(self.folder / PROFILES, self.result.spans)
        finally:
            self.kill()
        return msgspec.structs.replace(self.result.launch, locks=locks, profile=profile)

    def kill(self) -> None:
        """End it and everything that it started."""
        if not self.process.closed:
            self.process.kill()
            self.channel.close()
            shutil.rmtree(self.folder, ignore_errors=True)
            shutil.rmtree(temporary_folder(self.mark), ignore_errors=True)

    def _cost_of_a_sample(self, processes: ProcessMap) -> float:
        """CPU time of a sample of its memory in s, measured once for all launches with as many such workers."""
        cell = self.request.cell
        key = self.request.python, cell.executor.label, cell.workers
        if key not in self.sample_costs_s:
            self.sample_costs_s[key] = sample_cost_s(processes)
        return self.sample_costs_s[key]

    # -- messages ----------------------------------------------------------------------------------------------

    def awaited_iteration(self, timeout_s: float, doing: str) -> Iteration:
        """The figures of the iteration that the launch is at."""
        return self._read(self.awaited("iteration", timeout_s, doing), "iteration", Iteration)

    def process_map(self, message: dict[str, Any]) -> ProcessMap:
        """Which process does what, as a message of the launch says."""
        processes = self._read(message, "processes", dict[str, Any])
        return self._read({**message, "processes": {**processes, "main": self.process.pid}}, "processes", ProcessMap)

    def _read(self, message: dict[str, Any], name: str, kind: type[T]) -> T:
        """What a message of the launch holds under a name. Raises LaunchFailed where it is something else."""
        try:
            return msgspec.convert(message.get(name), kind, strict=False)
        except msgspec.ValidationError as error:
            raise self._junk(f"{name} of its {message['event']!r} message: {error}") from error

    def _junk(self, what: str) -> LaunchFailed:
        return self.process.failure(f"sent what cannot be used on the pipe of its runner: {what}", JUNK_FIX)

    def awaited(self, event: str, timeout_s: float, doing: str) -> dict[str, Any]:
        """The next message of the launch, which has to be `event`; what ends the waiting otherwise is raised."""
        deadline = self.clock() + timeout_s
        while True:
            try:
                message = self.channel.receive()
            except BrokenMessage as broken:
                raise self._junk(str(broken)) from broken
            if message is not None and message["event"] == event:
                return message
            if message is not None and message["event"] == "closed":
                self._result()  # says why
                raise self.process.failure("ended early")
            if message is None and self.process.exit is not None:
                raise self.errors.crashed(f"{exit_text(self.process.exit.code)} during {doing}")
            if self.process.flooded:
                raise self.process.failure(f"printed more than {FLOOD_BYTES >> 20} MiB")
            if self.clock() > deadline:
                raise self.errors.hung(f"did not end {doing} within {timeout_s:g} s (its whole process tree was ended)")
            if message is None:
                self.process.drain(0.1)

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
            raise self.errors.crashed(result.error.reason, result.error.detail)
        return result

    def _believed(self, result: _Result) -> _Result:
        """The result with the iterations as they were answered. Raises LaunchFailed for figures that cannot be."""
        wrong = self.turns.disagreement(self.request) or too_many_cores(self.request, self.measured)
        if wrong:
            raise LaunchFailed(wrong)
        iterations = tuple(self.measured) or result.launch.iterations
        launch = msgspec.structs.replace(result.launch, iterations=iterations)
        return msgspec.structs.replace(result, launch=launch)

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
