"""The cost of timing locks: what an uncontended pair of acquire and release takes with the probe, over a plain lock.

    python benchmarks/probes/locks.py [--python 3.14 3.14t] [--rounds 40]

In one thread, with a `with` block and by calls. The variants are interleaved in random order, and each is compared with
the plain lock of the same round: medians over rounds with their 95 % interval (signed rank).
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import tempfile
from pathlib import Path

from pytest_ftgate.measure.launchers.workload import install_runner, lock_environment
from pytest_ftgate.model.spec import parse_target
from pytest_ftgate.runner.locks.sites import RECORD, WINDOW
from pytest_ftgate.stats.intervals import location
from pytest_ftgate.targets.find import find_interpreter

# Run by the measured interpreter, with the number of rounds; prints the ns of a pair by variant, a JSON line per round.
TARGET = """
import _thread, json, random, sys, threading, time
now = time.perf_counter_ns
PAIRS, SLICES = 4_000, 6

def with_lock(lock, pairs):
    for _ in range(pairs):
        with lock: pass

def calls(lock, pairs):
    for _ in range(pairs):
        lock.acquire()
        lock.release()

plain = _thread.allocate_lock
assert threading.Lock is not plain
VARIANTS = {"plain": (plain, with_lock), "plain, calls": (plain, calls),
            "probe": (threading.Lock, with_lock), "probe, calls": (threading.Lock, calls)}

for _ in range(int(sys.argv[1])):
    # The minimum of some slices: the cost rather than disturbances.
    best = dict.fromkeys(VARIANTS, 1e9)
    for _ in range(SLICES):
        for name, (make, use) in random.sample(list(VARIANTS.items()), len(VARIANTS)):
            lock = make()
            begin = now()
            use(lock, PAIRS)
            best[name] = min(best[name], (now() - begin) / PAIRS)
    print(json.dumps(best), flush=True)
"""


def rounds_of(python: str, rounds: int, environment: dict[str, str]) -> list[dict[str, float]]:
    """The figures of each round, by variant."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    command = [python, "-P", "-s", "-c", TARGET, str(rounds)]
    done = subprocess.run(command, env=clean | environment, stdout=subprocess.PIPE, check=True, text=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def shown(build: str, found: list[dict[str, float]]) -> None:
    """Print a line per variant."""
    for name in ("probe", "probe, calls"):
        bare = name.replace("probe", "plain")
        at = location([each[name] - each[bare] for each in found], 0.95)
        plain = statistics.median(each[bare] for each in found)
        interval = f"{at.value:+8.1f} ns [{at.low:+.1f}, {at.high:+.1f}]"
        print(f"{build:5s} {name:12s} {interval} over {plain:.0f}: {1 + at.value / plain:.2f}x", flush=True)


def main() -> None:
    """Measure both builds, one after the other."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", nargs="+", default=["3.14", "3.14t"])
    parser.add_argument("--rounds", type=int, default=40)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        home = install_runner(folder / "runner")
        for build in options.python:
            python = find_interpreter(parse_target(build)).executable
            waits = folder / f"waits-{build}"
            environment = lock_environment(home, waits)
            (waits / WINDOW).write_bytes(bytes((RECORD,)))
            shown(build, rounds_of(python, options.rounds, environment))


if __name__ == "__main__":
    main()
