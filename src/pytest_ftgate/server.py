"""Servers under load: starts one under a target's environment, drives a generator at it, looks at it, and ends it.

What a launch of a server is beside one of a workload: it is told nothing and says nothing. It is known by its answers,
by what its generator says of them, and from outside.
"""

from __future__ import annotations

import contextlib
import http.client
import itertools
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import traceback
import urllib.parse
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import psutil

from . import generators, machine, observe, placing
from .launch import (
    FLOOD_BYTES,
    TAIL_BYTES,
    WATCHED,
    CellUnsupported,
    Finished,
    Held,
    LaunchFailed,
    Request,
    left_error,
    request_here,
    setup_of,
    watch_tree,
)
from .model import Barrier, Cell, Generator, MemoryPoint, Service, Spec, Turn, Waits, WorkloadError
from .programs import exit_text, program_environment
from .roles import Roles
from .runner import loading
from .runner.protocol import COLD, MEASURED, WARMUP
from .waits import Proc

HOST: Final = "127.0.0.1"
GRACE_S: Final = 5.0
"""How long a server may take to end once it was told to, before its whole tree is killed."""
LATE_S: Final = 30.0
"""How much longer than its window a generator may take: wrk reads its last answers, oha sorts what it has kept."""
_TRIES: Final = 3
_POLL_S: Final = 0.02
_ASK_S: Final = (0.5, 1.0, 2.0, 4.0)
"""How long an answer is waited for, the first times and from then on: who took our port may never give one."""
_RESOLUTION_NS: Final = 1000.0
_PORT_TAKEN: Final = re.compile(
    r"address (?:is )?already in use|EADDRINUSE|could not bind|\[Errno (?:98|48)\]", re.IGNORECASE
)
_GIL_ON: Final = re.compile(r"global interpreter lock \(GIL\) has been enabled to load module '([^']*)'")

Look = Callable[[float, Callable[[], bool]], None]
"""What is done in a window of load: it gets the window's length in s, and what says whether the load is over."""


class Tool(NamedTuple):
    """A generator that is there: its name, its program, and the CPUs of the server and its own."""

    name: Generator
    program: str
    server_cpus: frozenset[int]
    own_cpus: frozenset[int]


class Server:
    """A server that is ready, as the test's check gets it: `url` is its address without a path."""

    def __init__(self, url: str) -> None:
        self.url = url

    def __repr__(self) -> str:
        return f"Server({self.url!r})"

    def get(self, path: str = "/", *, timeout_s: float = 30.0) -> str:
        """The body of its answer as text. Raises AssertionError for an error as an answer, OSError for none at all."""
        status, reason, body = _ask(_below(self.url, path), timeout_s)
        if status >= 400:
            raise AssertionError(f"GET {path} was answered with {status} {reason}: {body[:500]}")
        return body


class ServerLauncher:
    """Starts servers; `work` takes a folder a launch, for what it prints."""

    def __init__(self, work: Path) -> None:
        self.work = work
        self.marks = observe.marks()
        self.ports: set[int] = set()

    def start(self, request: Request) -> ServerHandle:
        """Start one; does not wait for it. Raises CellUnsupported where a program is not there, LaunchFailed."""
        service = _service_of(request.spec)
        reason = placing.missing(request.spec.needs, request.python)
        if reason:
            raise CellUnsupported(reason)
        return ServerHandle(self, request, tool_for(service.load.generator))


def tool_for(generator: Generator | None) -> Tool:
    """The generator asked for, or the first that is there. Raises CellUnsupported where there is none."""
    wanted = [generator] if generator else list(generators.INSTALL)
    for name in wanted:
        program = placing.found(name, "")
        if program is not None:
            return Tool(name, program, *generators.split(_cpus(), machine.cpu_quota()))
    raise CellUnsupported(placing.absent(wanted[0], list(generators.INSTALL.items())))


def cpus_note() -> str:
    """Who has which CPUs of this machine while a server is measured, in the words of the table's note."""
    quota = machine.cpu_quota()
    return generators.cpus_note(*generators.split(_cpus(), quota), quota)


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
        self.cold: Turn | None = None
        self.turns: list[Turn] = []
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
            reason = f"its check failed: {_shortly(error)}"
            raise self._failure(reason, _traceback(error, self.request.spec)) from error
        return _RESOLUTION_NS

    def turn(self, kind: str, loops: int = 1, window_ns: int = 0) -> Turn:
        """One window of load; see Handle."""
        turn = self._drive(window_ns, warming=kind in (COLD, WARMUP))
        if kind == COLD:
            self.cold = turn
        elif kind == MEASURED:
            self.turns.append(turn)
        return turn

    def hold(self, window_ns: int, watched: bool, one_ns: float = 0.0) -> Held:
        """A window of load, the first and last tenth of it not watched; longer where looking at memory is dear."""
        self._time_a_look()
        needed_ns = 1e9 * observe.hold_needed_s(self.look_s) / WATCHED
        seen: list[tuple[tuple[MemoryPoint, ...], Waits]] = []

        def watch(seconds: float, over: Callable[[], bool]) -> None:
            time.sleep(seconds * (1 - WATCHED) / 2)
            seen.append(self._watch(seconds * WATCHED, over))

        turn = self._drive(max(window_ns, round(needed_ns)), watch if watched else None)
        memory, waits = seen[-1] if seen else ((), None)
        return Held(turn=turn, memory=memory, waits=waits)

    def barrier(self, loops: int, window_ns: int) -> Barrier:
        """A window of load, and a look at what is left once it is over."""
        turn = self._drive(window_ns)
        try:
            point = observe.barrier_point(self._roles())
        except ProcessLookupError as error:
            raise self._failure(str(error)) from error
        return Barrier(ops=max(1, turn.ops), point=point)

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
            turns=tuple(self.turns),
            counters={},
            timers={},
            results=(),
            gil_enabled=self.request.expect_gil,
        )

    def kill(self) -> None:
        """End it and everything it started, the generator too."""
        if self.generator is not None:
            _kill(self.generator)
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
            if attempt == _TRIES:
                raise self._failure(f"did not get its port in {_TRIES} tries: {lost}")
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
        return placing.expanded([text], self.running.values)[0]

    def _start(self) -> None:
        try:
            self.running = Running(self.launcher, self.request, self.mark, self.folder, self.tool)
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
                lost = _PORT_TAKEN.search(self._output())
                if lost:
                    return lost[0]
                raise self._died(code, "before it was ready")
            said = _no_answer(url, min(next(patience), max(_POLL_S, deadline - self.clock())))
            if not said:
                return self.running.strangers()
            if self.clock() > deadline:
                raise self._failure(f"was not ready within {self.request.timeout_s:g} s: {url} {said}")
            time.sleep(_POLL_S)

    # -- load --------------------------------------------------------------------------------------------------

    def _drive(self, window_ns: int, look: Look | None = None, *, warming: bool = False) -> Turn:
        """One window of load, with a look meanwhile. Raises LaunchFailed where the server fails in it."""
        self._must_run("between turns")
        assert self.tool is not None
        for _ in range(_TRIES):
            turn = self._window(self.tool, generators.seconds_of(self.tool.name, window_ns), look, warming)
            self._let_it_finish()
            if turn is not None:
                return turn
        raise self._failure(
            f"{self.tool.name} measures with the machine's clock, which was set during {_TRIES} windows"
        )

    def _let_it_finish(self) -> None:
        """Answers to a generator that has gone must not be made in the next window, neither its own nor a neighbour's.

        128 requests of 10 ms that wait for one thread take it 1.3 s. What is asked now is answered after those.
        """
        url, deadline = self._filled(self.service.ready), self.clock() + LATE_S
        for _ in range(2 * self.request.cell.workers):  # each of its processes may have a queue of its own
            while said := _no_answer(url, max(_POLL_S, deadline - self.clock())):
                self._must_run("after a window")
                if self.clock() > deadline:
                    raise self._failure(f"{url} {said} for {LATE_S:g} s after the load had ended")
                time.sleep(_POLL_S)

    def _window(self, tool: Tool, seconds: float, look: Look | None, warming: bool) -> Turn | None:
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
            _kill(generator)
        span_s, after = self.clock() - began, self.running.cpu_s()
        heard = self._heard(tool, generator.returncode, output, warming)
        if not 0.98 * seconds <= heard.seconds <= span_s + 0.1:
            return None
        wall_ns = round(1e9 * heard.seconds)
        return Turn(
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
        words = generators.argv_of(
            tool.name,
            tool.program,
            _below(self.url, path),
            connections=asked.connections,
            seconds=seconds,
            cpus=_threads(tool),
            script=str(Path(__file__).with_name("wrk.lua")),
        )
        with _on(tool.own_cpus):
            return subprocess.Popen(
                words,
                env={**os.environ, **generators.environment_of(tool.name, _threads(tool)), observe.MARK: self.mark},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                start_new_session=True,
            )

    def _heard(self, tool: Tool, code: int, output: str, warming: bool) -> generators.Heard:
        """What the generator said; raises LaunchFailed where it says nothing of a server at work."""
        self._must_run("under load")
        if code:
            said = output.strip().splitlines() or [""]
            raise self._failure(f"{tool.name} exited with code {code}: {said[-1]}")
        try:
            heard = generators.parse(tool.name, output)
        except generators.LoadError as error:
            raise self._failure(str(error)) from error
        kinds = ", ".join(f"{kind} {count}" for kind, count in heard.errors.items())
        # One that is still getting warm may break connections: Apache ends processes that are too many for it.
        most = generators.MOST_FAILED_WARMING if warming else generators.MOST_FAILED
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
            processes = observe.tree(roles.main)
            began = self.clock()
            observe.memory_point(processes, roles)
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
        named = None if self.request.expect_gil else _GIL_ON.search(self._output())
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


class Running:
    """A server's processes, with the port, the scratch folder and the file of what they print."""

    def __init__(self, launcher: ServerLauncher, request: Request, mark: str, folder: Path, tool: Tool | None) -> None:
        """Start them. Raises CellUnsupported where its program is not there, OSError."""
        program = request.cell.executor.program
        assert program is not None
        home = placing.folder_of(request.spec)
        (name,) = placing.expanded(program.argv[:1], _known(request))
        found = placing.found(name, request.python, home)
        if found is None:
            raise CellUnsupported(placing.absent(name, request.spec.needs))
        self.mark = mark
        self.ports = launcher.ports
        self.port = free_port(self.ports)
        # Short, wherever the project is: a socket in it has a name of 107 bytes at most.
        self.scratch = Path(tempfile.mkdtemp(prefix="ftgate-"))
        self.values = _known(request, port=self.port, scratch=self.scratch)
        self.printed = folder / "output"
        self.known: set[psutil.Process] = set()
        self.clocks = Proc()
        self.said = ""
        self.closed = False
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self.printed.unlink(missing_ok=True)  # what the last try said, on another port
            words = [found, *placing.expanded(program.argv[1:], self.values)]
            environment = program_environment(request, mark, self.values)
            with self.printed.open("ab") as output, _on(tool.server_cpus if tool else frozenset()):
                self.process = subprocess.Popen(
                    words,
                    env=environment,
                    cwd=home,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            self.guard = _guard(self.process.pid, self.scratch)
        except BaseException:
            observe.kill_marked(mark)  # an interrupt may come once the process is there
            if hasattr(self, "process"):
                self.process.wait()
            self.ports.discard(self.port)
            shutil.rmtree(self.scratch, ignore_errors=True)
            raise

    # -- what it is at -----------------------------------------------------------------------------------------

    def cpu_s(self) -> dict[int, float]:
        """CPU time of each live process so far, in s; what one has used that ended is lost with it."""
        spent = {process.pid: self.clocks.cpu_s(process.pid) for process in self._tree()}
        return {pid: seconds for pid, seconds in spent.items() if seconds is not None}

    def strangers(self) -> str:
        """Who else listens on its port; empty when nobody does, or nobody can be asked."""
        with contextlib.suppress(psutil.Error, OSError):
            heard = psutil.net_connections("tcp")
            listening = {each.pid for each in heard if each.status == psutil.CONN_LISTEN and each.laddr[1] == self.port}
            others = {pid for pid in listening if pid is not None}
            for find in (self._tree, self._marked):
                others -= {process.pid for process in find()} if others else set()
            return f"process {min(others)} listens on {self.port} too" if others else ""
        return ""

    def output(self) -> str:
        """The last of what it printed."""
        try:
            with self.printed.open("rb") as file:
                file.seek(max(0, os.fstat(file.fileno()).st_size - TAIL_BYTES))
                return self.said + file.read().decode("utf-8", "replace")
        except OSError:
            return self.said

    def trim(self) -> None:
        """Let what it prints, such as a line a request, not fill the disk."""
        with contextlib.suppress(OSError):
            if self.printed.stat().st_size > FLOOD_BYTES:
                said = self.output()[-TAIL_BYTES:]
                os.truncate(self.printed, 0)
                self.said = said

    # -- ending ------------------------------------------------------------------------------------------------

    def end(self) -> list[str]:
        """Ask it to end, then what is left of it, then kill; what could not be killed."""
        self._tree()
        self.process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(GRACE_S)
            rest = [process for process in self._marked() | self.known if _runs(process)]
            for process in rest:
                with contextlib.suppress(psutil.Error):
                    process.terminate()
            psutil.wait_procs(rest, timeout=GRACE_S)
        self.close()
        return [observe.described(process) for process in self.known if _runs(process)]

    def close(self) -> None:
        """Kill all that is left, remove the scratch folder, give back the port. Safe to call again."""
        if self.closed:
            return
        self.closed = True
        self._tree()
        observe.kill_all(self.process.pid, self.mark)
        left = [process for process in self.known if _runs(process) and process.pid != self.process.pid]
        for process in left:
            with contextlib.suppress(psutil.Error):
                process.kill()
        self.process.wait()
        psutil.wait_procs(left, timeout=GRACE_S)
        _kill(self.guard)
        self.clocks.close()
        self.ports.discard(self.port)
        shutil.rmtree(self.scratch, ignore_errors=True)

    def _tree(self) -> set[psutil.Process]:
        """What is below it now; a process that leaves its parent and clears its environment is known from before."""
        found = set(observe.tree(self.process.pid))
        self.known |= found
        return found

    def _marked(self) -> set[psutil.Process]:
        """What carries its mark, wherever it went in the tree."""
        found = set(observe.marked(self.mark))
        self.known |= found
        return found


def check_here(cell: Cell, spec: Spec, timeout_s: float) -> None:
    """Start the server once in the environment of this interpreter, run the test's check, and end it.

    Raises CellUnsupported where a program is not there, LaunchFailed where it does not get ready, and what the check
    raises, with what the server printed as a note.
    """
    __tracebackhide__ = True
    reason = placing.missing(spec.needs, sys.executable)
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


# -- small parts ---------------------------------------------------------------------------------------------------


def free_port(taken: set[int]) -> int:
    """A loopback port that nobody listens on and that is not in `taken`, to which it is added.

    Between now and the server's own bind another may take it: see ServerHandle.wait_until_ready.
    """
    while True:
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            probe.bind((HOST, 0))
            port: int = probe.getsockname()[1]
        if port not in taken:
            taken.add(port)
            return port


def _guard(group: int, scratch: Path) -> subprocess.Popen[str]:
    """What ends a server's processes, and removes its folder, where this process is killed before it could.

    It reads from a pipe whose other end is ours alone: it comes to the end of it when we do.
    """
    script = (
        'read line; kill -s TERM -- "-$1"; for turn in 1 2 3 4 5; do kill -s 0 -- "-$1" || break; sleep 1; done; '
        'kill -s KILL -- "-$1"; rm -rf "$2"'
    )
    return subprocess.Popen(
        ["/bin/sh", "-c", script, "guard", str(group), str(scratch)],
        env={"PATH": os.defpath},
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )


def _service_of(spec: Spec) -> Service:
    assert spec.service is not None
    return spec.service


def _known(request: Request, **more: object) -> dict[str, str]:
    return placing.values_of(request.cell, request.spec, request.python, **more)


def _cpus() -> list[int]:
    """The CPUs that this process may use, core by core; none where the platform ties no process to CPUs."""
    if not hasattr(os, "sched_getaffinity"):
        return []
    return sorted(os.sched_getaffinity(0), key=lambda cpu: (*_core_of(cpu), cpu))


def _core_of(cpu: int) -> tuple[int, int]:
    """Package and core that a CPU is a thread of; every CPU by itself where the kernel does not say."""
    folder = Path(f"/sys/devices/system/cpu/cpu{cpu}/topology")
    try:
        package, core = ((folder / name).read_text(encoding="ascii") for name in ("physical_package_id", "core_id"))
        return int(package), int(core)
    except (OSError, ValueError):
        return 0, cpu


def _threads(tool: Tool) -> int:
    """Threads that a generator may have: all of its own CPUs, half of those that it shares."""
    shared = tool.own_cpus == tool.server_cpus
    return max(1, len(tool.own_cpus) // 2) if shared else len(tool.own_cpus)


@contextlib.contextmanager
def _on(cpus: frozenset[int]) -> Iterator[None]:
    """What this thread starts meanwhile runs on `cpus` alone, from its first instruction on.

    A child inherits the affinity of the thread that starts it, on Linux a thread's own: so neither a program between
    nor code between fork and exec is needed, and nothing else of this process moves.
    """
    if not cpus or not hasattr(os, "sched_setaffinity") or cpus == os.sched_getaffinity(0):
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cpus)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def _ask(url: str, timeout_s: float) -> tuple[int, str, str]:
    """Status, its word and the body; no proxy is asked. Raises OSError, http.client.HTTPException."""
    parts = urllib.parse.urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname or HOST, parts.port, timeout=timeout_s)
    with contextlib.closing(connection):
        path = urllib.parse.urlunsplit(("", "", parts.path or "/", parts.query, ""))
        connection.request("GET", path, headers={"Connection": "close"})
        response = connection.getresponse()
        return response.status, response.reason, response.read().decode("utf-8", "replace")


def _below(url: str, path: str) -> str:
    return f"{url}{'' if path.startswith('/') else '/'}{path}"


def _no_answer(url: str, timeout_s: float) -> str:
    """Why it is not ready yet; empty when it is."""
    try:
        status, reason, _ = _ask(url, timeout_s)
    except (OSError, http.client.HTTPException) as error:
        return f"gave no answer ({_shortly(error)})"
    return f"was answered with {status} {reason}" if status >= 400 else ""


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


def _shortly(error: BaseException) -> str:
    """`AssertionError: it said no`, on one line."""
    text = str(error).strip().partition("\n")[0]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _traceback(error: BaseException, spec: Spec) -> str:
    """The frames of the test itself, and the error."""
    every = traceback.extract_tb(error.__traceback__)
    own: Sequence[traceback.FrameSummary] = [frame for frame in every if frame.filename == spec.source.path] or every
    lines = [*traceback.format_list(list(own)), *traceback.format_exception_only(error)]
    return "".join(lines).rstrip()


def _runs(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.Error):
        return bool(process.is_running() and process.status() not in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD))
    return False


def _kill(process: subprocess.Popen[str]) -> None:
    """End a generator or a guard, if it has not ended; its pipes come after it."""
    if process.poll() is None:
        process.kill()
        process.wait()
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            stream.close()
