"""What forked workers copy of the pages of their parent, by what they do: MiB a worker, of 200 000 objects.

    python benchmarks/probes/unshared.py [--rounds 3] [--workers 2]

Each round makes one launch of each body, on both builds and in random order, with and without `gc.freeze()` in the
parent. `copied` is the metric `unshared` beyond that of a body that does nothing, `own` all that a worker has written
to, beyond the same. Each figure is the median of the rounds. Needs Linux.
"""

from __future__ import annotations

import argparse
import random
import statistics
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import TypeAlias

from pytest_ftgate.measure.launch import Request
from pytest_ftgate.measure.launchers.workload import WorkloadHandle, WorkloadLauncher, install_runner
from pytest_ftgate.model.sample import MemoryPoint
from pytest_ftgate.model.spec import Cell, Executor, Source, Spec, Target, parse_target
from pytest_ftgate.runner.protocol import COLD, WARMUP
from pytest_ftgate.targets.find import find_interpreter

BUILDS = ("3.14", "3.14t")
MIB = 1 << 20
MODULES = "import asyncio, http.server, sqlite3, ssl, unittest.mock, xml.dom.minidom"
NOTHING = "nothing"
BODIES = {
    NOTHING: "pass",
    "uses each object": "assert sum(each['n'] for each in DATA)",
    "changes each tenth": "for each in DATA[::10]: each['n'] = -each['n']",
    "reads an array": "assert sum(NUMBERS)",
    "collects": "gc.collect()",
    "imports": MODULES,
    "makes 200 000 objects": "KEPT or KEPT.extend({'n': number} for number in range(200_000))",
}
PARENTS = {"": "pass", "gc.freeze()": "gc.freeze()", "imported before": MODULES}
CASES = [(body, "") for body in BODIES]
CASES += [(body, "gc.freeze()") for body in ("uses each object", "collects", "makes 200 000 objects")]
CASES += [("imports", "imported before")]
TEST = """
import array
import gc
from pytest_ftgate import ftgate

DATA, KEPT = [], []
NUMBERS = array.array("q")

@ftgate.compare(processes=["fork"])
def test_work(worker):
    {body}

@test_work.shared
def filled(context):
    DATA[:] = [{{"n": number}} for number in range(200_000)]
    NUMBERS.extend(range(1 << 20))
    gc.collect()
    {parent}
"""
Case: TypeAlias = tuple[str, str, str]
"""Build, body, what the parent does before the fork."""


def launched(launcher: WorkloadLauncher, python: str, folder: Path, workers: int, module: str) -> MemoryPoint:
    """The last sample of a launch whose workers are held."""
    executor = Executor(kind="processes", method="fork")
    path = folder / f"{module}.py"
    source = Source(path=str(path), line=1, module=module, qualname="test_work", sys_path=(str(folder),))
    spec = Spec(nodeid="work", source=source, body="worker", executors=(executor,), workers=(workers,), reuse="fresh")
    request = Request(
        cell=Cell(nodeid="work[x]", target=Target(spec="x", request="x"), executor=executor, workers=workers),
        spec=spec,
        python=python,
        role="own",
        expect_gil=not python.endswith("t"),
        environment={},
        hash_seed=random.randrange(1 << 16),
        padding=0,
        timeout_s=60,
    )
    handle = launcher.start(request)
    assert isinstance(handle, WorkloadHandle)
    try:
        handle.ready()
        for kind in (COLD, WARMUP):
            handle.iteration(kind)
        point = handle.measure_held(100_000_000, True, 1e6).memory[-1]
        handle.finish()
    finally:
        handle.kill()
    return point


def measured(rounds: int, workers: int, folder: Path) -> dict[Case, list[tuple[float, float]]]:
    """Case -> MiB a worker in each round: copied pages of the parent, and all that is written to."""
    launcher = WorkloadLauncher(install_runner(folder / "runner"), folder / "launches")
    pythons = {build: find_interpreter(parse_target(build)).executable for build in BUILDS}
    names = {case: f"test_{number}" for number, case in enumerate(CASES)}
    for (body, parent), module in names.items():
        text = TEST.format(body=BODIES[body], parent=PARENTS[parent])
        (folder / f"{module}.py").write_text(text, encoding="utf-8")
    seen = defaultdict[Case, list[tuple[float, float]]](list)
    for number in range(rounds + 1):
        jobs = [(build, *case) for build in BUILDS for case in CASES]
        for build, body, parent in random.sample(jobs, len(jobs)):
            point = launched(launcher, pythons[build], folder, workers, names[body, parent])
            own = point.roles["workers"].written_bytes or 0
            if number:  # the first round compiles
                found = (point.unshared_bytes or 0, own)
                seen[build, body, parent].append((found[0] / workers / MIB, found[1] / workers / MIB))
    return seen


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="ftgate-unshared-") as folder:
        seen = measured(args.rounds, args.workers, Path(folder))
    medians = {case: [statistics.median(each) for each in zip(*found, strict=True)] for case, found in seen.items()}
    print(f"{'a worker':<26} {'its parent':<16} " + " ".join(f"{each:>7} copied    own" for each in BUILDS))
    for body, parent in CASES:
        row = f"{body:<26} {parent:<16} "
        for build in BUILDS:
            floor = medians[build, NOTHING, ""] if body != NOTHING else [0.0, 0.0]
            copied, own = (each - less for each, less in zip(medians[build, body, parent], floor, strict=True))
            row += f"{copied:>14.1f} {own:>6.1f} "
        print(row.rstrip())


if __name__ == "__main__":
    main()
