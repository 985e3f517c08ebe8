"""Launches of Python workloads: the runner in a fresh interpreter."""

from __future__ import annotations

import contextlib
import json
import math
import os
import select
import selectors
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NoReturn

import msgspec

from ...errors import FtgateError
from ...model import (
    Barrier,
    Iteration,
    Launch,
    LockWaits,
    MemoryPoint,
    Timer,
    Waits,
    WorkloadError,
)
from ...runner.locks.sites import FOLDER, OFF, WINDOW
from ...runner.protocol import BARRIER, HOLD, PROTOCOL
from ..launch import CellUnsupported, Finished, Held, LaunchFailed, Request, setup_of
from ..watch import lock_waits
from ..watch.memory import MemoryWatch, barrier_point, hold_needed_s, memory_point, watch
from ..watch.process_roles import Roles
from ..watch.processes import MARK, kill_all, marks, tree
from ..watch.threads import Watch
from .output import FLOOD_BYTES, Output, left_behind

START_TIMEOUT_S = 120.0
LOCKS = "locks"
SETTLED = {"MIMALLOC_PURGE_DELAY": "0"}
"""The free-threaded builds' allocator keeps freed pages for a while otherwise, which hides a leak or looks like one."""
WATCHED = 0.8
"""The part of a held window that is watched: its middle, when every worker is at work."""
SLACK = 1.3
"""How much longer than the window workers are held by a number of calls: these may be faster than before."""
STARTHOOK = "pytest_ftgate/runner/starthook"


class _Result(msgspec.Struct):
    protocol: int
    error: WorkloadError | None = None
    unsupported: str | None = None
    cold: Iteration | None = None
    iterations: tuple[Iteration, ...] = ()
    counters: dict[str, float] = {}
    timers: dict[str, Timer] = {}
    peaks: dict[str, float] = {}
    results: tuple[str, ...] = ()
    gil_enabled: bool = False
    warmed_ops: int = 0


def job_of(request: Request, result: Path, control: tuple[int, int]) -> dict[str, Any]:
    """The job file's content; every word of it is plain JSON."""
    setup = setup_of(request.cell, request.spec, stand_in=request.stand_in)
    return {
        "protocol": PROTOCOL,
        "setup": {**setup, "gil_note": None if request.expect_gil else f"{result}.gil"},
        "fresh": request.spec.reuse == "fresh",
        "expect_gil": request.expect_gil,
        "control": list(control),
        "locks": request.side == "locks",
        "settled": request.settled,
        "result": str(result),
    }


def launch_environment(request: Request, mark: str, runner: Path, inherited: Mapping[str, str]) -> dict[str, str]:
    """The environment of a launch of the runner's.

    Together with -P and -s this isolates as -I does, which would also ignore the hash seed. PYTHONPATH holds the
    light copy of the package alone: so it is found in spawned workers, the forkserver and every sub-interpreter.
    """
    return {**bare_environment(request, mark, inherited), "PYTHONPATH": str(runner)}


def bare_environment(request: Request, mark: str, inherited: Mapping[str, str]) -> dict[str, str]:
    """The environment of any launch: no PYTHON* of the caller's, a hash seed, padding, and the launch's mark."""
    kept = {name: value for name, value in inherited.items() if not name.startswith(("PYTHON", "PYTEST_"))}
    return {
        **kept,
        **request.environment,
        "PYTHONHASHSEED": str(request.hash_seed),
        "FTGATE_PADDING": "x" * request.padding,
        MARK: mark,
    }


def lock_environment(runner: Path, folder: Path) -> dict[str, str]:
    """What turns the lock probe on in every process and interpreter of a launch; makes the folder they write to."""
    folder.mkdir()
    (folder / WINDOW).write_bytes(bytes((OFF,)))
    return {FOLDER: str(folder), "PYTHONPATH": os.pathsep.join((str(runner / STARTHOOK), str(runner)))}


def watch_tree(
    roles: Roles, seconds: float, *, refused: str, over: Callable[[], bool], grows: bool = False
) -> tuple[tuple[MemoryPoint, ...], Waits]:
    """Memory and waits of a launch for `seconds` or until what is looked at is `over`.

    `refused` is as for Watch, `grows` as for MemoryWatch.
    """
    memory, waits = MemoryWatch(roles, grows=grows), Watch(roles, refused=refused)
    waits.start()
    watch(seconds, (memory, waits), over=over)
    # A look at workers that may have ended meanwhile is none, unless it is the only one.
    points = memory.points[:-1] if over() else memory.points
    return tuple(points or memory.points), waits.finish()


class ProcessLauncher:
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

    def start(self, request: Request) -> ProcessHandle:
        """Start the interpreter; it imports the workload and waits for orders. Raises LaunchFailed."""
        mark = next(self.marks)
        # The folder's name is padded too: its length is part of the layout that argv has on the stack.
        folder = self.work / f"{mark}{'-' * (request.padding % 16)}"
        environment = launch_environment(request, mark, self.runner, os.environ)
        to_child, from_parent = os.pipe()
        to_parent, from_child = os.pipe()
        try:
            folder.mkdir(parents=True)
            if request.settled:
                environment |= SETTLED
            if request.side == "locks":
                environment |= lock_environment(self.runner, folder / LOCKS)
            job = folder / "job.json"
            content = json.dumps(job_of(request, folder / "result.json", (to_child, from_child)))
            job.write_text(content, encoding="utf-8")
            process = subprocess.Popen(
                [request.python, "-P", "-s", str(self.runner / "pytest_ftgate" / "runner"), str(job)],
                env=environment,
                pass_fds=(to_child, from_child),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except BaseException as error:
            os.close(from_parent)
            os.close(to_parent)
            shutil.rmtree(folder, ignore_errors=True)
            if isinstance(error, OSError):
                raise LaunchFailed(WorkloadError(reason=f"its interpreter cannot be started: {error}")) from error
            raise
        finally:
            os.close(to_child)
            os.close(from_child)
        return ProcessHandle(process, folder, mark, (to_parent, from_parent), request, self.clock)


class ProcessHandle:
    """One real launch, spoken to over its control pipes; its output is drained while it is waited for."""

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        folder: Path,
        mark: str,
        control: tuple[int, int],
        request: Request,
        clock: Callable[[], float],
    ) -> None:
        self.process = process
        self.folder = folder
        self.mark = mark
        self.reader, self.writer = control
        self.request = request
        self.look_s = 0.0
        self.timeout_s = request.timeout_s
        self.clock = clock
        self.output = Output()
        self.inbox = b""
        self.selector = selectors.DefaultSelector()
        assert process.stdout is not None
        self.stdout = process.stdout.fileno()
        os.set_blocking(self.stdout, False)
        self.selector.register(self.reader, selectors.EVENT_READ)
        self.selector.register(self.stdout, selectors.EVENT_READ)

    # -- orders ------------------------------------------------------------------------------------------------

    def ready(self) -> float:
        """Wait until the workload is imported; the clock's resolution there, in ns."""
        message = self._await("ready", max(START_TIMEOUT_S, self.timeout_s), "importing the workload")
        return float(message["resolution_ns"])

    def iteration(self, kind: str, loops: int = 1, window_ns: int = 0) -> Iteration:
        """One turn; see Handle."""
        self._send({"do": "iteration", "kind": kind, "loops": loops, "window_ns": window_ns})
        message = self._await("iteration", self.timeout_s + window_ns / 1e9, f"a {kind} iteration")
        return msgspec.convert(message["iteration"], Iteration)

    def hold(self, window_ns: int, watched: bool, one_ns: float = 0.0) -> Held:
        """One turn held, the first and last tenth of it not watched."""
        seconds = max(window_ns / 1e9, hold_needed_s(self.look_s) / WATCHED)
        loops = math.ceil(SLACK * seconds * 1e9 / one_ns) if one_ns else 1
        self._send(
            {"do": "iteration", "kind": HOLD, "loops": loops, "window_ns": 0 if one_ns else round(seconds * 1e9)}
        )
        released = self._await("released", self.timeout_s, "starting its workers")
        memory: tuple[MemoryPoint, ...] = ()
        waits: Waits | None = None
        if watched:
            time.sleep(seconds * (1 - WATCHED) / 2)
            refused = self.request.waits_unavailable
            memory, waits = watch_tree(self._roles(released), seconds * WATCHED, refused=refused, over=self._said_more)
        message = self._await("iteration", max(self.timeout_s, 2 * loops * one_ns / 1e9) + seconds, "a held iteration")
        return Held(iteration=msgspec.convert(message["iteration"], Iteration), memory=memory, waits=waits)

    def barrier(self, loops: int, window_ns: int) -> Barrier:
        """One turn, and a look at what is left of it; see Handle."""
        self._send({"do": "iteration", "kind": BARRIER, "loops": loops, "window_ns": window_ns})
        parked = self._await("at barrier", self.timeout_s + window_ns / 1e9, "an iteration")
        point = self._look(self._roles(parked))
        self._send({"do": "go on"})
        iteration = msgspec.convert(
            self._await("iteration", self.timeout_s, "ending its workers")["iteration"], Iteration
        )
        return Barrier(ops=max(1, round(iteration.ops / self.request.callers)), point=point)

    def finish(self) -> Finished:
        """Let the launch end by itself; raises LaunchFailed when it left processes behind."""
        self._send({"do": "finish"})
        self._await("closed", self.timeout_s, "ending its workers")
        left = left_behind(self.process.pid, self.mark)
        result = self._result()
        locks = self._locks(result) if self.request.side == "locks" else None
        if left:
            raise LaunchFailed(left)
        self._send({"do": "exit"})
        try:
            self._wait_exit(self.timeout_s)
        finally:
            self.kill()
        fields = {name: getattr(result, name) for name in Finished.__struct_fields__ if name != "locks"}
        return Finished(**fields, locks=locks)

    def kill(self) -> None:
        """End it and everything it started."""
        if self.selector.get_map() is None:
            return
        kill_all(self.process.pid, self.mark)
        self.process.wait()
        self.selector.close()
        os.close(self.reader)
        os.close(self.writer)
        if self.process.stdout is not None:
            self.process.stdout.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    # -- what is seen ------------------------------------------------------------------------------------------

    def _roles(self, message: dict[str, Any]) -> Roles:
        return msgspec.convert({**message["roles"], "main": self.process.pid}, Roles, strict=False)

    def _said_more(self) -> bool:
        """Whether the launch has sent a message that nobody has taken yet."""
        return b"\n" in self.inbox or bool(select.select([self.reader], [], [], 0)[0])

    def _look(self, roles: Roles) -> MemoryPoint:
        """A look at rest; what it costs says how long workers must be held for enough of them."""
        try:
            point = barrier_point(roles)
        except ProcessLookupError as error:
            raise LaunchFailed(WorkloadError(reason=str(error), detail=self._tail())) from error
        processes = tree(roles.main)
        began = self.clock()
        memory_point(processes, roles)
        self.look_s = self.clock() - began
        return point

    def _locks(self, result: _Result) -> LockWaits:
        """The waits of all processes and interpreters of this launch; each wrote its file as it ended.

        Roles that do not lead are at work until they are joined.
        """
        try:
            sites = lock_waits.read(self.folder / LOCKS)
        except FtgateError as error:
            raise LaunchFailed(WorkloadError(reason=str(error))) from error
        return LockWaits(
            work_ns=sum(
                iteration.work_ns + (iteration.join_ns if self.request.cell.roles else 0)
                for iteration in result.iterations
            ),
            ops=sum(iteration.ops for iteration in result.iterations),
            counted_ops=result.warmed_ops,
            sites=sites,
        )

    # -- the pipes ---------------------------------------------------------------------------------------------

    def _send(self, message: dict[str, Any]) -> None:
        with contextlib.suppress(BrokenPipeError):
            os.write(self.writer, (json.dumps(message) + "\n").encode())

    def _await(self, event: str, timeout_s: float, doing: str) -> dict[str, Any]:
        deadline = self.clock() + timeout_s
        while True:
            message = self._next_message(0.1)
            if message is not None:
                if message["event"] == event:
                    return message
                if message["event"] == "closed":
                    self._raise_result()
            elif self.process.poll() is not None:
                self._raise_death(doing)
            elif self.output.flooded:
                self._raise(f"printed more than {FLOOD_BYTES >> 20} MiB")
            elif self.clock() > deadline:
                self._raise(f"did not end {doing} within {timeout_s:g} s (its whole process tree was ended)")

    def _next_message(self, wait_s: float) -> dict[str, Any] | None:
        if b"\n" not in self.inbox:
            for key, _ in self.selector.select(wait_s):
                if key.fd == self.stdout:
                    self._drain()
                else:
                    self.inbox += os.read(self.reader, 65536)
        if b"\n" not in self.inbox:
            return None
        line, _, self.inbox = self.inbox.partition(b"\n")
        message: dict[str, Any] = json.loads(line)
        return message

    def _drain(self) -> None:
        if not self.output.drain(self.stdout):
            self.selector.unregister(self.stdout)

    def _wait_exit(self, timeout_s: float) -> None:
        deadline = self.clock() + timeout_s
        while self.process.poll() is None:
            self._next_message(0.01)
            if self.clock() > deadline:
                self._raise(
                    f"did not exit within {timeout_s:g} s: a thread or an exit handler of the workload holds it"
                )

    # -- failures ----------------------------------------------------------------------------------------------

    def _tail(self) -> str:
        self._drain_rest()
        return self.output.tail()

    def _drain_rest(self) -> None:
        while self.selector.get_map() is not None and self.stdout in self.selector.get_map():
            before = self.output.printed
            self._drain()
            if self.output.printed == before:
                return

    def _raise(self, reason: str) -> NoReturn:
        tail = self._tail()
        raise LaunchFailed(WorkloadError(reason=reason, detail=f"the last lines it printed:\n{tail}" if tail else ""))

    def _raise_death(self, doing: str) -> None:
        code = self.process.returncode
        if code < 0:
            self._raise(f"was killed by {signal.Signals(-code).name} during {doing}")
        self._raise(f"exited with code {code} during {doing}")

    def _raise_result(self) -> None:
        self._result()
        self._raise("ended early")

    def _result(self) -> _Result:
        path = self.folder / "result.json"
        try:
            result = msgspec.json.decode(path.read_bytes(), type=_Result)
        except (OSError, msgspec.DecodeError) as error:
            raise LaunchFailed(
                WorkloadError(reason=f"its result file cannot be read: {error}", detail=self._tail())
            ) from error
        if result.unsupported is not None:
            raise CellUnsupported(result.unsupported)
        if result.error is not None:
            tail = self._tail()
            detail = result.error.detail + (f"\nthe last lines it printed:\n{tail}" if tail else "")
            raise LaunchFailed(WorkloadError(reason=result.error.reason, detail=detail))
        return result


def launch_of(
    finished: Finished,
    request: Request,
    order: int,
    started_at: str,
    *,
    loops: int = 1,
    window_ns: int = 0,
    **seen: Any,
) -> Launch:
    """A launch's record in the words of a sample; `seen` is what was seen of it from outside, by Launch's names."""
    return Launch(
        order=order,
        hash_seed=request.hash_seed,
        started_at=started_at,
        loops=loops,
        window_ns=window_ns,
        cold=finished.cold,
        iterations=finished.iterations,
        counters=finished.counters,
        timers=finished.timers,
        peaks=finished.peaks,
        results=finished.results,
        gil_enabled=finished.gil_enabled,
        locks=finished.locks,
        **seen,
    )
