"""Servers under load: starts one under a target's environment, drives a load generator at it, samples and ends it.

A server gets no messages and sends none, as a workload does: it is known by its answers, by what the load generator
reports of them, and from outside.
"""

from __future__ import annotations

import contextlib
import http.client
import itertools
import os
import re
import shutil
import socket
import sys
import tempfile
import time
import traceback
import urllib.parse
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec
import psutil

from ...kit.errors import FtgateError
from ...kit.killing import kill, kill_marked, terminate
from ...kit.marks import MARK, marks
from ...kit.proc import Proc
from ...kit.processes import GRACE_S, alive, described, marked, tree
from ...kit.scratch import SCRATCH
from ...kit.text import expanded
from ...model.sample import Barrier, Iteration, Launch, MemoryPoint, Waits, WorkloadError
from ...model.spec import Cell, Generator, Service, Spec
from ...runner import loading
from ...runner.client import Server, ask, below
from ...runner.protocol import COLD, WARMUP
from .. import machine, stacks
from ..launch import Answered, CellUnsupported, HeldIteration, LaunchFailed, Request, recorded, request_here, setup_of
from ..process_map import ProcessMap
from ..watch.memory import SAMPLED, barrier_point, hold_needed_s, sample_cost_s, sample_tree
from . import load as load_generators
from .command import program_environment
from .load import GeneratorOutput, Tool
from .pinning import split_cpus, starting_on, threads_for
from .process import Late, Process, exit_text, left_error, shortly, within
from .programs import folder_of, missing, required, values_of, which

HOST: Final = "127.0.0.1"


def no_answer(url: str, timeout_s: float) -> str:
    """Why it is not ready yet; empty when it is. An answer counts once all of it has come, in `timeout_s`."""
    try:
        status, reason, _ = within(timeout_s, lambda: ask(url, timeout_s), "request")
    except (Late, TimeoutError):
        return f"gave no whole answer within {timeout_s:.3g} s"
    except (OSError, ValueError, http.client.HTTPException) as error:
        return f"gave no answer ({shortly(error)})"
    return f"was answered with {status} {reason}" if status >= 400 else ""


# ---- a running server: started, asked, and ended as a whole process tree

GIL_ON: Final = re.compile(r"global interpreter lock \(GIL\) has been enabled to load module '([^']*)'")


class ServerProcess:
    """A server's process tree, with its port, its scratch folder and what it prints.

    `start` makes one. `known` are all processes that were ever seen in its tree or with its mark.
    """

    def __init__(
        self,
        request: Request,
        values: dict[str, str],
        ports: set[int],
        scratch: Path,
        process: Process,
    ) -> None:
        self.request = request
        self.values = values
        self.ports = ports
        self.port = int(values["port"])
        self.scratch = scratch
        self.process = process
        (self.output,) = process.outputs
        self.mark = process.mark
        self.process_map = ProcessMap(main=process.pid, all_work=True)
        """The process that was started: all below it are the server's too, whenever they come."""
        self.known: set[psutil.Process] = set()
        self.reader = Proc()
        self.closed = False

    @classmethod
    def start(cls, request: Request, mark: str, ports: set[int], tool: Tool | None) -> ServerProcess:
        """Start one on a free port, which is added to `ports`.

        Raises CellUnsupported where its program is missing, LaunchFailed.
        """
        program = request.cell.executor.program
        assert program is not None
        path = required(request, *expanded(program.argv[:1], _values_of(request)))
        port = free_port(ports)
        # Not below the project: the name of a socket in it has 107 bytes at most.
        scratch = Path(tempfile.mkdtemp(prefix=f"{SCRATCH}{mark}-"))
        values = _values_of(request, port=port, scratch=scratch)
        process: Process | None = None
        try:
            words = [path, *expanded(program.argv[1:], values)]
            environment = program_environment(request, mark, values)
            with starting_on(tool.server_cpus if tool else frozenset()):
                process = Process.start(words, environment, folder=folder_of(request.spec))
            return cls(request, values, ports, scratch, process)
        except BaseException as error:
            if process is not None:
                process.kill()
            kill_marked(mark)  # an interrupt may come before the process is ours
            ports.discard(port)
            shutil.rmtree(scratch, ignore_errors=True)
            if isinstance(error, OSError):
                raise LaunchFailed(WorkloadError(reason=f"its server cannot be started: {error}")) from error
            raise

    # -- what it is, and what it does --------------------------------------------------------------------------

    def filled(self, text: str) -> str:
        return expanded([text], self.values)[0]

    @property
    def url(self) -> str:
        assert self.request.spec.service is not None
        parts = urllib.parse.urlsplit(self.filled(self.request.spec.service.ready))
        return f"{parts.scheme}://{parts.netloc}"

    def cpu_s(self) -> dict[int, float]:
        """CPU time of each live process so far, in s; that of a process that has ended is lost."""
        spent = {process.pid: self.reader.cpu_s(process.pid) for process in self._tree()}
        return {pid: seconds for pid, seconds in spent.items() if seconds is not None}

    def strangers(self) -> str:
        """Who else listens on its port; empty when nobody does, or the system does not say."""
        with contextlib.suppress(psutil.Error, OSError):
            sockets = (each for each in psutil.net_connections("tcp") if each.status == psutil.CONN_LISTEN)
            others = {socket.pid for socket in sockets if socket.laddr[1] == self.port and socket.pid is not None}
            for find in (self._tree, self._marked):
                others -= {process.pid for process in find()} if others else set()
            return f"process {min(others)} listens on {self.port} too" if others else ""
        return ""

    # -- what must hold ----------------------------------------------------------------------------------------

    def must_run(self, when: str) -> None:
        if self.process.exit is not None:
            raise self.exit_failure(when)

    def exit_failure(self, when: str) -> LaunchFailed:
        """The error of a server that has ended; the caller raises it."""
        assert self.process.exit is not None
        code = self.process.exit.code
        hint = "; it has to stay in the foreground" if code == 0 else ""
        return self.process.failure(f"its server {exit_text(code)} {when}{hint}")

    def must_keep_the_gil_off(self) -> None:
        """Raises LaunchFailed where an import turned the GIL on.

        A server's interpreter cannot be asked from outside, but CPython warns on stderr.
        """
        named = None if self.request.expect_gil else GIL_ON.search(self.output.text)
        if named:
            target = self.request.cell.target.request
            fix = f"Use a version of it that can run without the GIL, or measure this interpreter as {target}[gil=on]."
            raise self.process.failure(f"the GIL came back on: module {named[1]!r} turned it on", fix)

    # -- its end -----------------------------------------------------------------------------------------------

    def end(self) -> list[str]:
        """Ask it to end, then what is left of it, then kill; what could not be killed."""
        self._tree()
        self.process.terminate()
        if self.process.over(GRACE_S):
            terminate([process for process in self._marked() | self.known if _runs(process)], GRACE_S)
        self.close()
        return [described(process) for process in self.known if _runs(process)]

    def close(self) -> None:
        """Kill all that is left, remove the scratch folder, give back the port. Safe to call again."""
        if self.closed:
            return
        self.closed = True
        self._tree()
        self.process.kill()
        kill([process for process in self.known if _runs(process)])
        self.reader.close()
        self.ports.discard(self.port)
        shutil.rmtree(self.scratch, ignore_errors=True)

    def _tree(self) -> set[psutil.Process]:
        """What is below it now. It is kept: a process may leave its parent and clear its environment later."""
        below = set(tree(self.process.pid))
        self.known |= below
        return below

    def _marked(self) -> set[psutil.Process]:
        """What carries its mark, wherever it went in the tree."""
        carrying = set(marked(self.mark))
        self.known |= carrying
        return carrying


def free_port(taken: set[int]) -> int:
    """A loopback port that nobody listens on and that is not in `taken`, to which it is added.

    Another process may take it before the server binds it: see ServerHandle.wait_until_ready.
    """
    while True:
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            probe.bind((HOST, 0))
            port: int = probe.getsockname()[1]
        if port not in taken:
            taken.add(port)
            return port


def _values_of(request: Request, **more: object) -> dict[str, str]:
    return values_of(request.cell, request.spec, request.python, **more)


def _runs(process: psutil.Process) -> bool:
    """Whether it is still the process that was seen, and no other with its pid, and has not ended."""
    with contextlib.suppress(psutil.Error):
        return process.is_running() and alive(process)
    return False


# ---- launches

LATE_S: Final = 30.0
"""How much longer than its window a generator may take: wrk reads its last answers, oha sorts what it has kept."""
SampleMeanwhile = Callable[[float, Callable[[], bool]], None]
"""Takes samples in a window of load; gets the window's length in s, and a function that says whether it is over."""
TRIES: Final = 3
POLL_S: Final = 0.02
PORT_TAKEN: Final = re.compile(
    r"address (?:is )?already in use|EADDRINUSE|could not bind|\[Errno (?:98|48)\]", re.IGNORECASE
)
_ASK_S: Final = (0.5, 1.0, 2.0, 4.0)
"""How long an answer is waited for, the first times and from then on: another process on our port may never answer."""
_RESOLUTION_NS: Final = 1000.0


class ServerLauncher:
    """Starts servers, each on a port that no other launch has."""

    def __init__(self) -> None:
        self.marks = marks()
        self.ports: set[int] = set()

    def start(self, request: Request) -> ServerHandle:
        """Start one; does not wait for it. Raises CellUnsupported where a program is missing, LaunchFailed."""
        return self.start_with(request, tool_for(_service_of(request.spec).load.generator))

    def start_with(self, request: Request, tool: Tool | None) -> ServerHandle:
        """Start one that gets its load from `tool`; without, it can only be asked."""
        return ServerHandle(ServerProcess.start(request, next(self.marks), self.ports, tool), tool)


def tool_for(generator: Generator | None) -> Tool:
    """The load generator requested, or the first that is installed. Raises CellUnsupported where there is none."""
    wanted = generators_for(generator)
    for name in wanted:
        program = which(name, "")
        if program is not None:
            return Tool(name, program, *load_generators.split(split_cpus(), machine.cpu_quota()))
    raise CellUnsupported(missing(list(wanted.items())[:1]))


def generators_for(generator: Generator | None) -> dict[Generator, str]:
    """The load generators that serve, each with its command to install it: the one requested, else all, best first."""
    return {name: command for name, command in load_generators.INSTALL.items() if generator in (None, name)}


class ServerHandle:
    """One launch of a server: see Handle.

    Every iteration is a window of load by a generator that is started for it. Its time has no phases: an iteration has
    no start and no join.
    """

    def __init__(self, server: ServerProcess, tool: Tool | None) -> None:
        self.server = server
        self.tool = tool
        self.request = server.request
        self.service = _service_of(server.request.spec)
        self.clock = time.monotonic
        self.sample_cost_s = 0.0
        self.answered = Answered()
        self.generator: Process | None = None

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
            every = traceback.extract_tb(error.__traceback__)
            own = [frame for frame in every if frame.filename == self.request.spec.source.path] or every
            shown = "".join((*traceback.format_list(own), *traceback.format_exception_only(error))).rstrip()
            raise self.server.process.failure(reason, shown) from error
        return _RESOLUTION_NS

    def iteration(self, kind: str, loops: int = 1, window_ns: int = 0) -> Iteration:
        return self.answered.add(kind, self._drive(window_ns, warming=kind in (COLD, WARMUP)))

    def measure_held(self, window_ns: int, sampled: bool, one_ns: float = 0.0, share: float = 1.0) -> HeldIteration:
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
        return HeldIteration(iteration=iteration, memory=memory, dropped=dropped, waits=waits)

    def barrier(self, loops: int, window_ns: int, *, collects: bool = False) -> Barrier:
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
        return recorded(self.answered, {"gil_enabled": self.request.expect_gil})

    def kill(self) -> None:
        if self.generator is not None:
            self.generator.release()
        self.server.close()

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
            self.server = ServerProcess.start(self.request, self.server.mark, self.server.ports, self.tool)

    def check(self) -> None:
        """Run the test itself, with the server and its parameters. Raises what it raises, and LaunchFailed if late."""
        __tracebackhide__ = True
        # 1. The test as pytest imported it, bound to an instance of its class, and the parameters that it takes.
        source, setup = self.request.spec.source, setup_of(self.request.cell, self.request.spec)
        value: object = sys.modules.get(source.module) or loading.load_module(setup)
        owner: object = None
        for name in source.qualname.split("."):
            owner, value = value, getattr(value, name)
        assert callable(value)
        function = loading.owned(value, owner() if isinstance(owner, type) else None)
        taken = loading.taken(value)
        params = {name: value for name, value in loading.literals(setup["params"]).items() if name in taken}
        # 2. Called with the server, in the time of a launch.
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
                raise self.server.exit_failure("before it was ready")
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
            iteration = self._window(self.tool, seconds, sample, warming)
            self._let_it_finish()
            if iteration is not None:
                return iteration
        reason = f"{self.tool.name} measures with the machine's clock, which was set during {TRIES} windows"
        raise self.server.process.failure(reason)

    def _window(self, tool: Tool, seconds: float, sample: SampleMeanwhile | None, warming: bool) -> Iteration | None:
        """The window as an iteration, over new connections; None where the generator's clock was set in it."""
        server, before, began = self.server, self.server.cpu_s(), time.monotonic()
        # It has a mark of its own: it is ended with the window, and the server goes on.
        environment = os.environ | load_generators.environment_of(tool.name, threads_for(tool)) | {MARK: next(marks())}
        with starting_on(tool.own_cpus):
            generator = Process.start(self._words(tool, seconds), environment)
        self.generator = generator
        try:
            if sample is not None:
                sample(seconds, generator.over)
            if not generator.over(seconds + LATE_S):
                late = f"did not end within {LATE_S:g} s after its window of {seconds:g} s"
                raise server.process.failure(f"{tool.name} {late}")
        finally:
            generator.release()
        span_s, after = time.monotonic() - began, server.cpu_s()
        output = self._output(tool, generator, warming)
        if not 0.98 * seconds <= output.seconds <= span_s + 0.1:
            return None
        wall_ns, asked_per_s = round(1e9 * output.seconds), self.service.load.rate or 0.0
        return Iteration(
            start_ns=0,
            work_ns=wall_ns,
            join_ns=0,
            wall_ns=wall_ns,
            cpu_ns=round(1e9 * sum(spent - before.get(pid, 0.0) for pid, spent in after.items())),
            ops=output.answers,
            rate=output.answers / output.seconds,
            latency=output.latency and msgspec.structs.replace(output.latency, asked_per_s=asked_per_s),
        )

    def _words(self, tool: Tool, seconds: float) -> list[str]:
        """The generator's command line; placeholders are filled in, a body and several URLs are written to files."""
        load, server = self.service.load, self.server
        body = server.filled(load.body).encode() or load.body_bytes
        urls = tuple(below(server.url, server.filled(path)) for path in load_generators.round_of(load.mix))
        files = {"body": body, "urls": "\n".join(urls).encode() if len(urls) > 1 else b""}
        places = {name: str(server.scratch / f".ftgate-{name}") if content else "" for name, content in files.items()}
        for name, place in places.items():
            if place:
                Path(place).write_bytes(files[name])
        return load_generators.argv_of(
            tool.name,
            tool.program,
            urls,
            method=load.method,
            headers=[(name, server.filled(value)) for name, value in load.headers],
            body=places["body"],
            listed=places["urls"],
            rate=load.rate or 0.0,
            connections=load.connections,
            seconds=seconds,
            cpus=threads_for(tool),
            script=str(Path(__file__).with_name("wrk.lua")),
        )

    def _output(self, tool: Tool, generator: Process, warming: bool) -> GeneratorOutput:
        """What the generator reports; raises LaunchFailed where that is not of a server at work."""
        assert generator.exit is not None
        text, code, failure = generator.outputs[0].text, generator.exit.code, self.server.process.failure
        if code != 0:  # a server that dies closes its connections a moment before it is gone
            self.server.process.over(0.5)
        self.server.must_run("under load")
        if code != 0:
            last = (text.strip().splitlines() or [""])[-1]
            raise failure(f"{tool.name} {exit_text(code)}: {last}")
        try:
            output = load_generators.parse(tool.name, text)
        except FtgateError as error:
            raise failure(str(error)) from error
        # A server that is still warming up may break connections: Apache ends processes that are too many for it.
        most = load_generators.MOST_FAILED_WARMING if warming else load_generators.MOST_FAILED
        if output.share_failed > most:
            kinds = ", ".join(f"{count} by {kind}" for kind, count in output.errors.items())
            raise failure(
                f"{output.failed} of {output.failed + output.answers} requests failed under load ({kinds}): "
                "request one in the test to see its answer"
            )
        if not output.answers:
            raise failure(f"no request was answered within {output.seconds:.3g} s of load; use a longer window=")
        self.server.must_keep_the_gil_off()
        self.server.output.trim()
        return output

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
    request = request_here(cell, spec, sys.executable, timeout_s)
    handle = ServerLauncher().start_with(request, None)
    try:
        handle.wait_until_ready()
        handle.check()
    except Exception as error:
        if tail := handle.server.process.tail():
            error.add_note(f"the server: {tail}")
        raise
    finally:
        handle.server.end()


def _service_of(spec: Spec) -> Service:
    assert spec.service is not None
    return spec.service
