"""What is launched for contracts alone, and how long that takes: scripted launches."""

from __future__ import annotations

from collections import Counter

import msgspec
import pytest
from fake_launcher import EXECUTORS, MS, FakeLauncher, group_of, spec_of
from scripted import Project, finish, required, rows_of

from pytest_ftgate.measure.memory_round import BARRIERS
from pytest_ftgate.model.report import Row
from pytest_ftgate.model.spec import Group
from pytest_ftgate.model.verdict import Decision
from pytest_ftgate.report import said
from pytest_ftgate.runner.protocol import BARRIER, MEASURED

CELLS = ("threads", "fork", "spawn", "interpreters")
WALLS_NS = {"3.14-threads-w2": 10 * MS, "3.14-fork-w2": 40 * MS}


def launched(launcher: FakeLauncher) -> dict[str, Counter[str]]:
    """By label how many launches of each role there were; memory launches are a cell's own as well."""
    found: dict[str, Counter[str]] = {}
    for request in launcher.requests:
        found.setdefault(request.cell.label.split("-")[1], Counter())[request.role] += 1
    return found


def launcher_of(walls_ns: dict[str, int] = WALLS_NS) -> FakeLauncher:
    return FakeLauncher(wall_ns=lambda at: walls_ns.get(at.label, 20 * MS))


def held(project: Project, launcher: FakeLauncher, *contracts: str) -> tuple[dict[str, Row], int]:
    trial = project.trial(launcher, required(group_of(*CELLS), *contracts))
    return finish(trial), trial.rounds


def test_one_round_of_bare_launches_decides_what_is_met_by_far(project: Project) -> None:
    launcher = launcher_of()
    rows, rounds = held(project, launcher, "threads.wall < 0.5 * processes[fork].wall")
    assert rounds == 1
    bare = {cell: Counter(own=1) for cell in CELLS}
    assert launched(launcher) == bare, "no control workload, lock probe or memory launch"
    (verdict,) = (row.verdict for row in rows.values() if row.verdict.metrics)
    assert verdict.decision is Decision.PASSED
    shown = [row.figures for row in rows.values()]
    assert all(figures.wall_ns for figures in shown)
    nothing = (None, None, None)
    assert {(each.control_ratio, each.uss_bytes, each.lock_wait) for each in shown} == {nothing}


def test_memory_and_locks_are_launched_for_the_cells_that_a_contract_names(project: Project) -> None:
    launcher = launcher_of()
    _, rounds = held(project, launcher, "processes[fork].uss < 64 MiB", "threads.lock_wait < 0.5")
    bare, held_too = Counter(own=1), Counter(own=2)
    probed = Counter(own=rounds, locks=rounds)
    assert launched(launcher) == {"threads": probed, "fork": held_too, "spawn": bare, "interpreters": bare}
    assert len(launcher.of(BARRIER, label="3.14-fork-w2")) <= max(BARRIERS), "no growth is measured"


def test_only_the_cells_of_what_is_undecided_have_more_rounds(project: Project) -> None:
    launcher = launcher_of({**WALLS_NS, "3.14-spawn-w2": 20 * MS, "3.14-interpreters-w2": 20 * MS})
    _, rounds = held(
        project,
        launcher,
        "threads.wall < 0.5 * processes[fork].wall",
        "processes[spawn].wall < 1.02 * interpreters.wall",
    )
    assert rounds > 1
    counts = {name: roles["own"] for name, roles in launched(launcher).items()}
    assert counts == {"threads": 1, "fork": 1, "spawn": rounds, "interpreters": rounds}


def twenty(*contracts: str) -> Group:
    """Twenty cells of one-second launches, in ten windows each."""
    groups = [group_of(spec=spec_of(*EXECUTORS, workers=count, duration_s=1.0, window_s=0.1)) for count in (1, 2, 4, 8)]
    spec = msgspec.structs.replace(groups[0].spec, workers=(1, 2, 4, 8))
    cells = tuple(cell for group in groups for cell in group.cells)
    return required(Group(key="twenty", spec=spec, cells=cells), *contracts)


@pytest.mark.parametrize("budget_s", [120.0, 35.0])
def test_twenty_cells_of_one_second_take_a_round_of_twenty(project: Project, budget_s: float) -> None:
    launcher = launcher_of({f"3.14-threads-w{count}": 10 * MS for count in (1, 2, 4, 8)})
    trial = project.trial(launcher, twenty("threads.ops_per_s > 1.2 * serial.ops_per_s"), test_time=budget_s)
    rows = finish(trial)
    assert len(rows) == 20
    assert trial.rounds == 1
    assert trial.shortfall is None
    windows = Counter(event.at.label for event in launcher.of(MEASURED))
    assert set(windows.values()) == ({10} if budget_s == 120 else {6})
    assert launcher.clock() < 28
    judged = [row.verdict for row in rows.values() if row.verdict.metrics]
    assert {verdict.decision for verdict in judged} == {Decision.PASSED}


def test_a_time_without_a_round_asks_for_two_rounds_at_most(project: Project) -> None:
    launcher = launcher_of({})
    trial = project.trial(launcher, twenty("threads.ops_per_s > 0.5 * serial.ops_per_s"), test_time=4.0)
    rows = finish(trial)
    assert trial.shortfall is not None
    text = said.shortfall_text(trial.shortfall)
    assert text.startswith("use --ftgate-test-time=30s or fewer cells: ")
    assert text.endswith("about 1 is needed to decide")
    assert {row.verdict.decision for row in rows_of(trial).values()} == {Decision.ERROR}
    assert len(rows) == 20
