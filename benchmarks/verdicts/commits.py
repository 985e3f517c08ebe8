"""Projects with two commits that change a workload by a known amount, and runs of the product on them.

Each workload is a git project of its own in a temporary folder: the second commit edits a constant of the helper
module, or adds a comment to the function that is measured (+0 %). The CPU workloads are named after the body, the
executor and the change, such as `20 ms threads +10 %`; the body's loop is calibrated first, alone on its core. A
worker's start belongs to the iteration, so that a short body's change is a smaller one of the iteration.
"""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass, field
from functools import cache, partial
from itertools import product
from pathlib import Path
from typing import NoReturn

from launches import executable

from pytest_ftgate.model.report import Row
from pytest_ftgate.report.json import parse

BODY_S = 0.02
CHANGES = (0.0, 0.10, 0.25)
CPU_CELLS = {"threads": ("threads", "3.14t"), "fork": ('processes=["fork"]', "3.14")}
GIT = ("git", "-c", "user.name=benchmark", "-c", "user.email=benchmark@example.invalid", "-c", "commit.gpgsign=false")


@dataclass(frozen=True)
class Workload:
    """Two commits: `before` and `after` are the helper module on each side, `test` is the file that is measured.

    `change` is that of the body's time in the slowest cell; 0 if nothing changed.
    """

    name: str
    change: float
    test: str
    before: str
    after: str


@dataclass
class Results:
    """What the runs of one workload gave."""

    seconds: list[float] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)


# -- workloads ---------------------------------------------------------------------------------------------------------

BURN = """
def burn(rounds):
    x = 1
    for _ in range(rounds):
        x = (x * 1103515245 + 12345) & 0xFFFFFFFF
    return x
"""

CPU = (
    BURN
    + """
ROUNDS = {rounds}


def body():
    {comment}burn(ROUNDS)
"""
)

TEST = """
import work
from pytest_ftgate import ftgate, processes, threads


@ftgate.compare({executors}, workers={workers}, pythons={pythons})
def test_work(worker):
    work.body()
"""

LOCK = """
import contextlib
import threading
import time

GUARD = {guard}


def body():
    with GUARD:
        time.sleep(0.02)
"""

COROUTINES = """
import asyncio

SERIAL = {serial}


async def abody():
    pauses = [asyncio.sleep(0.02) for _ in range(4)]
    if SERIAL:
        for pause in pauses:
            await pause
    else:
        await asyncio.gather(*pauses)


def body():
    asyncio.run(abody())
"""

ASYNC_TEST = """
import work
from pytest_ftgate import ftgate, tasks


@ftgate.compare(tasks, workers=1, pythons=["3.14"])
async def test_work(worker):
    await work.abody()
"""

COUNTER = """
import threading


class Counter:
    def __init__(self):
        self.lock = threading.Lock()
        self.value = 0

    def increment(self):
        with self.lock:
            self.value += 1


def body():
    {comment}counter = Counter()
    for _ in range(150_000):
        counter.increment()
"""

COMMENT = "# A comment changes no instruction.\n    "


def cpu(executor: str, change: float) -> Workload:
    """A loop of 20 ms in two workers."""
    words, python = CPU_CELLS[executor]
    rounds = round(BODY_S * rounds_per_s(python))
    return Workload(
        name=cpu_name(executor, change),
        change=change,
        test=TEST.format(executors=words, workers=2, pythons=[python]),
        before=CPU.format(rounds=rounds, comment=""),
        after=CPU.format(rounds=round(rounds * (1 + change)), comment="" if change else COMMENT),
    )


def cpu_name(executor: str, change: float) -> str:
    """`20 ms threads +10 %`."""
    return f"20 ms {executor} +{change:.0%}".replace("%", " %")


@cache
def rounds_per_s(python: str) -> float:
    """How many rounds of the loop an interpreter does in a second: the best of some, undisturbed ones."""
    code = f"{BURN}\nimport time\nbest = 9e9\nfor _ in range(9):\n    began = time.perf_counter()\n    burn(200_000)\n"
    code += "    best = min(best, time.perf_counter() - began)\nprint(200_000 / best)"
    return float(output([executable(python), "-c", code]))


def others() -> list[Workload]:
    """Those of a kind of their own."""
    return [
        Workload(
            name="new lock",
            change=1.0,
            test=TEST.format(executors="threads", workers=[1, 2], pythons=["3.14"]),
            before=LOCK.format(guard="contextlib.nullcontext()"),
            after=LOCK.format(guard="threading.Lock()"),
        ),
        Workload(
            name="serial coroutines",
            change=3.0,
            test=ASYNC_TEST,
            before=COROUTINES.format(serial=False),
            after=COROUTINES.format(serial=True),
        ),
        Workload(
            name="four unchanged cells",
            change=0.0,
            test=TEST.format(executors='threads, processes=["fork"]', workers="2", pythons=["3.14", "3.14t"]),
            before=COUNTER.format(comment=""),
            after=COUNTER.format(comment=COMMENT),
        ),
    ]


def by_name() -> dict[str, Callable[[], Workload]]:
    """What makes each workload: the loops are calibrated when they are wanted."""
    made: dict[str, Callable[[], Workload]] = {each.name: partial(copy, each) for each in others()}
    for executor, change in product(CPU_CELLS, CHANGES):
        made[cpu_name(executor, change)] = partial(cpu, executor, change)
    return made


# -- runs --------------------------------------------------------------------------------------------------------------


def ended(words: Sequence[str | Path], cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """A command that has ended with code 0, 1 or 5 (undecided). Ends the script if it failed in another way."""
    ignored = ("FTGATE", "PYTEST_", "PYTHON", "VIRTUAL_ENV")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(ignored)}
    done = subprocess.run(words, cwd=cwd, env=environment, capture_output=True, text=True)
    if done.returncode not in (0, 1, 5):
        fail(done)
    return done


def output(words: Sequence[str | Path], cwd: Path | None = None) -> str:
    """The standard output of a command that must succeed."""
    done = ended(words, cwd)
    if done.returncode:
        fail(done)
    return done.stdout


def fail(done: subprocess.CompletedProcess[str]) -> NoReturn:
    """End the script with what a command printed."""
    sys.exit(f"{' '.join(map(str, done.args))}: exit code {done.returncode}\n{done.stdout}{done.stderr}")


def committed(folder: Path, workload: Workload) -> Path:
    """The project with its two commits."""
    root = folder / "project"
    root.mkdir()
    files = {
        "test_work.py": workload.test,
        "pytest.ini": "[pytest]\nftgate_install =\n",
        ".gitignore": ".ftgate/\n__pycache__/\n",
    }
    output([*GIT, "init", "--quiet", root])
    for text, message in ((workload.before, "before"), (workload.after, "after")):
        files |= {"work.py": text, "README.md": message}
        for name, content in files.items():
            (root / name).write_text(textwrap.dedent(content).lstrip(), encoding="utf-8")
        output([*GIT, "add", "."], root)
        output([*GIT, "commit", "--quiet", "-m", message], root)
    return root


OPTIONS = ("-q", "-p", "no:cacheprovider", "--ftgate", "--ftgate-against=HEAD~1", "-oftgate_unchanged=measure")
"""Cells of which only a comment has changed are measured, too."""
ELSEWHERE = "import sys; sys.path.insert(0, {!r}); import pytest; sys.exit(pytest.main())"


def measure(root: Path, results: Results, *options: str, source: Path | None = None) -> None:
    """One run of the product, or of that whose sources are in another folder."""
    report = root.parent / "report.json"
    report.unlink(missing_ok=True)
    began = time.monotonic()
    pytest = ["-c", ELSEWHERE.format(str(source))] if source else ["-m", "pytest"]
    ended([sys.executable, *pytest, *OPTIONS, *options, f"--ftgate-report=json:{report}", "test_work.py"], root)
    results.seconds.append(time.monotonic() - began)
    results.rows += [row for table in parse(report.read_text(encoding="utf-8")).tables for row in table.rows]
