"""`ftgate demo`: which interpreters it takes, what it says of a report, a short run of it, and an interrupted one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import msgspec
import psutil
import pytest
from bench import FORK, SPAWN, THREADS

from pytest_ftgate import cli
from pytest_ftgate.commands import demo
from pytest_ftgate.errors import FtgateError
from pytest_ftgate.model import (
    Cell,
    Decision,
    Executor,
    Figures,
    Interval,
    Machine,
    Report,
    Row,
    Table,
    Target,
    Verdict,
)
from pytest_ftgate.model.targets import parse_target
from pytest_ftgate.pythons import InterpreterNotFound, find_interpreter

MACHINE = Machine(
    fingerprint="linux-x86_64-some-cpu-2c-12345678",
    system="Linux",
    arch="x86_64",
    cpu="Some CPU",
    cores=2,
    kernel="6.18.44",
    governor=None,
    cpu_quota=None,
    memory_limit_bytes=None,
)


def row(spec: str, executor: Executor, wall_ms: float | None, uss_mib: float | None, gil: bool) -> Row:
    wall = None if wall_ms is None else Interval(value=wall_ms * 1e6, low=0, high=1e9, level=0.95)
    return Row(
        cell=Cell(nodeid="x", target=Target(spec=spec, request=spec), executor=executor, workers=8),
        verdict=Verdict(decision=Decision.NO_BASELINE),
        figures=Figures(
            wall_ns=wall,
            uss_bytes=None if uss_mib is None else uss_mib * 2**20,
            cores=0.5 if gil else 2.0,
            gil_enabled=gil,
        ),
    )


def report(*rows: Row) -> Report:
    return Report(
        version="0.1.0",
        seed=1,
        started_at="2026-02-03T04:05:06+00:00",
        wall_s=1.0,
        machine=MACHINE,
        interpreters=(),
        tables=(Table(title="x", rows=rows, reference="threads"),),
    )


# -- which interpreters --------------------------------------------------------------------------------------------


@pytest.fixture
def only(executables: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder that is all of PATH, with an empty cache and nothing of uv's."""
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("UV_PYTHON_INSTALL_DIR", str(tmp_path / "uv"))
    assert executables
    (tmp_path / "bin").mkdir()
    return tmp_path / "bin"


def test_both_builds_are_taken(executables: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    assert {spec: found.executable for spec, found in demo.interpreters(None).items()} == executables
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("build", ["3.14", "3.14t"])
def test_one_alone_is_taken_and_said(
    only: Path, executables: dict[str, str], capsys: pytest.CaptureFixture[str], build: str
) -> None:
    (only / f"python{build}").symlink_to(executables[build])
    assert list(demo.interpreters(None)) == [build]
    said = capsys.readouterr().out
    missing = {"3.14": "3.14t", "3.14t": "3.14"}[build]
    assert said.startswith(f"not installed: {missing}; `ftgate pythons` installs them")
    assert f"only {build} is installed" in said
    with pytest.raises(InterpreterNotFound, match=f"no interpreter found for the target '{missing}'"):
        demo.interpreters([missing])


@pytest.mark.usefixtures("only")
def test_without_any_the_current_one_is_taken_where_it_can_be_measured() -> None:
    if sys.version_info >= (3, 13):
        assert list(demo.interpreters(None)) == [sys.executable]
    else:
        with pytest.raises(FtgateError, match=r"found no interpreter to measure: (?s:.*)fix: run `ftgate pythons`"):
            demo.interpreters(None)


def test_a_start_method_is_left_out_where_an_interpreter_has_it_not(tmp_path: Path) -> None:
    found = find_interpreter(parse_target("3.14"))
    other = msgspec.structs.replace(found, start_methods=("spawn",))
    demo.write_project(tmp_path, {"3.14": found, "x": other})
    assert '@ftgate.compare(threads, processes=["spawn"], workers=8)' in (tmp_path / demo.TEST).read_text()
    demo.write_project(tmp_path, {"3.14": found})
    assert 'processes=["fork", "forkserver", "spawn"]' in (tmp_path / demo.TEST).read_text()


@pytest.mark.parametrize(("asked", "launches"), [("1s", "1"), ("60s", "2"), ("5m", "10")])
def test_a_longer_time_is_more_rounds(asked: str, launches: str) -> None:
    words = demo.command({"3.14t": find_interpreter(parse_target("3.14t"))}, asked)
    assert words[words.index("--ftgate-launches") + 1] == launches
    assert words[-3:] == ["--ftgate-python", "3.14t", demo.TEST]


def test_a_time_that_is_none_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["demo", "--time", "soon"])
    assert ended.value.code == 2
    assert "argument --time: give a duration above 0 such as 90s, 5m or 0.5h" in capsys.readouterr().err


# -- what it says --------------------------------------------------------------------------------------------------


def test_it_says_what_threads_cost_against_processes_on_each_build() -> None:
    lines = demo.shows(
        report(
            row("3.14", THREADS, 40, 6, True),
            row("3.14", FORK, 60, 12, True),
            row("3.14", SPAWN, 400, 60, True),
            row("3.14t", THREADS, 20, 10, False),
            row("3.14t", FORK, 50, None, False),
        )
    )
    assert lines == [
        "Summary for this machine:",
        "  3.14: 8 threads take 40.0 ms; processes instead: fork 1.50x, spawn 10.0x.",
        "        Private memory (USS): 6.00 MiB with threads, 60.0 MiB with spawn.",
        "  3.14t: 8 threads take 20.0 ms; processes instead: fork 2.50x.",
        "  Threads on 3.14t, without the GIL, take 0.50x the time of 3.14, with it (2.00 cores in use against 0.50).",
        '  Each iteration starts new workers; reuse="pool" starts them once.',
        "  Nothing was gated: there is no baseline and no commit to compare with.",
    ]


def test_of_what_was_not_measured_it_says_nothing() -> None:
    assert demo.shows(report(row("3.14", THREADS, None, None, True), row("3.14", FORK, None, None, True))) == []
    (_, first, *rest) = demo.shows(report(row("3.14", THREADS, 40, 6, True), row("3.14", FORK, 60, None, True)))
    assert first == "  3.14: 8 threads take 40.0 ms; processes instead: fork 1.50x."
    assert not any("GIL" in line for line in rest)


# -- for real ------------------------------------------------------------------------------------------------------


def test_a_short_run_on_both_builds(
    executables: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(demo, "METHODS", ("fork",))
    monkeypatch.setattr(demo, "WORKERS", 2)
    monkeypatch.setattr(demo, "ITERATIONS", "1")
    monkeypatch.setenv("PYTEST_ADDOPTS", "--nonsense")
    monkeypatch.setenv("FTGATE_PYTHON", "3.99")
    assert cli.main(["demo", "--time", "1s", "--keep"]) == 0
    said = capfd.readouterr().out
    for build in executables:
        assert f"  {build}-fork" in said
        assert f"  {build}: 2 threads take " in said
    assert "  Threads on 3.14t, without the GIL, take " in said
    (folder,) = tmp_path.glob("ftgate-demo-*")
    assert f"the files are in {folder}: " in said
    assert {"test_starting_workers.py", "pytest.ini", "report.json"} <= {path.name for path in folder.iterdir()}


@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
def test_an_interrupted_run_leaves_nothing(executables: dict[str, str], tmp_path: Path) -> None:
    started = subprocess.Popen(
        [sys.executable, "-m", "pytest_ftgate.cli", "demo", *(f"--python={build}" for build in executables)],
        env={**os.environ, "TMPDIR": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    deadline = time.monotonic() + 120
    while not list(tmp_path.glob("ftgate-demo-*/.ftgate/launches/*")) and time.monotonic() < deadline:
        time.sleep(0.1)
    below = psutil.Process(started.pid).children(recursive=True)
    assert len(below) >= 2
    started.send_signal(signal.SIGTERM)
    _, said = started.communicate(timeout=60)
    assert started.returncode == 130
    assert said.endswith("ftgate: interrupted\n")
    assert list(tmp_path.iterdir()) == []
    assert psutil.wait_procs(below, timeout=10)[1] == []
