"""Seconds and pairs to a verdict, on commits that change a workload by a known amount.

    python benchmarks/verdicts/time_to_verdict.py [--only GLOB ...] [--list] [--repeat 1] [-- PYTEST OPTIONS]

Each workload is a git project of its own in a temporary folder, with two commits: the second edits a constant of the
helper module, or adds a comment to the function that is measured (+0 %). `pytest --ftgate-against HEAD~1` then
compares them, and a line is printed: the verdicts of the cells, the change of the wall time that was measured, pairs
and seconds to the end of the run. `aim` are the seconds that we aim at, on two idle cores. What follows `--` goes
to pytest, for example `--ftgate-test-time 20s`.

The CPU workloads are named after the body, the executor and the change, such as `20 ms threads +10 %`; the body's loop
is calibrated first, alone on its core. A worker's start belongs to the iteration, so that a short body's change is a
smaller one of the iteration.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import textwrap
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cache, partial
from itertools import product
from pathlib import Path
from typing import NoReturn

import page
from launches import executable

from pytest_ftgate.kit.values import Metric
from pytest_ftgate.model.report import Row
from pytest_ftgate.report.json import parse

BODIES_S = {"2 ms": 0.002, "20 ms": 0.02, "200 ms": 0.2, "2 s": 2.0}
CHANGES = (0.0, 0.05, 0.10, 0.25, 1.0)
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
    aim_s: float | None = None
    helper: str = "work.py"


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
from pytest_ftgate import ftgate, interpreters, processes, threads


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
    for _ in range({increments}):
        counter.increment()
"""

SERVER = """
import asyncio
import sys

DELAY_S = {delay}
ANSWER = b"HTTP/1.1 200 OK\\r\\nContent-Length: 2\\r\\n\\r\\nok"


async def answer(reader, writer):
    try:
        while await reader.readuntil(b"\\r\\n\\r\\n"):
            if DELAY_S:
                await asyncio.sleep(DELAY_S)
            writer.write(ANSWER)
            await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        pass
    finally:
        writer.close()


async def main():
    server = await asyncio.start_server(answer, "127.0.0.1", int(sys.argv[1]))
    await server.serve_forever()


asyncio.run(main())
"""

SERVER_TEST = """
from pytest_ftgate import command, ftgate, load


@ftgate.serve(
    command("one", ["python", "server.py", "{port}"]),
    ready="http://127.0.0.1:{port}/",
    load=load("/", connections=1),
    duration=2,
    window=1,
    warmup=1,
    pythons=["3.14"],
)
def test_server(server):
    assert server.get("/") == "ok"
"""

COMMENT = "# A comment changes no instruction.\n    "


def cpu(body: str, executor: str, change: float) -> Workload:
    """A loop of the body's time in two workers."""
    words, python = CPU_CELLS[executor]
    rounds = round(BODIES_S[body] * rounds_per_s(python))
    return Workload(
        name=cpu_name(body, executor, change),
        change=change,
        test=TEST.format(executors=words, workers=2, pythons=[python]),
        before=CPU.format(rounds=rounds, comment=""),
        after=CPU.format(rounds=round(rounds * (1 + change)), comment="" if change else COMMENT),
    )


def cpu_name(body: str, executor: str, change: float) -> str:
    """`20 ms threads +10 %`."""
    return f"{body} {executor} +{change:.0%}".replace("%", " %")


@cache
def rounds_per_s(python: str) -> float:
    """How many rounds of the loop an interpreter does in a second: the best of some, undisturbed ones."""
    code = f"{BURN}\nimport time\nbest = 9e9\nfor _ in range(9):\n    began = time.perf_counter()\n    burn(200_000)\n"
    code += "    best = min(best, time.perf_counter() - began)\nprint(200_000 / best)"
    return float(output([executable(python), "-c", code]))


def unchanged(name: str, executors: str, workers: str, aim_s: float) -> Workload:
    """Counter increments on both builds, of which a comment changes."""
    return Workload(
        name=name,
        change=0.0,
        test=TEST.format(executors=executors, workers=workers, pythons=["3.14", "3.14t"]),
        before=COUNTER.format(comment="", increments=150_000),
        after=COUNTER.format(comment=COMMENT, increments=150_000),
        aim_s=aim_s,
    )


def others() -> list[Workload]:
    """Those of a kind of their own."""
    sixteen = 'threads, interpreters, processes=["fork", "forkserver"]'
    return [
        Workload(
            name="new lock",
            change=1.0,
            test=TEST.format(executors="threads", workers=[1, 2], pythons=["3.14"]),
            before=LOCK.format(guard="contextlib.nullcontext()"),
            after=LOCK.format(guard="threading.Lock()"),
            aim_s=12.0,
        ),
        Workload(
            name="serial coroutines",
            change=3.0,
            test=ASYNC_TEST,
            before=COROUTINES.format(serial=False),
            after=COROUTINES.format(serial=True),
        ),
        unchanged("four unchanged cells", 'threads, processes=["fork"]', "2", aim_s=30.0),
        unchanged("sixteen unchanged cells", sixteen, "[1, 2]", aim_s=90.0),
        Workload(
            name="slow server",
            change=500.0,
            test=SERVER_TEST,
            before=SERVER.format(delay=0.0),
            after=SERVER.format(delay=0.1),
            helper="server.py",
        ),
    ]


def by_name() -> dict[str, Callable[[], Workload]]:
    """What makes each workload: the loops are calibrated when they are wanted."""
    made: dict[str, Callable[[], Workload]] = {each.name: partial(copy, each) for each in others()}
    for body, executor, change in product(BODIES_S, CPU_CELLS, CHANGES):
        made[cpu_name(body, executor, change)] = partial(cpu, body, executor, change)
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
        files[workload.helper] = text
        for name, content in files.items():
            (root / name).write_text(textwrap.dedent(content).lstrip(), encoding="utf-8")
        output([*GIT, "add", "."], root)
        output([*GIT, "commit", "--quiet", "-m", message], root)
    return root


PYTEST = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--ftgate", "--ftgate-against=HEAD~1")
UNCHANGED = "--ftgate-unchanged=measure"
"""Measures cells of which only a comment has changed, too."""


def measure(root: Path, options: Sequence[str], results: Results) -> None:
    """One run of the product."""
    report = root.parent / "report.json"
    report.unlink(missing_ok=True)
    began = time.monotonic()
    ended([*PYTEST, UNCHANGED, f"--ftgate-report=json:{report}", *options, "test_work.py"], root)
    results.seconds.append(time.monotonic() - began)
    results.rows += [row for table in parse(report.read_text(encoding="utf-8")).tables for row in table.rows]


# -- tables ------------------------------------------------------------------------------------------------------------

COLUMNS = ("workload", "change", "verdicts", "measured", "pairs: median / most", "seconds: median / most", "aim")


def pairs(row: Row) -> int:
    """The pairs that a cell had, of whatever kind it had most."""
    return max(len(row.sample.launches), len(row.sample.of("memory"))) if row.sample else 0


def row_of(workload: Workload, results: Results) -> list[str]:
    """The row of a workload."""
    counted = Counter(row.verdict.decision.value for row in results.rows)
    verdicts = ", ".join(f"{name} {count} of {len(results.rows)}" for name, count in counted.most_common())
    judged = [each for row in results.rows for each in row.verdict.metrics if each.metric == Metric.WALL and each.ratio]
    changes = sorted(each.ratio.value - 1 for each in judged if each.ratio)
    counts = [pairs(row) for row in results.rows]
    return [
        workload.name,
        f"{workload.change:+.0%}",
        verdicts,
        f"{changes[0]:+.1%} to {changes[-1]:+.1%}" if changes else "-",
        f"{statistics.median(counts):.0f} / {max(counts)}",
        f"{statistics.median(results.seconds):.0f} / {max(results.seconds):.0f}",
        f"{workload.aim_s:.0f}" if workload.aim_s else "",
    ]


def rows(names: Sequence[str], repeat: int, words: Sequence[str]) -> Iterator[list[str]]:
    """Each workload's row, as soon as all of its runs have ended; `words` go to pytest."""
    made = by_name()
    for name in names:
        workload, results = made[name](), Results()
        with tempfile.TemporaryDirectory(prefix="ftgate-verdicts-") as place:
            root = committed(Path(place), workload)
            for _ in range(repeat):
                measure(root, words, results)
        yield row_of(workload, results)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="extend", nargs="+", default=[], metavar="GLOB", help="names of workloads")
    parser.add_argument("--list", action="store_true", help="print the names and end")
    parser.add_argument("--repeat", type=int, default=1, help="runs of each workload (default: 1)")
    parser.add_argument("pytest", nargs="*", help="options for pytest, after --")
    options = parser.parse_args()
    names = [name for name in by_name() if any(fnmatchcase(name, pattern) for pattern in options.only or ["*"])]
    if not names:
        parser.error("no workload has such a name: see --list")
    if options.list:
        print("\n".join(names))
        return
    page.show(__file__, COLUMNS, rows(names, options.repeat, options.pytest))


if __name__ == "__main__":
    main()
