"""Slowdowns of 2x to 1000x, of any body in any time: no run of them is green."""

from __future__ import annotations

import dataclasses
import itertools
import types
from pathlib import Path
from typing import Any

import pytest
from fake_launcher import CONFIG, GIL, MS, TEST, At, Clock, FakeHandle, FakeLauncher, Quiet, failed, group_of, noisy
from stored_values import MACHINE

from pytest_ftgate.declare import plan
from pytest_ftgate.judge import decide
from pytest_ftgate.kit import git
from pytest_ftgate.measure import conditions
from pytest_ftgate.measure.cell_run import PreparedTarget
from pytest_ftgate.measure.launch import Request
from pytest_ftgate.model.report import Row
from pytest_ftgate.run import run
from pytest_ftgate.run.sides import worktrees
from pytest_ftgate.run.sides.references import References
from pytest_ftgate.run.targets import TargetLookup, Targets
from pytest_ftgate.targets.describe import build_key

CELL = f"{TEST}[3.14-threads-w2]"
BODIES_MS = (1, 10, 100, 1_000, 3_000, 10_000)
BUDGETS_S = (5, 15, 30, 60, 90)
FACTORS = (2, 3, 10, 30, 100, 1000)
HOW = ("against", "stored", "stored without git", "against, of the whole run")


class Slowed(FakeLauncher):
    """Launches of a body that takes `factor` times as long as its reference; one that takes too long is ended."""

    def __init__(self, clock: Clock, body_ns: float, factor: float, seed: int) -> None:
        own = noisy(body_ns, between=0.02, within=0.01, seed=seed)
        control = noisy(min(body_ns, 20 * MS), between=0.02, within=0.01, seed=seed)
        self.factor = factor
        super().__init__(clock, lambda at: control(at) if at.control else own(at) * self._slower(at))
        self.startup_ns = lambda _: 150 * MS

    def _slower(self, at: At) -> float:
        return 1.0 if at.reference else self.factor

    def start(self, request: Request) -> FakeHandle:
        handle = super().start(request)
        happen = handle.happen

        def within(event: str, spent_ns: float = 0.0, loops: int = 1, window_ns: int = 0) -> None:
            limit_ns = request.timeout_s * 1e9 + window_ns
            happen(event, min(spent_ns, limit_ns), loops, window_ns)
            if spent_ns > limit_ns:
                raise failed(f"did not end within {request.timeout_s:g} s")

        handle.happen = within  # type: ignore[method-assign]
        return handle


def lookup(*_: Any, **__: Any) -> TargetLookup:
    return TargetLookup(
        target=PreparedTarget(interpreter=GIL, python="/opt/env/bin/python", key=build_key(GIL), environment={})
    )


@pytest.fixture(scope="module")
def scripted() -> Any:
    """Runs of scripted launches on a clock that they alone move."""
    with pytest.MonkeyPatch.context() as patch:
        clock = Clock()
        patch.setattr(run, "time", types.SimpleNamespace(monotonic=clock))
        patch.setattr(run, "read_machine", lambda: MACHINE)
        patch.setattr(conditions, "calibration_ns", lambda *_: 5_000_000)
        patch.setattr(decide, "deviation", lambda *_: 0.0)
        patch.setattr(decide, "unfit", lambda *_: "")
        patch.setattr(worktrees, "lacks", lambda *_: False)
        patch.setattr(References, "relocated", lambda _, spec, checkout: spec)
        patch.setattr(Targets, "lookup", lookup)
        yield patch, clock


def measured(root: Path, scripted: Any, how: str, body_ms: int, factor: float, budget_s: float) -> Row:
    """The row of a cell whose body became slower, judged in so much time."""
    patch, clock = scripted

    def pair(*_: object) -> worktrees.Pair:
        if "without git" in how:
            raise git.AgainstError("no git here")
        sides = [git.Checkout(label=name, commit="1" * 40, root=str(root)) for name in ("main", "work tree")]
        return worktrees.Pair(reference=sides[0], changed=sides[1])

    patch.setattr(References, "requested", pair)
    patch.setattr(References, "recorded", pair)
    group = group_of("threads")

    def one(launcher: Slowed, **options: Any) -> Row:
        config = dataclasses.replace(CONFIG, **options)
        made = run.Run(config, root, f"run-{launcher.factor}", Listener(), launcher)
        made.start()
        made.collect(plan.plan_of((group.spec, cell) for cell in group.cells))
        message = made.row(CELL)
        made.store(made.report([message], "0.1", [CELL]))
        return message.row

    against = "main" if how.startswith("against") else ""
    if not against:
        one(Slowed(clock, body_ms * MS, 1.0, seed=1), test_time=600.0, update=("new",))
    time = "time" if "whole run" in how else "test_time"
    return one(Slowed(clock, body_ms * MS, factor, seed=3), against=against, **{time: float(budget_s)})


class Listener(Quiet):
    """One that forgets what begins."""

    def begin(self, title: str, cells: Any) -> None:
        """Forget it."""


def green(root: Path, scripted: Any, how: str, cases: Any) -> list[str]:
    found = []
    for number, (body_ms, budget_s, factor) in enumerate(cases):
        verdict = measured(root / str(number), scripted, how, body_ms, factor, budget_s).verdict
        if not verdict.decision.fails:
            found.append(f"{body_ms} ms, {factor}x in {budget_s} s: {verdict.decision}: {verdict.reason}")
    return found


@pytest.mark.parametrize("how", HOW)
def test_no_slowdown_is_green(tmp_path: Path, scripted: Any, how: str) -> None:
    """The corners of the grid, and what ended with one pair, with none, or by the time limit."""
    corners = [*itertools.product((1, 10_000), (5, 90), (2, 1000)), (100, 5, 2), (100, 5, 3), (1000, 15, 2)]
    assert green(tmp_path, scripted, how, corners) == []


@pytest.mark.long
@pytest.mark.parametrize("how", HOW)
def test_no_slowdown_of_the_whole_grid_is_green(tmp_path: Path, scripted: Any, how: str) -> None:
    assert green(tmp_path, scripted, how, itertools.product(BODIES_MS, BUDGETS_S, FACTORS)) == []


def test_unchanged_code_passes_where_the_time_suffices(tmp_path: Path, scripted: Any) -> None:
    found = [measured(tmp_path / str(body), scripted, "against", body, 1.0, 90.0).verdict for body in (1, 100, 1000)]
    assert [str(verdict.decision) for verdict in found] == ["passed"] * 3
