"""How far CPU time is to be trusted where wall time is noisy: pairs of launches of unchanged and of changed code.

    python benchmarks/verdicts/cpu.py [--minutes 8] [--iterations 20] [--busy 0 1] [--keep cpu.jsonl | --read cpu.jsonl]

A round starts a reference and four changed sides together (+0, +5, +10 and +25 %) and gives each one iteration in
random order, over and over. The rounds of all bodies and levels of other work take turns until the time is over.

`compute` and `tiny` do so much more work, `lock` too, all inside a lock that its workers share. `sleep` sleeps so much
longer.

Tables: (1) the standard deviation of the log-ratios over rounds, by wall and by CPU time, what is left of it beyond
what the iterations of a launch show (`spread`), and the mean change of each side; `computing` is what the product
reads. (2) How the product decides on CELLS series of pairs, each drawn with replacement from the rounds: failed /
passed, pairs in the median; by wall time, by CPU time, by both. `waits` adds a wait to the wall times of unchanged
code, as a share of what it takes undisturbed.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec
import page
from launches import WORK, WORKERS, Workloads

from pytest_ftgate.judge import decide, metrics
from pytest_ftgate.judge.comparisons import PairedValue, neighbour_pair
from pytest_ftgate.judge.values import UNDISTURBED
from pytest_ftgate.kit.values import Struct, grouped
from pytest_ftgate.measure.conditions import ConditionsMonitor
from pytest_ftgate.measure.launch import LaunchFailed
from pytest_ftgate.model.spec import Executor, Param
from pytest_ftgate.model.verdict import Comparison, Decision, MetricVerdict
from pytest_ftgate.runner.protocol import COLD, MEASURED, WARMUP
from pytest_ftgate.stats.estimators import quantile

EFFECTS = (0.0, 0.05, 0.10, 0.25)
KINDS = ("wall", "cpu")
PAIRS = 16
CELLS = 60
ALPHA, BETA = 0.01 / 8, 0.05
WORKLOAD = """
import time

@ftgate.compare(threads)
def test_compute(worker, dose):
    work(dose)

@ftgate.compare(threads)
def test_sleep(worker, dose):
    time.sleep(dose / 1e6)

@ftgate.compare(threads)
def test_lock(worker, dose):
    for _ in range(20):
        with worker.shared:
            work(dose)

@test_lock.shared
def lock(context):
    return context.Lock()
"""
# A process that is not a child of ours: busy for a part of each 10 ms until the pipe that it inherited is closed.
BURNER = """
import os, select, sys, time
share = float(sys.argv[1])
if os.fork():
    os._exit(0)
while not select.select([0], [], [], 0)[0]:
    began = time.monotonic()
    while time.monotonic() - began < share * 0.01: pass
    if share < 1: time.sleep((1 - share) * 0.01)
"""
THREADS = Executor(kind="threads")
BODIES = {
    "compute, threads": ("test_compute", "3.14t", THREADS, 40_000),
    "compute, threads with a GIL": ("test_compute", "3.14", THREADS, 40_000),
    "compute, fork": ("test_compute", "3.14", Executor(kind="processes", method="fork"), 40_000),
    "tiny, threads": ("test_compute", "3.14t", THREADS, 2_000),
    "sleep, threads": ("test_sleep", "3.14t", THREADS, 10_000),
    "lock, threads": ("test_lock", "3.14t", THREADS, 1_500),
}
"""The test, the build, the executor and the dose of the reference."""


class Times(NamedTuple):
    """The iterations of a launch, in ns."""

    wall: Sequence[float]
    cpu: Sequence[float]


class Round(Struct, frozen=True, kw_only=True):
    """The iterations of the reference, which is first, and of the changed sides, in ns."""

    body: str
    busy: float
    others: float
    wall: tuple[tuple[int, ...], ...]
    cpu: tuple[tuple[int, ...], ...]

    def changed(self, effect: float) -> Times:
        """A changed side."""
        at = EFFECTS.index(effect) + 1
        return Times(self.wall[at], self.cpu[at])

    def waiting(self, effect: float) -> Times:
        """Unchanged code that waits so much longer: what it takes undisturbed is its CPU time over the workers' cores.

        This is derived: the wait is added to the measured wall times of the +0 % side.
        """
        wait = effect * statistics.median(self.cpu[0]) / self.able
        return Times([each + wait for each in self.wall[1]], self.cpu[1])

    def pair(self, kind: str, own: Times) -> PairedValue:
        """A changed side against the reference, as the product has it."""
        sides = (getattr(own, kind), getattr(self, kind)[0])
        return neighbour_pair(*(tuple(max(1.0, each) for each in side) for side in sides))

    @property
    def able(self) -> int:
        """How many workers can run at once."""
        return 1 if "GIL" in self.body else WORKERS

    def computing(self, side: Times) -> list[float]:
        """As Values.computing, of each iteration."""
        return [cpu / wall / self.able for cpu, wall in zip(side.cpu, side.wall, strict=True)]

    @property
    def cores(self) -> float:
        """CPU time over wall time of the reference."""
        return sum(self.cpu[0]) / sum(self.wall[0])


@contextlib.contextmanager
def others_busy(cores: float) -> Iterator[None]:
    """Keep that many cores busy with other processes."""
    reader, writer = os.pipe()
    try:
        left = cores
        while left > 0:
            command = [sys.executable, "-S", "-c", BURNER, str(min(1.0, left))]
            subprocess.run(command, stdin=reader, check=True)
            left -= 1
        yield
    finally:
        os.close(writer)
        os.close(reader)


def measured(workloads: Workloads, body: str, busy: float, iterations: int) -> Round:
    """One round."""
    test, build, executor, dose = BODIES[body]
    doses = [dose, *(round(dose * (1 + effect)) for effect in EFFECTS)]
    workloads.draw()
    with others_busy(busy), contextlib.ExitStack() as running:
        monitor = ConditionsMonitor().start()
        handles = []
        for index in random.sample(range(len(doses)), len(doses)):
            params = (Param(name="dose", literal=str(doses[index])),)
            handle = workloads.launcher.start(workloads.request(test, build, executor, params=params))
            running.callback(handle.kill)
            handles.append((index, handle))
        for _, handle in handles:
            handle.ready()
            for what in (COLD, WARMUP, WARMUP):
                handle.iteration(what)
        wall: list[list[int]] = [[] for _ in doses]
        cpu: list[list[int]] = [[] for _ in doses]
        for _ in range(iterations):
            for index, handle in random.sample(handles, len(handles)):
                iteration = handle.iteration(MEASURED)
                wall[index].append(iteration.wall_ns)
                cpu[index].append(iteration.cpu_ns)
        others = monitor.observe().others or 0.0
        for _, handle in handles:
            handle.finish()
    return Round(body=body, busy=busy, others=others, wall=tuple(map(tuple, wall)), cpu=tuple(map(tuple, cpu)))


def measure(options: argparse.Namespace) -> Iterator[Round]:
    """Rounds until the time is over, kept in the file."""
    until = time.monotonic() + 60 * options.minutes
    with tempfile.TemporaryDirectory() as name:
        workloads = Workloads(Path(name), WORK + WORKLOAD)
        turns = [(body, busy) for body in BODIES for busy in options.busy]
        while time.monotonic() < until:
            for body, busy in random.sample(turns, len(turns)):
                with contextlib.suppress(LaunchFailed):
                    found = measured(workloads, body, busy, options.iterations)
                    if options.keep:
                        with options.keep.open("ab") as file:
                            file.write(msgspec.json.encode(found) + b"\n")
                    yield found


# ---- tables


def scatter(rounds: Sequence[Round]) -> Iterator[list[str]]:
    """A row for each body and level; deviations are pooled over the changes."""
    for (body, busy), found in by_body(rounds):
        columns = []
        for kind in KINDS:
            pairs = [[each.pair(kind, each.changed(effect)) for each in found] for effect in EFFECTS]
            logs = [[math.log(pair.new / pair.reference) for pair in each] for each in pairs]
            variance = statistics.fmean(statistics.variance(each) for each in logs)
            within = statistics.fmean(pair.error**2 for each in pairs for pair in each)
            means = " / ".join(f"{math.expm1(statistics.fmean(each)):+.1%}" for each in logs)
            columns += [f"{math.sqrt(variance):.1%}", f"{math.sqrt(max(0.0, variance - within)):.1%}", means]
        others, cores = (statistics.median(getattr(each, name) for each in found) for name in ("others", "cores"))
        iteration_ms = statistics.median(statistics.median(each.wall[0]) for each in found) / 1e6
        computing = quantile([share for each in found for share in each.computing(each.changed(0.0))], UNDISTURBED)
        machine = [f"{others:.1f}", f"{cores:.2f}", f"{computing:.2f}", f"{iteration_ms:.3g} ms"]
        yield [body, f"{busy:g}", *machine, str(len(found)), *columns]


def by_body(rounds: Sequence[Round]) -> Iterable[tuple[tuple[str, float], list[Round]]]:
    return grouped(((each.body, each.busy), each) for each in rounds).items()


def decisions(rounds: Sequence[Round]) -> Iterator[list[str]]:
    """A row for each body and level: of CELLS at each change how many failed and passed, and after how many pairs."""
    rng = random.Random(1)
    for (body, busy), found in by_body(rounds):
        ways = [("", Round.changed)] + ([(" waits", Round.waiting)] if "compute" in body else [])
        for name, read in ways:
            columns = []
            for effect in EFFECTS:
                cells = [rng.choices([(each, read(each, effect)) for each in found], k=PAIRS) for _ in range(CELLS)]
                alone, cpu, helped = zip(*map(judged, cells), strict=True)
                columns.append(f"{shares(alone)}; {shares(cpu)}; {shares(helped)}")
            yield [f"{body}{name}", f"{busy:g}", *columns]


def judged(pairs: Sequence[tuple[Round, Times]]) -> tuple[MetricVerdict, ...]:
    """The product's verdicts by wall time, by CPU time, and by wall time with the help of CPU time."""
    comparisons = [comparison(kind, [each.pair(kind, own) for each, own in pairs]) for kind in KINDS]
    wall, cpu = map(decide.by_pairs, comparisons)
    reference = [share for each, _ in pairs for share in each.computing(Times(each.wall[0], each.cpu[0]))]
    changed = [share for each, own in pairs for share in each.computing(own)]
    computing = min(quantile(each, UNDISTURBED) for each in (reference, changed))
    return wall, cpu, decide.by_cpu(wall, *comparisons, computing)


def comparison(kind: str, pairs: Sequence[PairedValue]) -> Comparison:
    """A series as the judge compares it."""
    new, reference, errors, _ = zip(*pairs, strict=True)
    return Comparison(
        metric=kind,
        new=new,
        reference=reference,
        unit="ns",
        limits=metrics.row(kind).paired,
        errors=errors,
        alpha=ALPHA,
        beta=BETA,
        at_most=PAIRS,
    )


def shares(verdicts: Sequence[MetricVerdict]) -> str:
    """`3% / 90%, 8`."""
    fail = sum(each.decision.fails for each in verdicts) / len(verdicts)
    passed = sum(each.decision in (Decision.PASSED, Decision.IMPROVED) for each in verdicts) / len(verdicts)
    return f"{fail:.0%} / {passed:.0%}, {statistics.median(each.launches for each in verdicts):g}"


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=8)
    parser.add_argument("--iterations", type=int, default=20, help="per launch")
    parser.add_argument("--busy", type=float, nargs="+", default=[0.0, 1.0], help="cores that other work keeps busy")
    parser.add_argument("--keep", type=Path, help="append each round to this file, one JSON line each")
    parser.add_argument("--read", type=Path, help="measure nothing: the tables of a file that was kept")
    options = parser.parse_args()
    if options.read:
        rounds = [msgspec.json.decode(line, type=Round) for line in options.read.read_bytes().splitlines()]
    else:
        rounds = list(measure(options))
    rounds.sort(key=lambda each: (list(BODIES).index(each.body), each.busy))
    values = ["wall sd", "wall spread", "wall: means", "cpu sd", "cpu spread", "cpu: means"]
    machine = ("body", "busy", "others", "cores", "computing", "iteration", "rounds")
    page.show(__file__, (*machine, *values), scatter(rounds))
    page.show(__file__, ("body", "busy", "+0%", "+5%", "+10%", "+25%"), decisions(rounds))


if __name__ == "__main__":
    main()
