"""The cost of timing locks: a plain lock, the probe, ddtrace's lock profiler, and inline clock readings, in one run.

    python benchmarks/probes/locks.py [--python 3.14 3.14t] [--rounds 40] [--seconds 0.25]

Uncontended: ns that a pair of acquire and release costs over a plain lock, in one thread. Contended: throughput of two
threads over that with a plain lock, with a short and a long section. The variants are interleaved in random order, and
each is compared with the plain lock of the same round: medians over rounds with their 95 % interval (signed rank).
ddtrace runs in an environment of its own that uv makes, if it has a wheel; its rounds have their own plain lock.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from pytest_ftgate.measure.launchers.workload import install_runner, lock_environment
from pytest_ftgate.model.spec import parse_target
from pytest_ftgate.runner.locks.sites import RECORD, WINDOW
from pytest_ftgate.stats.rank_tests import location
from pytest_ftgate.targets.find import find_interpreter

AIM_NS, AIM_SHARE = 50.0, 0.05

# Run by the measured interpreter, with the arguments variants, rounds and seconds; prints one JSON line per round.
TARGET = """
import _thread, json, random, sys, threading, time
what, rounds, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
now = time.perf_counter_ns
PAIRS, SLICES = 4_000, 6

def with_lock(lock, pairs, waits):
    for _ in range(pairs):
        with lock: pass

def inline(lock, pairs, waits):
    keep, acquire, release = waits.append, lock.acquire, lock.release
    for _ in range(pairs):
        begin = now()
        acquire()
        keep(now() - begin)
        release()

def calls(lock, pairs, waits):
    for _ in range(pairs):
        lock.acquire()
        lock.release()

collectors = []

def ddtrace_lock(percent):
    from ddtrace.profiling.collector.threading import ThreadingLockCollector
    while collectors:
        collectors.pop().stop()
    collectors.append(ThreadingLockCollector(capture_pct=percent))
    collectors[0].start()
    return threading.Lock()

plain = _thread.allocate_lock
VARIANTS = {"plain": (plain, with_lock), "plain, calls": (plain, calls)}
if what == "probe":
    assert threading.Lock is not plain
    VARIANTS |= {"probe": (threading.Lock, with_lock), "probe, calls": (threading.Lock, calls),
                 "clock reads inline": (plain, inline), "probe, RLock": (threading.RLock, with_lock)}
else:
    VARIANTS |= {"ddtrace, 1 % sampled": (lambda: ddtrace_lock(1.0), with_lock),
                 "ddtrace, all": (lambda: ddtrace_lock(100.0), with_lock)}

def uncontended():
    # The minimum of some slices: the cost rather than disturbances.
    best = dict.fromkeys(VARIANTS, 1e9)
    for _ in range(SLICES):
        for name, (make, use) in random.sample(list(VARIANTS.items()), len(VARIANTS)):
            pairs = PAIRS // 20 if name == "ddtrace, all" else PAIRS
            lock, waits = make(), []
            begin = now()
            use(lock, pairs, waits)
            best[name] = min(best[name], (now() - begin) / pairs)
    return best

def work(rounds):
    x = 0
    for i in range(rounds): x += i

def contended(inside, outside):
    found = {}
    for name, (make, use) in random.sample(list(VARIANTS.items()), len(VARIANTS)):
        if use is not calls:
            found[name] = throughput(make(), use is inline, inside, outside)
    return found

def throughput(lock, timed, inside, outside):
    done, go, ends = [], _thread.allocate_lock(), []
    go.acquire()
    def body():
        count, waits = 0, []
        with go: pass
        while now() < ends[0]:
            for _ in range(20):
                if timed:
                    begin = now()
                    lock.acquire()
                    waits.append(now() - begin)
                    try: work(inside)
                    finally: lock.release()
                else:
                    with lock: work(inside)
                work(outside)
            count += 20
        done.append(count)
    threads = [threading.Thread(target=body) for _ in range(2)]
    for thread in threads: thread.start()
    ends.append(now() + int(seconds * 1e9))
    go.release()
    for thread in threads: thread.join()
    return sum(done) / seconds

for _ in range(rounds):
    found = {"uncontended": uncontended()}
    if _ % 3 == 0:
        found |= {"short": contended(10, 40), "long": contended(200, 400)}
    print(json.dumps(found), flush=True)
"""


def rounds_of(
    python: str, what: str, rounds: int, seconds: float, environment: dict[str, str]
) -> list[dict[str, dict[str, float]]]:
    """The figures of each round: section -> variant -> figure."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    command = [python, "-P", "-s", "-c", TARGET, what, str(rounds), str(seconds)]
    done = subprocess.run(command, env=clean | environment, stdout=subprocess.PIPE, check=True, text=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def shown(build: str, found: list[dict[str, dict[str, float]]]) -> None:
    """Print a line per variant and section."""
    for name in found[0]["uncontended"]:
        plain_name = "plain, calls" if name.endswith("calls") else "plain"
        if name == plain_name:
            continue
        over = [each["uncontended"][name] - each["uncontended"][plain_name] for each in found]
        plain = statistics.median(each["uncontended"][plain_name] for each in found)
        at = location(over, 0.95)
        line = f"{build:5s} {name:22s} uncontended {at.value:+8.1f} ns [{at.low:+.1f}, {at.high:+.1f}]"
        line += f" over {plain:.0f}: {1 + at.value / plain:.2f}x"
        print(line + _aim(name, at.value <= AIM_NS), flush=True)
        for section in ("short", "long"):
            if name in found[0][section]:
                print(_contended(build, name, section, found), flush=True)


def _contended(build: str, name: str, section: str, found: list[dict[str, dict[str, float]]]) -> str:
    ratios = [each[section][name] / each[section]["plain"] - 1 for each in found if section in each]
    at = location(ratios, 0.95)
    line = (
        f"{build:5s} {name:22s} contended, {section:5s} {at.value:+8.1%} [{at.low:+.1%}, {at.high:+.1%}] of throughput"
    )
    return line + _aim(name, at.value >= -AIM_SHARE)


def _aim(name: str, reached: bool) -> str:
    return "" if not name.startswith("probe") or reached else "  (aim missed)"


def ddtrace_python(python: str, folder: Path) -> tuple[str, str]:
    """The interpreter of an environment with ddtrace, or why there is none."""
    uv = [sys.executable, "-m", "uv"]
    made = folder / f"ddtrace-{Path(python).name}"
    own = str(made / "bin" / "python")
    for command in (
        ["venv", "--quiet", "--python", python, str(made)],
        ["pip", "install", "--quiet", "--only-binary", ":all:", "--python", own, "ddtrace"],
    ):
        done = subprocess.run([*uv, *command], capture_output=True, text=True)
        if done.returncode:
            return "", next((line for line in reversed(done.stderr.splitlines()) if line.strip()), "uv failed")
    return own, ""


def main() -> None:
    """Measure both builds, one after the other."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--python", nargs="+", default=["3.14", "3.14t"])
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--seconds", type=float, default=0.25)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        home = install_runner(folder / "runner")
        for build in options.python:
            python = find_interpreter(parse_target(build)).executable
            waits = folder / f"waits-{build}"
            environment = lock_environment(home, waits)
            (waits / WINDOW).write_bytes(bytes((RECORD,)))
            shown(build, rounds_of(python, "probe", options.rounds, options.seconds, environment))
            peer, reason = ddtrace_python(python, folder)
            if peer:
                shown(build, rounds_of(peer, "ddtrace", max(4, options.rounds // 4), options.seconds, {}))
            else:
                print(f"{build:5s} ddtrace has no wheel here: {reason}", flush=True)


if __name__ == "__main__":
    main()
