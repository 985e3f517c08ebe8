"""Collects real pairs of launches, reference and changed, interleaved, for the error rates of the verdicts.

    python benchmarks/verdicts/collect.py --minutes 25 [--out .ftgate/verdicts/wall.jsonl]
        [--cells 3.14-fork 3.14t-threads] [--effects 0 0 0 0 0 0 0.05 0.10 0.25] [--iterations 50]

Each pair is two fresh interpreters that are started together and interleaved: one iteration each, in random order,
while the other one is idle. Effects come in bursts of some rounds of all cells, in random order over and over: all
effects see the same states of the machine, and a burst is what a user would measure at one time. An effect that is
listed more than once comes more often. As in the product, each side starts first in one of two pairs, which one being
random; hash seed and padding are new for each pair.
A pair is appended to the file when it ends: interrupt the script at any time, and start it again to continue.

Each worker runs an LCG loop, as in scenario 1; the changed side does more rounds, so that the whole iteration (with
starting and joining) takes longer by the effect. The dependence of the time on the rounds is measured first.
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
from launches import WORK, Workloads
from series import Calibration, Pair, Side

from pytest_ftgate.measure.launch import Handle, LaunchFailed, Request
from pytest_ftgate.model.spec import Executor, Param, StartMethod
from pytest_ftgate.runner.protocol import COLD, MEASURED, WARMUP
from pytest_ftgate.stats.estimators import iterations_ratio, quantile

WORKLOAD = """
@ftgate.compare(threads)
def test_wall(worker, dose):
    work(dose)
"""
DOSE = 10_000
EFFECTS = (0, 0, 0, 0, 0, 0, 0.05, 0.10, 0.25)
CALIBRATION_LAUNCHES = 12
CALIBRATION_ITERATIONS = 40


class Bench:
    """Starts launches of the workload."""

    def __init__(self, folder: Path) -> None:
        self.workloads = Workloads(folder, WORK + WORKLOAD)
        self.launcher = self.workloads.launcher
        self.starts: dict[str, list[list[int]]] = {}

    def request(self, cell: str, dose: int) -> Request:
        """A launch of a cell, named as `3.14t-threads` or `3.14-fork`."""
        build, _, label = cell.partition("-")
        params = (Param(name="dose", literal=str(dose)),)
        return self.workloads.request("test_wall", build, executor_of(label), params)

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
            for handle in handles:
                handle.finish()
        sides = zip(requests, cold_ns, walls, strict=True)
        return (
            [
                Side(hash_seed=each.hash_seed, padding=each.padding, cold_ns=cold, wall_ns=tuple(wall))
                for each, cold, wall in sides
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


def measured(bench: Bench, calibration: Calibration, effect: float, iterations: int) -> Pair:
    """One pair."""
    began, at_s, load = time.monotonic(), time.time(), os.getloadavg()[0]
    doses = (calibration.dose, calibration.changed(effect))
    bench.workloads.draw()
    requests = [bench.request(calibration.cell, dose) for dose in doses]
    sides, started, order = bench.interleaved(requests, iterations)
    return Pair(
        at_s=round(at_s, 3),
        cell=calibration.cell,
        effect=effect,
        doses=doses,
        reference=sides[0],
        changed=sides[1],
        started=started,
        order=order,
        seconds=round(time.monotonic() - began, 4),
        load=load,
    )


def calibrate(bench: Bench, cell: str, dose: int) -> Calibration:
    """How the cell's time depends on the dose, from interleaved launches with one dose and with two."""
    single, ratios = [], []
    for _ in range(CALIBRATION_LAUNCHES):
        bench.workloads.draw()
        sides, _, _ = bench.interleaved(
            [bench.request(cell, dose), bench.request(cell, 2 * dose)], CALIBRATION_ITERATIONS
        )
        ratios.append(iterations_ratio(sides[1].wall_ns, sides[0].wall_ns))
        single.append(float(quantile(sides[0].wall_ns, 0.5)))
    whole = statistics.median(single)
    slope = (statistics.median(ratios) - 1) * whole / dose
    return Calibration(at_s=time.time(), cell=cell, dose=dose, base=whole - slope * dose, slope=slope)


def known(path: Path) -> dict[str, Calibration]:
    """The calibrations in an existing series, by cell."""
    found = series.lines(path) if path.exists() else ()
    return {line.cell: line for line in found if isinstance(line, Calibration)}


def _described(calibration: Calibration, effects: Sequence[float]) -> str:
    whole = calibration.base + calibration.slope * calibration.dose
    doses = ", ".join(f"{effect:+.0%}: {calibration.injected(effect):+.1%}" for effect in sorted(set(effects)))
    return f"{calibration.cell}: {whole / 1e6:.2f} ms, of which {calibration.base / 1e6:.2f} fixed; dose {doses}"


def collect(bench: Bench, options: argparse.Namespace) -> None:
    """Collect pairs until the time is over."""
    ends, done, failed = time.monotonic() + 60 * options.minutes, 0, 0
    calibrations = known(options.out)
    for cell in options.cells:
        if cell not in calibrations:
            calibrations[cell] = calibrate(bench, cell, options.dose)
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
    parser.add_argument("--out", type=Path, default=series.FOLDER / "wall.jsonl")
    parser.add_argument("--cells", nargs="+", default=["3.14-fork", "3.14t-threads"])
    parser.add_argument("--effects", nargs="+", type=float, default=EFFECTS, help="default: mostly A/A")
    parser.add_argument("--dose", type=int, default=DOSE, help="rounds of the loop; in a new file only")
    parser.add_argument("--iterations", type=int, default=50, help="per launch and side (default: 50, as the product)")
    parser.add_argument("--burst", type=int, default=40, help="rounds of one effect before the next (default: 40)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        collect(Bench(Path(folder)), options)


if __name__ == "__main__":
    main()
