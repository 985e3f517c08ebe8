"""The cost of sampling where threads wait: throughput bare and sampled at the default rate, in one run.

    python benchmarks/probes/watcher.py [--python 3.14 3.14t] [--seconds 1.0] [--rounds 12]

Each workload runs in two threads of one process per build; its windows alternate, one bare and one sampled, and a pair
starts with the kind that the pair before ended with. Prints the median throughput of both sides, the ratio of pairs
with its 95 % interval (signed rank), the same for throughput over the target's CPU time, and the sampler's own CPU time
as a share of the window.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import time
from collections.abc import Iterator
from typing import NamedTuple

from pytest_ftgate.measure.process_map import ProcessMap
from pytest_ftgate.measure.watch.threads import ThreadSampler
from pytest_ftgate.model.spec import parse_target
from pytest_ftgate.stats.intervals import location
from pytest_ftgate.targets.find import find_interpreter

# One order per line: the window's seconds; one answer: operations per second, and per second of its CPU time.
TARGET = """
import json, sys, threading, time
lock = threading.Lock()

def cpu():
    x = 0
    for i in range(2000): x += i

def allocating():
    for _ in range(20): [{"id": i, "text": str(i)} for i in range(50)]

def locking():
    for _ in range(20):
        with lock:
            for _ in range(20): pass

def loop(body, ends, done):
    count = 0
    while time.perf_counter() < ends:
        body()
        count += 1
    done.append(count)

body = globals()[sys.argv[1]]
for line in sys.stdin:
    seconds, done = float(line), []
    ends, cpu_s = time.perf_counter() + seconds, -time.process_time()
    threads = [threading.Thread(target=loop, args=(body, ends, done)) for _ in range(2)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
    cpu_s += time.process_time()
    print(json.dumps([sum(done) / seconds, sum(done) / cpu_s]), flush=True)
"""
BODIES = ("cpu", "allocating", "locking")


class Speed(NamedTuple):
    """Operations per second, and per second of the target's CPU time, on which other load has less effect."""

    wall: float
    cpu: float


class Round(NamedTuple):
    """One pair of windows: the target's speed on both sides, and the sampler's share of a core."""

    bare: Speed
    sampled: Speed
    share: float


class Target:
    """One workload under one interpreter."""

    def __init__(self, python: str, body: str) -> None:
        pipe = subprocess.PIPE
        self.process = subprocess.Popen([python, "-P", "-s", "-c", TARGET, body], stdin=pipe, stdout=pipe, text=True)
        self.window(0.2)

    def window(self, seconds: float, watch: ThreadSampler | None = None) -> Speed:
        """Its speed; with `watch`, sampled for the middle eight tenths, as the held window of a launch is."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{seconds}\n")
        self.process.stdin.flush()
        if watch is not None:
            time.sleep(seconds * 0.1)
            watch.start()
            watch.run(seconds * 0.8)
        return Speed(*json.loads(self.process.stdout.readline()))

    def close(self) -> None:
        """End it."""
        with self.process:
            self.process.kill()


def rounds(target: Target, seconds: float, count: int) -> Iterator[Round]:
    """Pairs of windows, in an order that is reversed each time."""
    for number in range(count):
        speed: dict[bool, Speed] = {}
        for sampled in (False, True) if number % 2 else (True, False):
            watch = ThreadSampler(ProcessMap(main=target.process.pid)) if sampled else None
            began = time.process_time()
            speed[sampled] = target.window(seconds, watch)
            if watch is not None:
                watch.finish()
                share = (time.process_time() - began) / (seconds * 0.8)
        yield Round(speed[False], speed[True], share)


def line(build: str, body: str, done: list[Round]) -> str:
    """The line of one workload."""
    wall = location([each.sampled.wall / each.bare.wall for each in done], 0.95)
    cpu = location([each.sampled.cpu / each.bare.cpu for each in done], 0.95)
    bare = statistics.median(each.bare.wall for each in done)
    sampled = statistics.median(each.sampled.wall for each in done)
    share = statistics.median(each.share for each in done)
    return (
        f"{build:6s} {body:10s} {bare:9.0f} {sampled:9.0f}  {wall.value:.3f} [{wall.low:.3f}, {wall.high:.3f}]"
        f"  {cpu.value:.3f} [{cpu.low:.3f}, {cpu.high:.3f}]  {100 * share:4.1f} %"
    )


def main() -> None:
    """Print a line per build and workload."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", nargs="+", default=["3.14", "3.14t"], help="targets, as --ftgate-python takes them")
    parser.add_argument("--seconds", type=float, default=1.0, help="length of a window")
    parser.add_argument("--rounds", type=int, default=12, help="pairs of windows per workload")
    options = parser.parse_args()
    print("build  workload      bare/s sampled/s  ratio [95 %]          per CPU second        sampler")
    for build in options.python:
        python = find_interpreter(parse_target(build)).executable
        for body in BODIES:
            target = Target(python, body)
            try:
                print(line(build, body, list(rounds(target, options.seconds, options.rounds))), flush=True)
            finally:
                target.close()


if __name__ == "__main__":
    main()
