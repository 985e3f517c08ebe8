"""The cost of observers: throughput bare and observed, in one process.

    python benchmarks/probes/observers.py [--python 3.14 3.14t] [--seconds 0.3] [--rounds 20]

Each workload runs in threads of one process per build; its windows alternate, one bare and one observed, and a pair
starts with the kind that the pair before ended with. Prints, for each observer, the time of an operation observed over
bare, and the same of CPU time, with 95 % intervals (signed rank).
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import tempfile
from pathlib import Path

from pytest_ftgate.judge import metrics
from pytest_ftgate.measure.launchers.workload import install_runner
from pytest_ftgate.model.spec import parse_target
from pytest_ftgate.stats.intervals import location
from pytest_ftgate.targets.find import find_interpreter

# Prints a line for each pair: the seconds and the CPU seconds of an operation, bare and observed.
TARGET = """
import json, sys, threading, time
from pytest_ftgate.runner.observing import observe

def cpu():
    x = 0
    for i in range(2000): x += i

def allocating():
    for _ in range(20): [{"id": i, "text": str(i)} for i in range(50)]

def cycles():
    for _ in range(200):
        one = []
        one.append(one)

def loop(body, ends, done):
    count = 0
    while time.perf_counter() < ends:
        body()
        count += 1
    done.append(count)

def window(observed):
    done = []
    end = observe([file], object()) if observed else None
    cpu_s, began_s = -time.process_time(), time.perf_counter()
    started = [threading.Thread(target=loop, args=(body, began_s + seconds, done)) for _ in range(threads)]
    for thread in started: thread.start()
    for thread in started: thread.join()
    spent_s, cpu_s = time.perf_counter() - began_s, cpu_s + time.process_time()
    if end: end()
    return spent_s / sum(done), cpu_s / sum(done)

file, body, threads, seconds, rounds = sys.argv[1], globals()[sys.argv[2]], *map(json.loads, sys.argv[3:])
window(True)
for number in range(rounds):
    sides = {kind: window(kind) for kind in ((False, True) if number % 2 else (True, False))}
    print(json.dumps([sides[False], sides[True]]), flush=True)
"""
BODIES = ("cpu", "allocating", "cycles")


def main() -> None:
    """Print a line for each build, body, number of threads and observer."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", nargs="+", default=["3.14", "3.14t"])
    parser.add_argument("--seconds", type=float, default=0.3)
    parser.add_argument("--rounds", type=int, default=20)
    args = parser.parse_args()
    environment = {**os.environ, "PYTHONPATH": str(install_runner(Path(tempfile.mkdtemp())))}
    observers = {row.observer: row.name for row in reversed(metrics.TABLE.values()) if row.observer}
    print(f"load {os.getloadavg()[0]:.1f}")
    for build in args.python:
        python = find_interpreter(parse_target(build)).executable
        for body in BODIES:
            for threads in (1, 2):
                for file, name in observers.items():
                    words = [python, "-c", TARGET, file, body, *map(str, (threads, args.seconds, args.rounds))]
                    lines = subprocess.run(words, env=environment, capture_output=True, text=True, check=True).stdout
                    pairs = [json.loads(line) for line in lines.splitlines()]
                    shown = []
                    for kind, place in (("time", 0), ("CPU", 1)):
                        of = location([math.log(seen[place] / bare[place]) for bare, seen in pairs], 0.95)
                        value, low, high = map(math.exp, (of.value, of.low, of.high))
                        shown.append(f"{kind} {value:.3f}x [{low:.3f}, {high:.3f}]")
                    print(f"{build:6} {body:11} {threads} {name:12} {'  '.join(shown)}", flush=True)


if __name__ == "__main__":
    main()
