"""Collects real pairs of launches, reference and changed, interleaved, for the error rates of the verdicts.

    python benchmarks/verdicts/collect.py --minutes 25 [--out .ftgate/verdicts/wall.jsonl] [--kind wall]
        [--cells 3.14-fork 3.14t-threads] [--effects 0 0 0 0 0 0 0.05 0.10 0.25] [--iterations 50]

Each pair is two fresh interpreters that are started together and interleaved: one iteration each, in random order,
while the other one is idle. Effects come in bursts of some rounds of all cells, in random order over and over: all
effects see the same states of the machine, and a burst is what a user would measure at one time. An effect that is
listed more than once comes more often. As in the product, each side starts first in one of two pairs, which one being
random; hash seed and padding are new for each launch.
A pair is appended to the file when it ends: interrupt the script at any time, and start it again to continue.

`wall`: an LCG loop per worker, as in scenario 1; the changed side does more rounds, so that the whole iteration (with
starting and joining) takes longer by the effect. The dependence of the time on the rounds is measured first.
`uss`: memory launches; the changed side holds more bytes, so that USS grows by the effect.
`lock_wait`: lock launches; the changed side stays longer in its critical section (1: twice as long).
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import series
from launches import WORK, WORKERS, Workloads
from series import Calibration, Kind, Pair, Side

from pytest_ftgate.measure.launch import Handle, LaunchFailed, LaunchRole, Request
from pytest_ftgate.model.spec import Executor, Param, StartMethod
from pytest_ftgate.runner.protocol import COLD, MEASURED, WARMUP
from pytest_ftgate.stats.rank_tests import iterations_ratio, quantile

WORKLOAD = """
held = {}

@ftgate.compare(threads)
def test_wall(worker, dose):
    work(dose)

@ftgate.compare(threads)
def test_uss(worker, dose):
    if worker.index not in held:
        held[worker.index] = b"x" * dose
    work(20_000)

@ftgate.compare(threads)
def test_lock_wait(worker, dose):
    lock = worker.shared
    for _ in range(60):
        with lock:
            work(dose)
        work(900)

@test_lock_wait.shared
def lock(context):
    return context.Lock()
"""
DOSES: dict[Kind, int] = {"wall": 10_000, "uss": 12 << 20, "lock_wait": 150}
EFFECTS: dict[Kind, tuple[float, ...]] = {
    "wall": (0, 0, 0, 0, 0, 0, 0.05, 0.10, 0.25),
    "uss": (0, 0.05),
    "lock_wait": (0, 1.0),
}
CALIBRATION_LAUNCHES: dict[Kind, int] = {"wall": 12, "uss": 3}
CALIBRATION_ITERATIONS = 40
LOCK_ITERATIONS = 5
HOLD_NS, CALL_NS = 250_000_000, 8e6


class Bench:
    """Starts launches of the workload."""

    def __init__(self, folder: Path, kind: Kind) -> None:
        self.kind = kind
        self.workloads = Workloads(folder, WORK + WORKLOAD)
        self.launcher = self.workloads.launcher
        self.starts: dict[str, list[list[int]]] = {}

    def request(self, cell: str, dose: int) -> Request:
        """A launch of a cell, named as `3.14t-threads` or `3.14-fork`."""
        build, _, label = cell.partition("-")
        role: LaunchRole = "locks" if self.kind == "lock_wait" else "own"
        params = (Param(name="dose", literal=str(dose)),)
        return self.workloads.request(f"test_{self.kind}", build, executor_of(label), role, params, timeout_s=30.0)

    def interleaved(self, requests: Sequence[Request], iterations: int) -> tuple[list[Side], str, str]:
        """Start launches together, in random order, and run one iteration of each in random order.

        Returns the results, which one was started first, and which came first in each step: `r` for the first request.
        """
        with contextlib.ExitStack() as running:
            starting = self._starting(requests)
            started = {index: self.launcher.start(requests[index]) for index in starting}
            handles = [started[index] for index in range(len(requests))]
            for handle in handles:
                running.callback(handle.kill)
            colds = {index: _first_iteration(handles[index]) for index in starting}
            cold_ns = [colds[index] for index in range(len(requests))]
            walls: list[list[int]] = [[] for _ in handles]
            first = ""
            for _ in range(iterations):
                order = random.sample(range(len(handles)), len(handles))
                first += "rc"[order[0]]
                for index in order:
                    walls[index].append(handles[index].iteration(MEASURED).wall_ns)
            shares = [_share(handle) for handle in handles]
        sides = zip(requests, cold_ns, walls, shares, strict=True)
        return (
            [
                Side(hash_seed=each.hash_seed, padding=each.padding, cold_ns=cold, wall_ns=tuple(wall), share=share)
                for each, cold, wall, share in sides
            ],
            "rc"[starting[0]],
            first,
        )

    def _starting(self, requests: Sequence[Request]) -> list[int]:
        """The order of starting: random, and the opposite order in the next pair of the cell."""
        coming = self.starts.setdefault(requests[0].cell.nodeid, [])
        if not coming:
            order = random.sample(range(len(requests)), len(requests))
            coming += [order[::-1], order]
        return coming.pop()

    def held(self, request: Request) -> Side:
        """A memory launch: two barriers, which warm it up, then samples while all workers are at work."""
        handle = self.launcher.start(request)
        try:
            handle.ready()
            for _ in range(2):
                handle.barrier(1, 0)
            held = handle.measure_held(HOLD_NS, True, CALL_NS)
            handle.finish()
        finally:
            handle.kill()
        samples = (point.steadiest_bytes for point in held.memory)
        uss = tuple(sample for sample in samples if sample is not None)
        return Side(hash_seed=request.hash_seed, padding=request.padding, uss_bytes=uss)


def executor_of(label: str) -> Executor:
    """The executor `threads`, or processes by their start method."""
    methods: dict[str, StartMethod] = {"fork": "fork", "forkserver": "forkserver", "spawn": "spawn"}
    if label in methods:
        return Executor(kind="processes", method=methods[label])
    if label != "threads":
        raise SystemExit(f"no executor is called {label}: threads, {', '.join(methods)}")
    return Executor(kind="threads")


def _first_iteration(handle: Handle) -> int:
    """The time of the cold iteration in ns; a warm-up follows it."""
    handle.ready()
    cold_ns = handle.iteration(COLD).wall_ns
    handle.iteration(WARMUP)
    return cold_ns


def _share(handle: Handle) -> float | None:
    """End a launch; with the lock probe, its wait time over workers x the time of their work."""
    locks = handle.finish().locks
    if locks is None or not locks.work_ns:
        return None
    return sum(site.total_ns for site in locks.sites if site.waits_for == "lock") / (WORKERS * locks.work_ns)


def measured(bench: Bench, calibration: Calibration, effect: float, iterations: int) -> Pair:
    """One pair."""
    began, at_s, load = time.monotonic(), time.time(), os.getloadavg()[0]
    doses = (calibration.dose, calibration.changed(effect))
    requests = [bench.request(calibration.cell, dose) for dose in doses]
    sides, started, order = _measured_sides(bench, requests, iterations)
    return Pair(
        at_s=round(at_s, 3),
        cell=calibration.cell,
        kind=bench.kind,
        effect=effect,
        doses=doses,
        reference=sides[0],
        changed=sides[1],
        started=started,
        order=order,
        seconds=round(time.monotonic() - began, 4),
        load=load,
    )


def _measured_sides(bench: Bench, requests: list[Request], iterations: int) -> tuple[list[Side], str, str]:
    if bench.kind == "uss":
        order = random.sample((0, 1), 2)
        sides = {index: bench.held(requests[index]) for index in order}
        return [sides[0], sides[1]], "rc"[order[0]], ""
    return bench.interleaved(requests, LOCK_ITERATIONS if bench.kind == "lock_wait" else iterations)


def calibrate(bench: Bench, cell: str, dose: int) -> Calibration:
    """How the cell's figure depends on the dose, from interleaved launches with one dose and with two."""
    if bench.kind == "lock_wait":
        return Calibration(at_s=time.time(), cell=cell, kind=bench.kind, dose=dose, base=0.0, slope=1.0)
    single, ratios = [], []
    for _ in range(CALIBRATION_LAUNCHES[bench.kind]):
        requests = [bench.request(cell, dose), bench.request(cell, 2 * dose)]
        if bench.kind == "uss":
            once, twice = (statistics.median(bench.held(request).uss_bytes) for request in requests)
            ratios.append(twice / once)
        else:
            sides, _, _ = bench.interleaved(requests, CALIBRATION_ITERATIONS)
            once = quantile(sides[0].wall_ns, 0.5)
            ratios.append(iterations_ratio(sides[1].wall_ns, sides[0].wall_ns))
        single.append(float(once))
    whole = statistics.median(single)
    slope = (statistics.median(ratios) - 1) * whole / dose
    base = whole - slope * dose
    return Calibration(at_s=time.time(), cell=cell, kind=bench.kind, dose=dose, base=base, slope=slope)


def known(path: Path, kind: Kind) -> dict[str, Calibration]:
    """The calibrations in an existing series, by cell."""
    if not path.exists():
        return {}
    calibrations = (line for line in series.lines(path) if isinstance(line, Calibration) and line.kind == kind)
    return {calibration.cell: calibration for calibration in calibrations}


def _described(calibration: Calibration, effects: Sequence[float]) -> str:
    unit, size = {"wall": ("ms", 1e6), "uss": ("MiB", 2.0**20)}.get(calibration.kind, ("", 1.0))
    whole = calibration.base + calibration.slope * calibration.dose
    doses = ", ".join(f"{effect:+.0%}: {calibration.injected(effect):+.1%}" for effect in sorted(set(effects)))
    return f"{calibration.cell}: {whole / size:.2f} {unit}, of which {calibration.base / size:.2f} fixed; dose {doses}"


def collect(bench: Bench, options: argparse.Namespace) -> None:
    """Collect pairs until the time is over."""
    ends, done, failed = time.monotonic() + 60 * options.minutes, 0, 0
    calibrations = known(options.out, bench.kind)
    for cell in options.cells:
        if cell not in calibrations:
            calibrations[cell] = calibrate(bench, cell, options.dose or DOSES[bench.kind])
            series.append(options.out, calibrations[cell])
        print(_described(calibrations[cell], options.effects), flush=True)
    for cell, effect in schedule(options.cells, options.effects, options.burst):
        if time.monotonic() >= ends:
            break
        try:
            series.append(options.out, measured(bench, calibrations[cell], effect, options.iterations))
            done += 1
        except LaunchFailed as failure:
            failed += 1
            print(f"{cell}: {failure.error.reason}\n{failure.error.detail}", flush=True)
    print(f"{done} pairs, {failed} that failed, in {options.out}")


def schedule(cells: Sequence[str], effects: Sequence[float], burst: int) -> Iterator[tuple[str, float]]:
    """Cell and effect of each pair, without end: bursts of one effect in random order, cells shuffled in each round."""
    while True:
        for effect in random.sample(list(effects), len(effects)):
            for _ in range(burst):
                yield from ((cell, effect) for cell in random.sample(list(cells), len(cells)))


def main() -> None:
    """Collect for the given number of minutes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=25.0)
    parser.add_argument("--kind", choices=series.KINDS, default="wall")
    parser.add_argument("--out", type=Path, help=f"default: {series.FOLDER}/KIND.jsonl")
    parser.add_argument("--cells", nargs="+", default=["3.14-fork", "3.14t-threads"])
    parser.add_argument("--effects", nargs="+", type=float, help="default: by kind, mostly A/A")
    parser.add_argument("--dose", type=int, help="rounds, bytes, or rounds in the critical section; in a new file only")
    parser.add_argument("--iterations", type=int, default=50, help="per launch and side (default: 50, as the product)")
    parser.add_argument("--burst", type=int, default=40, help="rounds of one effect before the next (default: 40)")
    options = parser.parse_args()
    options.out = options.out or series.FOLDER / f"{options.kind}.jsonl"
    options.effects = options.effects or EFFECTS[options.kind]
    with tempfile.TemporaryDirectory() as folder:
        collect(Bench(Path(folder), options.kind), options)


if __name__ == "__main__":
    main()
