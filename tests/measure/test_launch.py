"""What a launch is told, and what happens where it cannot be started; real launches are in test_runner.py."""

from __future__ import annotations

import errno
import marshal
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest
from fake_launcher import group_of, spec_of

from pytest_ftgate.kit import marks
from pytest_ftgate.kit.errors import FtgateError
from pytest_ftgate.measure import launch
from pytest_ftgate.measure.cell_run import CellRun, RunningLaunch
from pytest_ftgate.measure.launch import Answered, Handle, LaunchFailed, Request, recorded, request_here
from pytest_ftgate.measure.launchers import guard, workload
from pytest_ftgate.measure.launchers.workload import WorkloadLauncher, install_runner
from pytest_ftgate.measure.round_plan import RoundPlan
from pytest_ftgate.model.sample import Iteration, Launch, MemoryPoint, Timer
from pytest_ftgate.model.spec import Param, Settings, Source, Spec
from pytest_ftgate.runner import loading, pytest_stub
from pytest_ftgate.runner.protocol import BARRIER, CHECK, COLD, HOLD, MARSHAL, MEASURED, PROTOCOL, WARMUP
from pytest_ftgate.runner.record import LaunchRecord

ITERATION = Iteration(start_ns=1, work_ns=2, join_ns=3, wall_ns=6, cpu_ns=4, ops=2, rate=1e9)


def request_of(spec: Spec | None = None, *, settings: Settings | None = None, **changed: Any) -> Request:
    (cell,) = group_of(spec=spec or spec_of("fork", workers=3), settings=settings or Settings()).cells
    request = request_here(cell, spec or spec_of("fork", workers=3), "/opt/env/bin/python", 5.0)
    return msgspec.structs.replace(request, **{"expect_gil": False, "hash_seed": 7, "padding": 100, **changed})


# -- the job -------------------------------------------------------------------------------------------------------


def test_a_job_holds_what_the_runner_needs_and_is_plain_values(tmp_path: Path) -> None:
    job = workload.job_of(request_of(), tmp_path / "result", (5, 6), "mark")
    assert marshal.loads(marshal.dumps(job, MARSHAL)) == job
    assert (job["protocol"], job["control"], job["result"]) == (PROTOCOL, [5, 6], str(tmp_path / "result"))
    assert (job["fresh"], job["expect_gil"]) == (True, False)
    setup = job["setup"]
    assert (setup["kind"], setup["method"], setup["workers"], setup["shape"]) == ("processes", "fork", 3, "worker")
    assert (setup["module"], setup["qualname"], setup["control"]) == ("test_work", "test_work", "")


@pytest.mark.parametrize(
    ("side", "said"),
    [("own", ("", False)), ("control", ("burn", False)), ("locks", ("", True)), ("empty", ("empty", False))],
)
def test_a_pool_and_what_a_launch_runs_are_said(side: str, said: tuple[str, bool]) -> None:
    job = workload.job_of(request_of(spec_of("fork", reuse="pool"), role=side), Path("result"), (5, 6), "mark")
    assert (job["fresh"], job["setup"]["control"], job["locks"]) == (False, *said)


@pytest.mark.parametrize(("interval_ns", "seconds"), [(None, None), (100_000, 0.0001)])
def test_the_switch_interval_travels_in_seconds(interval_ns: int | None, seconds: float | None) -> None:
    request = request_of(settings=Settings(switchinterval_ns=interval_ns))
    assert launch.setup_of(request.cell, request.spec)["switch_s"] == seconds


@pytest.mark.parametrize(("module", "path"), [("beside", "beside.py"), ("pkgcopy.inside", "pkgcopy/inside.py")])
def test_an_installed_copy_is_not_hidden_by_its_sources(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: str, path: str
) -> None:
    site, root = tmp_path / "site", tmp_path / "root"
    for folder, text in ((site, "VALUE = 'installed'\n"), (root, "raise ImportError('a source folder')\n")):
        (folder / "pkgcopy").mkdir(parents=True)
        (folder / "pkgcopy" / "__init__.py").write_text(text, encoding="utf-8")
    (root / "ownhelper.py").write_text("VALUE = 'own'\n", encoding="utf-8")
    text = "import ownhelper, pkgcopy\nVALUES = pkgcopy.VALUE, ownhelper.VALUE\n"
    (root / path).write_text(text, encoding="utf-8")
    source = Source(path=str(root / path), line=1, module=module, qualname="test_it", sys_path=(str(root), "/own"))
    request = request_of(msgspec.structs.replace(spec_of("fork"), source=source))
    request = msgspec.structs.replace(request, copies=("pkgcopy",))
    setup = workload.job_of(request, Path("result"), (5, 6), "mark")["setup"]
    assert (setup["sys_path"], setup["behind"]) == (["/own"], [str(root)])
    monkeypatch.setattr(sys, "path", [str(site), *sys.path])
    monkeypatch.setattr(pytest_stub, "install", lambda: None)
    monkeypatch.setattr(sys, "modules", dict(sys.modules))
    loading.prepare(setup)
    assert loading.load_module(setup).VALUES == ("installed", "own")


def test_parameters_travel_as_literals() -> None:
    request = request_of()
    params = (Param(name="size", literal="10"), Param(name="text", literal="'a'"))
    cell = msgspec.structs.replace(request.cell, params=params)
    assert launch.setup_of(cell, request.spec)["params"] == {"size": "10", "text": "'a'"}


# -- the environment -----------------------------------------------------------------------------------------------

CALLERS = {
    "HOME": "/home/me",
    "PYTHONPATH": "/mine",
    "PYTHONHOME": "/else",
    "PYTHONHASHSEED": "0",
    "PYTHON_GIL": "1",
    "PYTHONDEVMODE": "1",
    "PYTEST_CURRENT_TEST": "x",
    "PYTEST_ADDOPTS": "-q",
    "COV_CORE_SOURCE": "calc",
    "COVERAGE_PROCESS_START": ".coveragerc",
    "COVERAGE_PROCESS_CONFIG": "{}",
    marks.MARK: "an outer launch",
}


def test_the_caller_s_python_settings_reach_no_launch(tmp_path: Path) -> None:
    given = workload.launch_environment(request_of(), "mark", tmp_path, CALLERS)
    assert given == {
        "HOME": "/home/me",
        "PYTHONPATH": str(tmp_path),
        "PYTHONHASHSEED": "7",
        "FTGATE_PADDING": "x" * 100,
        marks.MARK: "mark",
    }


def test_a_target_s_settings_do(tmp_path: Path) -> None:
    given = workload.launch_environment(request_of(environment={"PYTHON_GIL": "0"}), "mark", tmp_path, CALLERS)
    assert given["PYTHON_GIL"] == "0"


# -- the runner's copy ---------------------------------------------------------------------------------------------


def names_in(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def test_the_copy_is_light_and_complete(tmp_path: Path) -> None:
    home = install_runner(tmp_path)
    package = Path(launch.__file__).parents[1]
    light = {f"pytest_ftgate/{path.relative_to(package).as_posix()}" for path in package.rglob("runner/**/*.py")}
    assert names_in(home) == light | {"pytest_ftgate/__init__.py"}
    assert home.is_absolute()
    assert [path.name for path in tmp_path.iterdir()] == [home.name]


def test_a_copy_is_made_anew_and_is_of_one_run(tmp_path: Path) -> None:
    home = install_runner(tmp_path)
    (home / "pytest_ftgate" / "forged.py").touch()
    assert install_runner(tmp_path) == home
    assert not (home / "pytest_ftgate" / "forged.py").exists()
    owner = marks.Owner.of(home.name)
    assert owner is not None
    assert owner.pid == os.getpid()


def test_a_folder_that_is_a_file_is_named(tmp_path: Path) -> None:
    taken = tmp_path / "runner"
    taken.write_text("", encoding="utf-8")
    with pytest.raises(FtgateError, match=r"runner: the runner cannot be put there: Not a directory; make room"):
        install_runner(taken)


@pytest.mark.parametrize("place", ["copyfile", "symlink_to"])
def test_a_full_disk_is_said_and_leaves_nothing_half_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(shutil if place == "copyfile" else Path, place, full)
        with pytest.raises(FtgateError, match="No space left on device"):
            install_runner(tmp_path)
    assert list(tmp_path.iterdir()) == []
    assert install_runner(tmp_path).is_dir()


# -- a launch that cannot be started -------------------------------------------------------------------------------


def open_descriptors() -> int:
    return len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0


def start_fails(launcher: WorkloadLauncher, request: Request, match: str) -> None:
    guard.ensure()  # it keeps one
    before = open_descriptors()
    with pytest.raises(LaunchFailed, match=match):
        launcher.start(request)
    assert open_descriptors() == before
    assert not launcher.work.exists() or list(launcher.work.iterdir()) == []


def test_an_interpreter_that_is_gone_is_named(tmp_path: Path) -> None:
    launcher = WorkloadLauncher(tmp_path / "runner", tmp_path / "work")
    gone = str(tmp_path / "gone" / "python")
    start_fails(launcher, request_of(python=gone), rf"cannot be started: .*{gone}")


def test_a_full_disk_starts_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "write_bytes", full)
    start_fails(WorkloadLauncher(tmp_path, tmp_path / "work"), request_of(), "No space left on device")


def test_an_interrupt_while_starting_leaves_nothing_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(subprocess, "Popen", interrupted)
    launcher = WorkloadLauncher(tmp_path, tmp_path / "work")
    before = open_descriptors()
    with pytest.raises(KeyboardInterrupt):
        launcher.start(request_of())
    assert open_descriptors() == before
    assert list(launcher.work.iterdir()) == []


def test_a_platform_without_process_groups_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(os, "name", "nt")
        with pytest.raises(FtgateError) as refused:
            WorkloadLauncher(tmp_path, tmp_path)
    assert "measures on Linux and macOS" in str(refused.value)


# -- the record ----------------------------------------------------------------------------------------------------


def test_a_launch_is_recorded_as_it_was() -> None:
    point = MemoryPoint(at_ns=1, rss_bytes=2, uss_bytes=None, pss_bytes=None, processes=1)
    finished = Launch(
        cold=ITERATION,
        iterations=(ITERATION, ITERATION),
        counters={"n": 2.0},
        timers={"t": Timer(count=1, total_ns=2, max_ns=2)},
        results=("1",),
        gil_enabled=True,
    )
    handle = cast(Handle, SimpleNamespace(finish=lambda: finished))
    running = RunningLaunch(cast(CellRun, None), request_of(), handle, cast(RoundPlan, SimpleNamespace(rounds=4)))
    made = running.finish("locks", loops=5, window_ns=9, memory=(point,))
    for name in ("cold", "iterations", "counters", "timers", "peaks", "results", "gil_enabled", "locks"):
        assert getattr(made, name) == getattr(finished, name)
    assert (made.role, made.order, made.hash_seed, made.started_at) == ("locks", 4, 7, running.started_at)
    assert (made.loops, made.window_ns, made.memory) == (5, 9, (point,))


def test_what_the_runner_keeps_is_a_launch() -> None:
    """Every field of the runner's record is one of the launch's, by its name and with its meaning."""
    record = LaunchRecord()
    figures = {"counters": {"n": 1.5}, "timers": {"t": (1, 20, 20)}, "peaks": {"p": 3.0}}
    reports = [{**figures, "begin_ns": begin_ns, "end_ns": begin_ns + 9} for begin_ns in (3, 5)]
    answered = Answered()
    for kind in (COLD, WARMUP, CHECK, MEASURED, HOLD, BARRIER):
        record.add(kind, ITERATION.wall_ns, reports)
        answered.add(kind, ITERATION)
    record.results["42"] = 2
    assert record.spans == [(3, 14)] * 2  # of what is measured or held
    assert (record.iterations, record.wall_ns) == (2, 2 * ITERATION.wall_ns)
    launch = recorded(answered, marshal.loads(marshal.dumps(record.as_json(), MARSHAL)))
    assert launch == Launch(
        cold=ITERATION,
        iterations=(ITERATION, ITERATION),
        counters={"n": 6.0},
        timers={"t": Timer(count=4, total_ns=80, max_ns=20)},
        peaks={"p": 3.0},
        results=("42",),
        result_counts=(2,),
    )
    assert answered.warmed_ops == ITERATION.ops
