"""Do the gate's probes agree with the explicit timing of the write-ups' own scripts? Side by side, in one run.

Scenario 1, profile *memory*: 8 workers that keep working; RSS, USS and PSS summed over parent and workers every 50 ms.
Scenario 2: mean time from asking for the lock until holding it, by two clock reads around each acquisition.

    python benchmarks/probes/agreement.py [--seconds 2] [--rounds 3]

The scripts are written here anew and know nothing of the plugin; the workloads of the gate are the examples, unchanged.
Prints a line a cell: the script's figure, the gate's, and their ratio; exit code 1 where one is off by more than 15 %.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MODES = ("threads", "fork", "forkserver", "spawn")
WORKERS = 8
LIMIT = 0.15
MASK = 0xFFFFFFFFFFFFFFFF


# -- the scripts: standard library alone, run by the interpreters that are measured -----------------------------------


def work(iterations):
    x = 0x12345678
    for _ in range(iterations):
        x = (x * 1103515245 + 12345) & 0xFFFFFFFF
        x ^= x >> 16
    return x


def memory_worker(ready, start, seconds):
    work(1000)
    ready.release()
    start.wait()
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        work(1000)


def draws(index):
    state = (0xC0FFEE ^ ((index + 1) * 0x9E3779B97F4A7C15)) & MASK
    while True:
        state = z = (state + 0x9E3779B97F4A7C15) & MASK
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
        yield (z ^ (z >> 31)) % 10_000_000


def lock_worker(index, seen, lock, barrier, seconds, out):
    draw = draws(index).__next__
    insert = seen.add if hasattr(seen, "add") else lambda uid: seen.__setitem__(uid, True)
    clock = time.perf_counter_ns
    count = total = 0
    barrier.wait()
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        uid = draw()
        asked = clock()
        lock.acquire()
        total += clock() - asked
        try:
            if uid not in seen:
                insert(uid)
        finally:
            lock.release()
        count += 1
    out.put((count, total))


def context_of(mode):
    """The module or context that has this mode's workers and primitives."""
    import multiprocessing

    return threading if mode == "threads" else multiprocessing.get_context(mode)


def run_memory(mode, seconds):
    """Hold the workers at work, and say when."""
    context = context_of(mode)
    ready, start = context.Semaphore(0), context.Event()
    make = context.Thread if mode == "threads" else context.Process
    workers = [make(target=memory_worker, args=(ready, start, seconds)) for _ in range(WORKERS)]
    for worker in workers:
        worker.start()
    for _ in workers:
        ready.acquire()
    start.set()
    print("working", flush=True)
    for worker in workers:
        worker.join()


def run_lock(mode, workers, seconds):
    """Print the mean wait in ns."""
    import queue

    context = context_of(mode)
    threads = mode == "threads"
    manager = None if threads else context.Manager()
    seen = set() if threads else manager.dict()
    lock, barrier = context.Lock(), context.Barrier(workers)
    out = queue.Queue() if threads else context.Queue()
    make = context.Thread if threads else context.Process
    started = [make(target=lock_worker, args=(i, seen, lock, barrier, seconds, out)) for i in range(workers)]
    for worker in started:
        worker.start()
    counts = [out.get() for _ in started]
    for worker in started:
        worker.join()
    print(sum(total for _, total in counts) / sum(count for count, _ in counts))


# -- the two sides -----------------------------------------------------------------------------------------------------


def script(python, *args):
    return subprocess.Popen([python, __file__, "--child", *map(str, args)], stdout=subprocess.PIPE, text=True)


def script_memory(python, mode, seconds):
    """Means over looks every 50 ms, in bytes."""
    import psutil

    child = script(python, "memory", mode, seconds)
    child.stdout.readline()
    ends = time.monotonic() + seconds - 0.2
    looks = []
    main = psutil.Process(child.pid)
    tree = [main, *(p for p in main.children(recursive=True) if "resource_tracker" not in " ".join(p.cmdline()))]
    while time.monotonic() < ends:
        looks.append([p.memory_full_info() for p in tree])
        time.sleep(0.05)
    child.communicate()
    return {
        name: statistics.fmean(sum(getattr(info, name) for info in look) for look in looks)
        for name in ("rss", "uss", "pss")
    }


def script_lock(python, mode, workers, seconds):
    """Mean wait in ns."""
    return float(script(python, "lock", mode, workers, seconds).communicate()[0])


def gate(example, report, rounds):
    """The rows of one run of the gate over an example, by their label."""
    command = [sys.executable, "-m", "pytest", "-q", "--ftgate", "--ftgate-baselines", str(report.parent / "none")]
    command += ["--ftgate-launches", str(rounds), "--ftgate-turns", "5", "--ftgate-report", f"json:{report}", example]
    subprocess.run(command, cwd=ROOT, stdout=subprocess.DEVNULL)
    read = json.loads(report.read_text())
    return [row for table in read["tables"] for row in table["rows"]]


def probe_wait(row):
    """Mean wait over all acquisitions in ns: of the probe, and of the workload's own clock in the bare launches."""
    ops = sum(launch["locks"]["ops"] for launch in row["sample"]["locks"])
    sites = [site for launch in row["sample"]["locks"] for site in launch["locks"]["sites"]]
    waited = sum(
        site["total_ns"] for site in sites if site["waits_for"] == "lock" and "test_shared_set" in site["file"]
    )
    return waited / ops, row["figures"]["timers_mean_ns"]["lock_wait"]


def said(label, name, explicit, probe, unit):
    """One line; whether it is within the limit."""
    ratio = probe / explicit
    far = abs(ratio - 1) > LIMIT
    print(
        f"{label:28s} {name:10s} script {explicit / unit:9.2f}  gate {probe / unit:9.2f}  ratio {ratio:5.2f}"
        f"{'  off' if far else ''}",
        flush=True,
    )
    return not far


def main():
    """Both scenarios, on both builds."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--child", nargs="*", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.child:
        what, mode, *rest = asked.child
        return run_memory(mode, float(rest[0])) if what == "memory" else run_lock(mode, int(rest[0]), float(rest[1]))
    good = []
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        rows = gate("examples/scenario1_overhead/test_overhead.py::test_memory_profile", report, asked.rounds)
        print("scenario 1, memory while at work, MiB")
        for row in rows:
            good += compare_memory(row, asked)
        rows = gate("examples/scenario2_shared_set", report, asked.rounds)
        print("scenario 2, mean lock wait, us")
        for row in rows:
            good += compare_lock(row, asked)
    print(f"{sum(good)} of {len(good)} figures within {LIMIT:.0%}")
    return 0 if all(good) else 1


def mode_of(row):
    executor = row["cell"]["executor"]
    return executor["method"] or executor["kind"]


def compare_memory(row, asked):
    python = shutil.which(f"python{row['cell']['target']['spec']}")
    looks = [script_memory(python, mode_of(row), asked.seconds) for _ in range(asked.rounds)]
    label = row["cell"]["nodeid"].partition("[")[2][:-1]
    return [
        said(label, name, statistics.median(look[name] for look in looks), row["figures"][f"{name}_bytes"], 2**20)
        for name in ("rss", "uss", "pss")
    ]


def compare_lock(row, asked):
    python = shutil.which(f"python{row['cell']['target']['spec']}")
    workers = row["cell"]["workers"]
    waits = [script_lock(python, mode_of(row), workers, asked.seconds) for _ in range(asked.rounds)]
    label = row["cell"]["nodeid"].partition("[")[2][:-1]
    probe, timer = probe_wait(row)
    good = [said(label, "script", statistics.median(waits), probe, 1e3)]
    return [*good, said(label, "own clock", timer, probe, 1e3)]


if __name__ == "__main__":
    os.environ.pop("PYTHONPATH", None)
    raise SystemExit(main())
