"""Which launcher starts what: the runner's for workloads in Python, programs and servers by their own."""

from __future__ import annotations

from pathlib import Path

import msgspec

from ...model.spec import Environment, Executor
from ..launch import Handle, Launcher, Request
from .command import CommandLauncher
from .server import ServerLauncher
from .workload import WorkloadLauncher

CONTROL = Executor(kind="threads")
"""What runs the standard candle beside a program, which is under no executor of ours."""


class Launchers:
    """Starts launches of every kind; see WorkloadLauncher for `runner` and `work`."""

    def __init__(self, runner: Path, work: Path) -> None:
        self.workloads = WorkloadLauncher(runner, work)
        self.programs: dict[str, Launcher] = {"command": CommandLauncher(), "server": ServerLauncher(work)}

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
