"""How much unchanged code grows from one iteration to the next, and what its floor makes of that.

    python benchmarks/probes/growth.py [--rounds 6]

Each round starts a launch of each body under each executor and build, in random order, as a growth launch is measured.
For each it prints the growth of each launch in KiB. Then 60 comparisons of 12 pairs are drawn for each from its own
launches, and for the leak against those of the first body: how many regressed, and after how many pairs. Needs Linux.
"""

from __future__ import annotations

import argparse
import random
import tempfile
from collections import Counter
from pathlib import Path

from pytest_ftgate.judge import decide, metrics, readers
from pytest_ftgate.kit.values import Metric
from pytest_ftgate.measure.launch import Request
from pytest_ftgate.measure.launchers.workload import WorkloadLauncher, install_runner
from pytest_ftgate.model.sample import Launch
from pytest_ftgate.model.spec import Cell, Executor, Source, Spec, Target, parse_target
from pytest_ftgate.model.verdict import Comparison
from pytest_ftgate.targets.find import find_interpreter

FORK, SPAWN = (Executor(kind="processes", method=method) for method in ("fork", "spawn"))
SERIAL, THREADS, INTERPRETERS = (Executor(kind=kind) for kind in ("serial", "threads", "interpreters"))
CELLS = [(executor, build) for executor in (THREADS, FORK) for build in ("3.14", "3.14t")]
CELLS += [(SERIAL, "3.14t"), (SPAWN, "3.14"), (INTERPRETERS, "3.14")]
HEAD = """
import collections, functools, json, logging, random, re, threading, traceback, zlib
from pytest_ftgate import ftgate, threads

class Node:
    def __init__(self): self.me = self

@functools.lru_cache(256)
def cached(n): return str(n) * 50

CACHE, HELD, RING = {}, [], collections.deque(maxlen=500)
LOG = logging.getLogger("growth")
LOG.setLevel(20)
LOG.propagate = False
LOG.addHandler(logging.StreamHandler(open("/dev/null", "w")))

def failing(n):
    try: int("x" * n)
    except ValueError: traceback.format_exc()

def knot():
    node = Node()
    node.ballast = bytearray(50_000)

def threaded():
    started = [threading.Thread(target=sum, args=(range(1000),)) for _ in range(4)]
    for thread in started: thread.start()
    for thread in started: thread.join()

@ftgate.compare(threads)
def empty(worker): pass
"""
BODIES = {
    "arithmetic": "sum(i * i for i in range(20_000))",
    "dicts": "[{'n': i} for i in range(20_000)]",
    "cycles": "[Node() for _ in range(500)]",
    "large cycles": "[knot() for _ in range(20)]",
    "buffers": "[bytearray(size) and None for size in range(1000, 400_000, 20_000)]",
    "strings": "re.findall('[0-9]{3}', ''.join(str(i) for i in range(3000)))",
    "lru_cache": "[cached(random.randrange(1000)) for _ in range(500)]",
    "json": "json.loads(json.dumps([{'a': i, 'b': [i] * 5, 'c': str(i)} for i in range(500)]))",
    "cache of 2000": "CACHE.update({(random.randrange(2000), worker.index): [0] * 50 for _ in range(300)})",
    "exceptions": "[failing(n) for n in range(100)]",
    "logging": "[LOG.info('number %s of %s', n, worker.index) for n in range(200)]",
    "ring of 500": "RING.extend(bytes(random.randrange(2000)) for _ in range(300))",
    "threads": "threaded()",
    "zlib": "zlib.decompress(zlib.compress(b'abcdefgh' * 20_000))",
    "leak": "HELD.append(bytearray(16 << 10))",
}


def grown(launcher: WorkloadLauncher, python: str, cell: tuple[Executor, str], body: str, folder: Path) -> Launch:
    """The barriers of a growth launch."""
    executor, build = cell
    source = Source(path=str(folder / "bodies.py"), line=1, module="bodies", qualname=body, sys_path=(str(folder),))
    spec = Spec(nodeid="work", source=source, body="worker", executors=(executor,), workers=(2,), reuse="pool")
    request = Request(
        cell=Cell(nodeid="work[x]", target=Target(spec="x", request="x"), executor=executor, workers=2),
        spec=spec,
        python=python,
        role="own",
        expect_gil=build == "3.14",
        environment={},
        hash_seed=random.randrange(1 << 16),
        padding=0,
        timeout_s=60,
        settled=build == "3.14t",
    )
    handle = launcher.start(request)
    try:
        handle.ready()
        settling = 4
        if build == "3.14":  # after what else a memory launch shows
            for _ in range(3):
                handle.barrier(1, 0)
            handle.measure_held(100_000_000, True)
            settling = 1
        barriers = [handle.barrier(1, 0, collects=True) for _ in range(settling + 8)][settling:]
        handle.finish()
    finally:
        handle.kill()
    return Launch(role="growth", barriers=tuple(barriers))


def compared(new: list[float], reference: list[float]) -> tuple[str, int]:
    """The decision on pairs that are drawn from these launches, and the pairs that it took."""
    sides = [tuple(random.choices(side, k=12)) for side in (new, reference)]
    limits = metrics.row(Metric.GROWTH).paired
    verdict = decide.by_pairs(
        Comparison(
            metric=Metric.GROWTH, new=sides[0], reference=sides[1], unit="bytes", limits=limits, alpha=0.002, beta=0.05
        )
    )
    return verdict.decision, verdict.launches


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=6)
    args = parser.parse_args()
    pythons = {build: find_interpreter(parse_target(build)).executable for build in ("3.14", "3.14t")}
    found: dict[tuple[str, str, str], list[float]] = {}
    with tempfile.TemporaryDirectory(prefix="ftgate-growth-") as name:
        folder, names = Path(name), {body: f"body_{at}" for at, body in enumerate(BODIES)}
        tests = (f"@ftgate.compare(threads)\ndef {names[body]}(worker): {text}\n" for body, text in BODIES.items())
        (folder / "bodies.py").write_text(HEAD + "\n".join(tests), encoding="utf-8")
        launcher = WorkloadLauncher(install_runner(folder / "runner"), folder / "launches")
        floors = {cell: grown(launcher, pythons[cell[1]], cell, "empty", folder) for cell in CELLS}
        for _ in range(args.rounds):
            jobs = [(cell, body) for cell in CELLS for body in BODIES]
            for cell, body in random.sample(jobs, len(jobs)):
                slope = readers.growth([grown(launcher, pythons[cell[1]], cell, names[body], folder)], [floors[cell]])
                key = cell[0].label, cell[1], body
                found.setdefault(key, []).append(max(0.0, slope.value) if slope else 0.0)
    for key, values in sorted(found.items()):
        print(f"{' '.join(key):<36}", *(f"{value / 1024:6.1f}" for value in values))
    for leaks in (False, True):
        decisions = [
            compared(values, found[(*key[:2], "arithmetic")] if leaks else values)
            for key, values in found.items()
            for _ in range(60)
            if (key[2] == "leak") == leaks
        ]
        print("the leak:" if leaks else "unchanged:", dict(Counter(each for each, _ in decisions)), end=", pairs ")
        print(dict(sorted(Counter(pairs for _, pairs in decisions).items())))


if __name__ == "__main__":
    main()
