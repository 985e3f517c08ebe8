"""The cost of sampling memory: throughput of a workload bare and sampled, interleaved, on both builds.

    python benchmarks/probes/memory.py [--rounds 12] [--window 1] [--threads 1] [--resident 100 400] [--ceaseless]

Each line is one interpreter with some resident memory and one kind of work: `cpu` computes, `fault` maps 8 MiB, touches
them and unmaps them. Windows alternate in random order between bare and sampled by the sampler of memory launches.
`wall` and `cpu` are the ratios of ns per operation, sampled over bare, of neighbours in time, with the 95 % interval of
the median. Wall time includes the whole cost of sampling, and all else that runs on the machine. CPU time includes the
effect on the workload itself, but not the time that the sampler takes from it if no core is free; that is at most
`share`, the time that the sampler has measured for itself. On a busy machine use `--ceaseless`, which samples without a
pause, so that the effect of samples exceeds the noise; the effect decreases with the share.
"""

from __future__ import annotations

import argparse
import itertools
import random
import statistics
import subprocess
import time

from pytest_ftgate.kit.proc import ProcessMap
from pytest_ftgate.measure.watch.memory import MemorySampler, hold_needed_s, run_samplers
from pytest_ftgate.model.spec import parse_target
from pytest_ftgate.stats.rank_tests import ratio_interval
from pytest_ftgate.targets.find import find_interpreter

BUILDS = ("3.14", "3.14t")
KINDS = ("cpu", "fault")

WORKLOAD = """
import mmap, sys, threading, time
resident, kind, threads = int(sys.argv[1]) << 20, sys.argv[2], int(sys.argv[3])
kept = mmap.mmap(-1, resident, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
kept[::4096] = b"x" * (resident >> 12)
touch = b"x" * (8 << 8)
def cpu():
    x = 1
    for _ in range(20000):
        x = (x * 1103515245 + 12345) & 0xFFFFFFFF
def fault():
    pages = mmap.mmap(-1, 8 << 20, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    pages[::4096] = touch
    pages.close()
work = {"cpu": cpu, "fault": fault}[kind]
def window(seconds, index):
    ends = time.perf_counter() + seconds
    while time.perf_counter() < ends:
        work()
        done[index] += 1
print(flush=True)
for line in sys.stdin:
    done = [0] * threads
    began, used = time.perf_counter_ns(), time.process_time_ns()
    team = [threading.Thread(target=window, args=(float(line), index)) for index in range(threads)]
    for thread in team: thread.start()
    for thread in team: thread.join()
    wall, cpu = time.perf_counter_ns() - began, time.process_time_ns() - used
    print(wall / sum(done), cpu / sum(done), flush=True)
"""


class Ceaseless(MemorySampler):
    """A sampler that is always due."""

    @property
    def due_s(self) -> float:
        """Now."""
        return 0.0


class Subject:
    """One interpreter at work: its windows in ns per operation, bare and sampled, and what the sampler did."""

    def __init__(self, build: str, resident_mib: int, kind: str, threads: int, ceaseless: bool) -> None:
        python = find_interpreter(parse_target(build)).executable
        self.sampler = Ceaseless if ceaseless else MemorySampler
        self.label = f"{build:<6} {resident_mib:>4} MiB  {kind:<6}"
        self.process = subprocess.Popen(
            [python, "-c", WORKLOAD, str(resident_mib), kind, str(threads)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._line()
        self.wall: dict[bool, list[float]] = {False: [], True: []}
        self.cpu: dict[bool, list[float]] = {False: [], True: []}
        self.samples: list[int] = []
        self.costs_s: list[float] = []
        self.shares: list[float] = []

    def _line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline()

    def _begin(self, seconds: float) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{seconds}\n")
        self.process.stdin.flush()

    def window(self, seconds: float, *, sampled: bool) -> None:
        """One window; the controller sleeps through a bare one."""
        sampler = self.sampler(ProcessMap(main=self.process.pid))
        sampler.start()
        self._begin(seconds)
        run_samplers(seconds * 0.98, [sampler] if sampled else [])
        if sampled:
            self.samples.append(len(sampler.points))
            self.costs_s.append(sampler.spent_s / len(sampler.points))
            self.shares.append(sampler.share)
        wall_ns, cpu_ns = map(float, self._line().split())
        self.wall[sampled].append(wall_ns)
        self.cpu[sampled].append(cpu_ns)

    def report(self) -> str:
        """One line of the table."""
        ratios = "  ".join(
            f"{name} {ratio.value:.3f} [{ratio.low:.3f} .. {ratio.high:.3f}]"
            for name, sides in (("wall", self.wall), ("cpu", self.cpu))
            for ratio in [ratio_interval([(sides[True], sides[False])], 0.95)]
        )
        bare_us, sampled_us = (statistics.median(self.wall[side]) / 1e3 for side in (False, True))
        cost_s = statistics.median(self.costs_s)
        return (
            f"{self.label} {bare_us:8.0f} us bare {sampled_us:8.0f} us sampled  {ratios}"
            f"  {statistics.median(self.samples):3.0f} samples of {cost_s * 1e3:5.2f} ms,"
            f" share {statistics.median(self.shares):6.2%} (max {max(self.shares):.2%});"
            f" three samples need {hold_needed_s(cost_s):.2f} s"
        )

    def end(self) -> None:
        """Wait for its end: it ends with its standard input."""
        self.process.communicate()


def measure(subjects: list[Subject], rounds: int, seconds: float) -> None:
    """Pairs of windows, one bare and one sampled, of each subject in random order."""
    for _ in range(rounds):
        for subject in random.sample(subjects, len(subjects)):
            for sampled in random.sample((False, True), 2):
                subject.window(seconds, sampled=sampled)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--window", type=float, default=1.0, help="seconds")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--resident", type=int, nargs="+", default=(100, 400), help="MiB")
    parser.add_argument("--ceaseless", action="store_true")
    options = parser.parse_args()
    began = time.monotonic()
    for resident, kind in itertools.product(options.resident, KINDS):
        subjects = [Subject(build, resident, kind, options.threads, options.ceaseless) for build in BUILDS]
        measure(subjects, options.rounds, options.window)
        for subject in subjects:
            print(subject.report(), flush=True)
            subject.end()
    print(f"{options.rounds} pairs of {options.window} s each; {time.monotonic() - began:.0f} s in all")


if __name__ == "__main__":
    main()
