"""Scripted days: what tests of a trial and of a whole run have in common."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec
import pytest
from fake_launcher import MIB, MS, At, FakeLauncher, group_of, memory_of, noisy, spec_of

from pytest_ftgate.judge import decide
from pytest_ftgate.measure import conditions
from pytest_ftgate.model.spec import DeclaredContract, Group
from pytest_ftgate.run.sides import worktrees

TWO = group_of("threads", "fork")
THREADS, FORK = (cell.nodeid for cell in TWO.cells)


def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """What else runs on this machine says nothing of scripts."""
    monkeypatch.setattr(conditions, "calibration_ns", lambda *_: 5_000_000)
    monkeypatch.setattr(conditions, "cpu_s", lambda _: 0.0)
    monkeypatch.setattr(decide, "deviation", lambda *_: 0.0)
    monkeypatch.setattr(decide, "unfit", lambda *_: "")
    monkeypatch.setattr(worktrees, "lacks", lambda side, test: side.label == "without it")


def day(
    slower: Callable[[At], float] = lambda _: 1.0, *, uss_bytes: int = 20 * MIB, between: float = 0.003, seed: int = 2
) -> FakeLauncher:
    """A day's launches, of 20 ms an iteration: what `slower` says times as slow."""
    noise_of = noisy(20 * MS, between, seed=seed)
    launcher = FakeLauncher(wall_ns=lambda at: noise_of(at) * slower(at))
    launcher.memory = lambda _: memory_of(uss_bytes)
    return launcher


def cells_slower(factor: float, *nodeids: str) -> Callable[[At], float]:
    """The cells' own work costs `factor`, the control workload and the reference what they did."""
    labels = [nodeid.partition("[")[2].removesuffix("]") for nodeid in nodeids or (THREADS,)]
    return lambda at: factor if at.label in labels and not (at.control or at.reference) else 1.0


def required(group: Group, *texts: str) -> Group:
    """The test with these contracts."""
    spec = msgspec.structs.replace(group.spec, contracts=tuple(DeclaredContract(text=text) for text in texts))
    return msgspec.structs.replace(group, spec=spec)


def of_counts(*counts: int, executors: Iterable[str] = ("threads",)) -> Group:
    """One test at each of these worker counts."""
    groups = [group_of(spec=spec_of(*executors, workers=count)) for count in counts]
    spec = msgspec.structs.replace(groups[0].spec, workers=counts)
    return Group(key=f"counts {counts}", spec=spec, cells=tuple(cell for group in groups for cell in group.cells))
