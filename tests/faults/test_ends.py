"""A measuring run that is ended, by whatever signal and in whatever phase, leaves no process and no file behind."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from example import HEAD

from pytest_ftgate.measure.watch import processes

PROMISED_S = 5.0
PATIENCE = 8
"""Times the promise on a loaded machine; the time that it took is printed."""
OPTIONS = ("--ftgate", "--ftgate-launches=2", "--ftgate-iterations=3", "--ftgate-python=3.14t")
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

    @ftgate.compare({executor}, workers=2{more})
    def test_it(worker):
        time.sleep(0.01)
        if (here / "reached").exists():
            subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(1000)"], start_new_session=True)
            (here / "hangs").touch()
            {hang}
"""
PROGRAM = """
    @ftgate.compare(ftgate.command("sh", "-c", "true", name="native", build=["sh", "-c", {build!r}]), workers=1)
    def test_it(): ...
"""


class Project:
    """A project in a folder of its own, and a pytest that measures it."""

    def __init__(self, folder: Path, phase: str, hang: str, executor: str = "threads") -> None:
        self.folder = folder
        touched = f"touch {folder / 'hangs'}; {SHELL[hang]}"
        install = f"\n    $ {touched}" if phase == "install" else ""
        self.write("pytest.ini", f"[pytest]\nftgate_install ={install}\n")
        self.write("conftest.py", textwrap.dedent(CONFTEST))
        self.write("phase", phase)
        text = (
            PROGRAM.format(build=touched)
            if phase == "build"
            else WORKLOAD.format(executor=executor, more="", hang=HANGS[hang])
        )
        self.write("test_a.py", HEAD + textwrap.dedent(text))
        self.options = [*OPTIONS, f"--ftgate-metrics={'uss' if phase == 'held' else 'wall'}"]
        if phase == "worktree":
            self._slow_checkout(touched)

    def write(self, name: str, text: str) -> None:
        (self.folder / name).write_text(text, encoding="utf-8")

    def _slow_checkout(self, program: str) -> None:
        self.write(".gitattributes", "slow filter=slow\n")
        self.write("slow", "1\n")
        identity = ["-c", "user.name=me", "-c", "user.email=me@example.invalid"]
        for words in (
            ["init", "-q"],
            ["add", "."],
            ["commit", "-q", "-m", "1"],
            ["commit", "-qm", "2", "--allow-empty"],
        ):
            subprocess.run(["git", *identity, *words], cwd=self.folder, check=True)
        subprocess.run(["git", "config", "filter.slow.smudge", f"{program}; cat"], cwd=self.folder, check=True)
        self.options.append("--ftgate-against=HEAD~1")

    def start(self, *more: str) -> subprocess.Popen[bytes]:
        words = [sys.executable, "-P", "-m", "pytest", "-p", "no:cacheprovider", *self.options, *more]
        with (self.folder / "output").open("wb") as output:
            return subprocess.Popen(
                words, cwd=self.folder, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
            )

    def output(self) -> str:
        return (self.folder / "output").read_text(encoding="utf-8", errors="replace")

    def processes(self) -> list[psutil.Process]:
        """All that have this folder as working folder or in their words, by whatever way they came."""
        return [process for process in psutil.process_iter() if self._is_ours(process)]

    def _is_ours(self, process: psutil.Process) -> bool:
        with contextlib.suppress(psutil.Error, OSError):
            if process.pid == os.getpid() or not processes.alive(process):
                return False
            where = str(self.folder)
            return process.cwd().startswith(where) or any(where in word for word in process.cmdline())
        return False


def started(project: Project, *more: str) -> subprocess.Popen[bytes]:
    """pytest, in the phase that hangs."""
    pytest_process = project.start(*more)
    until = time.monotonic() + 120
    while not (project.folder / "hangs").exists():
        assert pytest_process.poll() is None, project.output()
        assert time.monotonic() < until, project.output()
        time.sleep(0.02)
    return pytest_process


def gone_after(project: Project, known: list[psutil.Process]) -> float:
    """Seconds until nothing of the run is left."""
    began = time.monotonic()
    while left := [process for process in {*project.processes(), *known} if processes.alive(process)]:
        assert time.monotonic() - began < PATIENCE * PROMISED_S, [processes.described(process) for process in left]
        time.sleep(0.02)
    return time.monotonic() - began


def descendants(pid: int) -> list[psutil.Process]:
    found = psutil.Process(pid).children(recursive=True)
    return [process for process in found if not processes._is(process, "guard.end")]


@pytest.fixture
def ended(tmp_path: Path, interpreters_on_path: None) -> Iterator[Path]:
    """A folder of a project, whose processes are all ended with the test."""
    yield tmp_path
    for process in Project.processes(type("Folder", (Project,), {"__init__": lambda self: None, "folder": tmp_path})()):
        with contextlib.suppress(psutil.Error):
            process.kill()


def check_end(folder: Path, phase: str, hang: str, name: str, *more: str, executor: str = "threads") -> float:
    """End a run in a phase; the time until nothing of it was left."""
    project = Project(folder, phase, hang, executor)
    pytest_process = started(project, *more, "--ftgate-report=json:out.json")
    known = descendants(pytest_process.pid)
    number = signal.Signals[f"SIG{name}"]
    pytest_process.send_signal(number)
    took_s = gone_after(project, known)
    code = pytest_process.wait()
    print(f"{name} while {phase} {hang}: {took_s:.2f} s")
    assert not list((folder / ".ftgate" / "launches").glob("*"))
    assert not list(Path("/tmp").glob(f"*{pytest_process.pid}.*")), "scratch folders"
    if name == "KILL":
        assert code == -signal.SIGKILL
    else:
        assert code == pytest.ExitCode.INTERRUPTED, project.output()
        if phase != "worktree":  # before any cell was collected
            assert f"interrupted: SIG{name}" in json.loads((folder / "out.json").read_text())["partial"]
    return took_s


@pytest.mark.parametrize(
    ("phase", "hang", "name"),
    [("measured", "spinning", "KILL"), ("install", "blocked", "KILL"), ("cold", "blocked", "TERM")],
)
def test_an_ended_run_leaves_nothing(ended: Path, phase: str, hang: str, name: str) -> None:
    check_end(ended, phase, hang, name)


@pytest.mark.long
@pytest.mark.parametrize("name", SIGNALS)
@pytest.mark.parametrize("hang", HANGS)
@pytest.mark.parametrize("phase", PHASES)
def test_every_end_in_every_phase_leaves_nothing(ended: Path, phase: str, hang: str, name: str) -> None:
    check_end(ended, phase, hang, name)
