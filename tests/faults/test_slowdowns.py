"""Slowdowns of 2x to 1000x, of any body in any time: no run of them is green."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
from fake_launcher import MS, At, FakeHandle, FakeLauncher, failed, group_of, noisy
from scripted import THREADS, Project

from pytest_ftgate.measure.launch import Request
from pytest_ftgate.model.report import Row
from pytest_ftgate.report import said
from pytest_ftgate.report.reasons import of_cell

BODIES_MS = (1, 10, 100, 1_000, 3_000, 10_000)
BUDGETS_S = (5, 15, 30, 60, 90)
FACTORS = (2, 3, 10, 30, 100, 1000)
HOW = ("against", "stored", "stored without git", "against, of the whole run")


class Slowed(FakeLauncher):
    """Launches of a body that takes `factor` times as long as its reference; one that takes too long is ended."""

    def __init__(self, body_ns: float, factor: float, seed: int) -> None:
        own = noisy(body_ns, between=0.02, within=0.01, seed=seed)
        control = noisy(min(body_ns, 20 * MS), between=0.02, within=0.01, seed=seed)
        self.factor = factor
        super().__init__(wall_ns=lambda at: control(at) if at.control else own(at) * self._slower(at))
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


def measured(root: Path, how: str, body_ms: int, factor: float, budget_s: float) -> Row:
    """The row of a cell whose body became slower, judged in so much time."""
    group, against = group_of("threads"), "main" if how.startswith("against") else ""
    with pytest.MonkeyPatch.context() as patch:
        project = Project(root, patch)
        project.paired = "without git" not in how
        if not against:
            project.record(Slowed(body_ms * MS, 1.0, seed=1), group, test_time=600.0)
        time = "time" if "whole run" in how else "test_time"
        launcher = Slowed(body_ms * MS, factor, seed=3)
        return project.run(launcher, group, against=against, **{time: float(budget_s)}).rows[THREADS]


def green(root: Path, how: str, cases: Any) -> list[str]:
    found = []
    for number, (body_ms, budget_s, factor) in enumerate(cases):
        row = measured(root / str(number), how, body_ms, factor, budget_s)
        verdict = row.verdict
        if not (verdict.decision.fails or said.worse_by_one(row)):
            found.append(f"{body_ms} ms, {factor}x in {budget_s} s: {verdict.decision}: {of_cell(verdict)}")
    return found


@pytest.mark.parametrize("how", HOW)
def test_no_slowdown_is_green(tmp_path: Path, how: str) -> None:
    """The corners of the grid, and what ended with one pair, with none, or by the time limit."""
    corners = [*itertools.product((1, 10_000), (5, 90), (2, 1000)), (100, 5, 2), (100, 5, 3), (1000, 15, 2)]
    assert green(tmp_path, how, corners) == []


@pytest.mark.long
@pytest.mark.parametrize("how", HOW)
def test_no_slowdown_of_the_whole_grid_is_green(tmp_path: Path, how: str) -> None:
    assert green(tmp_path, how, itertools.product(BODIES_MS, BUDGETS_S, FACTORS)) == []


def test_unchanged_code_passes_where_the_time_suffices(tmp_path: Path) -> None:
    found = [measured(tmp_path / str(body), "against", body, 1.0, 90.0).verdict for body in (1, 100, 1000)]
    assert [str(verdict.decision) for verdict in found] == ["passed"] * 3
