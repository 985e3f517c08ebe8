"""Do the gate's probes agree with the explicit timing of the write-ups' own scripts? Both are measured in one run.

Scenario 1, profile *memory*: 8 workers that keep working; RSS, USS and PSS summed over parent and workers every 50 ms,
as the script does it (psutil) and by the gate's sampler, both for the script's processes in the same seconds; next to
it the gate's figures for the example, whose processes also load the gate's runner.
Scenario 2: mean time from requesting the lock until holding it, by two clock readings around each acquisition, as the
script does it: in the example's lock launches, where the workload's own timer and the lock probe time the same waits.
What that timer shows for a lock that is always free is subtracted: half a microsecond that is not a wait. Next to it
the figure of the script's own processes, whose loop holds the lock for a shorter time.

    python benchmarks/probes/agreement.py [--seconds 1.5] [--rounds 3] [--only memory|lock]

The scripts are in writeups.py and do not use the plugin; the workloads of the gate are the examples, unchanged.
Prints a line per cell: the script's figure, the probe's, and their ratio. Exit code 1 if one is off by more than 15 %.
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
import time
from pathlib import Path

import psutil

from pytest_ftgate.measure.launchers.workload import install_runner, lock_environment
from pytest_ftgate.measure.process_map import ProcessMap
from pytest_ftgate.measure.watch.memory import MemorySampler

ROOT = Path(__file__).resolve().parents[2]
WRITEUPS = Path(__file__).with_name("writeups.py")
LIMIT = 0.15
FREE = """
import threading
from pytest_ftgate.runner.worker import Stopwatch
lock, seen = threading.Lock(), []
for _ in range(20):
    timer = Stopwatch()
    for _ in range(2000):
        with timer:
            lock.acquire()
        lock.release()
    seen.append(timer.total_ns / timer.count)
print(min(seen))
"""
NAMES = ("rss", "uss", "pss")


# -- the two sides -----------------------------------------------------------------------------------------------------


def script(python, *args):
    return subprocess.Popen([python, str(WRITEUPS), *map(str, args)], stdout=subprocess.PIPE, text=True)


def script_memory(python, mode, seconds):
    """Means over samples in bytes: as the script measures and by the gate's sampler, of the same processes."""
    child = script(python, "memory", mode, seconds)
    child.stdout.readline()
    ends = time.monotonic() + seconds - 0.2
    main = psutil.Process(child.pid)
    tree = [main, *(p for p in main.children(recursive=True) if "resource_tracker" not in " ".join(p.cmdline()))]
    sampler, samples = MemorySampler(ProcessMap(main=child.pid)), []
    sampler.start()
    while time.monotonic() < ends:
        samples.append([p.memory_full_info() for p in tree])
        sampler.step()
        time.sleep(0.05)
    child.communicate()
    own = {name: statistics.fmean(sum(getattr(info, name) for info in sample) for sample in samples) for name in NAMES}
    ours = {name: statistics.fmean(getattr(point, f"{name}_bytes") for point in sampler.points) for name in NAMES}
    return own, ours


def script_lock(python, mode, workers, seconds):
    """Mean wait in ns."""
    return float(script(python, "lock", mode, workers, seconds).communicate()[0])


def gate(example, report, rounds):
    """The rows of one run of the gate over an example, by their label."""
    command = [sys.executable, "-m", "pytest", "-q", "--ftgate", "--ftgate-baselines", str(report.parent / "none")]
    command += [
        "-o",
        f"ftgate_launches={rounds}",
        "-o",
        "ftgate_iterations=5",
        "--ftgate-report",
        f"json:{report}",
        example,
    ]
    command += ["-k", "not interpreters and not rust"]  # the write-ups do not have them, and their locks are not timed
    subprocess.run(command, cwd=ROOT, stdout=subprocess.DEVNULL)
    read = json.loads(report.read_text())
    return [row for table in read["tables"] for row in table["rows"]]


def probe_wait(row):
    """Mean wait over all acquisitions in ns: of the probe, and of the workload's own clock in the same launches."""
    launches = [launch for launch in row["sample"]["launches"] if launch.get("role") == "locks"]
    sites = [site for launch in launches for site in launch["locks"]["sites"]]
    waited = sum(
        site["total_ns"] for site in sites if site["waits_for"] == "lock" and "test_shared_set" in site["file"]
    )
    timers = [launch["timers"]["lock_wait"] for launch in launches]
    count = sum(timer["count"] for timer in timers)
    return waited / count, sum(timer["total_ns"] for timer in timers) / count


def compared(label, name, explicit, probe, unit, shown=None):
    """Print one line; True if the ratio is within the limit."""
    ratio = probe / explicit
    far = abs(ratio - 1) > LIMIT
    line = f"{label:20s} {name:10s} script {explicit / unit:9.2f}  probe {probe / unit:9.2f}  ratio {ratio:5.2f}"
    line += "" if shown is None else f"  (the other processes {shown / unit:9.2f})"
    print(line + ("  off" if far else ""), flush=True)
    return not far


def main():
    """Both scenarios, on both builds."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=1.5)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", choices=("memory", "lock"))
    options = parser.parse_args()
    good = []
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        if options.only != "lock":
            print("scenario 1, memory while at work, MiB", flush=True)
            for row in gate(
                "examples/scenario1_overhead/test_overhead.py::test_memory_profile", report, options.rounds
            ):
                good += compare_memory(row, options)
        if options.only != "memory":
            print("scenario 2, mean lock wait, us", flush=True)
            for row in gate("examples/scenario2_shared_set", report, options.rounds):
                good += compare_lock(row, options)
    print(f"{sum(good)} of {len(good)} figures within {LIMIT:.0%}")
    return 0 if all(good) else 1


def mode_of(row):
    executor = row["cell"]["executor"]
    return executor["method"] or executor["kind"]


def label_of(row):
    return row["cell"]["nodeid"].partition("[")[2][:-1]


def held(row, name):
    """The median over launches of the median over samples; USS as psutil has it, with clean pages of files."""
    launches = [launch for launch in row["sample"]["launches"] if launch.get("role") == "memory"]
    return statistics.median(statistics.median(point[name] for point in launch["memory"]) for launch in launches)


def compare_memory(row, options):
    python = shutil.which(f"python{row['cell']['target']['spec']}")
    sides = [script_memory(python, mode_of(row), options.seconds) for _ in range(options.rounds)]
    explicit, ours = (
        {name: statistics.median(side[name] for side in each) for name in NAMES} for each in zip(*sides, strict=True)
    )
    return [
        compared(label_of(row), name, explicit[name], ours[name], 2**20, held(row, f"{name}_bytes")) for name in NAMES
    ]


def free_ns(python):
    """What the workload's own timer shows for a free lock with the probe installed; the minimum of some runs, in ns."""
    with tempfile.TemporaryDirectory() as name:
        home = install_runner(Path(name) / "runner")
        clean = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
        environment = clean | lock_environment(home, Path(name) / "waits")
        done = subprocess.run(
            [python, "-P", "-c", FREE], env=environment, stdout=subprocess.PIPE, check=True, text=True
        )
    return float(done.stdout)


def compare_lock(row, options):
    python = shutil.which(f"python{row['cell']['target']['spec']}")
    waits = [script_lock(python, mode_of(row), row["cell"]["workers"], options.seconds) for _ in range(options.rounds)]
    probe, timer = probe_wait(row)
    return [compared(label_of(row), "wait", timer - free_ns(python), probe, 1e3, statistics.median(waits))]


if __name__ == "__main__":
    os.environ.pop("PYTHONPATH", None)
    raise SystemExit(main())
