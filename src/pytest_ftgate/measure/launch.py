"""Starts the measured interpreters: the only place that does. Launches are driven by a Launcher, real or scripted."""

from __future__ import annotations

from typing import Any, Literal, Protocol

import msgspec

from ..model import (
    Barrier,
    Cell,
    Iteration,
    LockWaits,
    MemoryPoint,
    Spec,
    Struct,
    Timer,
    Waits,
    WorkloadError,
)
from ..runner.control import BURN, EMPTY

Side = Literal["own", "control", "locks", "empty"]
"""What a launch runs: the workload, the candle beside it, the workload with the lock probe, or nothing."""


class Request(Struct, frozen=True, kw_only=True):
    """One launch to start: a cell's workload, or what stands in for it under the cell's executor.

    `waits_unavailable` says why threads' waits cannot be told on this interpreter; empty where they can.
    With `settled` the allocator gives back at once what is freed, so that growth is the workload's and not its caches'.
    `reference` says that it is the side that a change is compared with; nothing is done otherwise for it.
    """

    cell: Cell
    spec: Spec
    python: str
    side: Side
    expect_gil: bool
    environment: dict[str, str]
    hash_seed: int
    padding: int
    timeout_s: float
    waits_unavailable: str = ""
    settled: bool = False
    reference: bool = False

    @property
    def stand_in(self) -> str:
        """The runner's word for what stands in for the workload; empty for the workload itself."""
        return {"control": BURN, "empty": EMPTY}.get(self.side, "")

    @property
    def callers(self) -> int:
        """How many workers' calls are operations: the leading role's where there are roles, one that drives a pool."""
        if self.cell.body != "worker":
            return 1
        return self.cell.roles[0][1] if self.cell.roles and not self.stand_in else self.cell.workers


def request_here(cell: Cell, spec: Spec, python: str, timeout_s: float) -> Request:
    """A program or server as a functional test: nothing is measured, so nothing of its layout is varied."""
    return Request(
        cell=cell,
        spec=spec,
        python=python,
        side="own",
        expect_gil=True,
        environment={},
        hash_seed=0,
        padding=0,
        timeout_s=timeout_s,
    )


def setup_of(cell: Cell, spec: Spec, *, stand_in: str = "") -> dict[str, Any]:
    """What a worker needs to find its body, in plain words that travel to any worker.

    What stands in for the workload has no roles: all workers of the cell do the same.
    """
    switch_ns = cell.target.settings.switchinterval_ns
    return {
        "module": spec.source.module,
        "path": spec.source.path,
        "qualname": spec.source.qualname,
        "import_mode": spec.source.import_mode,
        "sys_path": list(spec.source.sys_path),
        "kind": cell.executor.kind,
        "method": cell.executor.method,
        "workers": cell.workers,
        "roles": [] if stand_in else [list(role) for role in cell.roles],
        "shape": cell.body,
        "params": {param.name: param.literal for param in cell.params},
        "switch_s": switch_ns / 1e9 if switch_ns else None,
        "control": stand_in,
        "gil_note": None,
    }


class Finished(Struct, frozen=True, kw_only=True):
    """What a launch said at its end."""

    cold: Iteration | None
    iterations: tuple[Iteration, ...]
    counters: dict[str, float]
    timers: dict[str, Timer]
    results: tuple[str, ...]
    gil_enabled: bool
    peaks: dict[str, float] = msgspec.field(default_factory=dict)
    locks: LockWaits | None = None


class Held(Struct, frozen=True, kw_only=True):
    """A turn during which the workers were held at work, and what was seen of them if they were watched."""

    iteration: Iteration
    memory: tuple[MemoryPoint, ...] = ()
    waits: Waits | None = None


class LaunchFailed(Exception):
    """The workload failed in this launch; `error` says how."""

    def __init__(self, error: WorkloadError) -> None:
        super().__init__(error.reason)
        self.error = error


class CellUnsupported(Exception):
    """The executor cannot do what the workload asks."""


class Handle(Protocol):
    """A launch that is under way; it does nothing unless told."""

    def ready(self) -> float:
        """Wait until the workload is imported; the clock's resolution there, in ns."""
        ...

    def iteration(self, kind: str, loops: int = 1, window_ns: int = 0) -> Iteration:
        """One turn. Raises LaunchFailed or CellUnsupported."""
        ...

    def hold(self, window_ns: int, watched: bool, one_ns: float = 0.0) -> Held:
        """One turn held for `window_ns`, its memory and its threads' waits watched from outside or not.

        With `one_ns`, what a call of the body takes, each worker calls it as often as fills the window: the same
        number, since workers may meet in it. Without, each calls it until the window has passed.
        """
        ...

    def barrier(self, loops: int, window_ns: int) -> Barrier:
        """One turn that is not timed, and a look at memory when all is parked after a collection."""
        ...

    def finish(self) -> Finished:
        """Let the launch end by itself; its whole record."""
        ...

    def kill(self) -> None:
        """End it and everything it started. Safe at any time, also twice."""
        ...


class Launcher(Protocol):
    """Starts launches."""

    def start(self, request: Request) -> Handle:
        """Start one; does not wait for it."""
        ...
