"""Time and memory of a run by its number of cells: collected, baselines loaded, judged, reported; nothing is measured.

    python benchmarks/scale/scale.py [--cells 100 1000 10000] [--launches 60] [--iterations 5] [--report html md]

Each size is a whole `pytest --ftgate` in a process of its own, on a project of tests with ten cells each whose stored
baselines hold twelve launches of every cell. The launches themselves are made up (their cost is left out): a third is
of the workload, a third of the control, the rest are lock and memory launches. One cell of a hundred has regressed.
Prints seconds of CPU time by part (nothing waits), and the peak of resident memory, with the exponent of their growth
between the sizes: 1 is linear. What a run of one test takes is subtracted before an exponent is taken.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import math
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from pytest_ftgate.judge import decide
from pytest_ftgate.judge.values import Values, stored_values
from pytest_ftgate.measure import conditions
from pytest_ftgate.measure.cell_run import PreparedTarget
from pytest_ftgate.measure.group import Measurement
from pytest_ftgate.measure.machine import read_machine
from pytest_ftgate.model.report import Row
from pytest_ftgate.model.sample import Iteration, Launch, LockSite, LockWaits, MemoryPoint, Sample
from pytest_ftgate.model.spec import Cell, Interpreter
from pytest_ftgate.model.verdict import Decision, Verdict
from pytest_ftgate.plugin.collection import CELL
from pytest_ftgate.run import phase, run
from pytest_ftgate.run.targets import TargetLookup, Targets
from pytest_ftgate.store.folder import Store
from pytest_ftgate.store.recording import entry_of
from pytest_ftgate.store.update import apply_updates, update_plan
from pytest_ftgate.targets.describe import build_key

CELLS_PER_TEST, TESTS_PER_FILE = 10, 10
STORED_LAUNCHES = 12
TARGETS = ("3.14", "3.14t")
WORK_NS, MIB = 20_000_000, 1 << 20
TEST = """
@ftgate.compare(threads, serial, interpreters, processes=["fork", "spawn"], pythons=["3.14", "3.14t"], workers=[2])
def test_{}(worker):
    pass
"""


def interpreter(target: str) -> Interpreter:
    """One of the two builds."""
    free = target.endswith("t")
    return Interpreter(
        executable=f"python{target}",
        version="3.14.7",
        implementation="cpython",
        free_threaded=free,
        gil_enabled=not free,
        jit_available=False,
        jit_enabled=False,
        pgo=True,
        lto=False,
        shared=False,
        debug=False,
        compiler="gcc",
        config_args="",
        found="on PATH",
        build="main",
    )


class Launches:
    """Made-up launches; `slower` ones take half as long again. Each cell gets the same ones, in objects of its own."""

    def __init__(self, count: int, iterations: int, slower: bool = False) -> None:
        timed = count // 3
        self.own = tuple(self._timed(order, iterations, 1.5 if slower else 1.0) for order in range(timed))
        self.control = tuple(self._timed(order, iterations, 0.5) for order in range(timed))
        self.locks = tuple(self._locks(order, iterations) for order in range((count - 2 * timed) // 2))
        self.memory = tuple(self._memory(order) for order in range(count - 2 * timed - len(self.locks)))

    def sample(self, cell: Cell) -> Sample:
        """A cell with these launches."""
        found = interpreter(cell.target.spec)
        sample = Sample(cell=cell, interpreter=found, key=build_key(found), all_launches=self.own, begun=len(self.own))
        beside = sample.with_launches("control", self.control).with_launches("locks", self.locks)
        return beside.with_launches("memory", self.memory)

    def _timed(self, order: int, iterations: int, factor: float) -> Launch:
        walls = [round(factor * WORK_NS * (1 + (order * 7 + i * 3) % 11 / 500)) for i in range(iterations)]
        return Launch(
            order=order,
            hash_seed=order,
            started_at=f"2026-01-01T00:{order:02}:00+00:00",
            iterations=tuple(
                Iteration(wall_ns=wall, work_ns=wall - 9_000, start_ns=5_000 + i, join_ns=4_000 - i, cpu_ns=wall, ops=2)
                for i, wall in enumerate(walls)
            ),
            results=("42",),
        )

    def _locks(self, order: int, iterations: int) -> Launch:
        site = LockSite(
            file="workload.py",
            line=7,
            kind="Lock",
            waits_for="lock",
            contended=3,
            total_ns=9_000,
            max_ns=4_000,
            histogram={180: 2, 190: 1},
            acquisitions=99,
        )
        waits = LockWaits(work_ns=iterations * WORK_NS, ops=2 * iterations, counted_ops=2, sites=(site,))
        return msgspec.structs.replace(self._timed(order, iterations, 1.0), locks=waits)

    def _memory(self, order: int) -> Launch:
        points = tuple(
            MemoryPoint(at_ns=at, rss_bytes=30 * MIB + at, uss_bytes=9 * MIB + at, pss_bytes=10 * MIB, processes=1)
            for at in range(3)
        )
        return Launch(order=order, hash_seed=order, memory=points)


def lookup(targets: Targets, cell: Cell, requires: tuple[str, ...], checkout: object = None) -> TargetLookup:
    """The target of a cell; nothing is looked for."""
    found = interpreter(cell.target.spec)
    return TargetLookup(target=PreparedTarget(interpreter=found, python="python", key=build_key(found), environment={}))


class MadeUp:
    """A pytest plugin: cells have their launches at once; `parts` are seconds of CPU time of each part of the run."""

    def __init__(self, launches: Launches, slower: Launches) -> None:
        self.launches = launches
        self.slower = slower
        self.cells: list[Cell] = []
        self.parts: dict[str, float] = {}
        self.failed = 0
        self.began_s = time.process_time()

    def pytest_configure(self, config: pytest.Config) -> None:
        """Replace what measures, until the end of the run."""
        patch = pytest.MonkeyPatch()
        config.add_cleanup(patch.undo)
        patch.setattr(run, "Launchers", lambda *_: None)
        patch.setattr(run, "install_runner", lambda _: None)
        patch.setattr(Targets, "lookup", lookup)
        patch.setattr(Targets, "build", lambda _, cell, __: build_key(interpreter(cell.target.spec)))
        patch.setattr(conditions, "calibration_ns", lambda *_: 5_000_000)
        patch.setattr(decide, "unfit", lambda *_: "")
        patch.setattr(phase, "measure_round", lambda _: False)
        patch.setattr(Measurement, "samples", lambda of: [self.sample(each.cell) for each in of.cell_runs])

    def sample(self, cell: Cell) -> Sample:
        """The launches of a cell."""
        return (self.slower if cell.nodeid.endswith("0[3.14-serial-w1]") else self.launches).sample(cell)

    def _ended(self, part: str) -> None:
        now_s = time.process_time()
        self.parts[part], self.began_s = now_s - self.began_s, now_s

    @pytest.hookimpl(trylast=True)
    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """All cells are known."""
        self.cells = [item.stash[CELL][1] for item in session.items if CELL in item.stash]
        self._ended("collect")

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> Any:
        """All cells are judged; then the report files are written."""
        self._ended("load and judge")
        self.failed = session.testsfailed
        return (yield)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_terminal_summary(self) -> Any:
        """The terminal's report is printed."""
        self._ended("report files")
        yield
        self._ended("terminal")


def write_project(folder: Path, tests: int) -> None:
    """So many tests, and the folder's own configuration."""
    (folder / "pytest.ini").write_text("[pytest]\nftgate_install =\nftgate_explain = no\n")
    for number in range(0, tests, TESTS_PER_FILE):
        head = "from pytest_ftgate import ftgate, interpreters, processes, serial, threads\n"
        bodies = (TEST.format(f"{each:05}") for each in range(number, min(tests, number + TESTS_PER_FILE)))
        (folder / f"test_{number:05}.py").write_text(head + "".join(bodies))


def store(folder: Path, cells: Sequence[Cell], iterations: int) -> None:
    """A recording of each cell."""
    launches = Launches(3 * STORED_LAUNCHES, iterations)
    rows = [
        Row(cell=cell, verdict=Verdict(decision=Decision.NO_BASELINE), sample=launches.sample(cell)) for cell in cells
    ]
    machine, at = read_machine(), Store(folder / "baselines", lock_path=folder / ".ftgate" / "baselines.lock")
    about = ("2026-01-01T00:00:00+00:00", "", 1)
    measured = ((row.cell.nodeid, Values(row.sample)) for row in rows if row.sample is not None)
    entries = {nodeid: entry_of(each.sample, stored_values(each), *about) for nodeid, each in measured}
    apply_updates(update_plan("new", rows, entries, at, fingerprint=machine.fingerprint), at, machine)


def silent(plugin: MadeUp, *arguments: str) -> None:
    """One run of pytest in this process, silent."""
    with contextlib.redirect_stdout(io.StringIO()):
        # What other plugins say at the end is not ours: Hypothesis imports itself for it.
        quiet = ["-q", "-p", "no:cacheprovider", "-p", "no:hypothesispytest"]
        pytest.main([*quiet, "--ftgate", *arguments], plugins=[plugin])


def measure(tests: int, launches: int, iterations: int, reports: Sequence[str]) -> dict[str, Any]:
    """One size: its parts in s and its peak in bytes. Each step has a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        write_project(Path(folder), tests)
        words = [sys.executable, str(Path(__file__).absolute()), "--step"]
        for step in ("store", "run"):
            given = [*words, step, str(launches), str(iterations), *reports]
            done = subprocess.run(given, cwd=folder, capture_output=True, text=True, check=False)
            if done.returncode:
                sys.exit(done.stderr)
        found: dict[str, Any] = json.loads(done.stdout)
        return found


def take(step: str, launches: int, iterations: int, reports: Sequence[str]) -> None:
    """A step, in the project's folder: `store` its baselines, or `run` it and print what that took."""
    made = MadeUp(Launches(launches, iterations), Launches(launches, iterations, slower=True))
    if step == "store":
        silent(made, "--collect-only")
        store(Path.cwd(), made.cells, iterations)
        return
    silent(made, *(f"--ftgate-report={kind}:report.{kind}" for kind in reports))
    if made.failed > len(made.cells) // 10:  # one in a hundred has regressed
        sys.exit(f"{made.failed} of {len(made.cells)} cells failed: what is made up here is not what a run takes")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    sizes = {kind: Path(f"report.{kind}").stat().st_size for kind in reports}
    print(json.dumps({"cells": len(made.cells), "parts": made.parts, "peak": peak, "sizes": sizes}))


def exponent(small: dict[str, Any], large: dict[str, Any], empty: dict[str, Any], part: str = "") -> float:
    """By what power of the cells a part (or all of them) grows from one size to the other."""

    def seconds(found: dict[str, Any]) -> float:
        parts = found["parts"]
        return float(parts[part] if part else sum(parts.values()))

    grown = (seconds(large) - seconds(empty)) / max(1e-9, seconds(small) - seconds(empty))
    return math.log(max(grown, 1e-9)) / math.log(large["cells"] / small["cells"])


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cells", type=int, nargs="+", default=[100, 1000, 10_000], help="the sizes, rising")
    parser.add_argument("--launches", type=int, default=60, help="launches of each cell")
    parser.add_argument("--iterations", type=int, default=5, help="iterations of each launch")
    parser.add_argument("--report", nargs="*", default=["json", "html", "md"], help="report files")
    options = parser.parse_args()
    sizes = [0, *(count // CELLS_PER_TEST for count in options.cells)]
    empty, *found = [measure(max(1, tests), options.launches, options.iterations, options.report) for tests in sizes]
    parts = list(found[0]["parts"])
    print(f"{'cells':>6} {'':>9}" + "".join(f"{part:>16}" for part in parts) + f"{'together':>12}{'peak':>10}")
    for before, each in zip([None, *found], found, strict=False):
        seconds = [each["parts"][part] for part in parts]
        shown = "".join(f"{value:14.2f} s" for value in seconds)
        print(f"{each['cells']:6} {'':>9}{shown}{sum(seconds):10.2f} s{each['peak'] / MIB:6.0f} MiB")
        if before:
            powers = "".join(f"{exponent(before, each, empty, part):16.2f}" for part in parts)
            print(f"{'':6} {'exponent':>9}{powers}{exponent(before, each, empty):12.2f}")
    print("report files at the largest:", {kind: f"{size / MIB:.1f} MiB" for kind, size in found[-1]["sizes"].items()})


if __name__ == "__main__":
    if sys.argv[1:2] == ["--step"]:
        take(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), sys.argv[5:])
    else:
        main()
