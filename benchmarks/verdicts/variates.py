"""Ways to reduce the noise of a pair of launches, tried on this machine: control variates and instruction counts.

    python benchmarks/verdicts/variates.py [--pairs 40] [--iterations 20] [--disturbed 10]

Three tables. (1) Two sides with the same code are interleaved, with short slices of fixed work between them (the
control workload under the same executor, or a loop in the controller): does the slices' log-ratio, as a control
variate, lower the standard deviation over pairs of the sides' log-ratio? The coefficient
for a pair comes from the other pairs.
(2) Whether instructions can be counted here. (3) The same rounds while other processes keep cores busy: their effect on
the ratio of interleaved sides, on the ratio to the control workload as stored in a baseline, and on the raw time.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import json
import math
import os
import platform
import random
import statistics
import struct
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np
import page
from launches import Workloads
from series import PAIRED, Estimator, iterations_ratio

from pytest_ftgate.measure.conditions import ConditionsMonitor, calibration_ns
from pytest_ftgate.measure.launch import Handle, LaunchRole
from pytest_ftgate.model.report import Conditions
from pytest_ftgate.model.spec import Executor
from pytest_ftgate.runner.protocol import COLD, MEASURED, WARMUP

WARMUPS = 2
ESTIMATORS: tuple[tuple[str, Estimator], ...] = (("paired", PAIRED), ("q25", 0.25), ("q10", 0.1), ("min", 0.0))
VARIATES = ("cell", "estimator", "slices", "plain", "pairs", "as is", "iters")
DISTURBED = ("cell", "busy", "others", "steal", "paired: mean (sd)", "control: shift (sd)", "raw: shift (sd)")
LEVELS = [0.0, 0.25, 0.5, 1.0, 2.0]
"""Cores that other processes try to keep busy."""

WORKLOAD = """
from pytest_ftgate import ftgate, threads
TEXT = " ".join(f"word{i % 97} and {i}" for i in range(2_600)).split()
BLOCK = b"a" * (16 << 20)

@ftgate.compare(threads)
def test_words(worker):
    counts = {}
    for _ in range(2):
        for word in TEXT:
            counts[word] = counts.get(word, 0) + len(word)

@ftgate.compare(threads)
def test_memory(worker):
    for _ in range(2):
        BLOCK.find(b"x")
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


class CellOf(NamedTuple):
    """A build, an executor and one of the workloads."""

    build: str
    executor: Executor
    test: str

    @property
    def label(self) -> str:
        """`3.14t threads words`."""
        return f"{self.build} {self.executor.label} {self.test.removeprefix('test_')}"


THREADS = Executor(kind="threads")
FORK = Executor(kind="processes", method="fork")


class Round(NamedTuple):
    """A pair of launches: for each iteration the times in ns of both sides and of the slices around them."""

    own: tuple[list[float], list[float]]
    slices: tuple[list[float], list[float]]
    inner: tuple[list[float], list[float]]
    conditions: Conditions


class Rig:
    """Starts launches of the workloads."""

    def __init__(self, folder: Path, iterations: int, keep: Path | None) -> None:
        self.workloads = Workloads(folder, WORKLOAD)
        self.iterations = iterations
        self.keep = keep

    def start(self, cell: CellOf, role: LaunchRole) -> Handle:
        """A launch of a cell, or of the control workload in its place."""
        return self.workloads.launcher.start(self.workloads.request(cell.test, cell.build, cell.executor, role))

    def round(self, cell: CellOf, busy: float = 0.0) -> Round:
        """One pair of launches with its slices, in random order in each step; appended to the file of `--keep`."""
        with others_busy(busy):
            found = self._round(cell)
        if self.keep:
            with self.keep.open("a", encoding="utf-8") as file:
                times = {"own": found.own, "slices": found.slices, "inner": found.inner}
                about = {"cell": cell.label, "busy": busy, "conditions": msgspec.to_builtins(found.conditions)}
                file.write(json.dumps({**about, **times}) + "\n")
        return found

    def _round(self, cell: CellOf) -> Round:
        monitor = ConditionsMonitor().start()
        sides: tuple[LaunchRole, ...] = ("own", "own", "control")
        with contextlib.ExitStack() as running:
            handles = [self.start(cell, side) for side in sides]
            for handle in handles:
                running.callback(handle.kill)
            for handle in handles:
                _warm(handle)
            own, slices, inner = self._iterations(handles[:2], handles[2])
            for handle in handles:
                handle.finish()
        return Round(own, slices, inner, monitor.observe())

    def _iterations(
        self, pair: Sequence[Handle], control: Handle
    ) -> tuple[tuple[list[float], list[float]], tuple[list[float], list[float]], tuple[list[float], list[float]]]:
        own: tuple[list[float], list[float]] = ([], [])
        slices: tuple[list[float], list[float]] = ([], [])
        inner: tuple[list[float], list[float]] = ([], [])
        for _ in range(self.iterations):
            before = _wall(control), float(calibration_ns(1))
            for side in random.sample((0, 1), 2):
                own[side].append(_wall(pair[side]))
                after = _wall(control), float(calibration_ns(1))
                slices[side].append((before[0] + after[0]) / 2)
                inner[side].append((before[1] + after[1]) / 2)
                before = after
        return own, slices, inner


def _warm(handle: Handle) -> None:
    handle.ready()
    handle.iteration(COLD)
    for _ in range(WARMUPS):
        handle.iteration(WARMUP)


def _wall(handle: Handle) -> float:
    return float(handle.iteration(MEASURED).wall_ns)


# -- (1) control variates ----------------------------------------------------------------------------------------------


def log_ratio(sides: tuple[list[float], list[float]], estimator: Estimator) -> float:
    """The logarithm of how much longer the first side takes."""
    return math.log(iterations_ratio(sides[0], sides[1], estimator))


def coefficient(ys: Sequence[float], xs: Sequence[float]) -> float:
    """The least-squares slope of ys over xs; 0 where xs do not vary."""
    return float(np.cov(ys, xs)[0, 1] / np.var(xs, ddof=1)) if np.var(xs) > 0 else 0.0


def left_out(ys: Sequence[float], xs: Sequence[float]) -> list[float]:
    """Each y minus slope times x, with the slope of all other points (Lavenberg and Welch, 1981)."""
    rest = [[*range(i), *range(i + 1, len(ys))] for i in range(len(ys))]
    slopes = [coefficient([ys[k] for k in others], [xs[k] for k in others]) for others in rest]
    return [y - slope * x for y, x, slope in zip(ys, xs, slopes, strict=True)]


def by_iteration(rounds: Sequence[Round], of: Callable[[Round], tuple[list[float], list[float]]]) -> list[float]:
    """Adjusted by iteration: the median of log-ratios minus slope times those of the slices, slope as above."""
    ys = [np.subtract(*map(np.log, each.own)) for each in rounds]
    xs = [np.subtract(*map(np.log, of(each))) for each in rounds]
    found = []
    for i in range(len(rounds)):
        others = [k for k in range(len(rounds)) if k != i]
        slope = coefficient(
            np.concatenate([ys[k] for k in others]).tolist(), np.concatenate([xs[k] for k in others]).tolist()
        )
        found.append(float(np.median(ys[i] - slope * xs[i])))
    return found


def spread_ratio(adjusted: Sequence[float], plain: Sequence[float]) -> tuple[float, float, float]:
    """The ratio of standard deviations, adjusted over plain, with a 95 % percentile bootstrap over pairs."""
    pairs = np.column_stack([adjusted, plain])
    rng = np.random.default_rng(1)
    drawn = pairs[rng.integers(0, len(pairs), (4000, len(pairs)))].std(axis=1, ddof=1)
    low, high = np.quantile(drawn[:, 0] / drawn[:, 1], [0.025, 0.975])
    return float(pairs[:, 0].std(ddof=1) / pairs[:, 1].std(ddof=1)), float(low), float(high)


def variates(label: str, rounds: Sequence[Round]) -> Iterator[list[str]]:
    """The rows of a cell: one per estimator and kind of slice."""
    kinds: tuple[tuple[str, Callable[[Round], tuple[list[float], list[float]]]], ...] = (
        ("control", lambda each: each.slices),
        ("controller", lambda each: each.inner),
    )
    for name, estimator in ESTIMATORS:
        plain = [log_ratio(each.own, estimator) for each in rounds]
        for kind, of in kinds:
            slices = [log_ratio(of(each), estimator) for each in rounds]
            ways = {"pairs": left_out(plain, slices), "as is": [y - x for y, x in zip(plain, slices, strict=True)]}
            if estimator is PAIRED:
                ways["iters"] = by_iteration(rounds, of)
            ratios = (_shown(spread_ratio(ways[way], plain)) if way in ways else "" for way in VARIATES[-3:])
            yield [label, name, kind, f"{statistics.stdev(plain):.1%}", *ratios]


def _shown(ratio: tuple[float, float, float]) -> str:
    return f"{ratio[0]:.2f} [{ratio[1]:.2f}, {ratio[2]:.2f}]"


# -- (2) instruction counts --------------------------------------------------------------------------------------------

PERF_EVENT_OPEN = {"x86_64": 298, "aarch64": 241}
EVENTS = (("instructions", 0, 1), ("cycles", 0, 0), ("task clock (software)", 1, 1))


def events() -> Iterator[str]:
    """A line per event: whether the kernel counts it for this process."""
    number = PERF_EVENT_OPEN.get(platform.machine())
    if sys.platform != "linux" or number is None:
        yield f"perf_event_open: not tried on {sys.platform} {platform.machine()}"
        return
    libc = ctypes.CDLL(None, use_errno=True)
    for name, kind, config in EVENTS:
        attributes = ctypes.create_string_buffer(128)
        # type, size, config; at 40 the flags: disabled, and neither kernel nor hypervisor, which needs no privilege.
        struct.pack_into("IIQ", attributes, 0, kind, len(attributes), config)
        struct.pack_into("Q", attributes, 40, 1 | 1 << 5 | 1 << 6)
        opened = libc.syscall(number, attributes, 0, -1, -1, 0)
        if opened >= 0:
            os.close(opened)
            yield f"perf_event_open: {name}: counted"
        else:
            code = ctypes.get_errno()
            yield f"perf_event_open: {name}: refused, errno {code} ({os.strerror(code)})"


# -- (3) disturbed -----------------------------------------------------------------------------------------------------


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


def disturbed(label: str, rounds: dict[float, list[Round]]) -> Iterator[list[str]]:
    """A row per level: measured load of others, steal, the paired ratio, the ratio to the control, the raw time."""
    quiet = [_stored(each) for each in rounds[0.0]]
    quiet_raw = [_raw(each) for each in rounds[0.0]]
    for level, found in rounds.items():
        others = statistics.median(each.conditions.others or 0.0 for each in found)
        steal = statistics.median(each.conditions.steal or 0.0 for each in found)
        paired = [log_ratio(each.own, 0.25) for each in found]
        stored = [_stored(each) for each in found]
        raw = [_raw(each) for each in found]
        yield [
            label,
            f"{level:g}",
            f"{others:.2f}",
            f"{steal:.1%}",
            f"{statistics.fmean(paired):+.3f} ({statistics.stdev(paired):.3f})",
            f"{statistics.median(stored) - statistics.median(quiet):+.3f} ({statistics.stdev(stored):.3f})",
            f"{statistics.median(raw) - statistics.median(quiet_raw):+.3f} ({statistics.stdev(raw):.3f})",
        ]


def _stored(found: Round) -> float:
    return log_ratio((found.own[0], found.slices[0]), 0.25)


def _raw(found: Round) -> float:
    return math.log(float(np.quantile(found.own[0], 0.25)))


def levels(rig: Rig, cell: CellOf, options: argparse.Namespace) -> dict[float, list[Round]]:
    """The rounds of a cell at each level, which take turns in random order."""
    rounds: dict[float, list[Round]] = {level: [] for level in options.busy}
    for _ in range(options.disturbed):
        for level in random.sample(options.busy, len(options.busy)):
            rounds[level].append(rig.round(cell, level))
    return rounds


def chosen(cells: Sequence[CellOf], word: str) -> list[CellOf]:
    """The cells with `word` in their label."""
    return [cell for cell in cells if word in cell.label]


def main() -> None:
    """Print the three tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=40, help="pairs of launches per cell of the first table")
    parser.add_argument("--iterations", type=int, default=20, help="per pair")
    parser.add_argument("--disturbed", type=int, default=10, help="pairs per cell and level of the third table")
    parser.add_argument("--busy", type=float, nargs="+", default=LEVELS, help="cores to keep busy, the first is 0")
    parser.add_argument("--cells", default="", help="only cells with this in their name, as in `fork words`")
    parser.add_argument("--keep", type=Path, help="append every round's times to this file, one JSON line each")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    random.seed(options.seed)
    print("\n".join(events()), flush=True)
    with tempfile.TemporaryDirectory() as name:
        rig = Rig(Path(name), options.iterations, options.keep)
        cells = [CellOf("3.14t", THREADS, "test_words"), CellOf("3.14", FORK, "test_words")]
        if options.pairs:
            each = (
                variates(cell.label, [rig.round(cell) for _ in range(options.pairs)])
                for cell in chosen(cells, options.cells)
            )
            page.show(__file__, VARIATES, chain.from_iterable(each))
        if options.disturbed:
            cells += [cell._replace(test="test_memory") for cell in cells]
            each = (disturbed(cell.label, levels(rig, cell, options)) for cell in chosen(cells, options.cells))
            page.show(__file__, DISTURBED, chain.from_iterable(each))


if __name__ == "__main__":
    main()
