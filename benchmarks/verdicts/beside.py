# /// script
# requires-python = ">=3.11"
# dependencies = ["pytest-ftgate", "pyperf>=2.9"]
# [tool.uv.sources]
# pytest-ftgate = { path = "../..", editable = true }
# ///
"""Seconds and wrong verdicts on the same commits: pytest-ftgate, pyperf and pytest-benchmark by their own commands.

    uv run benchmarks/verdicts/beside.py [--repeat 5] [--only GLOB ...]

The workloads are those of commits.py. pyperf and pytest-benchmark measure the same cells: a function that
starts and joins the workers, once on each commit, with their default options; they are installed beside each
interpreter first, which no second counts. `pyperf compare_to --min-speed 5` fails a cell whose difference is
significant and 5 % or more, `--benchmark-compare-fail=mean:5%` one whose mean is 5 % longer. In each repetition the
tools take turns on a workload, in random order. A false alarm is a cell that fails though its code is the same; a miss
is a changed one that does not.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path

import page
import pyperf  # type: ignore[import-not-found]
import rates
from commits import Results, Workload, by_name, committed, measure, output
from launches import executable
from pyperf._compare import CompareData, CompareResult  # type: ignore[import-not-found]

from pytest_ftgate.model.verdict import Decision

CASES = (
    *("four unchanged cells", "new lock", "serial coroutines", "20 ms threads +0 %", "20 ms threads +10 %"),
    *("20 ms threads +25 %", "20 ms fork +0 %", "20 ms fork +10 %"),
)
CELLS = {"four unchanged cells": ("threads", "fork"), "new lock": ("threads w1", "threads"), "serial": ("tasks",)}
CELLS |= {"20 ms threads": ("threads",), "20 ms fork": ("fork",)}
"""What runs in each case, by what its name begins with."""
CALLS = """
import asyncio
import multiprocessing
import threading

import work


def joined(start, count):
    workers = [start(target=work.body) for _ in range(count)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()


CALLS = {
    "threads": lambda: joined(threading.Thread, 2),
    "threads w1": lambda: joined(threading.Thread, 1),
    "fork": lambda: joined(multiprocessing.get_context("fork").Process, 2),
    "tasks": lambda: asyncio.run(work.abody()),
}
"""
FILES = {
    "calls.py": CALLS,
    "with_pyperf.py": "import pyperf\nfrom calls import CALLS\n\nrunner = pyperf.Runner()\nfor name in NAMES:\n"
    "    runner.bench_func(name, CALLS[name])\n",
    "test_calls.py": "import pytest\nfrom calls import CALLS\n\n\n@pytest.mark.parametrize('name', NAMES)\n"
    "def test_call(benchmark, name):\n    benchmark(CALLS[name])\n",
}
COLUMNS = ("case", "tool", "false alarms", "misses", "undecided", "seconds: median / most")


@dataclass
class Case:
    """A workload's two commits, each in a folder of its own for the peers, and where its cells run."""

    workload: Workload
    root: Path
    """The project with both commits."""
    sides: tuple[Path, Path]
    names: tuple[str, ...]
    builds: tuple[str, ...]

    def changed(self, name: str) -> bool:
        """Whether a cell's time differs: a lock is no matter to one worker."""
        return self.workload.change > 0 and name != "threads w1"


@dataclass
class Tally:
    """What a tool said of the cells of a case; `seconds` of each of its runs."""

    alarms: int = 0
    same: int = 0
    missed: int = 0
    changed: int = 0
    undecided: int = 0
    seconds: list[float] = field(default_factory=list)

    def count(self, changed: bool, slower: bool) -> None:
        """A verdict on one cell."""
        self.changed += changed
        self.same += not changed
        self.missed += changed and not slower
        self.alarms += slower and not changed


def prepared(folder: Path, name: str) -> Case:
    """The files of a case."""
    workload = by_name()[name]()
    folder.mkdir()
    names = next(cells for begins, cells in CELLS.items() if name.startswith(begins))
    builds = (
        ("3.14", "3.14t") if name == "four unchanged cells" else ("3.14t",) if "20 ms threads" in name else ("3.14",)
    )
    sides = folder / "before", folder / "after"
    for side, source in zip(sides, (workload.before, workload.after), strict=True):
        side.mkdir()
        for file, text in {**FILES, "work.py": source}.items():
            (side / file).write_text(text.replace("NAMES", repr(names)), encoding="utf-8")
    return Case(workload, committed(folder, workload), sides, names, builds)


def python_of(place: Path, build: str) -> Path:
    """An environment of an interpreter that has both peers; made once."""
    venv = place / f"venv-{build}"
    if not venv.exists():
        output(["uv", "venv", "--quiet", "--python", executable(build), venv])
        words = ("pyperf>=2.9", "pytest-benchmark>=5")
        output(["uv", "pip", "install", "--quiet", "--python", venv / "bin" / "python", *words])
    return venv / "bin" / "python"


# -- the tools: each tallies one run of a case -------------------------------------------------------------------------


def with_ftgate(case: Case, place: Path, tally: Tally) -> None:
    """The gate's own run; a verdict that says neither is undecided, and a miss where the cell changed."""
    results = Results()
    measure(case.root, results)
    tally.seconds += results.seconds
    for row in results.rows:
        name = "threads w1" if row.cell.workers == 1 and case.workload.name == "new lock" else row.cell.executor.label
        decision = row.verdict.decision
        tally.count(case.changed(name), decision is Decision.REGRESSED)
        tally.undecided += decision not in (Decision.REGRESSED, Decision.PASSED)


def with_pyperf(case: Case, place: Path, tally: Tally) -> None:
    """`pyperf compare_to`: significant (pyperf/_compare.py, CompareResult) and slower."""
    for build in case.builds:
        found = []
        for side in case.sides:
            path = side / "pyperf.json"
            path.unlink(missing_ok=True)
            output([python_of(place, build), "with_pyperf.py", "--quiet", "-o", path], side)
            found.append(pyperf.BenchmarkSuite.load(str(path)))
        for name in case.names:
            compared = [CompareData(side, suite.get_benchmark(name)) for side, suite in zip("ab", found, strict=True)]
            result = CompareResult(*compared, min_speed=5)
            tally.count(case.changed(name), bool(result.significant) and result.norm_mean > 1)


def with_benchmark(case: Case, place: Path, tally: Tally) -> None:
    """`--benchmark-compare-fail` against the run before it."""
    for build in case.builds:
        saved = Path(tempfile.mkdtemp(dir=place))
        words: list[str | Path] = [python_of(place, build), "-m", "pytest", "-q", f"--benchmark-storage={saved}"]
        output([*words, "--benchmark-save=before"], case.sides[0])
        last = [*words, "--benchmark-compare", "--benchmark-compare-fail=mean:5%"]
        done = subprocess.run(last, cwd=case.sides[1], env=bare(), capture_output=True, text=True, check=False)
        failed = set(re.findall(r"test_call\[(.+?)\].* has failed ", done.stdout + done.stderr))
        if (done.returncode != 0) != bool(failed):
            sys.exit(done.stdout + done.stderr)
        for name in case.names:
            tally.count(case.changed(name), name in failed)


def bare() -> dict[str, str]:
    """The environment without options for pytest."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("FTGATE", "PYTEST_", "PYTHON"))}


TOOLS: dict[str, Callable[[Case, Path, Tally], None]] = {
    "pytest-ftgate": with_ftgate,
    "pyperf compare_to --min-speed 5": with_pyperf,
    "pytest-benchmark mean:5%": with_benchmark,
}


# -- the table ---------------------------------------------------------------------------------------------------------


def tallied(names: list[str], repeat: int, place: Path) -> dict[tuple[str, str], Tally]:
    """By case and tool; the repetitions of a case lie far apart, so that they do not share one busy minute."""
    tallies: dict[tuple[str, str], Tally] = defaultdict(Tally)
    cases = {name: prepared(place / f"case {number}", name) for number, name in enumerate(names)}
    for build in ("3.14", "3.14t"):
        python_of(place, build)
    for repetition in range(repeat):
        for name, case in cases.items():
            for tool in random.sample(list(TOOLS), len(TOOLS)):
                tally = tallies[name, tool]
                began = time.monotonic()
                TOOLS[tool](case, place, tally)
                if tool != "pytest-ftgate":
                    tally.seconds.append(time.monotonic() - began)
                print(f"{repetition + 1} of {repeat}: {name}, {tool}: {tally.seconds[-1]:.0f} s", file=sys.stderr)
    return tallies


def rows(tallies: dict[tuple[str, str], Tally]) -> Iterator[list[str]]:
    """Each case by each tool, then the sum of the cases."""
    sums: dict[str, Tally] = {tool: Tally() for tool in TOOLS}
    for name, tool in sorted(tallies, key=lambda key: (CASES.index(key[0]), list(TOOLS).index(key[1]))):
        tally = tallies[name, tool]
        seconds = f"{statistics.median(tally.seconds):.0f} / {max(tally.seconds):.0f}"
        yield [name, tool, *figures(tally), seconds]
        for each in ("alarms", "same", "missed", "changed", "undecided"):
            setattr(sums[tool], each, getattr(sums[tool], each) + getattr(tally, each))
        sums[tool].seconds.append(statistics.median(tally.seconds))
    for tool, tally in sums.items():
        yield ["all", tool, *figures(tally), f"{sum(tally.seconds):.0f}"]


def figures(tally: Tally) -> list[str]:
    """Rates with their intervals."""
    counts = ((tally.alarms, tally.same), (tally.missed, tally.changed), (tally.undecided, tally.same + tally.changed))
    return [rates.shown(*each).strip() for each in counts]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="extend", nargs="+", default=[], metavar="GLOB", help="names of cases")
    parser.add_argument("--repeat", type=int, default=5, help="runs of each case (default: 5)")
    options = parser.parse_args()
    names = [name for name in CASES if any(fnmatchcase(name, pattern) for pattern in options.only or ["*"])]
    if not names:
        parser.error(f"no case has such a name: {', '.join(CASES)}")
    with tempfile.TemporaryDirectory(prefix="ftgate-beside-") as place:
        page.show(__file__, COLUMNS, rows(tallied(names, options.repeat, Path(place))))


if __name__ == "__main__":
    main()
