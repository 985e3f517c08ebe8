"""Servers under load: starts one under a target's environment, drives a load generator at it, samples and ends it.

A server gets no messages and sends none, as a workload does: it is known by its answers, by what the load generator
reports of them, and from outside.
"""

from __future__ import annotations

import itertools
import re
import shutil
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from ...model import (
    Barrier,
    Cell,
    Generator,
    Iteration,
    Launch,
    MemoryPoint,
    Service,
    Spec,
    Waits,
    WorkloadError,
    to_builtins,
)
from ...runner import loading
from ...runner.client import Server
from ...runner.protocol import COLD, WARMUP
from ...runner.record import LaunchRecord
from .. import machine, stacks
from ..launch import CellUnsupported, Held, LaunchFailed, Request, recorded, request_here, setup_of
from ..watch.marks import marks, run_mark
from ..watch.memory import barrier_point, hold_needed_s
from ..watch.sampling import SAMPLED, sample_cost_s, sample_tree
from . import guard, load_generators, program_words
from .cpus import split_cpus
from .http import no_answer
from .load_generators import Tool
from .load_window import LATE_S, LoadWindow, SampleMeanwhile
from .output import left_error, shortly
from .server_process import ServerProcess
from .within import Late, within

TRIES: Final = 3
POLL_S: Final = 0.02
PORT_TAKEN: Final = re.compile(
    r"address (?:is )?already in use|EADDRINUSE|could not bind|\[Errno (?:98|48)\]", re.IGNORECASE
)
_ASK_S: Final = (0.5, 1.0, 2.0, 4.0)
"""How long an answer is waited for, the first times and from then on: another process on our port may never answer."""
_RESOLUTION_NS: Final = 1000.0


class ServerLauncher:
    """Starts servers; `work` gets a folder for each launch, which the server prints into."""

    def __init__(self, work: Path) -> None:
        self.work = work
        self.marks = marks()
        self.ports: set[int] = set()

    def start(self, request: Request) -> ServerHandle:
        """Start one; does not wait for it. Raises CellUnsupported where a program is missing, LaunchFailed."""
        reason = program_words.missing(request.spec.needs, request.python)
        if reason:
            raise CellUnsupported(reason)
        return self.start_with(request, tool_for(_service_of(request.spec).load.generator))

    def start_with(self, request: Request, tool: Tool | None) -> ServerHandle:
        """Start one that gets its load from `tool`; without, it can only be asked."""
        mark = next(self.marks)
        folder = self.work / mark
        return ServerHandle(self, request, tool, folder, self.start_server(request, mark, folder, tool))

    def start_server(self, request: Request, mark: str, folder: Path, tool: Tool | None) -> ServerProcess:
        """Start its processes, on a port that no other launch has."""
        try:
            return ServerProcess.start(request, mark, folder, self.ports, tool)
        except OSError as error:
            shutil.rmtree(folder, ignore_errors=True)
            raise LaunchFailed(WorkloadError(reason=f"its server cannot be started: {error}")) from error


def tool_for(generator: Generator | None) -> Tool:
    """The load generator requested, or the first that is installed. Raises CellUnsupported where there is none."""
    wanted = [generator] if generator else list(load_generators.INSTALL)
    for name in wanted:
        program = program_words.which(name, "")
        if program is not None:
            return Tool(name, program, *load_generators.split(split_cpus(), machine.cpu_quota()))
    raise CellUnsupported(program_words.absent(wanted[0], list(load_generators.INSTALL.items())))


class ServerHandle:
    """One launch of a server: see Handle.

    Every iteration is a window of load by a generator that is started for it. Its time has no phases: an iteration has
    no start and no join.
    """

    def __init__(
        self, launcher: ServerLauncher, request: Request, tool: Tool | None, folder: Path, server: ServerProcess
    ) -> None:
        self.launcher = launcher
        self.request = request
        self.tool = tool
        self.folder = folder
        self.server = server
        self.service = _service_of(request.spec)
        self.mark = server.mark
        self.clock = time.monotonic
        self.sample_cost_s = 0.0
        self.record = LaunchRecord()
        self.window: LoadWindow | None = None

    # -- iterations --------------------------------------------------------------------------------------------

    def ready(self) -> float:
        """Wait until it answers, and run the test's check; the load generators' resolution in ns."""
        self.wait_until_ready()
        try:
            self.check()
        except LaunchFailed:
            raise
        except BaseException as error:
            # pytest's own outcomes go by their names: they are no Exceptions, and pytest is not imported here.
            if type(error).__name__ == "Skipped":
                raise CellUnsupported(str(error)) from error
            if not isinstance(error, Exception) and type(error).__name__ != "Failed":
                raise
            reason = f"its check failed: {shortly(error)}"
            raise self.server.process.failure(reason, _traceback_of(error, self.request.spec)) from error
        return _RESOLUTION_NS

    def iteration(self, kind: str, loops: int = 1, window_ns: int = 0) -> Iteration:
        """One window of load; see Handle."""
        iteration = self._drive(window_ns, warming=kind in (COLD, WARMUP))
        self.record.add(kind, to_builtins(iteration), ())
        return iteration

    def measure_held(self, window_ns: int, sampled: bool, one_ns: float = 0.0) -> Held:
        """A window of load, its first and last tenth not sampled; longer where a sample of memory takes long."""
        if not self.sample_cost_s:  # once it is at work, and then the same for all holds of a launch
            self.sample_cost_s = sample_cost_s(self.server.process_map)
        needed_ns = 1e9 * hold_needed_s(self.sample_cost_s) / SAMPLED
        samples: list[tuple[tuple[MemoryPoint, ...], int, Waits]] = []

        def sample(seconds: float, over: Callable[[], bool]) -> None:
            time.sleep(seconds * (1 - SAMPLED) / 2)
            refused = self.request.waits_unavailable
            samples.append(sample_tree(self.server.process_map, seconds * SAMPLED, refused=refused, over=over))

        iteration = self._drive(max(window_ns, round(needed_ns)), sample if sampled else None)
        memory, dropped, waits = samples[-1] if samples else ((), 0, None)
        return Held(iteration=iteration, memory=memory, dropped=dropped, waits=waits)

    def barrier(self, loops: int, window_ns: int) -> Barrier:
        """A window of load, and a sample of the memory that is left once it is over."""
        iteration = self._drive(window_ns)
        try:
            point = barrier_point(self.server.process_map)
        except ProcessLookupError as error:
            raise self.server.process.failure(str(error)) from error
        return Barrier(ops=max(1, iteration.ops), point=point)

    def close(self) -> None:
        """Nothing: its end is short."""

    def finish(self) -> Launch:
        """End it, and see that nothing of it is left; raises LaunchFailed when it has ended by itself before."""
        self.server.must_run("between iterations")
        self.server.must_keep_the_gil_off()
        left = self.server.end()
        self.kill()
        if left:
            error = left_error(left)
            raise self.server.process.failure(error.reason, error.detail)
        record = {**self.record.as_json(), "gil_enabled": self.request.expect_gil}
        return recorded(record)

    def kill(self) -> None:
        """End it and everything that it started, the load generator too."""
        if self.window is not None:
            self.window.kill()
        self.server.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    # -- getting ready -----------------------------------------------------------------------------------------

    def wait_until_ready(self) -> None:
        """Until the ready URL answers without an error; on another port where another process was faster at its own."""
        for attempt in itertools.count(1):
            lost = self._await_answer()
            if not lost:
                self.server.must_keep_the_gil_off()
                return
            if attempt == TRIES:
                raise self.server.process.failure(f"did not get its port in {TRIES} tries: {lost}")
            self.server.close()
            self.server = self.launcher.start_server(self.request, self.mark, self.folder, self.tool)

    def check(self) -> None:
        """Run the test itself, with the server and its parameters. Raises what it raises, and LaunchFailed if late."""
        __tracebackhide__ = True
        function, params = _test_of(self.request.cell, self.request.spec)
        try:
            within(self.request.timeout_s, lambda: function(server=Server(self.server.url), **params), "the check")
        except Late as late:
            raise self.server.process.failure(f"its check {late}", last=stacks.shown([late.stack])) from None

    def _await_answer(self) -> str:
        """Empty once it is ready; why its port is not its own. Raises LaunchFailed when it ends or time is up."""
        url = self.server.filled(self.service.ready)
        deadline = self.clock() + self.request.timeout_s
        patience = itertools.chain(_ASK_S, itertools.repeat(_ASK_S[-1]))
        while True:
            if self.server.process.exit is not None:
                lost = PORT_TAKEN.search(self.server.output.text)
                if lost:
                    return lost[0]
                raise self.server.died("before it was ready")
            refusal = no_answer(url, min(next(patience), max(POLL_S, deadline - self.clock())))
            if not refusal:
                return self.server.strangers()
            if self.clock() > deadline:
                raise self.server.process.failure(f"was not ready within {self.request.timeout_s:g} s: {url} {refusal}")
            time.sleep(POLL_S)

    # -- load --------------------------------------------------------------------------------------------------

    def _drive(self, window_ns: int, sample: SampleMeanwhile | None = None, *, warming: bool = False) -> Iteration:
        """One window of load, sampled meanwhile. Raises LaunchFailed where the server fails in it."""
        self.server.must_run("between iterations")
        assert self.tool is not None
        seconds = load_generators.seconds_of(self.tool.name, window_ns)
        for _ in range(TRIES):
            self.window = LoadWindow(self.server, self.service.load, self.tool, seconds)
            iteration = self.window.run(sample, warming=warming)
            self._let_it_finish()
            if iteration is not None:
                return iteration
        reason = f"{self.tool.name} measures with the machine's clock, which was set during {TRIES} windows"
        raise self.server.process.failure(reason)

    def _let_it_finish(self) -> None:
        """Wait for the answers to a generator that has gone: they must not be made in the next window of any cell.

        128 requests of 10 ms that wait for one thread take it 1.3 s. A request of ours is answered after those.
        """
        url, deadline = self.server.filled(self.service.ready), self.clock() + LATE_S
        for _ in range(2 * self.request.cell.workers):  # each of its processes may have a queue of its own
            while refusal := no_answer(url, max(POLL_S, deadline - self.clock())):
                self.server.must_run("after a window")
                if self.clock() > deadline:
                    reason = f"{url} {refusal} for {LATE_S:g} s after the load had ended"
                    raise self.server.process.failure(reason)
                time.sleep(POLL_S)


def check_here(cell: Cell, spec: Spec, timeout_s: float) -> None:
    """Start the server once in the environment of this interpreter, run the test's check, and end it.

    Raises CellUnsupported where a program is missing, LaunchFailed where it does not get ready, and what the check
    raises, with what the server printed as a note.
    """
    __tracebackhide__ = True
    reason = program_words.missing(spec.needs, sys.executable)
    if reason:
        raise CellUnsupported(reason)
    request = request_here(cell, spec, sys.executable, timeout_s)
    with tempfile.TemporaryDirectory(prefix=f"{guard.SCRATCH}{run_mark()}") as work:
        handle = ServerLauncher(Path(work)).start_with(request, None)
        try:
            handle.wait_until_ready()
            handle.check()
        except Exception as error:
            if tail := handle.server.process.tail():
                error.add_note(f"the server: {tail}")
            raise
        finally:
            handle.server.end()
            handle.kill()


def _traceback_of(error: BaseException, spec: Spec) -> str:
    """The frames of the test itself, and the error."""
    every = traceback.extract_tb(error.__traceback__)
    own: Sequence[traceback.FrameSummary] = [frame for frame in every if frame.filename == spec.source.path] or every
    lines = [*traceback.format_list(list(own)), *traceback.format_exception_only(error)]
    return "".join(lines).rstrip()


def _service_of(spec: Spec) -> Service:
    assert spec.service is not None
    return spec.service


def _test_of(cell: Cell, spec: Spec) -> tuple[Callable[..., object], dict[str, object]]:
    """The test as pytest imported it, bound to an instance of its class, and the parameters that it takes."""
    setup = setup_of(cell, spec)
    value: object = sys.modules.get(spec.source.module) or loading.load_module(setup)
    owner: object = None
    for name in spec.source.qualname.split("."):
        owner, value = value, getattr(value, name)
    assert callable(value)
    function = loading.owned(value, owner() if isinstance(owner, type) else None)
    code = value.__code__  # type: ignore[attr-defined]
    taken = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    return function, {name: value for name, value in loading.literals(setup["params"]).items() if name in taken}
