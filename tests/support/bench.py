"""What all tests share: the two interpreters, found as the plugin finds them, and a place to write workloads."""

from __future__ import annotations

import atexit
import functools
import shutil
import tempfile
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec
import pytest

from pytest_ftgate.measure.launch import LaunchRole, Request, StoppableHandle
from pytest_ftgate.measure.launchers.workload import WorkloadLauncher, install_runner
from pytest_ftgate.model.spec import (
    BodyKind,
    Cell,
    Environment,
    Executor,
    Param,
    RoleCounts,
    Settings,
    Source,
    Spec,
    Target,
)
from pytest_ftgate.runner.protocol import CHECK
from pytest_ftgate.targets.describe import environment_variables

BUILDS = ("3.14", "3.14t")
SERIAL = Executor(kind="serial")
THREADS = Executor(kind="threads")
FORK = Executor(kind="processes", method="fork")
FORKSERVER = Executor(kind="processes", method="forkserver")
SPAWN = Executor(kind="processes", method="spawn")
INTERPRETERS = Executor(kind="interpreters")
TASKS = Executor(kind="tasks")


def each_on_a_build(executors: Sequence[Executor], *, both: Sequence[Executor] = (THREADS,)) -> pytest.MarkDecorator:
    """`executor` and `build`: the builds in turn, as each executor does the same on both; those of `both` on both."""
    pairs = [
        pytest.param(executor, build, id=f"{executor.label}-{build}")
        for number, executor in enumerate(executors)
        for build in (BUILDS if executor in both else (BUILDS[number % 2],))
    ]
    return pytest.mark.parametrize(("executor", "build"), pairs)


@functools.cache
def runner_home() -> Path:
    """The runner's copy that every launch of these tests shares: what it imports is compiled once."""
    folder = Path(tempfile.mkdtemp(prefix="ftgate-tests-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return install_runner(folder)


class Bench:
    """Writes a workload and starts real launches of it."""

    def __init__(self, folder: Path, executables: dict[str, str]) -> None:
        self.folder = folder
        self.executables = executables
        self.launcher = WorkloadLauncher(runner_home(), folder / ".ftgate" / "launches")
        self.started: list[StoppableHandle] = []

    def write(self, source: str, name: str = "test_workload.py") -> Path:
        """The workload's module; imports of the plugin are added."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        head = "from pytest_ftgate import ftgate, threads, processes, serial, interpreters, tasks\n"
        path.write_text(head + textwrap.dedent(source), encoding="utf-8")
        return path

    def start(
        self,
        executor: Executor,
        *,
        build: str = "3.14",
        test: str = "test_it",
        body: BodyKind = "worker",
        workers: int = 2,
        reuse: str = "fresh",
        side: LaunchRole = "own",
        settings: Settings = Settings(),
        params: tuple[Param, ...] = (),
        timeout_s: float = 30.0,
        expect_gil: bool | None = None,
        module: str = "test_workload",
        import_mode: str = "prepend",
        sys_path: tuple[str, ...] | None = None,
        reads: str = "",
        sampling_ns: int = 1_000_000,
        observers: tuple[str, ...] = (),
        loads: Literal["lines", "imports"] = "lines",
        one_call: bool = False,
        roles: RoleCounts = (),
        variables: tuple[tuple[str, str], ...] = (),
        pin: bool = False,
    ) -> StoppableHandle:
        """A launch that is told what to do by the test; it is ended with the test."""
        path = self.folder / (module.replace(".", "/") + ".py")
        source = Source(
            path=str(path),
            line=1,
            module=module,
            qualname=test,
            import_mode=import_mode,
            sys_path=(str(self.folder),) if sys_path is None else sys_path,
        )
        spec = Spec(nodeid=test, source=source, body=body, executors=(executor,), workers=(workers,), reuse=reuse)  # type: ignore[arg-type]
        spec = msgspec.structs.replace(spec, pin=pin, one_call=one_call)
        target = Target(spec=build, request=build, settings=settings)
        cell = Cell(nodeid=f"{test}[x]", target=target, executor=executor, workers=workers, params=params, body=body)
        cell = msgspec.structs.replace(cell, environment=Environment(variables=variables))
        if roles:
            cell = msgspec.structs.replace(cell, workers=sum(count for _, count in roles), roles=roles)
        request = Request(
            cell=cell,
            spec=spec,
            python=self.executables[build],
            role=side,
            expect_gil=build == "3.14" if expect_gil is None else expect_gil,
            environment=environment_variables(settings),
            hash_seed=7,
            padding=100,
            timeout_s=timeout_s,
            reads=reads,
            sampling_ns=sampling_ns,
            observers=observers,
            loads=loads,
        )
        handle = self.launcher.start(request)
        self.started.append(handle)
        return handle

    def ready(self, executor: Executor, **options: Any) -> StoppableHandle:
        """A launch, as `start` makes it, that has imported its workload."""
        handle = self.start(executor, **options)
        handle.ready()
        return handle

    def results(self, executor: Executor, **options: Any) -> tuple[str, ...]:
        """The results of a launch whose one iteration is checked."""
        handle = self.ready(executor, **options)
        handle.iteration(CHECK)
        return handle.finish().results
