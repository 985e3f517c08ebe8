"""Which launcher starts what: the runner's for workloads in Python, programs and servers by their own."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import msgspec

from ...model.spec import Cell, Environment, Executor, Spec
from ..launch import Handle, Launcher, Request
from .command import CommandLauncher
from .programs import missing, which
from .server import ServerLauncher, generators_for
from .workload import WorkloadLauncher

CONTROL = Executor(kind="threads")
"""What runs the standard candle beside a program, which is under no executor of ours."""
IN_ENVIRONMENTS: Final = re.compile(r"^$|\b(?:pip|uv)\b")
"""Commands of `programs=` that may install into an environment what the project or `packages=` install anyway."""


def missing_programs(cell: Cell, spec: Spec) -> str:
    """The programs that a cell needs on PATH and are not there, with the command that installs each; else empty.

    Known before the cell's environment is made: what that may bring is looked for by the launch.
    """
    if cell.executor.program is None:
        return ""
    needs = [(program, command) for program, command in spec.programs if not IN_ENVIRONMENTS.search(command)]
    generators = generators_for(spec.service.load.generator) if spec.service else {}
    if not any(which(name, "") for name in generators):
        needs += list(generators.items())[:1]
    return missing(needs)


class Launchers:
    """Starts launches of every kind; see WorkloadLauncher for `runner` and `work`."""

    def __init__(self, runner: Path, work: Path) -> None:
        self.workloads = WorkloadLauncher(runner, work)
        self.programs: dict[str, Launcher] = {"command": CommandLauncher(), "server": ServerLauncher()}

    def start(self, request: Request) -> Handle:
        """Start a launch. Raises LaunchFailed, and CellUnsupported where a program that it needs is not there."""
        executor = request.cell.executor
        if executor.program is None:
            return self.workloads.start(request)
        if request.role == "own":
            return self.programs[executor.kind].start(request)
        bare = {"executor": CONTROL, "body": "worker", "roles": (), "environment": Environment()}
        cell = msgspec.structs.replace(request.cell, **bare)
        return self.workloads.start(msgspec.structs.replace(request, cell=cell))
