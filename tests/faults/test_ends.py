"""A measuring run that is ended, by whatever signal and in whatever phase, leaves no process and no file behind."""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from bench import THREADS, Bench
from example import Example
from project import commit, git

from pytest_ftgate.kit import killing, marks, processes
from pytest_ftgate.kit.files import remove
from pytest_ftgate.kit.marks import Owner
from pytest_ftgate.kit.proc import TRACKER, runs
from pytest_ftgate.measure.launch import LaunchFailed
from pytest_ftgate.measure.launchers import guard
from pytest_ftgate.measure.launchers import process as endings
from pytest_ftgate.measure.launchers.workload import WorkloadHandle
from pytest_ftgate.runner.protocol import COLD

PROMISED_S = 5.0
ON_LINUX = sys.platform == "linux"
PATIENCE = 8
"""Times the promise on a loaded machine; the time that it took is printed."""
OPTIONS = ("--ftgate", "-oftgate_launches=2", "-oftgate_iterations=3", "--ftgate-python=3.14t")
HANGS = {"spinning": "while True: pass", "blocked": "threading.Event().wait()"}
SHELL = {"spinning": "while :; do :; done", "blocked": "sleep 1000; true"}
PROGRAMS = ("install", "worktree", "build")
"""Phases in which a program of the project's runs, and no workload."""
PHASES = (*PROGRAMS, "cold", "measured", "held")
SIGNALS = ("TERM", "HUP", "KILL")
CONFTEST = """
    import pathlib
    from pytest_ftgate.measure.launchers.workload import WorkloadHandle

    def reached(phase):
        if pathlib.Path("phase").read_text() == phase:
            pathlib.Path("reached").touch()

    def iteration(self, kind, *more, _iteration=WorkloadHandle.iteration):
        reached(kind)
        return _iteration(self, kind, *more)

    def measure_held(self, *more, _measure_held=WorkloadHandle.measure_held):
        reached("held")
        return _measure_held(self, *more)

    WorkloadHandle.iteration, WorkloadHandle.measure_held = iteration, measure_held
"""
WORKLOAD = """
    import os, pathlib, subprocess, sys, threading, time
    here = pathlib.Path(__file__).parent

    @ftgate.compare(threads, workers=2)
    def test_it(worker):
        time.sleep(0.01)
        if (here / "reached").exists():
            subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(1000)"], start_new_session=True)
            (here / "hangs").touch()
            {hang}
"""
PROGRAM = """
    from pytest_ftgate import command

    @ftgate.compare(command("native", ["true"], build=["sh", "-c", {build!r}]), workers=1)
    def test_it(worker): ...
"""


def prepared(pytester: pytest.Pytester, phase: str, hang: str, conftest: str = CONFTEST) -> Example:
    """A project whose run hangs in that phase."""
    touched = f"touch {pytester.path / 'hangs'}; {SHELL[hang]}"
    options = [*OPTIONS, f"--ftgate-metrics={'uss' if phase == 'held' else 'wall'}"]
    slow = {}
    if phase == "worktree":  # git checks the reference out by a slow filter
        options.append("--ftgate-against=HEAD~1")
        slow = {".gitattributes": "slow filter=slow\n", "slow": "1\n"}
    install = f"\n    $ {touched}" if phase == "install" else ""
    made = Example(
        pytester,
        {
            "pytest.ini": f"[pytest]\nftgate_install ={install}\naddopts = {' '.join(options)}\n",
            "conftest.py": conftest,
            "phase": phase,
            "test_a.py": PROGRAM.format(build=touched) if phase == "build" else WORKLOAD.format(hang=HANGS[hang]),
            **slow,
        },
    )
    if slow:
        commit(made.folder)
        commit(made.folder)
        git(made.folder, "config", "filter.slow.smudge", f"{touched}; cat")
    return made


def processes_of(folder: Path) -> list[psutil.Process]:
    """All that have this folder as working folder or in their words, by whatever way they came."""
    found, where = [], str(folder)
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            other = process.pid != os.getpid() and processes.alive(process)
            if other and (process.cwd().startswith(where) or any(where in word for word in process.cmdline())):
                found.append(process)
    return found


def said(project: Example) -> str:
    return (project.folder / "output").read_text(encoding="utf-8", errors="replace")


def started(project: Example, *more: str) -> subprocess.Popen[str]:
    """pytest, in the phase that hangs."""
    with (project.folder / "output").open("w") as output:
        pytest_process = project.start(*more, output=output)
    until = time.monotonic() + 120
    while not (project.folder / "hangs").exists():
        assert pytest_process.poll() is None, said(project)
        assert time.monotonic() < until, said(project)
        time.sleep(0.02)
    return pytest_process


def gone_after(project: Example, known: list[psutil.Process]) -> float:
    """Seconds until nothing of the run is left."""
    began = time.monotonic()
    while left := [process for process in {*processes_of(project.folder), *known} if processes.alive(process)]:
        if time.monotonic() - began > PATIENCE * PROMISED_S:
            raise AssertionError([processes.described(process) for process in left], said(project))
        time.sleep(0.02)
    return time.monotonic() - began


def descendants(pid: int) -> list[psutil.Process]:
    found = psutil.Process(pid).children(recursive=True)
    return [process for process in found if not runs(process.pid, "guard.end")]


@pytest.fixture
def ended(pytester: pytest.Pytester, interpreters_on_path: None) -> Iterator[pytest.Pytester]:
    """For a project whose processes are all ended with the test."""
    yield pytester
    for process in processes_of(pytester.path):
        with contextlib.suppress(psutil.Error):
            process.kill()


def check_end(pytester: pytest.Pytester, phase: str, hang: str, name: str, *more: str) -> None:
    """End a run in a phase: nothing of it is left."""
    project = prepared(pytester, phase, hang)
    pytest_process = started(project, "--ftgate-report=json:out.json", *more)
    known = descendants(pytest_process.pid)
    number = signal.Signals[f"SIG{name}"]
    pytest_process.send_signal(number)
    took_s = gone_after(project, known)
    code = pytest_process.wait()
    print(f"{name} while {phase} {hang}: {took_s:.2f} s")
    assert not list((project.folder / ".ftgate" / "launches").glob("*"))
    assert not list(Path("/tmp").glob(f"*{pytest_process.pid}.*")), "scratch folders"
    if name == "KILL":
        assert code == -signal.SIGKILL
    else:
        assert code == pytest.ExitCode.INTERRUPTED, said(project)
        if phase != "worktree":  # before any cell was collected
            assert f"interrupted: SIG{name}" in project.report("out.json")["partial"]


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is left is an error after half a second."""
    monkeypatch.setattr(endings, "leftovers", functools.partial(processes.leftovers, wait_s=0.5))


@pytest.mark.parametrize(
    ("phase", "hang", "name"),
    [("measured", "spinning", "KILL"), ("cold", "blocked", "TERM")],
)
def test_an_ended_run_leaves_nothing(ended: pytest.Pytester, phase: str, hang: str, name: str) -> None:
    check_end(ended, phase, hang, name)


SLOW_END = """
    import time
    from pytest_ftgate.run.run import Ending
    write = Ending._write

    def slowly(self, report):
        pathlib.Path("hangs").touch()
        time.sleep(0.5)
        return write(self, report)

    Ending._write = slowly
"""
SLOW_UPDATE = """
    import time
    from pytest_ftgate.run.run import Run
    store = Run.store

    def slowly(self, report):
        pathlib.Path("hangs").touch()
        time.sleep(0.5)
        return store(self, report)

    Run.store = slowly
"""


@pytest.mark.parametrize("name", ["TERM", pytest.param("HUP", marks=pytest.mark.long)])
@pytest.mark.parametrize("what", [pytest.param("report", marks=pytest.mark.long), "baselines"])
def test_a_signal_while_the_report_is_written_does_not_lose_it(ended: pytest.Pytester, what: str, name: str) -> None:
    project = prepared(ended, "never", "blocked", CONFTEST + (SLOW_END if what == "report" else SLOW_UPDATE))
    pytest_process = started(project, "--ftgate-update", "--ftgate-report=json:out.json", "-oftgate_launches=1")
    pytest_process.send_signal(signal.Signals[f"SIG{name}"])
    assert pytest_process.wait(300) == pytest.ExitCode.INTERRUPTED, said(project)
    assert project.report("out.json")["tables"]
    assert list((project.folder / "baselines").rglob("*.json"))
    gone_after(project, [])


@pytest.mark.long
def test_a_run_that_is_killed_while_it_stores_baselines_has_its_report(ended: pytest.Pytester) -> None:
    project = prepared(ended, "never", "blocked", CONFTEST + SLOW_UPDATE)
    pytest_process = started(project, "--ftgate-update", "--ftgate-report=json:out.json", "-oftgate_launches=1")
    known = descendants(pytest_process.pid)
    pytest_process.kill()
    pytest_process.wait()
    gone_after(project, known)
    assert project.report("out.json")["tables"]
    assert not list((project.folder / "baselines").rglob("*.json"))


def test_what_the_tests_start_hears_signals_also_under_nohup(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    hears = """
        import signal
        def test_it():
            assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
            assert {signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)} == {signal.SIG_DFL}
    """
    project, numbers = Example(pytester, {"test_a.py": hears}), (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, signal.SIG_IGN) for number in numbers}
    try:
        with project.start() as pytest_process:
            printed, _ = pytest_process.communicate()
        assert {signal.getsignal(number) for number in numbers} == {signal.SIG_IGN}
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    assert pytest_process.returncode == 0, printed


def test_a_zombie_has_ended_and_its_exit_code_is_its_parents(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only its parent can end it for good: in a container that is a process that may never do so."""

    def refuse(seconds: float) -> None:
        raise AssertionError(f"waited for {seconds} s")

    with subprocess.Popen([sys.executable, "-S", "-c", "raise SystemExit(3)"]) as child:
        zombie = psutil.Process(child.pid)
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert zombie.status() == psutil.STATUS_ZOMBIE
        with monkeypatch.context() as patched:
            patched.setattr(time, "sleep", refuse)
            processes.wait_for([zombie], 60.0)
            killing.terminate([zombie], 60.0)
            killing.kill([zombie])
    assert child.returncode == 3


LEAVES = """
    import subprocess
    @ftgate.compare(threads, workers=1)
    def test_it(worker):
        subprocess.run("env -i setsid sh -c 'sleep 1000 & sleep 1001 &'", shell=True)
"""


@pytest.mark.usefixtures("soon")
def test_what_empties_its_environment_in_a_session_of_its_own_is_left_behind(bench: Bench) -> None:
    bench.write(LEAVES)
    first, second = bench.start(THREADS, workers=1), bench.start(THREADS, workers=1)
    for handle in (first, second):
        handle.ready()
    first.iteration(COLD)
    second.close()
    second.finish()  # the leftovers are those of the launch that has them
    with pytest.raises(LaunchFailed, match="left 2 processes behind") as failed:
        first.finish()
    assert "sleep 1000" in failed.value.error.detail
    assert isinstance(first, WorkloadHandle)
    assert processes.marked(first.mark) == []


HOLDS = """
    import multiprocessing, threading
    from multiprocessing.shared_memory import SharedMemory

    @ftgate.compare(threads, workers=1)
    def test_it(worker):
        context = multiprocessing.get_context("spawn")
        manager, lock = multiprocessing.Manager(), context.Lock()
        memory = SharedMemory(create=True, size=4096)
        open("{folder}/holds", "w").write(memory.name)
        threading.Event().wait()
"""


def shared() -> set[Path]:
    found = (path for pattern in ("psm_*", "sem.*") for path in Path("/dev/shm").glob(pattern))
    return {path for path in found if path.lstat().st_uid == os.getuid()}


def holding(bench: Bench) -> tuple[WorkloadHandle, str]:
    """A launch in whose body shared memory and a semaphore are held, and the name of the memory."""
    bench.write(HOLDS.format(folder=bench.folder))
    handle = bench.start(THREADS, workers=1)
    assert isinstance(handle, WorkloadHandle)
    handle.ready()
    handle.channel.send({"do": "iteration", "kind": COLD, "loops": 1, "window_ns": 0})
    holds = bench.folder / "holds"
    while not (holds.exists() and holds.read_text()):
        time.sleep(0.01)
    return handle, holds.read_text()


@pytest.mark.skipif(sys.platform != "linux", reason="the names are those of Linux")
@pytest.mark.parametrize("tracker", ["tracked", "its tracker is dead"])
def test_a_killed_launch_leaves_no_shared_memory(bench: Bench, tracker: str) -> None:
    handle, name = holding(bench)
    memory = Path("/dev/shm", name)
    assert memory.exists()
    maps = Path(f"/proc/{handle.process.pid}/maps").read_text()
    (semaphore,) = {Path(line.split()[-1]) for line in maps.splitlines() if "/dev/shm/sem." in line}
    if tracker != "tracked":
        for process in processes.marked(handle.mark):
            if runs(process.pid, TRACKER):
                process.kill()
    handle.kill()
    assert not memory.exists()
    assert not semaphore.exists()
    assert not list(Path(tempfile.gettempdir()).glob(f"pymp-{handle.mark}*"))


@pytest.mark.skipif(sys.platform != "linux", reason="the names are those of Linux")
def test_semaphores_of_a_tree_that_was_killed_whole_are_removed_by_their_names(bench: Bench) -> None:
    """Nobody has them open any more, and their tracker has died with them."""
    handle, name = holding(bench)
    family = processes.marked(handle.mark)
    for process in family:
        process.suspend()
    for process in family:
        process.kill()
    processes.wait_for(family, 60.0)
    named = Path("/dev/shm").glob(f"sem.mp-{handle.mark}-*")
    left, memory = [*named], Path("/dev/shm", name)
    memory.unlink()
    assert len(left) == 1
    guard.end(handle.mark, [])
    assert not left[0].exists()


def dead_owner() -> Owner:
    with subprocess.Popen(["sleep", "1000"]) as child:
        owner = Owner.of(marks._own(child.pid) + "-7")
        child.kill()
    assert owner is not None
    return owner


@pytest.mark.parametrize("environment", ["kept", "emptied"])
def test_what_a_dead_owner_left_is_swept_and_nothing_of_a_live_one(tmp_path: Path, environment: str) -> None:
    dead = dead_owner()
    texts = f"{dead.pid}.{dead.began}.{dead.place}-7", next(marks.marks()), f"{dead.pid}.{dead.began}.abcdef-7"
    sleeping, folders = [], []
    for text in texts[: 3 if environment == "kept" else 2]:  # a limit has no place
        folders += [tmp_path / f"{text}---", Path("/dev/shm", f"sem.mp-{text}-abcdefgh")][: 1 + ON_LINUX]
        folders[-1 - ON_LINUX].mkdir()
        folders[-1].touch()
        with marks.tagged(text if environment == "emptied" else ""):
            variables = {} if environment == "emptied" else {marks.MARK: text}
            sleeping.append(subprocess.Popen(["sleep", "1000"], env=variables, start_new_session=True))
    try:
        guard.sweep(tmp_path)
        sleeping[0].wait(60)
        assert [each.poll() for each in sleeping[1:]] == [None] * len(sleeping[1:])
        there = (False, True, True)[: len(sleeping)]
        assert [path.exists() for path in folders] == [each for each in there for _ in range(1 + ON_LINUX)]
    finally:
        for path in folders[1:]:
            remove(path)
        for each in sleeping:
            each.kill()
            each.wait()


def test_the_tenth_launch_has_a_name_as_long_as_the_ninth(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(marks, "_counts", itertools.count(9))
    ninth, tenth = itertools.islice(marks.marks(), 2)
    assert len(ninth) == len(tenth), "the two sides of a pair: it is in their arguments and their environment"
    assert [Owner.of(name) for name in (ninth, tenth)] == [Owner.of(f"{marks.run_mark()}{n}") for n in (9, 10)]


def test_a_pid_that_is_another_process_by_now_is_a_dead_owner() -> None:
    owner = Owner.of(marks.run_mark() + "1")
    assert owner is not None
    assert not owner.gone
    assert owner._replace(began=owner.began - 1).gone
    assert not owner._replace(pid=2**22 - 1, place="abcdef").gone, "of another machine, or another container"


def test_the_guard_has_what_this_interpreter_was_found_and_loaded_by(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LD_LIBRARY_PATH", "/where/libpython/is")
    monkeypatch.setenv(marks.MARK, next(marks.marks()))
    with guard._started() as process:
        try:
            # The kernel closes our pipe before it has laid out what the new program is given: until then it shows none.
            until = time.monotonic() + PATIENCE * PROMISED_S
            while not (found := psutil.Process(process.pid).environ()) and time.monotonic() < until:
                time.sleep(0.01)
            assert found == {name: value for name, value in os.environ.items() if name != marks.MARK}
        finally:
            process.kill()


def test_a_forked_child_does_not_keep_the_guard_from_noticing(tmp_path: Path) -> None:
    """It would, with its copy of the pipe's other end."""
    script = """
        import os, signal, subprocess, sys, time
        from pytest_ftgate.measure.launchers import guard
        from pytest_ftgate.kit import marks

        guard.ensure()
        if not os.fork():
            time.sleep(1000)
        # A tool's mark: another run that measures here does not sweep it.
        tool = subprocess.Popen(["sleep", "1000"], env={marks.MARK: marks.tool_mark()}, start_new_session=True)
        print(tool.pid, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    """
    words = [sys.executable, "-c", textwrap.dedent(script)]
    with subprocess.Popen(words, cwd=tmp_path, stdout=subprocess.PIPE, start_new_session=True) as owner:
        assert owner.stdout is not None
        tool = psutil.Process(int(owner.stdout.readline()))
        try:
            until = time.monotonic() + PATIENCE * PROMISED_S
            while processes.alive(tool) and time.monotonic() < until:
                time.sleep(0.02)
            assert not processes.alive(tool)
        finally:
            os.killpg(owner.pid, signal.SIGKILL)
            with contextlib.suppress(psutil.Error):
                tool.kill()


@pytest.mark.long
@pytest.mark.parametrize("hang", HANGS)
def test_the_next_run_ends_what_is_left_if_the_guard_was_killed_too(ended: pytest.Pytester, hang: str) -> None:
    project = prepared(ended, "measured", hang)
    pytest_process = started(project)
    guards = [each for each in psutil.Process(pytest_process.pid).children() if "guard.end" in " ".join(each.cmdline())]
    assert len(guards) == 1
    for process in (*guards, psutil.Process(pytest_process.pid)):
        process.kill()
    pytest_process.wait()
    left = processes_of(project.folder)
    assert left, "nobody has ended them"
    (project.folder / "phase").write_text("never")
    for name in ("reached", "hangs"):
        (project.folder / name).unlink()
    project.run_fresh("--ftgate-report=json:out.json")
    assert not [process for process in left if processes.alive(process)], "it, or another run here, has ended them"
    (decision,) = project.decisions("out.json").values()
    assert decision in ("no baseline", "passed")


@pytest.mark.long
@pytest.mark.parametrize("name", SIGNALS)
@pytest.mark.parametrize("hang", HANGS)
def test_an_end_under_xdist_leaves_nothing(ended: pytest.Pytester, hang: str, name: str) -> None:
    check_end(ended, "measured", hang, name, "-n2")


@pytest.mark.long
@pytest.mark.parametrize("name", SIGNALS)
@pytest.mark.parametrize("hang", HANGS)
@pytest.mark.parametrize("phase", PHASES)
def test_every_end_in_every_phase_leaves_nothing(ended: pytest.Pytester, phase: str, hang: str, name: str) -> None:
    check_end(ended, phase, hang, name)


@pytest.mark.parametrize("who", ["the user", "faulthandler", "nobody"])
def test_who_handles_a_signal_already_keeps_it(pytester: pytest.Pytester, who: str) -> None:
    """SIGHUP stands for both signals."""
    script = """
        import faulthandler, signal, sys
        from pytest_ftgate.plugin.signals import Signals

        def of_the_user(*_): ...

        signal.signal(signal.SIGHUP, signal.SIG_DFL)  # under nohup it is ignored
        if sys.argv[1] == "the user":
            signal.signal(signal.SIGHUP, of_the_user)
        elif sys.argv[1] == "faulthandler":
            faulthandler.register(signal.SIGHUP)
        before = signal.getsignal(signal.SIGHUP)
        signals = Signals()
        signals.install()
        kept = signal.getsignal(signal.SIGHUP) is before
        signals.pytest_unconfigure()
        assert signal.getsignal(signal.SIGHUP) is before
        print("kept" if kept else "taken")
    """
    result = pytester.run(sys.executable, "-c", textwrap.dedent(script), who)
    assert result.outlines == ["taken" if who == "nobody" else "kept"], result.stderr.str()
