"""Whatever hangs ends by its own limit, with an error that says what it was and where."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from bench import THREADS, Bench

from pytest_ftgate.kit import git, waiting
from pytest_ftgate.kit.errors import FtgateError
from pytest_ftgate.measure.launch import LaunchFailed
from pytest_ftgate.measure.launchers import workload
from pytest_ftgate.measure.launchers.process import Late, within
from pytest_ftgate.measure.launchers.server import check_here, no_answer
from pytest_ftgate.model.spec import Cell, Executor, Program, Service, Source, Spec, Target
from pytest_ftgate.run.folder import RunFolder

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="POSIX")

DRIP = """
    import socket, sys, time
    listener = socket.create_server(("127.0.0.1", int(sys.argv[1])))
    while True:
        answers, _ = listener.accept()
        answers.sendall(b"HTTP/1.0 200 OK\\r\\nX: ")
        try:
            while DRIPS:
                answers.sendall(b"x")
                time.sleep(0.05)
            answers.sendall(b"y\\r\\n\\r\\nok")
        except OSError:
            pass
        answers.close()
"""


# -- servers -------------------------------------------------------------------------------------------------------


def hanging_check(server: object) -> None:
    """A test's own check, which waits for what never comes."""
    threading.Event().wait(60)


def served(folder: Path, script: str) -> tuple[Cell, Spec]:
    path = folder / "server.py"
    path.write_text(textwrap.dedent(script), encoding="utf-8")
    program = Program(name="server", argv=(sys.executable, str(path), "{port}"))
    spec = Spec(
        nodeid="test_web.py::test_web",
        source=Source(path=__file__, line=1, module=__name__, qualname="hanging_check"),
        body="server",
        executors=(Executor(kind="server", program=program),),
        workers=(1,),
        reuse="pool",
        duration_s=1.0,
        service=Service(ready="http://127.0.0.1:{port}/", load=None),  # type: ignore[arg-type]
    )
    target = Target(spec="3.14", request="3.14")
    cell = Cell(nodeid="test_web.py::test_web[x]", target=target, executor=spec.executors[0], workers=1, body="server")
    return cell, spec


def test_a_server_whose_answer_drips_is_not_ready_in_time(tmp_path: Path) -> None:
    cell, spec = served(tmp_path, DRIP.replace("DRIPS", "True"))
    with pytest.raises(LaunchFailed, match=r"was not ready within 5 s: http://.* gave no whole answer within"):
        check_here(cell, spec, 5.0)


def test_a_check_that_hangs_ends_with_its_stack(tmp_path: Path) -> None:
    cell, spec = served(tmp_path, DRIP.replace("DRIPS", "False"))
    with pytest.raises(LaunchFailed, match=rf"its check did not end within 5 s; the check was at {__file__}") as raised:
        check_here(cell, spec, 5.0)
    assert "in hanging_check" in raised.value.error.detail


def test_a_request_has_one_deadline_and_not_one_for_each_read() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        over = threading.Event()

        def drip() -> None:
            answers, _ = listener.accept()
            with answers:
                while not over.wait(0.02):
                    answers.sendall(b"x")

        thread = threading.Thread(target=drip)
        thread.start()
        assert no_answer(f"http://127.0.0.1:{listener.getsockname()[1]}/", 0.3) == "gave no whole answer within 0.3 s"
        over.set()
        thread.join()


def test_what_is_called_within_a_time_gives_its_value_or_raises_its_error() -> None:
    assert within(60.0, lambda: 42, "it") == 42
    with pytest.raises(ZeroDivisionError):
        within(60.0, lambda: 1 / 0, "it")
    with pytest.raises(SystemExit):
        within(60.0, sys.exit, "it")
    with pytest.raises(Late, match=r"did not end within 0.05 s"):
        within(0.05, threading.Event().wait, "it")


# -- the control pipe ----------------------------------------------------------------------------------------------

PIPE = """
    import marshal, os, sys, time

    def pipe():
        with open(sys.orig_argv[-1], "rb") as job:
            return marshal.load(job)["control"][1]

    def framed(content):
        return len(content).to_bytes(4, "big") + content

    def message(**fields):
        return framed(marshal.dumps(fields, 2))

    def write(content):
        while content:
            content = content[os.write(pipe(), content):]

    @ftgate.compare(threads, workers=[1])
    def test_it(worker):
        while True:
            write(JUNK)
            ONCE
"""
JUNK = {
    "text with no newline": (
        "b'no frame at all, but text that some library prints into a descriptor'",
        r"a message of 1,852,776,550 bytes",
    ),
    "a huge frame": ("b'\\xff\\xff\\xff\\xff'", "a message of 4,294,967,295 bytes"),
    "what nobody can read": ("framed(b'\\x00\\x01\\x02')", "3 bytes that cannot be read: "),
    "no message": ("framed(marshal.dumps([1, 2], 2))", r"\[1, 2\] in place of a message"),
    "another type of event": ("message(event=3)", r"\{'event': 3\} in place of a message"),
    "a missing key": (
        "message(event='iteration')",
        "iteration of its 'iteration' message: Expected `object`, got `null`",
    ),
    "a wrong type": (
        "message(event='iteration', iteration={'wall_ns': [], 'work_ns': 1})",
        "Expected `int`, got `array`",
    ),
    "a number of 400 digits": (
        "message(event='iteration', iteration={'wall_ns': 10**400, 'work_ns': 1})",
        "Expected `int` <= 9223372036854775807",
    ),
    "an infinite rate": (
        "message(event='iteration', iteration={'wall_ns': 1, 'work_ns': 1, 'rate': float('inf')})",
        r"Expected `float` <= 1e\+30",
    ),
    "a rate that is no number": (
        "message(event='iteration', iteration={'wall_ns': 1, 'work_ns': 1, 'rate': float('nan')})",
        "Expected `float` >= 0.0",
    ),
    "code": ("framed(marshal.dumps(compile('1', '', 'eval')))", "bytes that cannot be read|in place of a message"),
}


HUNG = "did not end a measured iteration within 3 s .*; worker 0 of 1 was at"


def piped(bench: Bench, junk: str, *, once: bool = True, timeout_s: float = 20.0) -> Any:
    bench.write(PIPE.replace("JUNK", junk).replace("ONCE", "time.sleep(60)" if once else ""))
    handle = bench.start(THREADS, workers=1, timeout_s=timeout_s)
    handle.ready()
    return handle


@pytest.mark.parametrize("junk", JUNK)
def test_junk_on_the_control_pipe_is_an_error_that_shows_it(bench: Bench, junk: str) -> None:
    written, said = JUNK[junk]
    with pytest.raises(LaunchFailed, match=f"sent invalid data on the pipe of its runner: .*({said})") as raised:
        piped(bench, written).iteration("measured")
    assert "must not write to it" in raised.value.error.detail


def test_a_flood_of_messages_is_no_answer(bench: Bench) -> None:
    handle = piped(bench, "message(event='released') * 100", once=False, timeout_s=3.0)
    with pytest.raises(LaunchFailed, match=HUNG):
        handle.iteration("measured")


def test_half_a_message_is_no_answer(bench: Bench) -> None:
    handle = piped(bench, "message(event='iteration')[:5]", timeout_s=3.0)
    with pytest.raises(LaunchFailed, match=HUNG):
        handle.iteration("measured")


@pytest.mark.parametrize("afterwards", ["lives on", "ends"])
def test_a_closed_pipe_is_not_asked_again_and_again(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, afterwards: str
) -> None:
    """It can always be read from: nothing would be waited for between two looks."""
    monkeypatch.setattr(workload, "GRACE_S", 1.0 if afterwards == "lives on" else 60.0)
    ends = "" if afterwards == "lives on" else "); time.sleep(0.5); os._exit(7"
    handle, looks = piped(bench, f"b''); os.close(pipe(){ends}", timeout_s=60.0), list[int]()
    receive = handle.channel.receive

    def counted() -> Any:
        looks.append(1)
        return receive()

    monkeypatch.setattr(handle.channel, "receive", counted)
    said = "closed the pipe of its runner during" if afterwards == "lives on" else "exited with code 7 during"
    with pytest.raises(LaunchFailed, match=f"{said} a measured iteration"):
        handle.iteration("measured")
    assert len(looks) < 10


def test_the_last_message_of_a_launch_that_has_ended_counts(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """It comes between a look at the pipe, which is empty, and a look at the process, which is gone by then."""
    handle = piped(bench, "b''")
    receive, looks = handle.channel.receive, list[int]()

    def late() -> Any:
        looks.append(1)
        if looks[1:] or handle.process.exit is not None:  # on a busy machine it has ended before the first look
            return receive()
        return handle.process.over(60.0) and None

    monkeypatch.setattr(handle.channel, "receive", late)
    handle.close()
    assert handle.process.exit is not None


# -- locks ---------------------------------------------------------------------------------------------------------

HOLDS = """
    import sys, time
    from pathlib import Path
    from pytest_ftgate.kit import waiting

    waiting.begin("20260101-000000-abcd", None, "--ftgate-time", print)
    with waiting.locked(Path(sys.argv[1])):
        print("held", flush=True)
        time.sleep(600)
"""


@pytest.fixture
def holder(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that holds the lock `measuring` of the project in `tmp_path`."""
    (tmp_path / ".ftgate").mkdir()
    words = [sys.executable, "-c", textwrap.dedent(HOLDS), str(tmp_path / ".ftgate" / "measuring.lock")]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


@pytest.fixture
def begin(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[float | None], list[str]]]:
    """Begins a run that waits in silence for a moment only; what it warns of."""
    monkeypatch.setattr(waiting, "SAID_AFTER_S", 0.1)
    monkeypatch.setattr(waiting, "LEAST_S", 0.1)
    warnings: list[str] = []

    def begin(budget_s: float | None) -> list[str]:
        waiting.begin("this run", budget_s, "--ftgate-time", warnings.append)
        return warnings

    yield begin
    waiting.begin("", None, "--ftgate-time", lambda _: None)


def test_who_holds_a_lock_is_said_and_its_death_frees_it(
    tmp_path: Path, holder: subprocess.Popen[str], begin: Callable[[float | None], list[str]]
) -> None:
    warnings = begin(None)
    got = threading.Event()

    def wait() -> None:
        with RunFolder(tmp_path).locked("measuring"):
            got.set()

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    while not warnings:
        assert not got.wait(0.02)
    assert len(warnings) == 1
    assert warnings[0].startswith(f"waiting for process {holder.pid} of run 20260101-000000-abcd (since 20")
    assert warnings[0].endswith(f"to release {tmp_path / '.ftgate' / 'measuring.lock'}")
    holder.send_signal(signal.SIGKILL)
    assert got.wait(60)
    thread.join()
    assert sorted(path.name for path in (tmp_path / ".ftgate").glob("measuring*")) == ["measuring.lock"]


def test_a_lock_is_waited_for_until_the_time_of_the_run_is_over(
    tmp_path: Path, holder: subprocess.Popen[str], begin: Callable[[float | None], list[str]]
) -> None:
    begin(0.3)
    said = f"--ftgate-time was over while process {holder.pid} of run .* held"
    with pytest.raises(FtgateError, match=said), RunFolder(tmp_path).locked("measuring"):
        pass


def test_of_one_run_each_waits_for_the_other_in_silence(
    tmp_path: Path, begin: Callable[[float | None], list[str]]
) -> None:
    warnings = begin(0.2)
    lock = tmp_path / "measuring.lock"
    holds = textwrap.dedent(HOLDS).replace("20260101-000000-abcd", "this run").replace("600", "1")
    with subprocess.Popen([sys.executable, "-c", holds, str(lock)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        with waiting.locked(lock):
            pass
    assert warnings == []


# -- commands ------------------------------------------------------------------------------------------------------


def test_a_command_ends_with_the_time_of_the_run_and_all_that_it_started(
    tmp_path: Path, begin: Callable[[float | None], list[str]]
) -> None:
    begin(0.3)
    words = ["/bin/sh", "-c", f"sleep 600 & echo $! > {tmp_path}/pid; wait"]
    with pytest.raises(waiting.TooLong, match=r"`/bin/sh -c .*` did not end within 0.\d+ s: --ftgate-time was over"):
        waiting.run_within(words, environment=os.environ)
    pid = int((tmp_path / "pid").read_text(encoding="utf-8"))
    for _ in range(1000):
        if not Path(f"/proc/{pid}/cmdline").exists() or not Path(f"/proc/{pid}/cmdline").read_bytes():
            break
        time.sleep(0.02)
    else:
        pytest.fail("a process of the command is left")


def test_a_command_has_a_limit_of_its_own_where_the_run_has_none(
    begin: Callable[[float | None], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    begin(None)
    with monkeypatch.context() as patched:
        patched.setattr(waiting, "OWN_S", 0.2)
        with pytest.raises(waiting.TooLong, match=r"`sleep 600` did not end within 0.2 s: that is the limit of such a"):
            waiting.run_within(["sleep", "600"], environment=os.environ)
    done = waiting.run_within(["cat"], environment=os.environ, given="a text")
    assert (done.returncode, done.stdout) == (0, "a text")


@pytest.mark.parametrize("tool", ["git", "uv"])
def test_git_and_uv_that_hang_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, begin: Callable[[float | None], list[str]], tool: str
) -> None:
    hangs = tmp_path / tool
    hangs.write_text("#!/bin/sh\nexec sleep 600\n", encoding="utf-8")
    hangs.chmod(0o755)
    begin(0.2)
    if tool == "git":
        monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
        with pytest.raises(git.AgainstError, match=r"`git rev-parse --is-inside.*` did not end within .*--ftgate-time"):
            git.Repository(tmp_path)
        return
    from pytest_ftgate.targets import environments

    monkeypatch.setattr(environments, "find_uv", lambda: str(hangs))
    with pytest.raises(FtgateError, match=r"uv venv x` did not end within .*--ftgate-time was over"):
        environments.run_uv(["venv", "x"])
