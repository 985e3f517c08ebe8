"""The first two scenarios: their shape in a short real run."""

from __future__ import annotations

import os
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from bench import BUILDS

from physical import Inconclusive, Outcome, Told, confirm_each
from pytest_ftgate.declare.tests import notes_of
from pytest_ftgate.judge import contract_grammar, contract_judge
from pytest_ftgate.judge.decide import UNPAIRED, unfit
from pytest_ftgate.judge.values import TestValues
from pytest_ftgate.model.report import Report, Row
from pytest_ftgate.model.verdict import Decision, MetricVerdict
from pytest_ftgate.report.json import parse
from pytest_ftgate.report.reasons import of_metric

ROOT = Path(__file__).parents[2]
OVERHEAD = "examples/scenario1_overhead/test_overhead.py"
SHARED_SET = "examples/scenario2_shared_set/test_shared_set.py"
EXECUTORS = ("threads", "fork", "forkserver", "spawn", "interpreters")


def short_run(tmp_path: Path, executables: dict[str, str], *options: str) -> Report:
    """The report of one launch of some cells of an example.

    Of cells that have baselines only the time, and what the contracts are about, is measured.
    """
    report = tmp_path / "report.json"
    folders = dict.fromkeys(str(Path(path).parent) for path in executables.values())
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("FTGATE_", "PYTEST_"))}
    places = environment.get("PATH", "").split(os.pathsep)
    if not cargo_works():  # rustup's stand-in without a toolchain is none
        places = [place for place in places if not Path(place, "cargo").exists()]
    environment["PATH"] = os.pathsep.join([*folders, *places])
    short = ("-oftgate_launches=1", "-oftgate_iterations=1", "--ftgate-metrics=wall", "--ftgate-against=stored")
    command = [sys.executable, "-m", "pytest", "--ftgate", "-p", "no:cacheprovider", *short]
    command += ["--ftgate-fail-on=broken"]  # against what was stored on another day one launch decides nothing
    command += [f"--ftgate-report=json:{report}", *options]
    report.unlink(missing_ok=True)
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    if done.returncode > 1 or not report.exists():  # 1: a cell failed, which the caller judges
        pytest.fail(done.stdout + done.stderr)
    return parse(report.read_text(encoding="utf-8"))


def cargo_works() -> bool:
    """Whether there is a cargo that builds."""
    if shutil.which("cargo") is None:
        return False
    return subprocess.run(["cargo", "--version"], capture_output=True).returncode == 0


def written(path: str) -> set[str]:
    """The contracts that stand in an example."""
    functions = runpy.run_path(str(ROOT / path)).values()
    notes = [note for function in functions if callable(function) for note in notes_of(function)]
    found = {text for note in notes if note.decorator == "contract" for text in note.args}
    assert found
    return found


def told(report: Report, expected: set[str]) -> dict[str, Outcome]:
    """What the one launch of each cell tells of each expected contract at each cell, and whether all were measured."""
    rows = [(row, table) for table in report.tables for row in table.rows]
    if errors := [f"{row.cell.label}: {row.error.reason}" for row, _ in rows if row.error is not None]:
        return {"every cell is measured": AssertionError("\n".join(errors))}
    found: dict[str, Outcome] = {"every cell is measured": None}
    judged = set()
    for row, table in rows:
        test = TestValues(each.sample for each in table.rows if each.sample is not None)
        for each in row.verdict.metrics:
            if each.contract in expected:
                judged.add(each.contract)
                found[f"{row.cell.nodeid}: {each.contract}"] = _told_at(row, each, test)
    assert judged == expected
    return found


def _told_at(row: Row, judged: MetricVerdict, test: TestValues) -> Outcome:
    hand = test.of(row.cell)
    assert hand is not None
    values = contract_judge.values(contract_grammar.parse(judged.contract), hand)
    if values and max(values) < 0:
        return None
    disturbed = unfit(row.conditions, UNPAIRED)
    return (
        Inconclusive(f"{of_metric(judged)}; {disturbed}")
        if disturbed or not values
        else AssertionError(of_metric(judged))
    )


def test_scenario_1_has_its_shape(tmp_path: Path, executables: dict[str, str]) -> None:
    # Starting on both builds; on one the pool, where start methods are alike, memory, tasks, and shared pages.
    cells = "(w8 and (fresh or (pool and not 3.14t) or (memory and 3.14t))) or (w2 and 3.14t and (tasks or pages))"

    def sample() -> Told:
        return told(short_run(tmp_path, executables, "-k", cells, OVERHEAD), written(OVERHEAD))

    confirm_each(sample, decisive=10, cores=1.5)


def test_scenario_2_has_its_shape(tmp_path: Path, executables: dict[str, str]) -> None:
    cells = "w8 or (w2 and threads)"  # and all designs

    def sample() -> Told:
        return scenario_2s_shape(short_run(tmp_path, executables, "-k", cells, SHARED_SET))

    confirm_each(sample, decisive=10, cores=1.5)


def scenario_2s_shape(report: Report) -> Told:
    shared, designs = report.tables
    assert all("test_designs" in row.cell.nodeid and row.error is None for row in designs.rows)
    rows = {row.cell.label: row for row in shared.rows}
    assert set(rows) == {label for label in labels(SHARED_SET) if label.endswith("w8") or "threads" in label}
    expected = written(SHARED_SET)
    if not cargo_works():
        native = rows.pop("rust-w8").verdict
        assert native.decision is Decision.UNSUPPORTED
        assert "needs cargo: install it with" in native.reason
        expected = {text for text in expected if not text.startswith("command[rust")}
    measured = [row for row in rows.values() if row.error is None]
    assert all(0 < inserts <= ops for inserts, ops in map(inserted, measured))
    return told(report, expected)


def inserted(row: Row) -> tuple[float, int]:
    """Inserts and operations of a cell, over all its iterations."""
    assert row.sample is not None
    (launch,) = row.sample.launches
    return launch.counters["inserts"], sum(iteration.ops for iteration in launch.iterations)


def labels(test: str) -> set[str]:
    """The cells of a test."""
    counts = ("w8",) if "memory" in test else ("w2", "w8")
    programs = {f"rust-{count}" for count in counts} if SHARED_SET in test else set()
    return programs | {f"{build}-{name}-{count}" for build in BUILDS for name in EXECUTORS for count in counts}
