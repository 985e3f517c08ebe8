"""How often an explanation names a function whose time did not change: real pairs of launches, threads, both builds.

    python benchmarks/probes/functions.py [--pairs 30] [--build 3.14 --build 3.14t]

Each round starts three profile launches in random order: of the workload, of the same workload again, and of the
workload whose function `scan` does three times as much. Before that, timing launches of the three are interleaved; each
round draws five of them for the time of the work. Prints in how many rounds a function was named between the two that
are alike, whether `scan` was named between those that are not, and which others were. A caller of `scan` is none of
those.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from collections import Counter
from pathlib import Path

import msgspec

from pytest_ftgate.judge.explain import added_time, slower_functions
from pytest_ftgate.measure.launch import LaunchRole, Request
from pytest_ftgate.measure.launchers.workload import WorkloadHandle, WorkloadLauncher, install_runner
from pytest_ftgate.model.sample import Launch, Profile, Sample
from pytest_ftgate.model.spec import Cell, Executor, Source, Spec, Target, parse_target
from pytest_ftgate.runner.protocol import COLD, MEASURED, WARMUP
from pytest_ftgate.targets.find import find_interpreter

BUILDS = ("3.14", "3.14t")
SIDES = ("reference", "same", "slower")
TIMED, DRAWN = 10, 5
TURNS = 10
WORK_NS = 1_000_000_000
WORKERS = 2
WORKLOAD = """
import json
from pytest_ftgate import ftgate, threads

WORDS = "the quick brown fox jumps over the lazy dog ".split() * 30

def scan():
    return [word[::-1].upper().split("O") for _ in range(SCANS) for word in WORDS]

def write():
    return json.dumps(dict.fromkeys(WORDS, list(range(200))))

def read(text):
    return [json.loads(text) for _ in range(10)]

def count():
    found = {}
    for _ in range(8):
        for word in WORDS:
            found[word] = found.get(word, 0) + 1
    return found

def order():
    return [sorted(WORDS, key=len) for _ in range(8)]

@ftgate.compare(threads)
def test_work(worker):
    scan()
    read(write())
    count()
    order()
"""


def request(folder: Path, build: str, role: LaunchRole, seed: int) -> Request:
    """A launch of the workload in a folder; the sides of a pair have the same seed, as in the product."""
    interpreter = find_interpreter(parse_target(build))
    assert interpreter is not None
    executor = Executor(kind="threads")
    source = Source(
        path=str(folder / "test_work.py"), line=1, module="test_work", qualname="test_work", sys_path=(str(folder),)
    )
    spec = Spec(nodeid="work", source=source, body="worker", executors=(executor,), workers=(WORKERS,), reuse="fresh")
    cell = Cell(nodeid="work[x]", target=Target(spec=build, request=build), executor=executor, workers=WORKERS)
    return Request(
        cell=cell,
        spec=spec,
        python=interpreter.executable,
        role=role,
        expect_gil=build == "3.14",
        environment={},
        hash_seed=seed,
        padding=seed % (1 << 12),
        timeout_s=60,
        sampling_ns=1_000_000,
    )


def started(launcher: WorkloadLauncher, one: Request) -> WorkloadHandle:
    """A launch that has had its first iterations."""
    handle = launcher.start(one)
    assert isinstance(handle, WorkloadHandle)
    handle.ready()
    handle.iteration(COLD)
    handle.iteration(WARMUP)
    return handle


def timed(launcher: WorkloadLauncher, folder: Path, build: str, order: int) -> dict[str, Launch]:
    """A timing launch of each side, interleaved."""
    seed = random.randrange(1 << 16)
    handles = {side: started(launcher, request(folder / side, build, "own", seed)) for side in SIDES}
    for _ in range(TURNS):
        for side in random.sample(SIDES, len(SIDES)):
            handles[side].iteration(MEASURED)
    return {side: msgspec.structs.replace(handle.finish(), order=order) for side, handle in handles.items()}


def profiled(launcher: WorkloadLauncher, folder: Path, build: str, seed: int) -> Profile:
    """The samples of about WORK_NS of work."""
    handle = started(launcher, request(folder, build, "profile", seed))
    work_ns = 0
    while work_ns < WORK_NS:
        work_ns += max(1, handle.iteration(MEASURED).work_ns)
    profile = handle.finish().profile
    assert profile is not None
    replace = msgspec.structs.replace
    return replace(profile, functions=tuple(replace(each, file=Path(each.file).name) for each in profile.functions))


def named(profiles: dict[str, Profile], launches: list[dict[str, Launch]], after: str, build: str) -> list[str] | None:
    """The functions named after the reference; None where the work takes no more time, which names none."""
    interpreter = find_interpreter(parse_target(build))
    assert interpreter is not None
    cell = Cell(
        nodeid="x", target=Target(spec=build, request=build), executor=Executor(kind="threads"), workers=WORKERS
    )
    sides = [
        Sample(cell=cell, interpreter=interpreter, key="", all_launches=tuple(each[side] for each in launches))
        for side in ("reference", after)
    ]
    time = added_time(sides[1], sides[0])
    assert time is not None
    found = slower_functions(profiles["reference"], profiles[after], time)
    grew = time.grew or after == "same"  # the samples alone are put to the test where nothing changed
    return [each.name for each in found.parts] if grew else None


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--pairs", type=int, default=30)
    parser.add_argument("--build", action="append")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        for side in SIDES:
            (folder / side).mkdir()
            source = WORKLOAD.replace("SCANS", "12" if side == "slower" else "4")
            (folder / side / "test_work.py").write_text(source, encoding="utf-8")
        launcher = WorkloadLauncher(install_runner(folder), folder / "launches")
        for build in options.build or BUILDS:
            began = time.monotonic()
            launches = [timed(launcher, folder, build, order) for order in range(TIMED)]
            alike, others, scans, grew = Counter[str](), Counter[str](), 0, 0
            wrong = [0, 0]
            for _ in range(options.pairs):
                sides, seed = random.sample(SIDES, len(SIDES)), random.randrange(1 << 16)
                profiles = {side: profiled(launcher, folder / side, build, seed) for side in sides}
                drawn = random.sample(launches, DRAWN)
                same, slower = (named(profiles, drawn, side, build) for side in SIDES[1:])
                alike.update(same or ())
                grew += slower is not None
                scans += "scan" in (slower or ())
                extra = set(slower or ()) - {"scan", "test_work"}
                others.update(extra)
                wrong = [wrong[0] + bool(same), wrong[1] + bool(extra)]
            print(
                f"{build}: {options.pairs} pairs in {time.monotonic() - began:.0f} s; nothing changed: {wrong[0]} "
                f"named {dict(alike)}; `scan` slower: the work took longer in {grew}, `scan` named in {scans}, "
                f"another in {wrong[1]} {dict(others)}",
                flush=True,
            )


if __name__ == "__main__":
    main()
