"""Servers under load: started, asked, loaded, looked at, and ended without a trace."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest
from project import executable

from physical import confirm, confirmed
from pytest_ftgate import Server
from pytest_ftgate.kit.marks import MARK, run_mark
from pytest_ftgate.kit.processes import marked, tree
from pytest_ftgate.measure.launch import CellUnsupported, LaunchFailed, Request, request_here
from pytest_ftgate.measure.launchers import load as load_generators
from pytest_ftgate.measure.launchers import process as output
from pytest_ftgate.measure.launchers import server as server_process
from pytest_ftgate.measure.launchers.pinning import cpus_note
from pytest_ftgate.measure.launchers.server import ServerHandle, ServerLauncher, check_here, tool_for
from pytest_ftgate.measure.watch import memory
from pytest_ftgate.model.spec import Cell, Executor, Generator, Load, Param, Program, Service, Source, Spec, Target
from pytest_ftgate.runner.protocol import CHECK, COLD, MEASURED, WARMUP

HERE = Path(__file__).parent
SUPPORT = HERE.parent / "support"
SCRIPT = SUPPORT / "server_script.py"
WINDOW_NS = 150_000_000
ARGV = ("{python}", "-S", str(SCRIPT), "plain", "{port}", "{scratch}")

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="servers are ended by POSIX signals")


# -- the checks that the specs below name --------------------------------------------------------------------------


def check_ok(server: Server) -> None:
    assert server.get("/") == "ok"


def check_fails(server: Server) -> None:
    text = server.get("/")
    assert text == "something else"


def check_an_error(server: Server) -> None:
    server.get("/bad")


def check_skips(server: Server) -> None:
    pytest.skip("not on this day")


def check_path(server: Server, path: str) -> None:
    assert server.get(path) == "ok"
    assert server.get(path.removeprefix("/")) == "ok"


class CheckedByAMethod:
    def check(self, server: Server) -> None:
        assert self is not None
        assert server.get("/") == "ok"


# -- how they are started ------------------------------------------------------------------------------------------


def service_of(path: str, **load: Any) -> Service:
    return Service(
        ready="http://127.0.0.1:{port}/", load=Load(path=path, **{"connections": 1, "generator": "oha", **load})
    )


def spec_of(mode: str = "plain", *, check: str = "check_ok", argv: tuple[str, ...] = ARGV, **changed: Any) -> Spec:
    program = Program(name="server", argv=tuple(mode if word == "plain" else word for word in argv))
    fields: dict[str, Any] = {
        "nodeid": "test_web.py::test_web",
        "source": Source(path=__file__, line=1, module=__name__, qualname=check),
        "body": "server",
        "executors": (Executor(kind="server", program=program),),
        "workers": (1,),
        "reuse": "pool",
        "duration_s": 1.0,
        "service": service_of("/", connections=2),
    }
    return Spec(**{**fields, **changed})


def request_of(spec: Spec, *params: Param, **changed: Any) -> Request:
    cell = Cell(
        nodeid="test_web.py::test_web[3.14-server]",
        target=Target(spec="3.14", request="3.14"),
        executor=spec.executors[0],
        workers=1,
        params=params,
        body="server",
    )
    return msgspec.structs.replace(request_here(cell, spec, sys.executable, 20.0), **changed)


Start = Callable[..., ServerHandle]


@pytest.fixture
def launcher() -> ServerLauncher:
    return ServerLauncher()


@pytest.fixture
def start(launcher: ServerLauncher) -> Iterator[Start]:
    """Starts servers that are ended with the test."""
    handles: list[ServerHandle] = []

    def start(mode: str = "plain", params: tuple[Param, ...] = (), **changed: Any) -> ServerHandle:
        names = ("environment", "expect_gil", "timeout_s")
        of_request = {name: changed.pop(name) for name in names if name in changed}
        handle = launcher.start(request_of(spec_of(mode, **changed), *params, **of_request))
        handles.append(handle)
        return handle

    yield start
    for handle in handles:
        handle.kill()


def begun(start: Start, mode: str = "plain", **changed: Any) -> ServerHandle:
    """A server that is ready."""
    handle = start(mode, **changed)
    handle.ready()
    return handle


@pytest.fixture(autouse=True)
def _generators(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stand-in for oha before all others on PATH: its windows may be short."""
    script = SUPPORT / "generator_script.py"
    fake = executable(tmp_path / "bin" / "oha", f'exec "{sys.executable}" -I -S "{script}" "$@"')
    monkeypatch.setenv("PATH", os.pathsep.join((str(fake.parent), os.environ["PATH"])))


def pid_of(handle: ServerHandle) -> int:
    return handle.server.process.pid


def port_of(handle: ServerHandle) -> int:
    return handle.server.port


def about(handle: ServerHandle) -> dict[str, Any]:
    told: dict[str, Any] = json.loads(Server(handle.server.url).get("/about"))
    return told


def answers_at(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=2):
        return True
    return False


def nothing_is_left(handle: ServerHandle) -> None:
    assert marked(handle.server.mark) == []
    # A process that was killed listens until its last thread is gone, which may be after its main one.
    deadline = time.monotonic() + 60
    while answers_at(port_of(handle)) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not answers_at(port_of(handle))
    assert not handle.server.scratch.exists()
    assert port_of(handle) not in handle.server.ports


# -- getting ready -------------------------------------------------------------------------------------------------


def test_a_server_is_started_asked_and_ended(start: Start) -> None:
    handle = start()
    assert handle.ready() > 0
    assert (handle.server.scratch / "left here").exists()
    finished = handle.finish()
    assert (finished.cold, finished.iterations, finished.gil_enabled) == (None, (), True)
    nothing_is_left(handle)


def test_what_a_server_is_told(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONWARNINGS", "error")
    program = Program(name="server", argv=(*ARGV, "{workers}", "{size}"), environment=(("ADDRESS", "here:{port}"),))
    handle = start(
        executors=(Executor(kind="server", program=program),),
        params=(Param(name="size", literal="'big'"),),
        environment={"PYTHON_GIL": "0"},
    )
    handle.wait_until_ready()
    told = about(handle)
    assert told["argv"][2:] == [str(port_of(handle)), str(handle.server.scratch), "1", "big"]
    assert told["cwd"] == str(HERE)
    environ = told["environ"]
    assert (environ["PYTHON_GIL"], environ["ADDRESS"]) == ("0", f"here:{port_of(handle)}")
    assert environ[MARK] == handle.server.mark
    assert environ["PATH"].split(os.pathsep)[0] == os.path.dirname(sys.executable)
    assert "PYTHONPATH" not in environ
    assert "PYTHONWARNINGS" not in environ


def test_it_is_asked_until_it_answers_without_an_error(start: Start) -> None:
    handle = begun(start, "late")
    assert Server(handle.server.url).get("/") == "ok"


def test_one_that_never_gets_ready_shows_what_it_printed(start: Start) -> None:
    handle = start("never ready", timeout_s=3.0)
    with pytest.raises(
        LaunchFailed, match=r"was not ready within 3 s: http://127\.0\.0\.1:\d+/ gave no answer"
    ) as info:
        handle.ready()
    assert "never ready on its port" in info.value.error.detail
    handle.kill()
    nothing_is_left(handle)


@pytest.mark.parametrize(
    ("mode", "said"),
    [
        ("dies", "its server exited with code 3 before it was ready$"),
        ("goes to the background", "exited with code 0 before it was ready; it has to stay in the foreground"),
    ],
)
def test_one_that_ends_is_not_waited_for(start: Start, mode: str, said: str) -> None:
    handle = start(mode, timeout_s=600.0)
    with pytest.raises(LaunchFailed, match=said) as info:
        handle.ready()
    assert ("no module named app" in info.value.error.detail) is (mode == "dies")


def test_a_check_that_fails_says_where(start: Start) -> None:
    with pytest.raises(LaunchFailed, match="its check failed: AssertionError") as info:
        start(check="check_fails").ready()
    assert 'assert text == "something else"' in info.value.error.detail
    assert "plain on its port" in info.value.error.detail


def test_an_error_for_an_answer_fails_the_check(start: Start) -> None:
    with pytest.raises(LaunchFailed, match="GET /bad was answered with 503 Service Unavailable: not yet"):
        start(check="check_an_error").ready()


def test_a_check_may_skip_its_cell(start: Start) -> None:
    with pytest.raises(CellUnsupported, match="not on this day"):
        start(check="check_skips").ready()


def test_a_check_takes_parameters_and_may_be_a_method(start: Start) -> None:
    for check in ("check_path", "CheckedByAMethod.check"):
        start(check=check, params=(Param(name="path", literal="'/'"),)).ready()


# -- what is not there ---------------------------------------------------------------------------------------------


def test_a_missing_program_says_how_to_get_it(start: Start) -> None:
    with pytest.raises(CellUnsupported, match=r"^needs no-such-server: install it with `apt install it`$"):
        start(argv=("no-such-server", "{port}"), programs=(("no-such-server", "apt install it"),))


def test_a_missing_generator_says_how_to_get_it(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    for wanted, said in (("oha", "cargo install oha"), ("wrk", "apt install wrk"), (None, "apt install wrk")):
        with pytest.raises(CellUnsupported, match=rf"^needs {wanted or 'wrk'}: install it with `{said}`$"):
            start(service=service_of("/", generator=wanted))


def test_a_generator_that_is_there_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    assert tool_for(None).name == "oha"


# -- its port ------------------------------------------------------------------------------------------------------


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    """A port that somebody listens on, which is given out as free at first."""
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        other.bind(("127.0.0.1", 0))
        other.listen()
        ports = iter([other.getsockname()[1]])
        real = server_process.free_port
        monkeypatch.setattr(server_process, "free_port", lambda taken: next(ports, None) or real(taken))
        yield other


def test_a_lost_race_for_a_port_is_run_again(start: Start, taken: socket.socket) -> None:
    handle = start()
    first = port_of(handle)
    assert first == taken.getsockname()[1]
    handle.ready()
    assert port_of(handle) != first
    assert "in use" not in handle.server.output.text  # what the first try said is no longer there


def test_a_port_that_somebody_else_listens_on_too_is_given_up(start: Start, taken: socket.socket) -> None:
    stop = threading.Event()

    def answer_all() -> None:
        taken.settimeout(0.1)
        while not stop.is_set():
            with contextlib.suppress(OSError):
                connection, _ = taken.accept()
                with connection:
                    connection.recv(1000)
                    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")

    other = threading.Thread(target=answer_all)
    other.start()
    try:
        handle = start("shares its port")
        first = port_of(handle)
        handle.ready()  # its check asks for the right answer
        assert port_of(handle) != first
    finally:
        stop.set()
        other.join()


def test_a_port_is_given_out_once() -> None:
    taken: set[int] = set()
    ports = [server_process.free_port(taken) for _ in range(20)]
    assert len(set(ports)) == 20 == len(taken)


# -- load ----------------------------------------------------------------------------------------------------------


def test_a_turn_is_a_window_of_load(start: Start) -> None:
    handle = begun(start)
    cold = handle.iteration(COLD, 1, WINDOW_NS)
    for kind in (WARMUP, CHECK):
        handle.iteration(kind, 1, WINDOW_NS)
    iteration = handle.iteration(MEASURED, 1, WINDOW_NS)
    assert iteration.wall_ns == iteration.work_ns == WINDOW_NS
    assert (iteration.start_ns, iteration.join_ns) == (0, 0)
    assert iteration.ops > 0
    assert iteration.rate == pytest.approx(iteration.ops / 0.15)
    assert iteration.latency is not None
    latency = iteration.latency
    assert 0 < latency.p50_ns <= latency.p95_ns <= latency.p99_ns <= latency.max_ns
    assert latency.errors == 0
    finished = handle.finish()
    assert (finished.cold, finished.iterations) == (cold, (iteration,))


@confirmed
def test_cpu_time_is_the_servers_alone(start: Start) -> None:
    busy, idle = start(service=service_of("burn")), start()
    busy.ready()
    idle.ready()
    burnt, spared = (handle.iteration(MEASURED, 1, 2 * WINDOW_NS) for handle in (busy, idle))
    assert burnt.cpu_ns / burnt.ops > 3 * spared.cpu_ns / spared.ops


def test_few_errors_are_counted_and_many_are_one(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    handle = begun(start, "fails")
    for kind in (COLD, WARMUP):
        handle.iteration(kind, 1, WINDOW_NS)
    with pytest.raises(
        LaunchFailed, match=r"^\d+ of \d+ requests failed under load \(\d+ by status\): request one in the test"
    ):
        handle.iteration(MEASURED, 1, WINDOW_NS)
    monkeypatch.setattr(load_generators, "MOST_FAILED", 0.5)
    latency = handle.iteration(MEASURED, 1, WINDOW_NS).latency
    assert latency is not None
    assert latency.errors > 0


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("fails", "oha exited with code 2: no such option"),
        ("rubbish", "oha did not print its figures: rubbish"),
        ("silent", "no request was answered within 0.15 s of load; use a longer window="),
        ("hangs", "oha did not end within 0.3 s after its window of 0.15 s"),
        ("clock", "oha measures with the machine's clock, which was set during 3 windows"),
    ],
)
def test_a_generator_that_tells_nothing(start: Start, monkeypatch: pytest.MonkeyPatch, how: str, said: str) -> None:
    if how == "hangs":
        monkeypatch.setattr(server_process, "LATE_S", 0.3)
    handle = begun(start)
    monkeypatch.setenv("FTGATE_FAKE", how)
    with pytest.raises(LaunchFailed, match=said):
        handle.iteration(MEASURED, 1, WINDOW_NS)
    assert handle.generator is not None
    assert handle.generator.exit is not None


def test_a_server_that_dies_under_load_is_to_blame(start: Start) -> None:
    handle = begun(start, "dies under load")
    with pytest.raises(LaunchFailed, match="its server exited with code 5 under load") as info:
        handle.iteration(MEASURED, 1, WINDOW_NS)
    assert "out of luck" in info.value.error.detail


def test_a_server_that_ended_between_turns_is_seen(start: Start) -> None:
    handle = begun(start)
    with pytest.raises(ConnectionError):
        Server(handle.server.url).get("/die")
    assert handle.server.process.over(20)
    for order in (lambda: handle.iteration(MEASURED, 1, WINDOW_NS), handle.finish):
        with pytest.raises(LaunchFailed, match="its server exited with code 7 between iterations"):
            order()


def test_a_killed_one_is_called_so(start: Start) -> None:
    handle = begun(start)
    handle.server.process.popen.kill()
    assert handle.server.process.over(20)
    with pytest.raises(LaunchFailed, match="its server was killed by SIGKILL between iterations"):
        handle.finish()


def test_the_gil_that_came_back_on_is_read_from_its_output(start: Start) -> None:
    with pytest.raises(LaunchFailed, match="the GIL came back on: module 'old_module' turned it on"):
        start("turns the GIL on", expect_gil=False).ready()
    start("turns the GIL on").ready()


def test_what_it_prints_is_kept_short(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output, "FLOOD_BYTES", 200_000)
    handle = begun(start, "chatty")
    for _ in range(2):
        handle.iteration(MEASURED, 1, WINDOW_NS)
    assert os.fstat(handle.server.output.file.fileno()).st_size <= 200_000
    assert len(handle.server.output.text) > 10_000


# -- CPUs ----------------------------------------------------------------------------------------------------------

ALL_CPUS = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []


@pytest.mark.skipif(len(ALL_CPUS) < 2, reason="needs two CPUs")
def test_server_and_generator_keep_to_their_cpus(start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, last = frozenset(ALL_CPUS[:1]), frozenset(ALL_CPUS[1:2])
    monkeypatch.setattr(load_generators, "split", lambda cpus, quota=None: (first, last))
    told = tmp_path / "told.json"
    monkeypatch.setenv("FTGATE_FAKE_SAYS", str(told))
    handle = begun(start)
    handle.iteration(MEASURED, 1, WINDOW_NS)
    assert os.sched_getaffinity(pid_of(handle)) == first
    said = json.loads(told.read_text(encoding="utf-8"))
    assert (said["cpus"], said["threads"]) == (list(last), "1")
    assert sorted(os.sched_getaffinity(0)) == ALL_CPUS


def test_the_note_says_who_shares() -> None:
    here = len(ALL_CPUS)
    note = cpus_note()
    assert ("share" in note) or (str(here - max(1, here // 4)) in note)


# -- what is seen --------------------------------------------------------------------------------------------------


def test_all_processes_of_the_server_are_looked_at(start: Start) -> None:
    handle = begun(start, "forks")
    barrier = handle.barrier(1, WINDOW_NS)
    assert barrier.ops > 0
    assert barrier.point.processes == 3
    assert barrier.point.roles["main"].processes == 1
    held = handle.measure_held(2 * WINDOW_NS, sampled=True)
    assert held.iteration.ops > 0
    assert {point.processes for point in held.memory} == {3}
    assert held.waits is not None
    assert len(held.waits.cores) == 3
    assert held.waits.watched_s < held.iteration.wall_ns / 1e9
    waits = [held.waits]  # a busy machine leaves the server less than a clock tick of a short hold
    while not sum(waits[-1].cores.values()) and len(waits) < 10:
        waits += filter(None, [handle.measure_held(2 * WINDOW_NS, sampled=True).waits])
    assert sum(waits[-1].cores.values()) > 0
    if not held.waits.unavailable:
        assert held.waits.span_s > 2 * held.waits.watched_s  # three main threads at least


def test_a_bare_hold_looks_at_nothing(start: Start) -> None:
    handle = begun(start)
    held = handle.measure_held(WINDOW_NS, sampled=False)
    assert (held.memory, held.waits) == ((), None)
    assert held.iteration.ops > 0


# -- the end -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["forks", "orphans"])
def test_no_process_of_it_is_left(start: Start, mode: str) -> None:
    handle = begun(start, mode)
    processes = tree(pid_of(handle))
    assert len(processes) == 3
    handle.finish()
    assert not any(process.is_running() and process.status() != psutil.STATUS_ZOMBIE for process in processes)
    nothing_is_left(handle)


def test_none_is_left_where_this_process_is_killed() -> None:
    script = f"""
import os, signal, sys
sys.path[:0] = [{str(HERE)!r}, {str(SUPPORT)!r}]
import test_servers as here
handle = here.ServerLauncher().start_with(here.request_of(here.spec_of()), None)
handle.wait_until_ready()
print(handle.server.process.pid, handle.server.scratch, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    pid, _, scratch = ended.stdout.strip().partition(" ")
    deadline = time.monotonic() + 30
    while Path(scratch).exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not Path(scratch).exists()
    assert not psutil.pid_exists(int(pid)) or psutil.Process(int(pid)).status() == psutil.STATUS_ZOMBIE


def test_one_that_does_not_listen_to_reason_is_killed(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_process, "GRACE_S", 0.2)
    handle = begun(start, "deaf")
    handle.finish()
    nothing_is_left(handle)


def test_it_may_be_killed_at_any_time_and_twice(start: Start) -> None:
    begun, ended = start("forks"), start()
    begun.kill()
    ended.ready()
    ended.finish()
    for handle in (begun, ended):
        handle.kill()
        nothing_is_left(handle)


def test_an_interrupt_ends_the_load_too(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    handle = begun(start, "forks")
    monkeypatch.setattr(memory, "run_samplers", interrupted)
    with pytest.raises(KeyboardInterrupt):
        handle.measure_held(2_000_000_000, sampled=True)
    assert handle.generator is not None
    assert handle.generator.exit is not None
    handle.kill()
    nothing_is_left(handle)


# -- without measuring ---------------------------------------------------------------------------------------------


def cell_of(spec: Spec) -> Cell:
    return request_of(spec).cell


def test_a_check_runs_once_in_this_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")  # no generator is asked for
    spec = spec_of("forks")
    check_here(cell_of(spec), spec, 20.0)
    assert marked(run_mark()) == []  # of this process alone: another one may run the same script


def test_what_a_check_raises_is_raised_here() -> None:
    spec = spec_of(check="check_fails")
    with pytest.raises(AssertionError) as info:
        check_here(cell_of(spec), spec, 20.0)
    assert any("plain on its port" in note for note in info.value.__notes__)


def test_what_is_missing_is_unsupported_here() -> None:
    for spec in (spec_of(programs=(("no-such-tool", ""),)), spec_of(argv=("no-such-tool",))):
        with pytest.raises(CellUnsupported, match="needs no-such-tool, which is not on PATH"):
            check_here(cell_of(spec), spec, 20.0)


# -- for real ------------------------------------------------------------------------------------------------------


def real_tool(name: str, monkeypatch: pytest.MonkeyPatch) -> Generator:
    """The load generator itself in place of the stand-in; skips without it."""
    monkeypatch.setenv("PATH", os.environ["PATH"].split(os.pathsep, 1)[1])
    try:
        return tool_for(name).name  # type: ignore[arg-type]
    except CellUnsupported as reason:
        pytest.skip(str(reason))


@pytest.mark.parametrize("generator", ["wrk", "oha"])
def test_with_a_real_generator(start: Start, generator: str, monkeypatch: pytest.MonkeyPatch) -> None:
    handle = begun(start, service=service_of("/", connections=4, generator=real_tool(generator, monkeypatch)))

    def sample() -> None:
        iteration = handle.iteration(MEASURED, 1, 1_000_000_000)
        assert iteration.wall_ns >= 1_000_000_000
        assert iteration.ops > 10
        assert iteration.cpu_ns > 0
        assert iteration.latency is not None
        assert iteration.latency.errors == 0
        assert 0 < iteration.latency.p50_ns <= iteration.latency.p99_ns <= iteration.latency.max_ns
        # Little's law: so many connections, each of which waits for its answer. What wrk adds for requests that
        # were not sent meanwhile makes the mean longer, never shorter.
        assert iteration.rate * iteration.latency.mean_ns / 1e9 > 2

    confirm(sample)
    handle.finish()


def certificate(folder: Path) -> Path:
    """A key and a certificate that it signed itself, for another host than ours."""
    if shutil.which("openssl") is None:
        pytest.skip("needs openssl")
    made = [folder / name for name in ("key.pem", "certificate.pem")]
    words = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=elsewhere"]
    subprocess.run([*words, "-keyout", made[0], "-out", made[1]], check=True, capture_output=True)
    both = folder / "both.pem"
    both.write_text("".join(path.read_text(encoding="ascii") for path in made), encoding="ascii")
    return both


def check_a_post(server: Server, kind: str) -> None:
    assert server.post("/a", "h\u00e9", {"X-Kind": kind}) == "ok"
    assert json.loads(server.get("/seen")) == [["POST", "/a", "h\u00c3\u00a9", kind, 1]]
    with pytest.raises(AssertionError, match="POST /bad was answered with 503"):
        server.request("POST", "/bad")


@pytest.mark.parametrize("generator", ["wrk", "oha"])
def test_a_mix_of_posts_over_tls(start: Start, tmp_path: Path, generator: str, monkeypatch: pytest.MonkeyPatch) -> None:
    tool = real_tool(generator, monkeypatch)
    load = Load(
        path=(("/a", 2), ("/{kind}?q=1", 1)),
        connections=4,
        generator=tool,
        method="POST",
        body="x{kind}{y}",
        headers=(("X-Kind", "k-{kind}"),),
    )
    service = Service(ready="https://127.0.0.1:{port}/", load=load)
    program = Program(
        name="server",
        argv=tuple("encrypts" if word == "plain" else word for word in ARGV),
        environment=(("CERTIFICATE", str(certificate(tmp_path))),),
    )
    executors = (Executor(kind="server", program=program),)
    kind = Param(name="kind", literal="'b'")
    handle = begun(start, check="check_a_post", service=service, executors=executors, params=(kind,))
    iteration = handle.iteration(MEASURED, 1, 1_000_000_000)
    seen = {tuple(request): times for *request, times in json.loads(Server(handle.server.url).get("/seen"))}
    handle.finish()
    assert iteration.latency is not None
    assert iteration.latency.errors == 0
    del seen["POST", "/a", "h\u00c3\u00a9", "b"], seen["POST", "/bad", "", ""]
    assert set(seen) == {("POST", "/a", "xb{y}", "k-b"), ("POST", "/b?q=1", "xb{y}", "k-b")}
    first, second = (times for _, times in sorted(seen.items()))
    assert iteration.ops <= first + second
    assert first == pytest.approx(2 * second, rel=0.3, abs=20)  # oha draws its paths


def test_a_body_of_bytes_is_sent_as_it_is(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    tool = real_tool("wrk", monkeypatch)
    handle = begun(start, service=service_of("/a", generator=tool, method="POST", body_bytes=b"\x00\xff{port}"))
    handle.iteration(MEASURED, 1, 1_000_000_000)
    ((*seen, times),) = json.loads(Server(handle.server.url).get("/seen"))
    assert seen == ["POST", "/a", "\x00\u00ff{port}", ""]
    assert times > 1


def test_a_constant_rate_counts_from_when_a_request_was_due(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    tool = real_tool("oha", monkeypatch)
    handle = start(service=service_of("/slow", generator=tool, rate=40.0))  # an answer takes 50 ms: 20 in a second
    handle.ready()
    iteration = handle.iteration(MEASURED, 1, 2_000_000_000)
    assert iteration.rate < 21
    assert iteration.latency is not None
    assert iteration.latency.asked_per_s == 40
    assert iteration.latency.max_ns > 500e6  # the last ones waited for half of the window
