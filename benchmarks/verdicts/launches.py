"""Launches of workloads that a script holds as text."""

from __future__ import annotations

import random
from functools import cache
from pathlib import Path

from pytest_ftgate.measure.launch import Request
from pytest_ftgate.measure.launchers.workload import WorkloadLauncher, install_runner
from pytest_ftgate.model.spec import Cell, Executor, Param, Source, Spec, parse_target
from pytest_ftgate.targets.describe import environment_variables
from pytest_ftgate.targets.find import find_interpreter

WORKERS = 2
WORK = """
from pytest_ftgate import ftgate, threads

def work(rounds):
    x = 0x12345678
    for _ in range(rounds):
        x = (x * 1103515245 + 12345) & 0xFFFFFFFF
        x ^= x >> 16
    return x
"""
"""What a workload begins with: a body that computes for so many rounds."""


class Workloads:
    """The tests of a module, and what starts launches of them."""

    def __init__(self, folder: Path, source: str) -> None:
        self.path = folder / "workload.py"
        self.path.write_text(source, encoding="utf-8")
        self.launcher = WorkloadLauncher(install_runner(folder / "runner"), folder / "launches")
        self.draw()

    def draw(self) -> None:
        """Begin a round: its launches share a hash seed and a padding, as in the product."""
        self.hash_seed, self.padding = random.randrange(1, 2**32), random.randrange(4096)

    def request(
        self,
        test: str,
        build: str,
        executor: Executor,
        params: tuple[Param, ...] = (),
    ) -> Request:
        """A launch of a test in two fresh workers."""
        target = parse_target(build)
        where = Source(
            path=str(self.path), line=1, module=self.path.stem, qualname=test, sys_path=(str(self.path.parent),)
        )
        spec = Spec(nodeid=test, source=where, body="worker", executors=(executor,), workers=(WORKERS,), reuse="fresh")
        nodeid = f"{test}[{build}-{executor.label}-w{WORKERS}]"
        return Request(
            cell=Cell(nodeid=nodeid, target=target, executor=executor, workers=WORKERS, params=params),
            spec=spec,
            python=executable(build),
            role="own",
            expect_gil=not build.endswith("t"),
            environment=environment_variables(target.settings),
            hash_seed=self.hash_seed,
            padding=self.padding,
            timeout_s=60.0,
        )


@cache
def executable(build: str) -> str:
    """The interpreter of a target."""
    return find_interpreter(parse_target(build)).executable
