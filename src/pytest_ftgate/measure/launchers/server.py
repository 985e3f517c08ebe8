"""Servers under load: starts one under a target's environment, drives a generator at it, looks at it, and ends it.

What a launch of a server is beside one of a workload: it is told nothing and says nothing. It is known by its answers,
by what its generator says of them, and from outside.
"""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.parse
from collections.abc import Callable
from pathlib import Path
from typing import Final

from ...model import (
    Barrier,
    Cell,
    Generator,
    Iteration,
    MemoryPoint,
    Service,
    Spec,
    Waits,
    WorkloadError,
)
from ...runner import loading
from ...runner.protocol import COLD, MEASURED, WARMUP
from ...text import expanded
from .. import machine
from ..launch import CellUnsupported, Finished, Held, LaunchFailed, Request, request_here, setup_of
from ..watch.memory import barrier_point, hold_needed_s, memory_point
from ..watch.process_roles import Roles
from ..watch.processes import MARK, marks, tree
from . import load_generators, program_words
from .command import exit_text
from .cpus import on, split_cpus, threads
from .http import ask, below, no_answer
from .load_generators import Tool
from .output import left_error, shortly
from .server_process import (
    GIL_ON,
    LATE_S,
    POLL_S,
    PORT_TAKEN,
    TRIES,
    Running,
    kill_group,
    traceback_in,
)
from .workload import WATCHED, watch_tree

_ASK_S: Final = (0.5, 1.0, 2.0, 4.0)
"""How long an answer is waited for, the first times and from then on: who took our port may never give one."""
_RESOLUTION_NS: Final = 1000.0
Look = Callable[[float, Callable[[], bool]], None]
"""What is done in a window of load: it gets the window's length in s, and what says whether the load is over."""


class Server:
    """A server that is ready, as the test's check gets it: `url` is its address without a path."""

    def __init__(self, url: str) -> None:
        self.url = url

    def __repr__(self) -> str:
        return f"Server({self.url!r})"

    def get(self, path: str = "/", *, timeout_s: float = 30.0) -> str:
        """The body of its answer as text. Raises AssertionError for an error as an answer, OSError for none at all."""
        status, reason, body = ask(below(self.url, path), timeout_s)
        if status >= 400:
            raise AssertionError(f"GET {path} was answered with {status} {reason}: {body[:500]}")
        return body


class ServerLauncher:
    """Starts servers; `work` takes a folder a launch, for what it prints."""

    def __init__(self, work: Path) -> None:
        self.work = work
        self.marks = marks()
        self.ports: set[int] = set()

    def start(self, request: Request) -> ServerHandle:
        """Start one; does not wait for it. Raises CellUnsupported where a program is not there, LaunchFailed."""
        service = _service_of(request.spec)
        reason = program_words.missing(request.spec.needs, request.python)
        if reason:
            raise CellUnsupported(reason)
        return ServerHandle(self, request, tool_for(service.load.generator))


def tool_for(generator: Generator | None) -> Tool:
    """The generator asked for, or the first that is there. Raises CellUnsupported where there is none."""
    wanted = [generator] if generator else list(load_generators.INSTALL)
    for name in wanted:
        program = program_words.found(name, "")
        if program is not None:
            return Tool(name, program, *load_generators.split(split_cpus(), machine.cpu_quota()))
    raise CellUnsupported(program_words.absent(wanted[0], list(load_generators.INSTALL.items())))


class ServerHandle:
    """One launch of a server: see Handle, whose words are the same for what runs a workload.

    Every turn is a window of load by a generator that is started for it, over new connections. Of its time nothing is
    told apart: a turn has no start and no join.
    """

    def __init__(self, launcher: ServerLauncher, request: Request, tool: Tool | None) -> None:
        self.launcher = launcher
        self.request = request
        self.tool = tool
        self.service = _service_of(request.spec)
        self.mark = next(launcher.marks)
        self.folder = launcher.work / self.mark
        self.clock = time.monotonic
        self.look_s = 0.0
        self.cold: Iteration | None = None
        self.iterations: list[Iteration] = []
        self.generator: subprocess.Popen[str] | None = None
        self.running: Running | None = None
        self._start()

    # -- orders ------------------------------------------------------------------------------------------------

    def ready(self) -> float:
        """Wait until it answers, and run the test's check; the generators' resolution in ns."""
        self.wait_until_ready()
        try:
            self.check()
        except BaseException as error:
            # pytest's own outcomes go by their names: they are no Exceptions, and pytest is not imported here.
            if type(error).__name__ == "Skipped":
                raise CellUnsupported(str(error)) from error
            if not isinstance(error, Exception) and type(error).__name__ != "Failed":
                raise
            reason = f"its check failed: {shortly(error)}"
            raise self._failure(reason, traceback_in(error, self.request.spec)) from error
        return _RESOLUTION_NS

    def iteration(self, kind: str, loops: int = 1, window_ns: int = 0) -> Iteration:
        """One window of load; see Handle."""
        iteration = self._drive(window_ns, warming=kind in (COLD, WARMUP))
        if kind == COLD:
            self.cold = iteration
        elif kind == MEASURED:
            self.iterations.append(iteration)
        return iteration

    def hold(self, window_ns: int, watched: bool, one_ns: float = 0.0) -> Held:
        """A window of load, the first and last tenth of it not watched; longer where looking at memory is dear."""
        self._time_a_look()
        needed_ns = 1e9 * hold_needed_s(self.look_s) / WATCHED
        seen: list[tuple[tuple[MemoryPoint, ...], Waits]] = []

        def watch(seconds: float, over: Callable[[], bool]) -> None:
            time.sleep(seconds * (1 - WATCHED) / 2)
            seen.append(self._watch(seconds * WATCHED, over))

        iteration = self._drive(max(window_ns, round(needed_ns)), watch if watched else None)
        memory, waits = seen[-1] if seen else ((), None)
        return Held(iteration=iteration, memory=memory, waits=waits)

    def barrier(self, loops: int, window_ns: int) -> Barrier:
        """A window of load, and a look at what is left once it is over."""
        iteration = self._drive(window_ns)
        try:
            point = barrier_point(self._roles())
        except ProcessLookupError as error:
            raise self._failure(str(error)) from error
        return Barrier(ops=max(1, iteration.ops), point=point)

    def finish(self) -> Finished:
        """End it, and see that nothing of it is left; raises LaunchFailed when it has ended by itself before."""
        self._must_run("between turns")
        self._must_keep_the_gil_off()
        assert self.running is not None
        left = self.running.end()
        self.kill()
        if left:
            error = left_error(left)
            raise self._failure(error.reason, error.detail)
        return Finished(
            cold=self.cold,
            iterations=tuple(self.iterations),
            counters={},
            timers={},
            results=(),
            gil_enabled=self.request.expect_gil,
        )

    def kill(self) -> None:
        """End it and everything it started, the generator too."""
        if self.generator is not None:
            kill_group(self.generator)
        if self.running is not None:
            self.running.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    # -- starting ----------------------------------------------------------------------------------------------

    def wait_until_ready(self) -> None:
        """Until the ready URL answers without an error; on another port where somebody else was faster at its own."""
        for attempt in itertools.count(1):
            lost = self._await_answer()
            if not lost:
                self._must_keep_the_gil_off()
                return
            if attempt == TRIES:
                raise self._failure(f"did not get its port in {TRIES} tries: {lost}")
            assert self.running is not None
            self.running.close()
            self._start()

    def check(self) -> None:
        """Run the test itself, with the server and its parameters. Raises what it raises."""
        __tracebackhide__ = True
        function, params = _test_of(self.request.cell, self.request.spec)
        function(server=Server(self.url), **params)

    @property
    def url(self) -> str:
        """The server's address without a path."""
        parts = urllib.parse.urlsplit(self._filled(self.service.ready))
        return f"{parts.scheme}://{parts.netloc}"

    def _filled(self, text: str) -> str:
        assert self.running is not None
        return expanded([text], self.running.values)[0]

    def _start(self) -> None:
        try:
            self.running = Running(self.launcher.ports, self.request, self.mark, self.folder, self.tool)
        except OSError as error:
            shutil.rmtree(self.folder, ignore_errors=True)
            raise LaunchFailed(WorkloadError(reason=f"its server cannot be started: {error}")) from error

    def _await_answer(self) -> str:
        """Empty once it is ready; why its port is not its own. Raises LaunchFailed when it ends or time is up."""
        assert self.running is not None
        url = self._filled(self.service.ready)
        deadline = self.clock() + self.request.timeout_s
        patience = itertools.chain(_ASK_S, itertools.repeat(_ASK_S[-1]))
        while True:
            code = self.running.process.poll()
            if code is not None:
                lost = PORT_TAKEN.search(self._output())
                if lost:
                    return lost[0]
                raise self._died(code, "before it was ready")
            said = no_answer(url, min(next(patience), max(POLL_S, deadline - self.clock())))
            if not said:
                return self.running.strangers()
            if self.clock() > deadline:
                raise self._failure(f"was not ready within {self.request.timeout_s:g} s: {url} {said}")
            time.sleep(POLL_S)

    # -- load --------------------------------------------------------------------------------------------------

    def _drive(self, window_ns: int, look: Look | None = None, *, warming: bool = False) -> Iteration:
        """One window of load, with a look meanwhile. Raises LaunchFailed where the server fails in it."""
        self._must_run("between turns")
        assert self.tool is not None
        for _ in range(TRIES):
            iteration = self._window(self.tool, load_generators.seconds_of(self.tool.name, window_ns), look, warming)
            self._let_it_finish()
            if iteration is not None:
                return iteration
        raise self._failure(f"{self.tool.name} measures with the machine's clock, which was set during {TRIES} windows")

    def _let_it_finish(self) -> None:
        """Answers to a generator that has gone must not be made in the next window, neither its own nor a neighbour's.

        128 requests of 10 ms that wait for one thread take it 1.3 s. What is asked now is answered after those.
        """
        url, deadline = self._filled(self.service.ready), self.clock() + LATE_S
        for _ in range(2 * self.request.cell.workers):  # each of its processes may have a queue of its own
            while said := no_answer(url, max(POLL_S, deadline - self.clock())):
                self._must_run("after a window")
                if self.clock() > deadline:
                    raise self._failure(f"{url} {said} for {LATE_S:g} s after the load had ended")
                time.sleep(POLL_S)

    def _window(self, tool: Tool, seconds: float, look: Look | None, warming: bool) -> Iteration | None:
        """A window's figures; None where the generator's clock stepped in it."""
        assert self.running is not None
        before, began = self.running.cpu_s(), self.clock()
        self.generator = generator = self._generate(tool, seconds)
        try:
            if look is not None:
                look(seconds, lambda: generator.poll() is not None)
            output, _ = generator.communicate(timeout=seconds + LATE_S)
        except subprocess.TimeoutExpired as late:
            reason = f"{tool.name} did not end within {LATE_S:g} s after its window of {seconds:g} s"
            raise self._failure(reason) from late
        finally:
            kill_group(generator)
        span_s, after = self.clock() - began, self.running.cpu_s()
        heard = self._heard(tool, generator.returncode, output, warming)
        if not 0.98 * seconds <= heard.seconds <= span_s + 0.1:
            return None
        wall_ns = round(1e9 * heard.seconds)
        return Iteration(
            start_ns=0,
            work_ns=wall_ns,
            join_ns=0,
            wall_ns=wall_ns,
            cpu_ns=round(1e9 * sum(spent - before.get(pid, 0.0) for pid, spent in after.items())),
            ops=heard.answers,
            rate=heard.answers / heard.seconds,
            latency=heard.latency,
        )

    def _generate(self, tool: Tool, seconds: float) -> subprocess.Popen[str]:
        asked = self.service.load
        path = self._filled(asked.path)
        words = load_generators.argv_of(
            tool.name,
            tool.program,
            below(self.url, path),
            connections=asked.connections,
            seconds=seconds,
            cpus=threads(tool),
            script=str(Path(__file__).with_name("wrk.lua")),
        )
        with on(tool.own_cpus):
            return subprocess.Popen(
                words,
                env={**os.environ, **load_generators.environment_of(tool.name, threads(tool)), MARK: self.mark},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                start_new_session=True,
            )

    def _heard(self, tool: Tool, code: int, output: str, warming: bool) -> load_generators.Heard:
        """What the generator said; raises LaunchFailed where it says nothing of a server at work."""
        self._must_run("under load")
        if code:
            said = output.strip().splitlines() or [""]
            raise self._failure(f"{tool.name} exited with code {code}: {said[-1]}")
        try:
            heard = load_generators.parse(tool.name, output)
        except load_generators.LoadError as error:
            raise self._failure(str(error)) from error
        kinds = ", ".join(f"{kind} {count}" for kind, count in heard.errors.items())
        # One that is still getting warm may break connections: Apache ends processes that are too many for it.
        most = load_generators.MOST_FAILED_WARMING if warming else load_generators.MOST_FAILED
        if heard.share_failed > most:
            all_of_them = heard.failed + heard.answers
            raise self._failure(f"{heard.failed} of {all_of_them} requests failed under load ({kinds})")
        if not heard.answers:
            raise self._failure(f"no request was answered within {heard.seconds:.3g} s of load; let window= be longer")
        assert self.running is not None
        self._must_keep_the_gil_off()
        self.running.trim()
        return heard

    # -- what is seen ------------------------------------------------------------------------------------------

    def _roles(self) -> Roles:
        """The process that was started: all below it is the server's too, whenever it comes."""
        assert self.running is not None
        return Roles(main=self.running.process.pid, all_work=True)

    def _time_a_look(self) -> None:
        """What a look at the memory of the tree costs, once it is at work; the same for all holds of a launch."""
        if not self.look_s:
            roles = self._roles()
            processes = tree(roles.main)
            began = self.clock()
            memory_point(processes, roles)
            self.look_s = self.clock() - began

    def _watch(self, seconds: float, over: Callable[[], bool]) -> tuple[tuple[MemoryPoint, ...], Waits]:
        return watch_tree(self._roles(), seconds, refused=self.request.waits_unavailable, over=over)

    # -- failures ----------------------------------------------------------------------------------------------

    def _must_run(self, when: str) -> None:
        code = None if self.running is None else self.running.process.poll()
        if code is not None:
            raise self._died(code, when)

    def _must_keep_the_gil_off(self) -> None:
        """An interpreter cannot be asked from outside, but CPython warns on stderr when an import turns the GIL on."""
        named = None if self.request.expect_gil else GIL_ON.search(self._output())
        if named:
            mend = "Use a version of it that can run without the GIL, or measure this interpreter as 3.14t[gil=on]."
            raise self._failure(f"the GIL came back on: module {named[1]!r} turned it on", mend)

    def _died(self, code: int, when: str) -> LaunchFailed:
        hint = "" if code else "; it has to stay in the foreground"
        return self._failure(f"its server {exit_text(code)} {when}{hint}")

    def _output(self) -> str:
        return "" if self.running is None else self.running.output()

    def _tail(self, lines: int = 20) -> str:
        tail = "\n".join(self._output().splitlines()[-lines:])
        return f"the last lines it printed:\n{tail}" if tail else ""

    def _failure(self, reason: str, detail: str = "") -> LaunchFailed:
        return LaunchFailed(WorkloadError(reason=reason, detail="\n".join(filter(None, (detail, self._tail())))))


def check_here(cell: Cell, spec: Spec, timeout_s: float) -> None:
    """Start the server once in the environment of this interpreter, run the test's check, and end it.

    Raises CellUnsupported where a program is not there, LaunchFailed where it does not get ready, and what the check
    raises, with what the server printed as a note.
    """
    __tracebackhide__ = True
    reason = program_words.missing(spec.needs, sys.executable)
    if reason:
        raise CellUnsupported(reason)
    request = request_here(cell, spec, sys.executable, timeout_s)
    with tempfile.TemporaryDirectory(prefix="ftgate-") as work:
        handle = ServerHandle(ServerLauncher(Path(work)), request, None)
        try:
            handle.wait_until_ready()
            handle.check()
        except Exception as error:
            if said := handle._tail():
                error.add_note(f"the server: {said}")
            raise
        finally:
            if handle.running is not None:
                handle.running.end()
            handle.kill()


def _service_of(spec: Spec) -> Service:
    assert spec.service is not None
    return spec.service


def _test_of(cell: Cell, spec: Spec) -> tuple[Callable[..., object], dict[str, object]]:
    """The test as pytest imported it, bound to an instance of its class, and the parameters that it takes."""
    setup = setup_of(cell, spec)
    found: object = sys.modules.get(spec.source.module) or loading.load_module(setup)
    owner: object = None
    for name in spec.source.qualname.split("."):
        owner, found = found, getattr(found, name)
    assert callable(found)
    function = loading.owned(found, owner() if isinstance(owner, type) else None)
    code = found.__code__  # type: ignore[attr-defined]
    taken = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    return function, {name: value for name, value in loading.literals(setup["params"]).items() if name in taken}
