"""Waits at one lock, recorded by the probe in real threads, processes and tasks, against queueing theory."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from bench import BUILDS
from lock_script import ONE_ASYNCIO_LOCK, PROCESSES_HEAD, Script, brief

from physical import confirm
from pytest_ftgate.stats.histogram import percentile

HOLD_NS = 20e6

THREADS_LOCK = """
import threading, time
lock = threading.KIND()
gate = threading.Barrier(4)
held = []

def worker():
    for _ in range(3):
        gate.wait()
        with lock:
            start = time.perf_counter_ns()
            time.sleep(0.04)
            held.append(time.perf_counter_ns() - start)

threads = [threading.Thread(target=worker) for _ in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(*held)
"""


def in_theory(held_ns: list[int]) -> list[int]:
    """The waits of four that come at once, round by round: of the second, the third and the fourth to be served."""
    rounds = [held_ns[first : first + 4] for first in range(0, len(held_ns), 4)]
    return sorted(sum(holds[:before]) for holds in rounds for before in (1, 2, 3))


@pytest.mark.parametrize(
    ("build", "kind", "waits_for"),
    [
        ("3.14", "Lock", "lock"),
        ("3.14", "RLock", "lock"),
        ("3.14t", "Condition", "lock"),
        ("3.14", "Semaphore", "queue"),
        ("3.14t", "BoundedSemaphore", "queue"),
    ],
)
def test_threads_wait_for_a_lock_what_queueing_theory_says(
    tmp_path: Path, executables: dict[str, str], build: str, kind: str, waits_for: str
) -> None:
    """Four that come at once wait 0, h, 2h and 3h, whatever their order: 6h a round, with a median of 2h."""
    script = Script(tmp_path, THREADS_LOCK.replace("KIND", kind))

    def sample() -> None:
        sites = {site.line: site for site in script.run(executables[build])}
        site, barrier = (sites.pop(script.line(text)) for text in ("lock =", "gate ="))
        assert not sites
        assert (site.kind, site.waits_for) == (kind, waits_for)
        assert (barrier.kind, barrier.waits_for, barrier.contended) == ("Barrier", "queue", 9)
        assert sum(site.histogram.values()) == site.contended
        waits_ns = in_theory([int(held_ns) for held_ns in script.said.split()])
        # One may come so late from the barrier that it finds the lock free.
        assert site.contended == len(waits_ns)
        found = (
            site.total_ns / sum(waits_ns),
            percentile(site.histogram, 0.5) / waits_ns[4],
            site.max_ns / waits_ns[-1],
        )
        assert all(0.9 < ratio < 1.1 for ratio in found), found

    confirm(sample)


PROCESSES_LOCK = (
    PROCESSES_HEAD
    + """
    def hold(lock, go, out):
        for _ in range(3):
            go.wait()
            came = time.monotonic_ns()
            with lock:
                began = time.monotonic_ns()
                time.sleep(0.02)
                held = time.monotonic_ns() - began
            out.put((began, came, held, os.getpid()))

    def main(ctx):
        lock = ctx.Lock()
        out = ctx.SimpleQueue()
        run(ctx, hold, lock, ctx.Barrier(4), out, count=4)
        print(json.dumps(sorted(out.get() for _ in range(12))))

    start()
"""
)


def queued(visits: list[list[float]]) -> float:
    """The sum of the waits at one lock, in the unit of the input: of each visit (arrival, time held), as served.

    Queueing theory's single server: it is free again when the one before has left.
    """
    free = waits = 0.0
    for arrival, held in visits:
        start = max(arrival, free)
        waits += start - arrival
        free = start + held
    return waits


@pytest.mark.parametrize(("build", "method"), [("3.14", "fork"), ("3.14t", "forkserver"), ("3.14", "spawn")])
def test_processes_wait_for_a_lock_what_queueing_theory_says(
    tmp_path: Path, executables: dict[str, str], build: str, method: str
) -> None:
    script = Script(tmp_path, PROCESSES_LOCK)

    def sample() -> None:
        sites = script.run(executables[build], method)
        lock = next(site for site in sites if site.waits_for == "lock")
        assert (lock.line, lock.kind) == (script.line("ctx.Lock()"), "multiprocessing.Lock")
        assert {site.kind for site in sites if site is not lock} <= {"multiprocessing.Barrier"}
        visits = json.loads(script.said)
        assert {pid for *_, pid in visits} <= script.processes()
        expected_ns = queued([[came, held] for _, came, held, _ in visits])
        assert expected_ns > 3 * (1 + 2 + 3) * 0.8 * HOLD_NS
        assert lock.total_ns == pytest.approx(expected_ns, rel=0.1)

    confirm(sample)


@pytest.mark.parametrize("build", BUILDS)
def test_tasks_wait_for_a_lock_what_queueing_theory_says(
    tmp_path: Path, executables: dict[str, str], build: str
) -> None:
    script = Script(tmp_path, ONE_ASYNCIO_LOCK)

    def sample() -> None:
        (site,) = script.run(executables[build])
        assert brief((site,)) == {(script.line("asyncio.Lock()"), "asyncio.Lock", "lock")}
        assert site.contended == sum(site.histogram.values()) == 3
        expected_ns = queued(json.loads(script.said))
        assert expected_ns > (1 + 2 + 3) * 0.9 * HOLD_NS
        assert site.total_ns == pytest.approx(expected_ns, rel=0.1)

    confirm(sample)
