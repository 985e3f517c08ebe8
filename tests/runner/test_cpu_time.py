"""CPU time of an iteration: of every process of the launch, by its own clock."""

from __future__ import annotations

import time

import pytest
from bench import BUILDS, FORK, FORKSERVER, SERIAL, TASKS, THREADS, Bench, each_on_a_build

from pytest_ftgate.model.spec import Executor

MS = 1_000_000
BURN = """
    import os, pathlib, subprocess, sys, time

    def burn(seconds=0.05):
        ends = time.process_time() + seconds
        while time.process_time() < ends:
            pass
"""


def clock_ns(pid: int) -> int:
    """The process's clock, as its own `time.process_time_ns` has it."""
    return time.clock_gettime_ns((~pid << 3) | 2)


@each_on_a_build([THREADS, FORK, FORKSERVER], both=[THREADS, FORK])
def test_a_manager_counts_though_its_threads_end_with_the_workers(bench: Bench, executor: Executor, build: str) -> None:
    bench.write(
        BURN
        + """
    from multiprocessing.managers import BaseManager

    class Server(BaseManager):
        pass

    class Burner:
        def burn(self):
            burn()

        def pid(self):
            return os.getpid()

    Server.register("Burner", Burner)

    @ftgate.compare(threads, processes=["fork"])
    def test_it(worker):
        worker.shared.burn()

    @test_it.shared
    def shared(_):
        global server
        server = Server()
        server.start()
        burner = server.Burner()
        pathlib.Path(__file__).with_name("pid").write_text(str(burner.pid()))
        return burner
    """
    )
    handle = bench.ready(executor, build=build)
    manager = int((bench.folder / "pid").read_text())
    for _ in range(2):
        before = clock_ns(manager)
        iteration = handle.iteration("measured")
        spent_ns = clock_ns(manager) - before
        assert spent_ns >= 50 * MS  # of the process, whose two threads may burn at the same time
        assert iteration.cpu_ns >= 0.98 * spent_ns
        if executor is THREADS:  # a process that starts takes its time too
            assert iteration.cpu_ns <= spent_ns + 50 * MS


IN_PROGRAM = "import os, sys, time\\nwhile time.process_time() < 0.1: pass\\nprint(flush=True)\\n"
OTHERS = {
    "programs": 'subprocess.run([sys.executable, "-c", SCRIPT], check=True)',
    "a pool of its own": "list(futures.ProcessPoolExecutor(2).map(burn, [0.1]))",
    "a process that goes on": """
        kept.append(subprocess.Popen([sys.executable, "-c", SCRIPT + "sys.stdin.read()"], stdin=-1, stdout=-1))
        kept[-1].stdout.readline()""",
}


@pytest.mark.parametrize(
    ("executor", "what"),
    [
        *((executor, what) for executor in (SERIAL, THREADS, TASKS) for what in OTHERS),
        (FORK, "programs"),
    ],
    ids=lambda each: each if isinstance(each, str) else each.label,
)
def test_whatever_a_workload_starts_counts(bench: Bench, executor: Executor, what: str) -> None:
    bench.write(
        BURN
        + f"""
    from concurrent import futures
    kept = []
    SCRIPT = "{IN_PROGRAM}"

    @ftgate.compare(serial)
    {"async " if executor is TASKS else ""}def test_it(worker):
        {OTHERS[what]}
    """
    )
    handle = bench.ready(executor, workers=1, build=BUILDS[1] if executor is THREADS else BUILDS[0])
    for _ in range(2):
        assert handle.iteration("measured").cpu_ns >= 90 * MS


def test_an_iteration_that_only_waits_has_next_to_none(bench: Bench) -> None:
    bench.write(
        """
    import subprocess, sys, time
    kept = subprocess.Popen([sys.executable, "-c", "while True: pass"])

    @ftgate.compare(serial)
    def test_it(worker):
        kept.kill()
        kept.wait()
        time.sleep(0.1)
    """
    )
    handle = bench.ready(SERIAL, workers=1)
    time.sleep(0.3)
    handle.iteration("warmup")
    assert handle.iteration("measured").cpu_ns < 20 * MS
