"""How real pairs of unchanged code scatter, by what the code does, and beside another version of pytest-ftgate.

    python benchmarks/verdicts/kinds.py [--minutes 15] [--rounds 4] [--only GLOB ...] [--beside CHECKOUT] [--save FILE]
    python benchmarks/verdicts/kinds.py --verdicts [--busy 1] [--minutes 15] [--only GLOB ...]

Each run is one of the product on a project with two commits that differ in comments: so many pairs of launches of each
kind. No run begins when the time is over, but the first. With `--beside` the version in another checkout has as many
runs on the same project, in turns with this one; both are read by this one.

A cell of the table shows the robust standard deviation over pairs: of the log-ratio in percent, of the difference of a
share in points, of that of growth in KiB an iteration. Where two versions ran it is `other / this`, and the last row
has the geometric mean of this over other. `--save` keeps the pairs for simulate.py.

With `--verdicts` a run has the product's default options, and the table shows how each kind was judged: metrics that
passed, were left open and failed, of all runs; which were open; and the pairs of the wall time. `--busy` processes
compute meanwhile.
"""

from __future__ import annotations

import argparse
import itertools
import math
import random
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

import msgspec
import page
from commits import Results, Workload, committed, measure
from cpu import others_busy

from pytest_ftgate.judge import metrics
from pytest_ftgate.judge.comparisons import paired
from pytest_ftgate.judge.values import Values
from pytest_ftgate.kit.text import plural
from pytest_ftgate.model.report import Row
from pytest_ftgate.model.verdict import Decision

METRICS = ("wall", "tail", "cpu", "uss", "lock_wait", "start", "growth")
VERDICTS = ("kind", "cells: passed, open, failed", "metrics: passed, open, failed", "open or failed", "pairs")
COLUMNS = ("kind", "pairs", "wall, %", "tail, %", "cpu, %", "uss, %", "lock_wait, points", "start, %", "growth, KiB")
ITERATIONS = 12
WORK = """
import asyncio
import collections
import http.server
import queue
import random
import sys
import threading
import time


FACTOR = 1.0


def cpu(rounds=round(20_000 * FACTOR)):
    # COMMENT
    x = 1
    for _ in range(rounds):
        x = (x * 1103515245 + 12345) & 0xFFFFFFFF
    return x


GUARD, ITEMS, BACKLOG = threading.Lock(), queue.Queue(), collections.deque(maxlen=20_000)


def lock():
    # COMMENT
    for _ in range(5):
        with GUARD:
            time.sleep(0.0005 * FACTOR)


def hand_over(index):
    # COMMENT
    for number in range(round(200 * FACTOR)):
        if index:
            ITEMS.get(timeout=30)
        else:
            ITEMS.put([number] * 20)


def allocate():
    # COMMENT
    for number in range(5_000):
        item = {"number": number, "text": str(number) * 5, "parts": [number] * 8}
        item["itself"] = item
        BACKLOG.append(item)


def graph(n=60):
    drawn = random.Random(5)
    names = [f"mod{i // 10}.fn{i}" for i in range(n)]
    return {name: {drawn.choice(names) for _ in range(drawn.randrange(1, 4))} for name in names}


CALLS = graph()
USERS = {name: {user for user in CALLS if name in CALLS[user]} for name in CALLS}


def closure():
    # COMMENT
    reach = {name: frozenset(CALLS[name]) for name in CALLS}
    work = set(CALLS)
    while work:
        name = work.pop()
        new = frozenset().union(reach[name], *(reach[each] for each in CALLS[name]))
        if new != reach[name]:
            reach[name] = new
            work |= USERS[name]


async def waits():
    # COMMENT
    for _ in range(50):
        await asyncio.sleep(0)
        cpu(100)


def sleep():
    # COMMENT
    time.sleep(0.0044 * FACTOR)


def multiply():
    # COMMENT
    import numpy

    matrix = numpy.arange(90_000.0).reshape(300, 300)
    for _ in range(5):
        matrix = numpy.sqrt(abs(matrix @ matrix.T)) + 1
    return float(matrix[0, 0])


class Answer(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1

    def do_GET(self):
        # COMMENT
        content = b"%d" % cpu(2_000)
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *args):
        pass


if __name__ == "__main__":
    http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Answer).serve_forever()
"""
KINDS = {
    "CPU": ("threads", "work.cpu()"),
    "sleep": ("threads", "work.sleep()"),
    "lock": ("threads", "work.lock()"),
    "queue": ("threads", "work.hand_over(worker.index)"),
    "allocation": ("threads", "work.allocate()"),
    "sets of names": ("threads", "work.closure()"),
    "spawn": ('processes=["spawn"]', "work.cpu()"),
    "tasks": ("tasks", "await work.waits()"),
    "sub-interpreters": ("interpreters", "work.cpu()"),
    "forks": ('processes=["fork"]', "work.cpu()"),
    "numpy": ('threads, packages=["numpy"]', "work.multiply()"),
    "served app": ("", "assert server.get('/')"),
}
"""The executor, and what a worker does."""
HEAD = """
import work
from pytest_ftgate import command, ftgate, interpreters, load, processes, tasks, threads
"""
TEST = """

@ftgate.compare({executor}, workers=2, pythons=["3.14"])
{kind}def {name}(worker):
    {body}
"""
SERVED = """

@ftgate.serve(
    command("app", ["{{python}}", "work.py", "{{port}}"]),
    ready="http://127.0.0.1:{{port}}/",
    load=load("/", connections=4),
    duration=0.6,
    window=0.1,
    pythons=["3.14"],
)
def {name}(server):
    {body}
"""
NEVER = tuple(f"--ftgate-limit={name}: margin=0.0001, effect=0.0002" for name in METRICS)
"""No pair decides within so little: all rounds are measured."""


def test_of(kind: str) -> str:
    """The name of its test."""
    return f"test_{kind.lower().replace(' ', '_').replace('-', '_')}"


def project(folder: Path, kinds: Sequence[str]) -> Path:
    """Two commits that differ in comments."""
    text = HEAD
    for kind in kinds:
        executor, body = KINDS[kind]
        words = {"executor": executor, "body": body, "kind": "async " * ("await" in body), "name": test_of(kind)}
        text += (TEST if executor else SERVED).format(**words)
    after = WORK.replace("# COMMENT", "# Another comment.")
    return committed(folder, Workload(name="kinds", change=0.0, test=text, before=WORK, after=after))


def measured(options: argparse.Namespace, kinds: Sequence[str]) -> list[Results]:
    """What each version gave: the other one first, if there is one."""
    sources = [checkout / "src" for checkout in (options.beside, page.ROOT) if checkout]
    found = [Results() for _ in sources]
    settings: tuple[str, ...] = ()
    if not options.verdicts:
        settings = ("-oftgate_explain=false", f"-oftgate_launches={options.rounds}", *NEVER)
        settings += (f"-oftgate_iterations={ITERATIONS}",)
    until = time.monotonic() + 60 * options.minutes
    with tempfile.TemporaryDirectory(prefix="ftgate-kinds-") as name:
        root = project(Path(name), kinds)
        while not found[0].seconds or time.monotonic() < until:
            for at in random.sample(range(len(sources)), len(sources)):
                measure(root, found[at], *settings, source=sources[at])
                print(f"a run of {sources[at].parent}: {found[at].seconds[-1]:.0f} s", file=sys.stderr)
    return found


def scatter(values: Sequence[float]) -> float:
    """The robust standard deviation Qn of Rousseeuw and Croux (1993): from few values it is sharper than the MAD."""
    count = len(values)
    apart = sorted(abs(one - other) for one, other in itertools.combinations(values, 2))
    few = count / (count + (1.4 if count % 2 else 3.8))
    return 2.2219 * few * apart[math.comb(count // 2 + 1, 2) - 1] if apart else math.nan


def rows_of(results: Results, kind: str) -> Iterator[Row]:
    """The cells of a kind, of all runs."""
    return (row for row in results.rows if f"::{test_of(kind)}[" in row.cell.nodeid)


def pairs_of(results: Results, kind: str, name: str) -> list[tuple[float, float, float]]:
    """A metric's values in each pair of a kind, and the standard error that its iterations show."""
    found = []
    for row in rows_of(results, kind):
        pairs = row.sample and paired(Values(row.sample), [name]).get(name)
        if pairs and pairs.new:
            found += list(zip(pairs.new, pairs.reference, pairs.errors or (0.0,) * len(pairs.new), strict=True))
    return found


def between(results: Results, kind: str, name: str) -> list[float]:
    """A metric's difference in each pair of a kind: of the logs in percent, or in points or KiB of what may be 0."""
    unit, cost = {"lock_wait": 0.01, "growth": 1024.0}.get(name, 0.01), metrics.row(name).scale == "cost"
    sides = pairs_of(results, kind, name)
    return [(math.log(new / old) if cost else new - old) / unit for new, old, _ in sides if old or not cost]


def verdicts(results: Results, kinds: Sequence[str]) -> Iterator[list[str]]:
    """How each kind was judged, and all together."""

    def counted(decisions: Sequence[Decision]) -> str:
        good, left, failed = (sum(getattr(each, name) for each in decisions) for name in ("good", "open", "fails"))
        return f"{good}, {left}, {failed}"

    by_kind = {kind: list(rows_of(results, kind)) for kind in kinds}
    by_kind["all"] = [row for found in by_kind.values() for row in found]
    for kind, of_kind in by_kind.items():
        judged = [metric for row in of_kind for metric in row.verdict.metrics]
        left = Counter(each.metric for each in judged if not each.decision.good)
        walls = [each.launches for each in judged if each.metric == "wall"]
        shown = ", ".join(f"{name} {count}" for name, count in left.most_common())
        cells = counted([row.verdict.decision for row in of_kind])
        pairs = f"{statistics.median(walls):.0f}" if walls else "-"
        yield [kind, cells, counted([each.decision for each in judged]), shown, pairs]


def rows(found: Sequence[Results], kinds: Sequence[str]) -> Iterator[list[str]]:
    """The table; a row for each kind, and one of all where two versions ran."""
    changes: dict[str, list[float]] = {name: [] for name in METRICS}
    for kind in kinds:
        cells = []
        for name in METRICS:
            spreads = [scatter(between(results, kind, name)) for results in found]
            cells.append(" / ".join("-" if math.isnan(each) else f"{each:.2g}" for each in spreads))
            if min(spreads) > 0:
                changes[name].append(spreads[-1] / spreads[0])
        pairs = " / ".join(str(len(between(results, kind, "wall"))) for results in found)
        yield [kind, pairs, *cells]
    if len(found) > 1:
        means = (f"{statistics.geometric_mean(each):.2f}" if each else "-" for each in changes.values())
        yield ["all kinds", "", *means]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=15)
    parser.add_argument("--rounds", type=int, default=4, help="pairs of a kind in a run (default: 4)")
    parser.add_argument("--only", action="extend", nargs="+", default=[], metavar="GLOB", help="names of kinds")
    parser.add_argument("--save", type=Path, metavar="FILE", help="the pairs of this version, for simulate.py")
    parser.add_argument("--verdicts", action="store_true", help="how the product judges the kinds by default")
    parser.add_argument("--busy", type=int, default=0, help="processes that compute meanwhile")
    parser.add_argument("--beside", type=Path, metavar="CHECKOUT", help="another version, which takes turns")
    options = parser.parse_args()
    kinds = [kind for kind in KINDS if any(fnmatchcase(kind, pattern) for pattern in options.only or ["*"])]
    if not kinds:
        parser.error(f"no kind has such a name: {', '.join(KINDS)}")
    with others_busy(options.busy):
        found = measured(options, kinds)
    if options.save:
        values = {kind: {name: pairs_of(found[-1], kind, name) for name in METRICS} for kind in kinds}
        options.save.write_bytes(msgspec.json.encode(values))
    if options.verdicts:
        seconds = ", ".join(f"{each:.0f} s" for each in found[-1].seconds)
        print(f"runs of {len(kinds)} kinds beside {plural(options.busy, 'busy process', 'busy processes')}: {seconds}")
        page.show(__file__, VERDICTS, verdicts(found[-1], kinds))
    else:
        page.show(__file__, COLUMNS, rows(found, kinds))


if __name__ == "__main__":
    main()
