"""The environment of a cell in real launches: its variables, in the measured process and in its workers."""

from __future__ import annotations

from bench import FORK, FORKSERVER, INTERPRETERS, SERIAL, SPAWN, TASKS, THREADS, Bench, each_on_a_build

from pytest_ftgate.model import Executor
from pytest_ftgate.runner.protocol import CHECK

ALL = (SERIAL, THREADS, FORK, FORKSERVER, SPAWN, INTERPRETERS, TASKS)


@each_on_a_build(ALL)
def test_variables_are_set_before_the_interpreter_starts(bench: Bench, executor: Executor, build: str) -> None:
    path = bench.write("""
        import os

        AT_IMPORT = os.environ.get("OMP_NUM_THREADS")

        @ftgate.compare(threads)
        def test_it(worker):
            return [AT_IMPORT, *(os.environ[name] for name in ("OMP_NUM_THREADS", "PLACE"))]

        @test_it.variant(tasks)
        async def as_task(worker):
            return test_it(worker)
    """)
    variables = (("OMP_NUM_THREADS", "{workers}"), ("PLACE", "{folder}:{unknown}"))
    handle = bench.start(executor, build=build, variables=variables)
    handle.ready()
    handle.iteration(CHECK)
    assert handle.finish().results == ("; ".join([repr(["2", "2", f"{path.parent}:{{unknown}}"])] * 2),)
