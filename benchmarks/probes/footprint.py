"""What a measured process has beyond the same workload in a plain script: written memory.

    python benchmarks/probes/footprint.py [--rounds 10] [--workers 2]

Each round starts, on both builds and in random order: a plain script that imports the workload and runs it in threads,
a launch of the runner, and a launch with the lock probe, which the start hook installs. Written memory (private dirty
pages) is read while all workers wait after their call and a garbage collection. Each figure is the median of the
rounds. Needs Linux.
"""

from __future__ import annotations

import argparse
import random
import statistics
import subprocess
import tempfile
from pathlib import Path

from pytest_ftgate.measure.launch import LaunchRole, Request
from pytest_ftgate.measure.launchers.workload import WorkloadHandle, WorkloadLauncher, install_runner
from pytest_ftgate.measure.process_map import ProcessMap
from pytest_ftgate.measure.watch.memory import barrier_point
from pytest_ftgate.model.spec import Cell, Executor, Source, Spec, Target, parse_target
from pytest_ftgate.targets.find import find_interpreter

BUILDS = ("3.14", "3.14t")
WORK = "def work():\n    return [number for number in range(1000)]\n"
PLAIN = """
import gc, sys, threading
import plain_work
print("ready", flush=True)
sys.stdin.readline()
workers = int(sys.argv[1])
end, done = threading.Event(), threading.Barrier(workers + 1)
def worker():
    plain_work.work()
    done.wait()
    end.wait()
threads = [threading.Thread(target=worker) for _ in range(workers)]
for thread in threads: thread.start()
done.wait()
gc.collect()
print("at the barrier", flush=True)
sys.stdin.readline()
end.set()
"""
TEST = "from pytest_ftgate import ftgate, threads\n\n\n@ftgate.compare(threads)\ndef test_work(worker):\n"


def plain(python: str, folder: Path, workers: int) -> int:
    """The plain script."""
    words = [python, "-s", str(folder / "plain.py"), str(workers)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdout.readline()
        process.stdin.write("\n")
        process.stdin.flush()
        process.stdout.readline()
        point = barrier_point(ProcessMap(main=process.pid))
        process.stdin.write("\n")
    return point.written_bytes or 0


def launched(launcher: WorkloadLauncher, python: str, folder: Path, workers: int, role: LaunchRole) -> int:
    """A launch of the runner."""
    executor = Executor(kind="threads")
    source = Source(
        path=str(folder / "test_work.py"),
        line=1,
        module="test_work",
        qualname="test_work",
        sys_path=(str(folder),),
    )
    spec = Spec(nodeid="work", source=source, body="worker", executors=(executor,), workers=(workers,), reuse="fresh")
    cell = Cell(nodeid="work[x]", target=Target(spec="x", request="x"), executor=executor, workers=workers)
    request = Request(
        cell=cell,
        spec=spec,
        python=python,
        role=role,
        expect_gil=True,
        environment={},
        hash_seed=random.randrange(1 << 16),
        padding=0,
        timeout_s=60,
    )
    handle = launcher.start(request)
    assert isinstance(handle, WorkloadHandle)
    try:
        handle.ready()
        written = handle.barrier(1, 0, collects=True).point.written_bytes or 0
        handle.finish()
    finally:
        handle.kill()
    return written


def measured(rounds: int, workers: int, folder: Path) -> dict[tuple[str, str], list[int]]:
    """(build, kind of process) -> the bytes of each round."""
    (folder / "plain.py").write_text(PLAIN, encoding="utf-8")
    (folder / "plain_work.py").write_text(WORK, encoding="utf-8")
    (folder / "test_work.py").write_text(TEST + WORK.partition("\n")[2], encoding="utf-8")
    launcher = WorkloadLauncher(install_runner(folder / "runner"), folder / "launches")
    pythons = {build: find_interpreter(parse_target(build)).executable for build in BUILDS}
    seen: dict[tuple[str, str], list[int]] = {}
    for number in range(rounds + 1):
        jobs = [(build, kind) for build in BUILDS for kind in ("plain", "own", "locks")]
        for build, kind in random.sample(jobs, len(jobs)):
            python = pythons[build]
            if kind == "plain":
                one = plain(python, folder, workers)
            else:
                one = launched(launcher, python, folder, workers, "locks" if kind == "locks" else "own")
            if number:  # the first round compiles
                seen.setdefault((build, kind), []).append(one)
    return seen


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="ftgate-footprint-") as folder:
        seen = measured(args.rounds, args.workers, Path(folder))
    print(f"{'':<7} {'':<26} {'memory':>11} {'more':>11}")
    names = {"plain": "plain script", "own": "launch", "locks": "launch with start hook"}
    for build in BUILDS:
        bare = statistics.median(seen[build, "plain"]) / 2**20
        for kind, name in names.items():
            mib = statistics.median(seen[build, kind]) / 2**20
            print(f"{build:<7} {name:<26} {mib:>7.2f} MiB {mib - bare:>7.2f} MiB")


if __name__ == "__main__":
    main()
