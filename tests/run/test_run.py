"""Whole runs on scripted launches: what is recorded, judged, refused, kept and read back."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable
from itertools import groupby
from typing import Any, cast

import msgspec
import pytest
from fake_launcher import (
    GIL,
    MIB,
    MS,
    TEST,
    At,
    FakeLauncher,
    failed,
    group_of,
    memory_of,
    noisy,
    spec_of,
    unsupported,
)
from scripted import FORK, THREADS, TWO, Project, Watcher, cells_slower, day, of_counts, required
from stored_values import MACHINE, ratios_of

from pytest_ftgate.declare import plan
from pytest_ftgate.features.shards import part as shards
from pytest_ftgate.judge import decide, metrics, prediction
from pytest_ftgate.judge import limits as thresholds
from pytest_ftgate.judge.judge import FIGURES, Judge
from pytest_ftgate.judge.values import Values
from pytest_ftgate.kit.git import AgainstError
from pytest_ftgate.kit.text import split_nodeid
from pytest_ftgate.kit.values import Metric, Threshold
from pytest_ftgate.measure import machine
from pytest_ftgate.measure.capacity import Capacity
from pytest_ftgate.measure.round_plan import LEAST_LAUNCHES, PILOT_ITERATIONS
from pytest_ftgate.model.spec import DeclaredContract, Group, Target
from pytest_ftgate.model.verdict import Comparison, Decision, MetricVerdict, Verdict
from pytest_ftgate.report import reasons, said
from pytest_ftgate.run import rows as rows_module
from pytest_ftgate.run.phase import LAUNCHES
from pytest_ftgate.run.targets import TargetLookup, Targets
from pytest_ftgate.run.trial import Trial
from pytest_ftgate.runner.protocol import MEASURED
from pytest_ftgate.store import folder as baseline_folder
from pytest_ftgate.store.schema import RECORDINGS_KEPT, BaselineError
from pytest_ftgate.targets.describe import build_key
from pytest_ftgate.targets.environments import InstallError

GIL_KEY = build_key(GIL)


LOOKUP = Targets.lookup


def points(text: str) -> tuple[Threshold, ...]:
    """Thresholds as the command line has them."""
    return tuple(thresholds.parse(each) for each in text.split(";"))


# -- recording -----------------------------------------------------------------------------------------------------


def test_without_a_baseline_there_is_nothing_to_judge(project: Project) -> None:
    outcome = project.run()
    assert outcome.decision() is outcome.decision(FORK) is Decision.NO_BASELINE
    assert outcome.reason() == "nothing is stored for it; record it with --ftgate-update"
    assert outcome.launches() == LAUNCHES
    assert not (project.root / "baselines").exists()
    assert outcome.report.updates == ()


def test_an_update_records_what_is_new_with_few_launches(project: Project) -> None:
    outcome = project.record()
    assert outcome.decision() is outcome.decision(FORK) is Decision.RECORDED
    assert said.result(outcome.report) == "2 recorded"
    assert outcome.launches() == LAUNCHES
    entry = outcome.session.stored.store.lookup(THREADS, MACHINE.fingerprint, GIL_KEY)
    assert entry is not None
    (recording,) = entry.recordings
    numbers = len(recording.by_order("wall")), len(recording.by_order("uss"))
    assert (recording.seed, *numbers) == (11, LAUNCHES, FIGURES), "its memory is steady"
    first, test, then = outcome.report.updates
    assert first == "2 recorded in baselines/: git add baselines"
    assert test.startswith(f"recorded {TEST}: 2 cells, wall ")
    assert then == "next: commit them; pytest --ftgate then compares each change with that commit"


def test_what_is_stored_is_what_the_launches_gave(project: Project) -> None:
    launcher = day(cells_slower(3.0))
    outcome = project.record(launcher)
    entry = outcome.session.stored.store.lookup(THREADS, MACHINE.fingerprint, GIL_KEY)
    assert entry is not None
    assert ratios_of(entry) == pytest.approx([3.0] * LAUNCHES, rel=0.03)
    assert outcome.rows[THREADS].figures.control_ratio == pytest.approx(3.0, rel=0.01)
    assert outcome.rows[FORK].figures.ratio == pytest.approx(1 / 3, rel=0.01)


# -- judging -------------------------------------------------------------------------------------------------------


def test_the_same_speeds_pass(project: Project) -> None:
    project.recorded()
    outcome = project.run()
    assert outcome.decision() is outcome.decision(FORK) is Decision.PASSED
    verdict = outcome.rows[THREADS].verdict
    assert {each.metric for each in verdict.metrics} == {*metrics.GATING} - {Metric.START, "payload"}
    assert (verdict.basis, verdict.why, verdict.baseline) == ("paired", "", "1eb3b87")
    assert outcome.metric(Metric.WALL).effect == pytest.approx(1.05)
    assert outcome.metric(Metric.WALL).stored == pytest.approx(20e6, rel=0.01)
    assert outcome.report.updates == ()


def test_a_slower_cell_regresses_by_its_wall_time_beside_the_commit_of_its_baseline(project: Project) -> None:
    project.recorded()
    outcome = project.run(day(cells_slower(1.3)))
    assert outcome.decision() is Decision.REGRESSED
    wall = outcome.metric(Metric.WALL)
    assert outcome.reason().startswith(f"wall: {reasons.of_metric(wall)}")
    assert wall.ratio is not None
    assert wall.ratio.value == pytest.approx(1.3, rel=0.01)
    assert wall.launches == 5
    assert outcome.metric(Metric.USS).decision is Decision.PASSED
    assert outcome.decision(FORK) is Decision.PASSED
    row = outcome.rows[THREADS]
    assert (row.verdict.basis, row.verdict.baseline) == ("paired", "1eb3b87")
    assert row.sample is not None
    assert row.sample.reference is not None


def test_stored_figures_judge_where_they_are_asked_for(project: Project) -> None:
    project.recorded(days=3)
    for factor, found in ((1.0, Decision.PASSED), (2.0, Decision.REGRESSED)):
        outcome = project.run(day(cells_slower(factor)), against="stored")
        verdict = outcome.rows[THREADS].verdict
        assert (verdict.decision, verdict.basis, verdict.why) == (found, "stored", "--ftgate-against stored")
        assert verdict.baseline.startswith("baselines/test_work.py/test_work (")
    assert project.recorded_pairs == []


def test_more_memory_in_each_worker_regresses_by_its_uss(project: Project) -> None:
    project.recorded()
    launcher = day()
    launcher.memory = lambda at: memory_of(
        (20 + (2 * 8 if at.label == "3.14-fork-w2" and not at.reference else 0)) * MIB
    )
    outcome = project.run(launcher)
    assert outcome.decision(FORK) is Decision.REGRESSED
    assert outcome.reason(FORK).startswith("uss: +80 %")
    assert outcome.metric(Metric.WALL, FORK).decision is Decision.PASSED
    assert outcome.decision() is Decision.PASSED


def test_faster_or_smaller_is_improved(project: Project) -> None:
    project.recorded()
    assert project.run(day(cells_slower(0.7))).decision() is Decision.IMPROVED
    smaller = day()
    smaller.memory = lambda at: memory_of((20 if at.reference else 10) * MIB)
    outcome = project.run(smaller)
    assert outcome.decision() is Decision.IMPROVED
    assert outcome.reason().startswith("uss: -50 %")


def test_faster_by_more_memory_is_a_regression(project: Project) -> None:
    project.recorded()
    launcher = day(cells_slower(0.7))
    launcher.memory = lambda at: memory_of((20 if at.reference else 30) * MIB)
    outcome = project.run(launcher)
    assert outcome.decision() is Decision.REGRESSED
    assert outcome.metric(Metric.WALL).decision is Decision.IMPROVED


def test_too_few_launches_are_inconclusive_and_say_what_would_settle_it(project: Project) -> None:
    project.recorded()
    outcome = project.run(day(cells_slower(1.09)), launches=2)
    assert outcome.decision() is Decision.INCONCLUSIVE
    wall = outcome.metric(Metric.WALL)
    assert "rules out +" in reasons.of_metric(wall)
    assert wall.more is not None
    assert f" about {wall.more} more pair" in reasons.of_metric(wall)
    settled = project.run(day(cells_slower(1.09)), launches=wall.launches + wall.more)
    assert settled.decision() is Decision.REGRESSED


def test_too_few_launches_of_what_is_obvious_fail(project: Project) -> None:
    project.recorded()
    outcome = project.run(day(cells_slower(1.3)), launches=2)
    assert outcome.decision() in (Decision.REGRESSED, Decision.SUSPECT)
    assert project.run(day(cells_slower(20.0)), launches=2).decision() is Decision.REGRESSED


@pytest.mark.parametrize(
    ("factor", "margin", "effect", "decision"),
    [
        (1.01, 2, 5, Decision.PASSED),
        (1.08, 2, 5, Decision.REGRESSED),
        (1.08, 10, 15, Decision.PASSED),
        (1.03, 0, 1, Decision.REGRESSED),
    ],
)
def test_a_slowdown_up_to_the_margin_is_none(
    project: Project, factor: float, margin: int, effect: int, decision: Decision
) -> None:
    limits = points(f"wall: margin={margin}%, effect={effect}%; tail: margin={margin}%, effect={effect + 10}%")
    outcome = project.run(day(cells_slower(factor)), against="main", thresholds=limits)
    assert outcome.decision() is decision


def test_memory_has_a_margin_of_its_own_and_some_pages_are_forgiven(project: Project) -> None:
    def grown_to(uss_bytes: int, limits: str = "uss: margin=2%") -> Decision:
        launcher = day()
        launcher.memory = lambda at: memory_of(20 * MIB if at.reference else uss_bytes)
        return project.run(launcher, against="main", thresholds=points(limits)).decision()

    assert grown_to(20 * MIB + 200 * 1024, "uss: margin=0%") is Decision.PASSED
    assert grown_to(20 * MIB * 112 // 100) is Decision.REGRESSED
    assert grown_to(20 * MIB * 112 // 100, "uss: margin=15%, effect=25%") is Decision.PASSED
    assert grown_to(20 * MIB * 112 // 100, "uss: floor=4MiB, effect=30%") is Decision.PASSED


def test_a_noisy_machine_is_not_called_a_regression(project: Project) -> None:
    project.record(day(between=0.2, seed=1))
    decisions = [project.run(day(between=0.2, seed=seed), against="stored").decision() for seed in (3, 5)]
    assert Decision.REGRESSED not in decisions


# -- the machine's speed of the day --------------------------------------------------------------------------------


def test_a_machine_twice_as_slow_on_the_day_passes(project: Project) -> None:
    project.recorded(days=3)
    for against in ("", "stored"):
        outcome = project.run(day(lambda _: 2.0), against=against)
        assert outcome.decision() is outcome.decision(FORK) is Decision.PASSED


def test_a_slowdown_common_to_all_executors_is_not_cancelled(project: Project) -> None:
    project.recorded()
    outcome = project.run(day(lambda at: 1.0 if at.control or at.reference else 1.3))
    assert outcome.decision() is outcome.decision(FORK) is Decision.REGRESSED
    # Among each other they are as they were.
    assert outcome.rows[FORK].figures.ratio == pytest.approx(1.0, rel=0.01)


# -- alpha ---------------------------------------------------------------------------------------------------------


def test_a_metric_that_a_test_names_gates_there_alone(project: Project) -> None:
    cold = group_of(spec=msgspec.structs.replace(spec_of("threads"), gated=("cold",)))
    other = group_of(spec=spec_of("threads", nodeid="test_other.py::test_other"))
    project.record(None, cold, other)
    outcome = project.run(None, cold, other)
    of_test = {nodeid: {each.metric for each in row.verdict.metrics} for nodeid, row in outcome.rows.items()}
    assert {nodeid: "cold" in found for nodeid, found in of_test.items()} == {
        THREADS: True,
        other.cells[0].nodeid: False,
    }
    assert outcome.session.stored.hypotheses(outcome.session.plan) == 5 + 1 + 5


def test_alpha_is_split_over_what_gates_in_the_run(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    one = group_of(spec=spec_of("threads", nodeid="test_other.py::test_other"))
    project.record(None, TWO, one)
    fresh = group_of(spec=spec_of("threads", nodeid="test_new.py::test_new"))
    seen: list[Comparison] = []
    predict = prediction.predict

    def spy(comparison: Comparison, moved: float) -> MetricVerdict:
        seen.append(comparison)
        return predict(comparison, moved)

    monkeypatch.setattr(prediction, "predict", spy)
    project.paired = False
    outcome = project.run(None, TWO, one, fresh)
    assert seen
    # Time, tail, USS and lock wait of three cells, and the growth of two, as fresh processes return their memory: what
    # has no baseline cannot alarm, and nothing here scales.
    assert outcome.session.stored.hypotheses(outcome.session.plan) == 14
    assert [comparison.alpha for comparison in seen] == pytest.approx([0.01 / 14] * len(seen))
    seen.clear()
    # What is deselected, as by `-k` or a shard, has its share all the same.
    whole = plan.plan_of((group.spec, cell) for group in (TWO, one, fresh) for cell in group.cells)
    selected = project.session(day(), one)
    selected.collect((one,), whole)
    selected.row(one.cells[0].nodeid)
    assert seen
    assert [comparison.alpha for comparison in seen] == pytest.approx([0.01 / 14] * len(seen))
    shard = shards.part_of(selected, whole, (one, fresh), 2, 2, {})
    assert shard.hypotheses == 14
    assert shard.planned == tuple(cell.nodeid for group in (one, fresh) for cell in group.cells)


def test_a_part_is_chosen_by_what_was_recorded_on_any_machine(project: Project) -> None:
    """The test whose recording took longest is alone in a part; what was never recorded takes the median."""
    groups = [group_of(spec=spec_of("threads", nodeid=f"test_{name}.py::test_it")) for name in "abcd"]
    project.record(None, *groups[:3])
    for path, took_s in zip(sorted(project.root.rglob("baselines/**/*.json")), (5.0, 40.0, 9.0), strict=True):
        text = re.sub(r'"took_s":[\d.]+,', "", path.read_text(encoding="utf-8"))
        path.write_text(text.replace('"values":', f'"took_s":{took_s},"values":'), encoding="utf-8")
    project.machine = msgspec.structs.replace(MACHINE, fingerprint="another")
    whole = plan.plan_of((group.spec, cell) for group in groups for cell in group.cells)
    costs = shards.costs_of(whole, project.session(day()).stored)
    assert list(costs.values()) == [5.0, 40.0, 9.0, 9.0]
    names = [group.cells[0].nodeid for group in groups]
    parts = [shards.part_of(project.session(day()), whole, whole, part, 2, {}).places for part in (1, 2)]
    assert [[names[place] for place in places] for places in parts] == [[names[1]], [names[0], names[2], names[3]]]
    for path in project.root.rglob("baselines/**/*.json"):
        path.write_text("{", encoding="utf-8")
    assert list(shards.costs_of(whole, project.session(day()).stored).values()) == [1.0] * 4, "the numbers of cells"


def test_memory_that_was_never_seen_gates_nothing(project: Project) -> None:
    for seed in (1, 2, 3):
        launcher = day(seed=seed)
        launcher.memory = lambda _: memory_of(None)
        project.record(launcher, update="all")
    outcome = project.run(day(uss_bytes=90 * MIB), against="stored")
    assert {each.metric for each in outcome.rows[THREADS].verdict.metrics} == {
        Metric.WALL,
        Metric.TAIL,
        Metric.LOCK_WAIT,
    }
    assert outcome.decision() is Decision.PASSED


# -- updates -------------------------------------------------------------------------------------------------------


def test_an_update_of_new_cells_leaves_what_is_stored(project: Project) -> None:
    project.record(None, group_of("threads"))
    path = project.baseline
    before = path.read_bytes()
    outcome = project.record(day(seed=5))
    stored = outcome.session.stored.store.load(TEST)
    assert stored is not None
    assert set(stored.cells) == {"3.14-threads-w2", "3.14-fork-w2"}
    project.record(day(seed=6), group_of("threads"))
    assert before == path.read_bytes()
    assert stored == outcome.session.stored.store.load(TEST)


def test_an_update_of_all_refuses_a_regressed_cell(project: Project) -> None:
    project.recorded(days=3)
    old = project.run().session.stored.store.lookup(THREADS, MACHINE.fingerprint, GIL_KEY)
    outcome = project.record(day(cells_slower(1.3), seed=5), update="all")
    assert outcome.decision() is Decision.REGRESSED
    store = outcome.session.stored.store
    assert store.lookup(THREADS, MACHINE.fingerprint, GIL_KEY) == old
    kept = store.lookup(FORK, MACHINE.fingerprint, GIL_KEY)
    assert kept is not None
    assert len(kept.recordings) == 4  # one more of what passed
    assert kept.recordings[3].recorded_at == outcome.report.started_at
    assert any(THREADS in line and "refuse" in line for line in outcome.report.updates)


def test_a_run_that_records_measures_no_reference(project: Project) -> None:
    project.recorded(days=3)
    for update in ("new", "all", THREADS):
        outcome = project.record(day(seed=5), update=update)
        verdict = outcome.rows[THREADS].verdict
        assert (verdict.decision, verdict.basis) == (Decision.PASSED, "stored")
        assert verdict.why == "a run that records measures no reference"
        assert outcome.launcher.of(MEASURED, side="control")
    assert project.recorded_pairs == []
    assert not any(request.reference for request in outcome.launcher.requests)


def test_an_update_takes_a_regressed_cell_that_is_named(project: Project) -> None:
    project.recorded(days=3)
    outcome = project.record(day(cells_slower(1.3), seed=5), update=THREADS)
    assert outcome.decision() is Decision.REGRESSED
    stored = outcome.session.stored.store.lookup(THREADS, MACHINE.fingerprint, GIL_KEY)
    assert stored is not None
    assert len(stored.recordings) == 1  # what changed begins anew
    (recorded,) = stored.recordings
    assert recorded.recorded_at == outcome.report.started_at
    for seed in (6, 7):
        project.record(day(cells_slower(1.3), seed=seed), update="all")
    assert project.run(day(cells_slower(1.3)), against="stored").decision() is Decision.PASSED
    assert project.run(day(cells_slower(0.7)), against="stored").decision() is Decision.IMPROVED


def test_a_failing_cell_is_not_recorded(project: Project) -> None:
    launcher = day(seed=1)
    launcher.trouble = lambda at: failed("ValueError: nine") if at.label == "3.14-fork-w2" and at.order == 4 else None
    outcome = project.record(launcher)
    assert outcome.decision(FORK) is Decision.ERROR
    stored = outcome.session.stored.store.load(TEST)
    assert stored is not None
    assert set(stored.cells) == {"3.14-threads-w2"}


# -- what cannot be judged -----------------------------------------------------------------------------------------


UPDATES: list[tuple[str, ...]] = [(), ("new",), ("all",), (THREADS,)]


def test_a_corrupt_baseline_is_an_error_and_stays_as_it_is(project: Project) -> None:
    project.record(day(lambda at: 0.0005, seed=1))
    before = project.baseline.read_bytes()[:300]
    project.baseline.write_bytes(before)
    other = group_of(spec=spec_of("threads", nodeid="test_other.py::test_other"))
    for update in UPDATES:
        outcome = project.run(None, TWO, other, update=update)
        assert outcome.decision() is outcome.decision(FORK) is Decision.ERROR
        error = outcome.rows[THREADS].error
        assert error is not None
        assert error.reason == "its baseline cannot be read"
        assert str(project.baseline) in error.detail
        assert outcome.decision("test_other.py::test_other[3.14-threads-w2]") is not Decision.ERROR
        assert not outcome.launcher.of(MEASURED, label="3.14-fork-w2")
        assert project.baseline.read_bytes() == before


def test_a_baseline_of_another_test_that_is_broken_hides_no_verdict(project: Project) -> None:
    project.recorded()
    broken = project.root / "baselines" / "gone.json"
    broken.write_text("{", encoding="utf-8")
    outcome = project.run()
    assert outcome.decision() is Decision.PASSED
    with pytest.raises(BaselineError, match=r"gone\.json"):
        list(outcome.session.stored.store.baselines())


def test_of_another_machine_its_commit_is_measured_here(project: Project) -> None:
    project.recorded()
    project.machine = msgspec.structs.replace(MACHINE, fingerprint="linux-x86_64-64c-99999999")
    outcome = project.run(day(lambda at: 0.4 if at.control else 1.0))
    assert outcome.decision() is outcome.decision(FORK) is Decision.PASSED
    assert outcome.rows[FORK].verdict.basis == "paired"
    assert outcome.metric(Metric.WALL, FORK).stored is None, "its time says nothing here"
    slower = project.run(day(cells_slower(1.3, FORK)))
    assert (slower.decision(FORK), slower.decision()) == (Decision.REGRESSED, Decision.PASSED)


def test_what_another_machine_recorded_is_no_baseline_without_its_commit(project: Project) -> None:
    project.recorded()
    project.machine = msgspec.structs.replace(MACHINE, fingerprint="linux-x86_64-64c-99999999")
    project.paired = False
    outcome = project.run(day(cells_slower(2.0, FORK)))
    verdict = outcome.rows[FORK].verdict
    assert (verdict.decision, verdict.basis, verdict.metrics) == (Decision.NO_BASELINE, "", ())
    assert verdict.reason == (
        f"another machine or build recorded it ({MACHINE.fingerprint}/{GIL_KEY}); "
        "recorded at 1eb3b87000, whose test cannot run here: no git here"
    )


def test_of_two_machines_the_newest_recording_names_the_commit_and_each_has_its_own_figures(project: Project) -> None:
    there = msgspec.structs.replace(MACHINE, fingerprint="linux-x86_64-64c-99999999")
    project.recorded(days=3)
    project.machine, project.commit = there, "2" * 40
    project.record(day(cells_slower(3.0), seed=7), update="all")
    project.machine = MACHINE
    outcome = project.run()
    assert outcome.rows[THREADS].verdict.commit == "2" * 40
    assert outcome.metric(Metric.WALL).stored == pytest.approx(20e6, rel=0.01)
    project.paired = False
    alone = project.run().rows[THREADS].verdict
    assert (alone.basis, alone.decision) == ("stored", Decision.PASSED)
    assert alone.why == "recorded at 2222222222, whose test cannot run here: no git here"
    assert alone.commit == "1eb3b87" + "0" * 33, "that of the figures"


def test_the_files_of_a_recording_are_unchanged_and_measured_for_contracts_alone(project: Project) -> None:
    contract = DeclaredContract(text="processes[fork].wall > 2 * threads.wall")
    group = group_of(spec=spec_of("threads", "fork", contracts=(contract,)))
    project.recorded()
    project.same = True
    outcome = project.run(day(cells_slower(3.0)))
    assert outcome.decision() is outcome.decision(FORK) is Decision.UNCHANGED
    assert outcome.reason() == "not measured: the files are those of 1eb3b87"
    assert not outcome.launcher.requests
    outcome = project.run(day(cells_slower(4.0, FORK)), group)
    assert (outcome.decision(FORK), outcome.rows[FORK].verdict.basis) == (Decision.PASSED, "")
    assert outcome.decision() is Decision.UNCHANGED  # it is measured, and no contract is judged at it
    assert outcome.rows[THREADS].sample is not None
    outcome = project.run(day(cells_slower(1.1, FORK)), group)
    assert outcome.decision(FORK) is Decision.BROKEN


def test_a_test_that_measures_something_else_now_has_no_stored_figures(project: Project) -> None:
    """Its commit measures the same now: the declaration of the working tree holds for both sides."""
    project.recorded()
    pooled = group_of(spec=spec_of("threads", "fork", reuse="pool"))
    outcome = project.run(None, pooled, against="stored")
    assert outcome.decision() is Decision.NO_BASELINE
    assert "reuse was fresh, is pool" in outcome.reason()
    paired = project.run(None, pooled)
    assert (paired.decision(), paired.rows[THREADS].verdict.basis) == (Decision.PASSED, "paired")
    assert paired.metric(Metric.WALL).stored is None


def test_a_target_that_is_not_there_is_unsupported_and_the_others_run(project: Project) -> None:
    project.missing["3.15"] = "no Python 3.15; get it with: uv python install 3.15"
    outcome = project.run(None, group_of("threads", targets=("3.14", "3.15")))
    missing = outcome.rows[f"{TEST}[3.15-threads-w2]"]
    assert (missing.verdict.decision, missing.verdict.reason) == (Decision.UNSUPPORTED, project.missing["3.15"])
    assert outcome.decision() is Decision.NO_BASELINE
    assert {request.cell.target.spec for request in outcome.launcher.requests} == {"3.14"}


def test_a_machine_with_too_few_cores_cannot_run_a_test_and_installs_nothing(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "available_cores", lambda *_: 2)
    monkeypatch.setattr(machine, "worker_cpus", lambda *_: [0])
    project.missing["3.14"] = "nobody looked"
    for declared, reason in (
        ({"min_cores": 4}, "needs 4 cores, 2 are available to this process"),
        ({"pin": True}, "pin=True needs 2 cores, 1 is available to this process"),
    ):
        group = group_of(spec=spec_of("threads", contracts=(DeclaredContract(text="scaling >= 3"),), **declared))
        outcome = project.run(None, group)
        assert outcome.decision() is Decision.UNSUPPORTED
        assert outcome.reason().startswith(reason)
        assert not outcome.launcher.requests


def test_as_many_workers_as_cores_are_compared_with_as_many_alone(project: Project) -> None:
    def group(workers: int) -> Group:
        spec = spec_of("threads", workers=workers, cores=workers, cores_named=True)
        found = group_of(spec=spec)
        (cell,) = found.cells
        return msgspec.structs.replace(
            found, cells=(msgspec.structs.replace(cell, nodeid=f"{TEST}[3.14-threads-wcores]", cores=True),)
        )

    nodeid = f"{TEST}[3.14-threads-wcores]"
    project.record(None, group(2))
    assert project.run(None, group(2), against="stored").rows[nodeid].verdict.basis == "stored"
    eight = project.run(None, group(8), against="stored").rows[nodeid].verdict
    assert (eight.decision, eight.basis) == (Decision.NO_BASELINE, "")
    assert "workers was 2, is 8" in eight.reason
    project.machine = msgspec.structs.replace(MACHINE, fingerprint="linux-x86_64-8c-99999999", cores=8)
    paired = project.run(None, group(8)).rows[nodeid].verdict
    assert (paired.decision, paired.basis) == (Decision.PASSED, "paired"), "its commit has eight workers here, too"


def test_an_executor_that_cannot_do_it_is_unsupported(project: Project) -> None:
    launcher = day()
    launcher.trouble = lambda at: unsupported("no fork here") if at.label == "3.14-fork-w2" else None
    outcome = project.run(launcher)
    assert (outcome.decision(FORK), outcome.reason(FORK)) == (Decision.UNSUPPORTED, "no fork here")
    assert outcome.decision() is Decision.NO_BASELINE


def test_a_workload_that_fails_is_an_error_with_its_own_words(project: Project) -> None:
    project.recorded()
    launcher = day()
    launcher.trouble = lambda at: failed("ValueError: nine", "Traceback: ...") if "fork" in at.label else None
    outcome = project.run(launcher)
    assert (outcome.decision(FORK), outcome.reason(FORK)) == (Decision.ERROR, "ValueError: nine")
    error = outcome.rows[FORK].error
    assert error is not None
    assert error.detail == "Traceback: ..."
    assert outcome.decision() is Decision.PASSED


def test_memory_that_cannot_be_seen_any_more_does_not_pass(project: Project) -> None:
    project.recorded(days=3)
    launcher = day()
    launcher.memory = lambda _: ()
    outcome = project.run(launcher, against="stored")
    assert outcome.decision() is Decision.INCONCLUSIVE
    assert (
        "the reference has figures and this run has none: no sample was taken while all of its workers were held"
        in outcome.reason()
    )
    assert outcome.metric(Metric.WALL).decision is Decision.PASSED


# -- runs that are shared ------------------------------------------------------------------------------------------


def test_a_group_is_measured_once_for_all_its_cells(project: Project) -> None:
    running = project.session(launcher := day())
    running.row(THREADS)
    starts = len(launcher.handles)
    assert running.row(FORK).row.sample is not None
    assert len(launcher.handles) == starts
    assert isinstance(running.listener, Watcher)
    assert len(running.listener.begun) == 1


def test_rows_that_were_not_finished_are_measured_again(project: Project) -> None:
    launcher = day()
    launcher.trouble = lambda at: KeyboardInterrupt() if at.event == MEASURED else None
    running = project.session(launcher)
    with pytest.raises(KeyboardInterrupt):
        running.row(THREADS)
    assert not launcher.alive
    launcher.trouble = lambda _: None
    assert running.row(THREADS).row.sample is not None


def test_samples_that_a_full_disk_does_not_take_are_held_and_nothing_is_measured_twice(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(**_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(rows_module, "TemporaryFile", full)
    launcher = day()
    running = project.session(launcher)
    row = running.row(THREADS).row
    starts = len(launcher.handles)
    assert running.row(FORK).row.sample is not None
    assert len(launcher.handles) == starts
    assert running.rows.by_nodeid.keys() == {THREADS, FORK}
    assert running.rows.by_nodeid[THREADS].row == row


def test_a_mistake_of_ours_costs_one_test_its_open_cells(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    launcher = day()
    groups = [group_of(spec=spec_of("threads", nodeid=f"test_{name}.py::test_it")) for name in ("a", "b")]
    step = Trial.step

    def stepping(self: Trial, *given: float | None) -> None:
        if self.rounds == 2 and self.group.key.startswith("test_a"):
            raise KeyError("event")
        step(self, *given)

    monkeypatch.setattr(Trial, "step", stepping)
    running = project.session(launcher, *groups, time=500.0)
    rows = [running.row(group.cells[0].nodeid).row for group in groups]
    starts = len(launcher.handles)
    assert [row.verdict.decision for row in rows] == [Decision.ERROR, Decision.NO_BASELINE]
    error = rows[0].error
    assert error is not None
    assert error.reason == "a mistake of pytest-ftgate: KeyError: 'event'"
    assert error.detail.splitlines()[-2:] == ['    raise KeyError("event")', "KeyError: 'event'"]
    assert not launcher.alive
    assert [running.row(group.cells[0].nodeid).row for group in groups] == rows
    assert len(launcher.handles) == starts


def test_so_does_one_while_a_test_is_begun(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "cores_lacking", lambda *_: 1 / 0)
    outcome = project.run()
    assert {outcome.reason(each) for each in (THREADS, FORK)} == {
        "a mistake of pytest-ftgate: ZeroDivisionError: division by zero"
    }


def test_a_cell_that_cannot_be_judged_is_an_error_and_the_others_have_verdicts(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    project.recorded()
    verdict = Judge.verdict

    def judged(self: Judge, values: Values) -> Verdict:
        if values.cell.nodeid == FORK:
            raise OverflowError("int too large to convert to float")
        return verdict(self, values)

    monkeypatch.setattr(Judge, "verdict", judged)
    outcome = project.run()
    assert outcome.decision(THREADS) is Decision.PASSED
    assert outcome.decision(FORK) is Decision.ERROR
    assert outcome.reason(FORK) == "a mistake of pytest-ftgate: OverflowError: int too large to convert to float"


def test_what_runs_leave_is_hidden_from_git(project: Project) -> None:
    project.run()
    assert (project.root / ".ftgate" / ".gitignore").read_text(encoding="utf-8") == "*\n"


def test_loops_of_the_baseline_are_taken_over(project: Project) -> None:
    project.record(day(lambda _: 0.0005, seed=1))
    outcome = project.run(day(lambda _: 0.002), against="stored")
    loops = {event.at.loops for event in outcome.launcher.of(MEASURED, side="own")}
    # 10 us an iteration then: ten make 0.1 ms, unless the shortest of the first ones was a little shorter.
    stored = re.search(r'"loops":(\d+)', project.baseline.read_text(encoding="utf-8"))
    assert stored is not None
    assert loops == {int(stored[1])} <= {10, 20}


def test_a_cell_that_is_not_collected_any_more_is_reported(project: Project) -> None:
    project.recorded()
    outcome = project.run(None, group_of("threads"))
    assert outcome.report.unused_baselines == (FORK,)
    assert outcome.session.report([], "0.1", None).unused_baselines == ()


def test_a_report_has_the_weights_of_its_advice(project: Project) -> None:
    weights = (("time", 1.0), ("memory", 0.5))
    assert project.run(weights=weights).report.weights == weights


def test_a_table_says_that_its_launches_were_split(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    small = Capacity(descriptors=64, opened=20)
    monkeypatch.setattr(Capacity, "of_this_process", lambda: small)
    (table,) = project.run().report.tables
    assert table.note.startswith("not all cells were measured together, but in up to 2 batches a round: ")
    assert "64 files" in table.note
    monkeypatch.setattr(Capacity, "of_this_process", Capacity)
    (table,) = project.run().report.tables
    assert table.note == ""


def test_the_report_holds_everything(project: Project) -> None:
    outcome = project.run()
    report = outcome.report
    assert (report.seed, report.machine, report.version) == (11, MACHINE, "0.1")
    assert [table.title for table in report.tables] == [TWO.key]
    assert [interpreter.version for interpreter in report.interpreters] == [GIL.version]
    assert split_nodeid(THREADS) == (TEST, "3.14-threads-w2")
    assert all(row.sample is not None for row in outcome.rows.values())


# -- lock wait, scaling, and sampling overhead --------------------------------------------------------------------


def waiting(share: float, slower: Callable[[At], float] = lambda _: 1.0, seed: int = 2) -> FakeLauncher:
    """Launches whose workers wait for a lock for about that share of the time, where the reference waits for 10 %."""
    launcher = day(slower, seed=seed)
    conditions = noisy(20 * MS, 0.05, seed=seed)
    launcher.waited_ns = lambda at: conditions(at) * (0.10 if at.reference else share)
    return launcher


def test_more_lock_wait_regresses_where_the_time_is_the_same(project: Project) -> None:
    project.record(waiting(0.10, seed=1))
    assert project.run(waiting(0.10)).decision() is Decision.PASSED
    outcome = project.run(waiting(0.20))
    assert outcome.decision() is Decision.REGRESSED
    assert outcome.metric(Metric.WALL).decision is Decision.PASSED
    points = outcome.metric(Metric.LOCK_WAIT).points
    assert points is not None
    assert points.value == pytest.approx(0.125, abs=0.02)  # of the work, which is eight tenths of the time
    assert outcome.rows[THREADS].figures.lock_wait == pytest.approx(0.25, rel=0.15)


def test_a_point_more_of_hardly_any_wait_is_none(project: Project) -> None:
    for seed in (1, 2, 3):
        project.record(waiting(0.0, seed=seed), update="all")
    assert project.run(waiting(0.005), against="stored").decision() is Decision.PASSED


def test_a_figure_that_cost_too_much_to_see_is_not_judged(project: Project) -> None:
    project.record(waiting(0.10, seed=1))
    outcome = project.run(waiting(0.30, lambda at: 1.4 if at.side == "locks" else 1.0))
    assert outcome.decision() is Decision.INCONCLUSIVE
    assert outcome.metric(Metric.WALL).decision is Decision.PASSED
    assert "the lock probe slowed it 1.4" in reasons.of_metric(outcome.metric(Metric.LOCK_WAIT))
    dearer = project.run(waiting(0.30, lambda at: 1.4 if at.side == "locks" else 1.0), probe_cost=0.6)
    assert dearer.decision() is Decision.REGRESSED


def test_watching_that_cost_too_much_refuses_memory_alone(project: Project) -> None:
    project.recorded()
    launcher = day()
    launcher.memory = lambda at: memory_of((20 if at.reference else 40) * MIB)
    launcher.watched = lambda _: 1.5
    outcome = project.run(launcher, against="stored")
    assert outcome.decision() is Decision.INCONCLUSIVE
    assert outcome.metric(Metric.USS).decision is Decision.INCONCLUSIVE
    assert "1.5" in reasons.of_metric(outcome.metric(Metric.USS))


def test_worse_scaling_regresses_with_its_time_where_it_gates(project: Project) -> None:
    named = (*metrics.GATING, Metric.SCALING)
    four = f"{TEST}[3.14-threads-w4]"

    def scaled(factor: float, seed: int) -> FakeLauncher:
        own = {True: 2.0, False: factor}
        return day(lambda at: own[at.reference] if "w4" in at.label and at.side == "own" else 1.0, seed=seed)

    project.record(scaled(2.0, 1), of_counts(1, 4))
    outcome = project.run(scaled(2.0, 2), of_counts(1, 4))
    assert outcome.decision(four) is Decision.PASSED
    scaling = outcome.rows[four].figures.scaling
    assert scaling is not None
    assert scaling.value == pytest.approx(2.0, rel=0.02)  # four times the work in twice the time
    assert outcome.rows[four].figures.efficiency == pytest.approx(0.5, rel=0.02)
    assert outcome.rows[four].figures.serial_fraction == pytest.approx(1 / 3, rel=0.1)
    assert Metric.SCALING not in {each.metric for each in outcome.rows[four].verdict.metrics}
    worse = project.run(scaled(2.6, 3), of_counts(1, 4), metrics=named)
    assert worse.metric(Metric.SCALING, four).decision is Decision.REGRESSED
    assert worse.metric(Metric.WALL, four).decision is Decision.REGRESSED
    assert worse.decision(f"{TEST}[3.14-threads-w1]") is Decision.PASSED


def test_scaling_that_fell_because_one_worker_became_faster_fails_nothing(project: Project) -> None:
    one, four = (f"{TEST}[3.14-threads-w{count}]" for count in (1, 4))

    def faster_alone(at: At) -> float:
        return 0.63 if "w1" in at.label and not at.reference and not at.control else 1.0

    outcome = project.run(day(faster_alone), of_counts(1, 4), metrics=(*metrics.GATING, Metric.SCALING), against="main")
    assert outcome.decision(one) is Decision.IMPROVED
    assert outcome.decision(four) is Decision.PASSED
    scaling = outcome.metric(Metric.SCALING, four)
    assert reasons.of_metric(scaling).endswith("; the cell's own time is not worse")


def test_without_its_one_worker_cell_scaling_is_not_judged(project: Project) -> None:
    four = f"{TEST}[3.14-threads-w4]"
    project.record(None, of_counts(1, 4))
    outcome = project.run(None, of_counts(4))
    assert outcome.decision(four) is Decision.PASSED
    assert Metric.SCALING not in {each.metric for each in outcome.rows[four].verdict.metrics}


# -- bases ---------------------------------------------------------------------------------------------------------


def test_a_day_that_the_control_workload_does_not_cancel_passes_when_paired_with_its_commit(project: Project) -> None:
    project.recorded()
    outcome = project.run(day(lambda at: 1.0 if at.control else 1.3))  # the reference is as slow today
    assert outcome.decision() is outcome.decision(FORK) is Decision.PASSED
    assert outcome.rows[THREADS].verdict.basis == "paired"


def test_where_no_commit_can_be_had_only_much_slower_fails(project: Project) -> None:
    project.recorded(days=3)
    project.paired = False
    slower = project.run(day(cells_slower(1.1)))
    assert (slower.decision(), slower.rows[THREADS].verdict.basis) == (Decision.INCONCLUSIVE, "stored")
    assert slower.rows[THREADS].verdict.why == "recorded at 1eb3b87000, whose test cannot run here: no git here"
    assert slower.decision(FORK) is Decision.PASSED
    assert project.run(day(cells_slower(1.3))).decision() is Decision.REGRESSED


def test_more_recordings_tell_smaller_regressions(project: Project) -> None:
    def allowed() -> float:
        return project.run(day(cells_slower(1.1))).metric(Metric.WALL).allowed or 0.0

    project.recorded()
    project.paired = False
    once = allowed()
    for seed in range(20, 24):
        project.record(day(seed=seed), update="all")
    assert allowed() - 1 < 0.95 * (once - 1)


def test_the_last_twenty_recordings_stay(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    assert RECORDINGS_KEPT == 20
    monkeypatch.setattr(baseline_folder, "RECORDINGS_KEPT", 3)
    project.recorded()
    for seed in range(30, 34):
        outcome = project.record(day(seed=seed), group_of("threads"), update="all")
    stored = outcome.session.stored.store.lookup(THREADS, MACHINE.fingerprint, GIL_KEY)
    assert stored is not None
    assert len(stored.recordings) == 3
    assert stored.recordings[-1].recorded_at == outcome.report.started_at


def test_a_reference_that_lacks_the_test_is_no_baseline(project: Project) -> None:
    project.label = "without it"
    outcome = project.run(against="main")
    assert outcome.decision() is Decision.NO_BASELINE
    assert outcome.reason() == "without it has no such test: it will be compared from the next change on"
    assert not any(request.reference for request in outcome.launcher.requests)
    assert outcome.launches() == LEAST_LAUNCHES
    sample = outcome.rows[THREADS].sample
    assert sample is not None
    assert max(len(launch.iterations) for launch in sample.launches) == PILOT_ITERATIONS


def test_a_reference_that_lacks_the_test_is_not_built(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []
    monkeypatch.setattr(Targets, "make_all", lambda _, group, sides: made.extend(side.label for side in sides))
    project.label = "without it"
    assert project.run(against="main").decision() is Decision.NO_BASELINE
    assert "without it" not in {*made, *project.looked}
    assert len(set(made)) == 1


@pytest.mark.parametrize("there", [False, True])
def test_what_the_reference_lacks_is_said_once_before_anything_is_measured(project: Project, there: bool) -> None:
    project.label = "without it"
    if there:  # another test is in that file
        (project.root / "old").mkdir()
        (project.root / "old/test_work.py").touch()
    (project.root / "pyproject.toml").write_text("[project]\nname = 'Mine'\n")
    running = project.session(day(), against="main")
    running.tell_new()
    lacking = TEST if there else "test_work.py"
    expected = (
        f"without it has no {lacking}: it will be compared from the next change on; "
        "--ftgate-against dist:mine==VERSION compares with a release now"
    )
    assert cast(Watcher, running.listener).warnings == [expected]


def test_a_local_branch_that_has_it_is_named(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    project.label = "without it"
    monkeypatch.setattr("pytest_ftgate.run.sides.worktrees.ahead", lambda root, pair, test: "main")
    running = project.session(day(), against="merge-base")
    running.tell_new()
    assert cast(Watcher, running.listener).warnings == [
        (
            "without it has no test_work.py, but the local main, which is ahead of it, does: "
            "compare with --ftgate-against=main"
        )
    ]


@pytest.mark.parametrize("label", ["main (1eb3b87)", ""])
def test_nothing_is_said_where_the_reference_has_it_or_there_is_none(project: Project, label: str) -> None:
    project.label = label or "without it"
    running = project.session(day(), against="main" if label else "")
    running.tell_new()
    assert cast(Watcher, running.listener).warnings == []


def test_a_reference_that_cannot_be_installed_is_an_error(project: Project) -> None:
    project.recorded()
    project.uninstallable = {project.label, "1eb3b87"}
    outcome = project.run(against="main")
    assert outcome.decision() is outcome.decision(FORK) is Decision.ERROR
    assert "cannot install" in outcome.reason()


def test_a_reference_that_fails_has_nothing_to_compare(project: Project) -> None:
    launcher = day()
    launcher.trouble = lambda at: failed("ValueError: old") if at.reference and at.event == MEASURED else None
    outcome = project.run(launcher, against="main")
    assert outcome.decision() is Decision.NO_BASELINE
    assert outcome.reason().startswith("the reference fails: ")
    assert outcome.reason().endswith("ValueError: old")


def test_a_busy_machine_hides_no_doubling_and_passes_only_memory(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    project.recorded()
    project.paired = False
    monkeypatch.setattr(decide, "deviation", lambda *_: decide.MOVED)
    outcome = project.run(day(cells_slower(2.0)))
    assert outcome.decision() in (Decision.REGRESSED, Decision.SUSPECT)
    assert outcome.decision(FORK) is Decision.INCONCLUSIVE
    assert outcome.metric(Metric.USS, FORK).decision is Decision.PASSED


def test_of_another_machine_nothing_is_judged_where_the_environment_of_its_commit_fails(project: Project) -> None:
    project.recorded()
    project.uninstallable = {"1eb3b87"}
    project.machine = msgspec.structs.replace(MACHINE, fingerprint="linux-x86_64-64c-99999999")
    elsewhere = project.run(day(cells_slower(3.0, FORK)))
    assert (elsewhere.decision(FORK), elsewhere.rows[FORK].verdict.basis) == (Decision.NO_BASELINE, "")
    assert elsewhere.reason(FORK).endswith(
        "; recorded at 1eb3b87000, whose test cannot run here: cannot install 1eb3b87: no such package"
    )


def test_a_reference_that_dies_later_ends_its_cell(project: Project) -> None:
    def dying(launcher: FakeLauncher) -> FakeLauncher:
        launcher.trouble = lambda at: failed("boom") if at.reference and at.order > 0 and at.event == MEASURED else None
        return launcher

    against = project.run(dying(day()), against="main")
    assert against.decision() is Decision.NO_BASELINE
    assert "boom" in against.reason()
    assert against.launches() < 8


def test_memory_that_the_changed_side_alone_does_not_show_does_not_pass(project: Project) -> None:
    launcher = day()
    launcher.memory = lambda at: memory_of(20 * MIB if at.reference else None)
    outcome = project.run(launcher, against="main")
    assert outcome.decision() is Decision.INCONCLUSIVE
    assert "the reference has figures and this run has none" in reasons.of_metric(outcome.metric(Metric.USS))


def test_the_same_code_on_a_slower_day_is_recorded_only_by_name(project: Project) -> None:
    """Nobody else would tell that the system became slower."""
    project.recorded()
    project.same = True
    outcome = project.run(day(cells_slower(3.0)), update=("all",))
    assert outcome.decision() is Decision.REGRESSED
    assert any(THREADS in line and "refused" in line for line in outcome.report.updates)
    stored = project.run(day(cells_slower(3.0)), update=(THREADS,)).session.stored.store
    entry = stored.lookup(THREADS, MACHINE.fingerprint, GIL_KEY)
    assert entry is not None
    assert ratios_of(entry) == pytest.approx([3.0] * LAUNCHES, rel=0.03)


def test_a_target_that_cannot_be_installed_is_an_error_of_its_own_cells(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries: list[str] = []

    def prepare(_: Targets, target: Target, requires: tuple[str, ...], checkout: object) -> TargetLookup:
        tries.append(target.spec)
        if target.spec == "3.14t":
            raise InstallError("cannot install -e . for 3.14t: no such wheel")
        return project.lookup(fine.cells[0])

    monkeypatch.setattr(Targets, "lookup", LOOKUP)
    monkeypatch.setattr(Targets, "_prepare", prepare)
    fine = group_of(spec=spec_of("threads", nodeid="test_a.py::test_it"))
    broken = group_of(spec=spec_of("threads", nodeid="test_b.py::test_it"), targets=("3.14t",))
    outcome = project.run(None, fine, broken)
    assert outcome.decision("test_a.py::test_it[3.14-threads-w2]") is Decision.NO_BASELINE
    assert outcome.decision("test_b.py::test_it[3.14t-threads-w2]") is Decision.ERROR
    assert outcome.reason("test_b.py::test_it[3.14t-threads-w2]") == "cannot install -e . for 3.14t: no such wheel"
    assert sorted(tries) == ["3.14", "3.14t"]


# -- contracts -----------------------------------------------------------------------------------------------------


def test_a_contract_needs_no_baseline(project: Project) -> None:
    slower = day(lambda at: 1.3 if at.label == "3.14-fork-w2" else 1.0)
    holds = project.run(slower, required(TWO, "threads.wall < 0.9 * processes[fork].wall", "uss < 64 MiB"))
    assert holds.decision() is holds.decision(FORK) is Decision.PASSED
    broken = project.run(day(), required(TWO, "threads.wall < 0.9 * processes[fork].wall"))
    assert broken.decision() is Decision.BROKEN
    assert broken.decision(FORK) is Decision.NO_BASELINE  # it belongs to the cell that is named first
    (verdict,) = broken.rows[THREADS].verdict.metrics
    assert (verdict.metric, verdict.contract) == (Metric.CONTRACT, "threads.wall < 0.9 * processes[fork].wall")
    assert broken.launches() < 30


@pytest.mark.parametrize("against", ["", "main"])
def test_scaling_is_held_against_what_the_machine_gives(project: Project, against: str) -> None:
    """Four workers take 1.6 times the time of one in the control workload: this machine scales by 2.5."""

    def scaled(own: float) -> FakeLauncher:
        def slower(at: At) -> float:
            return (1.6 if at.control else own) if "w4" in at.label else 1.0

        return day(slower)

    four = f"{TEST}[3.14-threads-w4]"
    group = of_counts(1, 4)
    contract = DeclaredContract(text="scaling >= 0.8 * ceiling")
    group = msgspec.structs.replace(group, spec=msgspec.structs.replace(group.spec, contracts=(contract,)))
    holds = project.run(scaled(1.7), group, against=against)
    assert holds.metric(Metric.CONTRACT, four).decision is Decision.PASSED
    shown = re.match(r"(\S+) against", reasons.of_metric(holds.metric(Metric.CONTRACT, four)))
    assert shown is not None
    assert float(shown[1]) == pytest.approx(4 / 1.7, rel=0.02)
    broken = project.run(scaled(3.0), group, against=against)
    assert broken.decision(four) is Decision.BROKEN
    assert broken.decision(f"{TEST}[3.14-threads-w1]") is not Decision.BROKEN
    if against:  # a control workload beside each side of the scaling, and none beside the reference
        assert not [request for request in broken.launcher.requests if request.role == "control" and request.reference]


def test_a_contract_is_judged_together_with_what_is_stored(project: Project) -> None:
    project.record(None, required(TWO, "uss < 64 MiB"))
    outcome = project.run(day(cells_slower(1.3)), required(TWO, "uss < 64 MiB"))
    assert outcome.decision() is Decision.REGRESSED
    assert outcome.metric(Metric.CONTRACT).decision is Decision.PASSED
    assert outcome.rows[THREADS].verdict.basis == "paired"
    too_much = project.run(day(uss_bytes=65 * MIB), required(TWO, "uss < 64 MiB"), against="main")
    assert too_much.decision() is Decision.BROKEN


# -- a budget ------------------------------------------------------------------------------------------------------


def test_tests_that_share_a_budget_take_turns_until_each_is_decided(project: Project) -> None:
    launcher = day()
    noise_of = {"test_loud.py::test_it": 0.30, "test_calm.py::test_it": 0.003, "test_wild.py::test_it": 0.25}
    walls = {nodeid: noisy(20 * MS, noise, seed=3) for nodeid, noise in noise_of.items()}
    tests = [group_of(spec=spec_of("threads", nodeid=nodeid)) for nodeid in noise_of]

    def wall(at: At) -> float:
        return walls[launcher.requests[-1].spec.nodeid](at)

    launcher.wall_ns = wall
    outcome = project.run(launcher, *tests, against="main", time=120.0)
    assert launcher.clock() < 120.5
    rounds = {nodeid: outcome.launches(f"{nodeid}[3.14-threads-w2]") for nodeid in noise_of}
    assert min(rounds.values()) > 2
    assert len({*rounds.values()}) > 1
    turns = [nodeid for at in range(max(rounds.values())) for nodeid in rounds if rounds[nodeid] > at]
    begun = [title.partition(" ")[0] for title in outcome.begun[len(tests) :]]
    assert begun == [nodeid for nodeid, _ in groupby(turns)]


def test_a_test_that_runs_what_has_changed_goes_ahead(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    launcher = day()
    changed, other = (group_of(spec=spec_of("threads", nodeid=f"test_{name}.py::test_it")) for name in ("a", "b"))
    monkeypatch.setattr(Trial, "suspect", property(lambda trial: trial.group.key == changed.key))
    outcome = project.run(launcher, changed, other, against="main", time=500.0)
    assert [title.partition(" ")[0] for title in outcome.begun] == ["test_a.py::test_it", "test_b.py::test_it"]
    slow = FakeLauncher(wall_ns=noisy(200 * MS, 0.3, within=0.3, seed=3))
    outcome = project.run(slow, changed, other, against="main", time=60.0)
    assert outcome.launches(other.cells[0].nodeid) > 1, "for its share of the time, not for all of it"
    assert len(outcome.begun) > 2


def test_the_first_failure_is_said_as_soon_as_it_is_decided(project: Project) -> None:
    launcher = day(cells_slower(3.0, THREADS, FORK))
    outcome = project.run(launcher, against="main")
    said = [text for text in project.listener.warnings if text.startswith("regressed: ")]
    assert len(said) == 1
    assert said[0].startswith((f"regressed: {THREADS} - wall +200", f"regressed: {FORK} - wall +200"))
    assert (outcome.decision(THREADS), outcome.decision(FORK)) == (Decision.REGRESSED, Decision.REGRESSED)
    project.run(day(), against="main")
    assert not [text for text in project.listener.warnings if text.startswith("regressed: ")]


@pytest.mark.parametrize("time", [None, 300.0])
def test_an_error_is_said_as_a_failure_is_while_other_cells_are_measured(
    project: Project, monkeypatch: pytest.MonkeyPatch, time: float | None
) -> None:
    launcher, said_after = day(between=0.4), list[int]()
    launcher.trouble = lambda at: failed("raised KeyError: 'lost'") if at.label == "3.14-fork-w2" else None
    warn = Watcher.warn

    def noted(watcher: Watcher, text: str) -> None:
        if text.startswith("error: "):
            said_after.append(len(launcher.requests))
        warn(watcher, text)

    monkeypatch.setattr(Watcher, "warn", noted)
    outcome = project.run(launcher, against="main", time=time)
    assert [text for text in project.listener.warnings if text.startswith("error: ")] == [
        f"error: {FORK} - also in the reference: KeyError: 'lost'"
    ]
    assert outcome.decision(FORK) is Decision.ERROR
    assert said_after[0] < len(launcher.requests) / 2, "after its first round"


def test_a_test_that_cannot_begin_is_said_before_others_are_measured(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost, other = (group_of(spec=spec_of("threads", nodeid=f"test_{name}.py::test_it")) for name in ("lost", "other"))
    settle, said_before = Trial._settle, list[list[str]]()

    def lost_settles(trial: Trial, *given: Any) -> frozenset[tuple[str, str]]:
        said_before.append([*project.listener.warnings])
        if trial.group.key == lost.key:
            raise AgainstError("no such commit")
        return settle(trial, *given)

    monkeypatch.setattr(Trial, "_settle", lost_settles)
    project.run(day(), lost, other, against="main", time=300.0)
    assert said_before == [[], [f"error: {lost.cells[0].nodeid} - no such commit"]]


def test_a_budget_is_the_end_whatever_is_under_way(project: Project) -> None:
    project.recorded()
    for budget_s in (1.0, 7.0, 23.0):
        launcher = day(between=0.4)
        project.run(launcher, time=budget_s)
        assert budget_s / 2 < launcher.clock() < budget_s + 0.3


@pytest.mark.parametrize("budget_s", [0.5, 2.0, 4.0, 5.3, 8.0])
def test_a_budget_that_ends_in_between_never_turns_a_regression_into_nothing(project: Project, budget_s: float) -> None:
    project.recorded()
    launcher = day(cells_slower(3.0))
    outcome = project.run(launcher, time=budget_s)
    one = Decision.INCONCLUSIVE if outcome.launches() == 1 else Decision.REGRESSED  # which one launch never shows
    assert outcome.decision() in (Decision.REGRESSED, Decision.SUSPECT, Decision.ERROR, one)
    assert outcome.reason()
    if outcome.launches() > 2:
        assert outcome.decision() is Decision.REGRESSED


def test_a_budget_gives_every_test_its_first_rounds(project: Project) -> None:
    launcher = FakeLauncher(wall_ns=noisy(200 * MS, 0.003, within=0.05, seed=3))
    tests = [group_of(spec=spec_of("threads", nodeid=f"test_{number}.py::test_it")) for number in range(8)]
    outcome = project.run(launcher, *tests, against="main", time=70.0)
    rounds = [outcome.launches(cell.nodeid) for group in tests for cell in group.cells]
    assert 2 <= min(rounds) <= max(rounds) <= 1 + min(rounds)
    assert launcher.clock() < 71


def test_rows_of_tests_that_ended_are_kept_whatever_comes_then(project: Project) -> None:
    launcher = day()
    quick, slow = (group_of(spec=spec_of("threads", nodeid=f"test_{name}.py::test_it")) for name in ("quick", "slow"))
    noise_of = {"test_quick.py::test_it": noisy(20 * MS, 0.003), "test_slow.py::test_it": noisy(20 * MS, 0.4)}

    def nodeid() -> str:
        return launcher.requests[-1].spec.nodeid if launcher.requests else ""

    def wall(at: At) -> float:
        return noise_of[nodeid()](at)

    def interrupted(at: At) -> BaseException | None:
        return KeyboardInterrupt() if nodeid() == "test_slow.py::test_it" and at.order > 8 else None  # of both

    launcher.wall_ns = wall
    launcher.trouble = interrupted
    running = project.session(launcher, quick, slow, against="main", time=500.0)
    with pytest.raises(KeyboardInterrupt):
        running.row(quick.cells[0].nodeid)
    assert {nodeid: placed.row.in_part for nodeid, placed in running.rows.by_nodeid.items()} == {
        quick.cells[0].nodeid: False,
        slow.cells[0].nodeid: True,
    }
