"""One test on its way: its references, what ends early, and what a budget grants."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import msgspec
import pytest
from fake_launcher import (
    GIL,
    MIB,
    MS,
    At,
    FakeLauncher,
    failed,
    group_of,
    memory_of,
    noisy,
    spec_of,
)
from scripted import COMMIT, FORK, THREADS, TWO, Project, cells_slower, day, finish, of_counts, required, rows_of
from values import entry, forked, probed, sample_of

from pytest_ftgate.declare.options import seconds
from pytest_ftgate.features.accept import Acceptances
from pytest_ftgate.features.unchanged.cells import UnchangedCells
from pytest_ftgate.hookspec import hookimpl
from pytest_ftgate.judge import decide, explain
from pytest_ftgate.judge.decide import MOVED
from pytest_ftgate.judge.judge import PAIRED_ROUNDS, ComparedWith
from pytest_ftgate.judge.prediction import LEAST_LAUNCHES, MOST_LAUNCHES
from pytest_ftgate.kit.values import Metric
from pytest_ftgate.measure.conditions import ConditionsMonitor
from pytest_ftgate.model.report import Cause, CauseOf, Conditions, Moved, Row, Shortfall
from pytest_ftgate.model.sample import (
    Function,
    Held,
    Loads,
    LockHolder,
    MemoryPoint,
    Profile,
    Sample,
    StackSamples,
    executor_cell,
)
from pytest_ftgate.model.spec import Cell, Executor, Xfail, parse_target
from pytest_ftgate.model.verdict import Acceptance, Decision, MetricVerdict, Verdict
from pytest_ftgate.report import errors, reasons, said
from pytest_ftgate.run import explaining
from pytest_ftgate.run.trial import Settled
from pytest_ftgate.runner.protocol import BARRIER, MEASURED

THREADS_ALONE = group_of("threads")
AB = ("a" * 40, "b" * 40)
SIDES = ((True, "old"), (False, "new"))
CLEAN = Conditions(span_s=60.0, cores=2)


BUSY = "others kept the cores busy"


def decision(rows: dict[str, Row], nodeid: str, metric: Metric) -> Decision:
    return next(each.decision for each in rows[nodeid].verdict.metrics if each.metric == metric)


# -- references --------------------------------------------------------------------------------------------------------


class TestReferences:
    @pytest.mark.parametrize(("between", "launches"), [(0.003, LEAST_LAUNCHES), (0.3, MOST_LAUNCHES)])
    def test_stored_figures_end_when_more_launches_would_hardly_help(
        self, project: Project, between: float, launches: int
    ) -> None:
        project.recorded(THREADS_ALONE, launches=12)
        launcher = day(cells_slower(1.12, THREADS), between=between)
        row = finish(project.trial(launcher, THREADS_ALONE, against="stored"))[THREADS]
        assert row.verdict.decision is Decision.INCONCLUSIVE
        assert (row.verdict.basis, row.verdict.why) == ("stored", "--ftgate-against stored")
        assert project.recorded_pairs == []
        assert row.sample is not None
        assert len(row.sample.launches) == launches

    def test_against_a_revision_all_cells_are_paired_with_it(self, project: Project) -> None:
        launcher = day(cells_slower(1.3, FORK))
        trial = project.trial(launcher, TWO, against="main")
        rows = finish(trial)
        assert project.recorded_pairs == []
        assert [row.verdict.decision for row in rows.values()] == [Decision.PASSED, Decision.REGRESSED]
        assert not [request for request in launcher.requests if request.role == "control"]
        assert {(row.verdict.basis, row.verdict.why, row.verdict.baseline) for row in rows.values()} == {
            ("paired", "--ftgate-against main", project.label)
        }
        files = {(request.reference, request.spec.source.path) for request in launcher.requests}
        assert files == {(reference, f"{project.root}/{side}/test_work.py") for reference, side in SIDES}

    @pytest.mark.parametrize("computes", [True, False])
    def test_beside_other_work_a_body_that_computes_passes_by_cpu_time(self, project: Project, computes: bool) -> None:
        wall_of, cpu_of = noisy(1.3, 0.2, 0.2, seed=2), noisy(20 * MS if computes else 10 * MS, 0.003, seed=6)
        launcher = FakeLauncher(wall_ns=lambda at: 20 * MS * max(1.0, wall_of(at)))
        launcher.cpu_ns = cpu_of
        (row,) = finish(project.trial(launcher, THREADS_ALONE, against="main", launches=10)).values()
        wall = next(each for each in row.verdict.metrics if each.metric == "wall")
        assert reasons.of_metric(wall).startswith("by CPU time, ") is computes
        assert wall.decision is (Decision.PASSED if computes else Decision.INCONCLUSIVE)

    def test_with_no_cell_left_nothing_begins(self, project: Project) -> None:
        launcher = day()
        project.missing = {cell.nodeid: "no 3.14" for cell in TWO.cells}
        trial = project.trial(launcher, TWO, against="main")
        assert not trial.open
        assert trial.rounds == 0
        assert [row.verdict.decision for row in trial.rows()] == [Decision.UNSUPPORTED] * 2
        assert project.recorded_pairs == []
        trial.step()
        trial.close()
        assert not launcher.requests

    def test_an_error_for_want_of_a_file_says_so(self, project: Project) -> None:
        launcher = day()
        launcher.trouble = lambda at: None if at.reference else failed("FileNotFoundError", "Traceback: x.csv")
        project.hinted = "x.csv is ignored by git"
        error = finish(project.trial(launcher, TWO, against="main"))[THREADS].error
        assert error is not None
        assert error.detail == "Traceback: x.csv\nx.csv is ignored by git"
        here = finish(project.trial(launcher, TWO))[THREADS].error
        assert here is not None
        assert here.detail == "Traceback: x.csv"

    def test_an_error_for_want_of_a_module_that_pytest_has_says_so(self, project: Project) -> None:
        launcher = day()
        trace = "Traceback\nModuleNotFoundError: No module named 'iniconfig'"
        launcher.trouble = lambda at: failed("raised ModuleNotFoundError: No module named 'iniconfig'", trace)
        error = finish(project.trial(launcher, TWO))[THREADS].error
        assert error is not None
        assert error.detail.startswith(f"{trace}\niniconfig is installed where pytest runs, not in the environment of ")

    def test_an_error_of_a_cell_is_looked_for_in_the_commit_of_its_recording(self, project: Project) -> None:
        project.recorded(THREADS_ALONE)
        launcher = day()
        launcher.trouble = lambda at: failed("lost") if not at.reference and at.event == MEASURED else None
        row = finish(project.trial(launcher, THREADS_ALONE))[THREADS]
        verdict = row.verdict
        assert (verdict.decision, verdict.reason, verdict.basis) == (Decision.ERROR, "lost", "paired")
        assert row.sample is not None
        assert row.sample.reference is not None
        assert (row.sample.reference.error, row.sample.reference.begun >= 3) == (None, True)
        assert "of the reference had this error" in errors.whose(row)

    def test_an_error_of_what_is_stored_names_its_commit(self, project: Project) -> None:
        launcher = day()
        launcher.trouble = lambda at: failed("lost") if at.event == MEASURED else None
        project.recorded(THREADS_ALONE)
        row = finish(project.trial(launcher, THREADS_ALONE, against="stored"))[THREADS]
        assert (row.verdict.decision, row.verdict.commit, row.verdict.basis) == (Decision.ERROR, COMMIT, "stored")

    def test_cells_that_were_recorded_at_two_commits_are_measured_together_each_with_its_own(
        self, project: Project
    ) -> None:
        """A new cell does not move the reference of an old one, which has become slower since."""
        launcher = day(cells_slower(1.3, THREADS))
        project.recorded(commits=AB)
        trial = project.trial(launcher, TWO)
        assert trial.phase is not None
        references = {cell_run.cell.nodeid: cell_run.reference for cell_run in trial.phase.measurement.cell_runs}
        assert None not in references.values()
        rows = finish(trial)
        assert {nodeid: (row.verdict.baseline, row.verdict.decision) for nodeid, row in rows.items()} == {
            THREADS: ("aaaaaaa", Decision.REGRESSED),
            FORK: ("bbbbbbb", Decision.PASSED),
        }
        assert {row.verdict.basis for row in rows.values()} == {"paired"}
        assert not launcher.of(MEASURED, side="control")

    def test_contracts_and_pairs_are_judged_in_one_measurement(self, project: Project) -> None:
        group = required(TWO, "uss < 1 MiB")
        project.recorded(group)
        rows = finish(project.trial(day(cells_slower(1.3, THREADS)), group))
        assert rows[THREADS].verdict.basis == "paired"
        assert decision(rows, THREADS, Metric.CONTRACT) is Decision.BROKEN
        assert decision(rows, THREADS, Metric.WALL) is Decision.REGRESSED
        assert [each.metric for each in rows[THREADS].verdict.metrics].count(Metric.CONTRACT) == 1

    def test_beside_other_work_stored_figures_pass_no_time(
        self, project: Project, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(decide, "deviation", lambda *_: MOVED)
        project.recorded(THREADS_ALONE)
        row = finish(project.trial(day(), THREADS_ALONE, against="stored"))[THREADS]
        assert row.verdict.decision is Decision.INCONCLUSIVE
        paired = finish(project.trial(day(), THREADS_ALONE))[THREADS]
        assert (paired.verdict.decision, paired.verdict.basis) == (Decision.PASSED, "paired")

    def test_a_commit_that_cannot_be_installed_leaves_its_cells_to_what_is_stored(self, project: Project) -> None:
        """Those of another commit are paired with it, in the same measurement."""
        project.recorded(launches=12, commits=AB)
        project.uninstallable = {"aaaaaaa"}
        rows = finish(project.trial(day(cells_slower(2.0, THREADS, FORK)), TWO))
        threads, fork = (rows[nodeid].verdict for nodeid in (THREADS, FORK))
        assert (threads.decision, threads.basis) == (Decision.REGRESSED, "stored")
        why = "recorded at aaaaaaaaaa, whose test cannot run here: cannot install aaaaaaa: no such package"
        assert threads.why == why
        assert [line.partition(": ")[2] for line in project.listener.warnings][:1] == [
            "aaaaaaa cannot be measured: cannot install aaaaaaa: no such package"
        ]
        assert (fork.decision, fork.basis, fork.baseline) == (Decision.REGRESSED, "paired", "bbbbbbb")

    def test_a_working_tree_that_cannot_be_checked_out_is_measured_in_place(self, project: Project) -> None:
        project.recorded(launches=12, days=3)
        project.uninstallable = {"work tree"}
        launcher = day()
        rows = finish(project.trial(launcher, TWO))
        assert {row.verdict.decision for row in rows.values()} == {Decision.PASSED}
        assert {row.verdict.basis for row in rows.values()} == {"stored"}
        assert "cannot install work tree" in rows[THREADS].verdict.why
        assert {request.spec.source.path for request in launcher.requests} == {"test_work.py"}

    @pytest.mark.parametrize("stored", [True, False])
    def test_a_reference_that_fails_before_its_first_pair_leaves_the_cell_to_what_is_stored(
        self, project: Project, stored: bool
    ) -> None:
        """As a test of another API does; the other cell stays paired."""
        project.recorded(launches=12)
        if not stored:
            project.machine = msgspec.structs.replace(project.machine, fingerprint="linux-x86_64-64c-99999999")
        launcher = day(cells_slower(2.0, THREADS))
        launcher.trouble = lambda at: failed("no such name") if at.reference and "threads" in at.label else None
        rows = finish(project.trial(launcher, TWO))
        verdict = rows[THREADS].verdict
        why = "recorded at 1eb3b87000, whose test cannot run here: no such name"
        if stored:
            assert (verdict.decision, verdict.basis, verdict.why) == (Decision.REGRESSED, "stored", why)
        else:
            assert (verdict.decision, verdict.basis) == (Decision.NO_BASELINE, "")
            assert verdict.reason.startswith("another machine or build recorded it")
            assert verdict.reason.endswith(why)
        sample = rows[THREADS].sample
        assert sample is not None
        assert len(sample.of("control")) == len(sample.launches) >= LEAST_LAUNCHES
        assert (rows[FORK].verdict.decision, rows[FORK].verdict.basis) == (Decision.PASSED, "paired")

    def test_what_needs_a_file_that_git_does_not_have_is_measured_in_place(self, project: Project) -> None:
        """An extension that was built in place: no checkout has it."""
        project.recorded(THREADS_ALONE, launches=12)
        (project.root / "words").mkdir()
        (project.root / "words" / "_fast.cpython-314-x.so").touch()
        missing = "ModuleNotFoundError: No module named 'words._fast'"
        launcher = day(cells_slower(2.0, THREADS))

        def trouble(at: At) -> BaseException | None:
            if at.event != "ready" or launcher.requests[-1].spec.source.path == "test_work.py":
                return None
            return failed(f"raised {missing}", f"Traceback\n{missing}")

        launcher.trouble = trouble
        row = finish(project.trial(launcher, THREADS_ALONE))[THREADS]
        assert (row.verdict.decision, row.verdict.basis, row.error) == (Decision.REGRESSED, "stored", None)
        assert "words/_fast.cpython-314-x.so is in the working tree but not in git" in row.verdict.why

    def test_a_reference_that_fails_later_is_not_replaced(self, project: Project) -> None:
        """Its pairs may have been judged: stored figures would be a second chance."""
        project.recorded(THREADS_ALONE, launches=12)
        launcher = day(between=0.05)
        launcher.trouble = lambda at: failed("boom") if at.reference and at.order > 0 and at.event == MEASURED else None
        verdict = finish(project.trial(launcher, THREADS_ALONE))[THREADS].verdict
        assert (verdict.decision, verdict.basis) == (Decision.NO_BASELINE, "")
        assert verdict.reason == "recorded at 1eb3b87000, whose test cannot run here: boom"

    def test_what_runs_and_reads_the_same_as_its_reference_is_not_measured(
        self, project: Project, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        same = {FORK: "nothing that it runs or reads differs at main"}
        monkeypatch.setattr(UnchangedCells, "check", hookimpl(specname="ftgate_settle")(lambda self: Settled(same)))
        project.recorded()
        launcher = day(cells_slower(2.0, THREADS, FORK))
        rows = finish(project.trial(launcher, TWO))
        assert (rows[THREADS].verdict.decision, rows[THREADS].verdict.basis) == (Decision.REGRESSED, "paired")
        assert (rows[FORK].verdict.decision, rows[FORK].verdict.basis) == (Decision.UNCHANGED, "")
        assert rows[FORK].verdict.reason == f"not measured: {same[FORK]}"
        assert {request.cell.nodeid for request in launcher.requests} == {THREADS}

    def test_what_runs_a_changed_function_says_so_to_who_explains_it(
        self, project: Project, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        changed = frozenset({("work.py", "body")})
        settle = hookimpl(specname="ftgate_settle")(lambda self: Settled({}, "body() in work.py differs", changed))
        monkeypatch.setattr(UnchangedCells, "check", settle)
        told: list[object] = []

        def functions(*words: object) -> Cause:
            told.append(words[3])
            return Cause(of="time", unknown="none")

        monkeypatch.setattr(explain, "slower_functions", functions)
        project.recorded()
        trial = project.trial(day(cells_slower(2.0, THREADS, FORK)), TWO)
        assert trial.suspect
        rows = finish(trial)
        assert {row.verdict.why for row in rows.values()} == {"body() in work.py differs"}
        assert told == [changed] * len(told) != []

    def test_a_paired_regression_is_suspect_where_the_workers_mostly_wait(
        self, project: Project, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(decide, "unfit", lambda _, limits: BUSY if limits is decide.PAIRED else "")
        project.recorded(THREADS_ALONE)
        launcher = day(cells_slower(2.0, THREADS))
        assert finish(project.trial(launcher, THREADS_ALONE))[THREADS].verdict.decision is Decision.SUSPECT


# -- time ----------------------------------------------------------------------------------------------------------


class TestEndedEarly:
    def test_it_is_judged_with_what_there_is(self, project: Project) -> None:
        launcher = day(cells_slower(1.3, FORK))
        trial = project.trial(launcher, TWO, against="main")
        trial.step()
        assert (trial.open, trial.rounds) == (True, 1)
        trial.close()
        assert not trial.open
        rows = rows_of(trial)
        assert rows[THREADS].verdict.decision is Decision.INCONCLUSIVE
        assert rows[FORK].verdict.decision in (Decision.INCONCLUSIVE, Decision.SUSPECT)
        assert all(row.sample and len(row.sample.launches) == 1 for row in rows.values())
        wall = next(each for each in rows[FORK].verdict.metrics if each.metric == Metric.WALL)
        assert wall.ratio is not None
        assert wall.ratio.value == pytest.approx(1.3, rel=0.02)

    def test_before_the_first_round_more_time_is_asked_for(self, project: Project) -> None:
        trial = project.trial(day(), TWO, against="main")
        trial.close()
        rows = rows_of(trial)
        assert {row.verdict.decision for row in rows.values()} == {Decision.NOT_MEASURED}
        assert all("--ftgate-time" in row.verdict.reason for row in rows.values())

    def test_closing_twice_is_closing_once(self, project: Project) -> None:
        trial = project.trial(day(), TWO, against="main")
        trial.step()
        trial.close()
        before = trial.rows()
        trial.close()
        trial.step()
        assert trial.rows() == before


class TestBudget:
    def test_a_step_without_time_left_ends_the_phase(self, project: Project) -> None:
        launcher = day(cells_slower(1.08, THREADS))
        trial = project.trial(launcher, TWO, against="main")
        for _ in range(3):
            trial.step(1e6, 1e6)
        assert trial.rounds == 3
        started = len(launcher.requests)
        trial.step(0.0, 0.0)
        assert not trial.open
        assert len(launcher.requests) == started
        assert all(row.sample and len(row.sample.launches) == 3 for row in trial.rows())

    def test_the_time_of_the_test_ends_it_whatever_the_run_has_left(self, project: Project) -> None:
        launcher = day(cells_slower(1.08, THREADS))
        for left_s in (None, 1e6):
            began_s = launcher.clock()
            trial = project.trial(launcher, TWO, against="main", test_time=4.0)
            while trial.open:
                trial.step(left_s, left_s)
            assert 3.0 < launcher.clock() - began_s < 4.3  # a launch is held for 250 ms
            assert any(row.sample and len(row.sample.launches) >= 2 for row in rows_of(trial).values())

    def test_where_the_time_is_too_short_for_all_cells_some_are_decided(self, project: Project) -> None:
        """Twelve cells with the time of three or four: whichever come first, each to its end."""
        group = group_of("threads", "fork", targets=tuple(f"3.{minor}" for minor in range(14, 20)))
        slower = [cell.nodeid for cell in group.cells]
        launcher = day(cells_slower(1.6, *slower))
        rows = finish(project.trial(launcher, group, against="main", test_time=30.0))
        found = Counter(row.verdict.decision for row in rows.values())
        assert found[Decision.REGRESSED] >= 3, found
        assert found.keys() <= {Decision.REGRESSED, Decision.SUSPECT, Decision.INCONCLUSIVE, Decision.NOT_MEASURED}
        waiting = [row for row in rows.values() if row.verdict.decision is Decision.NOT_MEASURED]
        assert len(waiting) >= 3, found
        assert all(row.shortfall and "before its turn came" in row.verdict.reason for row in waiting)
        rounds = [len(row.sample.launches) for row in rows.values() if row.sample and row.sample.launches]
        assert max(rounds) >= 3, "one after the other, not all a little"

    def test_a_test_without_its_first_round_asks_for_more_time(self, project: Project) -> None:
        launcher = day()
        rows = finish(project.trial(launcher, TWO, against="main", test_time=1e-9))
        assert all("--ftgate-test-time" in row.verdict.reason for row in rows.values())

    @pytest.mark.parametrize("wall_ns", [2 * MS, 1500 * MS])
    @pytest.mark.parametrize("basis", ["paired", "stored", "contract", "run"])
    def test_of_a_time_that_is_too_short_the_recommended_one_decides(
        self, project: Project, basis: str, wall_ns: int
    ) -> None:
        if basis == "stored":
            project.recorded(launches=12, days=3)
            project.paired = False
        group = required(TWO, "threads.wall < 2 * processes[fork].wall") if basis == "contract" else TWO
        against = "main" if basis in ("paired", "run") else ""

        def measured(budget_s: float) -> tuple[list[Row], Shortfall | None]:
            given = {"time": budget_s, "test_time": 1e6} if basis == "run" else {"test_time": budget_s}
            launcher = FakeLauncher(wall_ns=noisy(wall_ns, 0.03, seed=3))
            trial = project.trial(launcher, group, against=against, **given)
            while trial.open:
                left_s = trial.run.time.left_s
                trial.step(left_s, left_s)
            assert not project.listener.warnings, "nothing is said before the end: all may be decided by then"
            return trial.rows(), trial.shortfall

        round_s = (8 * wall_ns + 700 * MS) / 1e9
        rows, short = measured({"stored": 4, "contract": 0.1}.get(basis, 2) * round_s)
        assert short is not None
        option = "--ftgate-time" if basis == "run" else "--ftgate-test-time"
        asked = re.search(
            rf"use {option}=(\S+) or fewer cells: .* of these 2 cells, about \d+ (?:is|are) needed to decide",
            said.shortfall_text(short),
        )
        assert asked is not None
        undecided = [row for row in rows if row.verdict.decision is Decision.INCONCLUSIVE]
        assert {row.cell.nodeid for row in rows if row.shortfall} <= {row.cell.nodeid for row in undecided}
        assert all(row.shortfall for row in undecided)
        rows, short = measured(seconds(asked[1]))
        assert short is None
        assert {row.verdict.decision for row in rows} <= {Decision.PASSED, Decision.NO_BASELINE}
        assert rows[0].verdict.decision is Decision.PASSED
        assert not any(row.shortfall for row in rows)

    def test_a_cell_that_is_left_open_says_what_time_would_decide_it(self, project: Project) -> None:
        launcher = FakeLauncher(wall_ns=noisy(20 * MS, 0.06, seed=3))
        rows = finish(project.trial(launcher, TWO, against="main", test_time=12.0)).values()
        metrics = {row.cell.nodeid: [each for each in row.verdict.metrics if each.more] for row in rows}
        assert any(metrics.values())
        for row in rows:
            short = row.shortfall
            assert (short is not None) == bool(metrics[row.cell.nodeid])
            if short is not None:
                needed = max(each.launches + (each.more or 0) for each in metrics[row.cell.nodeid])
                assert needed == short.needed > short.rounds
                assert (short.option, short.given_s) == ("--ftgate-test-time", 12.0)
                assert short.wanted_s > short.given_s

    def test_what_is_not_judged_needs_no_rounds(self, project: Project) -> None:
        trial = project.trial(day(), TWO, test_time=2.0)
        finish(trial)
        assert trial.shortfall is None

    def test_pairs_have_room_for_all_their_rounds(self, project: Project) -> None:
        launcher = day(cells_slower(1.05, THREADS), between=0.01)
        sample = finish(project.trial(launcher, THREADS_ALONE, against="main"))[THREADS].sample
        assert sample is not None
        assert MOST_LAUNCHES < len(sample.launches) <= PAIRED_ROUNDS

    def test_a_number_that_was_asked_for_is_taken(self, project: Project) -> None:
        launcher = day(cells_slower(1.08, THREADS))
        rows = finish(project.trial(launcher, TWO, against="main", launches=7))
        sample = rows[THREADS].sample
        assert sample is not None
        assert len(sample.launches) == 7
        assert rows[FORK].verdict.decision is Decision.PASSED


# -- another interpreter as the reference --------------------------------------------------------------------------


def test_each_target_is_paired_with_the_reference_interpreter_but_for_that_itself(project: Project) -> None:
    group = group_of("threads", targets=("3.14", "3.14t", "3.14t[gil=on]"))
    launcher = day()
    rows = finish(project.trial(launcher, group, against="python:3.14t[gil=on]", launches=5))
    plain, threaded, itself = (rows[cell.nodeid] for cell in group.cells)
    assert itself.verdict.decision is Decision.UNSUPPORTED
    assert itself.verdict.reason == "3.14t[gil=on] is 3.14t[gil=on] itself, with which the targets are compared"
    for row in (plain, threaded):
        assert (row.verdict.basis, row.verdict.baseline, row.verdict.commit) == ("paired", "3.14t[gil=on]", "")
        assert row.verdict.decision is Decision.PASSED
        assert row.sample is not None
        assert row.sample.reference is not None
        assert row.sample.reference.cell.target == parse_target("3.14t[gil=on]")
        assert row.sample.reference.of("memory")
        assert row.sample.reference.of("locks")
    requests = [request for request in launcher.requests if request.reference]
    assert {(request.python, request.expect_gil) for request in requests} == {
        (f"{project.root}/old/3.14t[gil=on]/bin/python", True)
    }
    own = {request.python: request.expect_gil for request in launcher.requests if not request.reference}
    assert own == {f"{project.root}/new/{spec}/bin/python": spec == "3.14" for spec in ("3.14", "3.14t")}


def test_a_reference_without_sub_interpreters_is_no_reference_for_them(project: Project) -> None:
    group = group_of("interpreters", targets=("3.14",))
    (row,) = finish(project.trial(day(), group, against="python:3.13", launches=5)).values()
    assert row.verdict.decision is Decision.NO_BASELINE
    assert "3.13 cannot run it: sub-interpreters need CPython 3.14 or newer, and this is 3.13.7" in row.verdict.reason


def test_a_target_without_sub_interpreters_is_unsupported(project: Project) -> None:
    group = group_of("threads", "interpreters", targets=("3.13t",))
    launcher = day()
    rows = finish(project.trial(launcher, group))
    decisions = [rows[cell.nodeid].verdict.decision for cell in group.cells]
    assert decisions == [Decision.NO_BASELINE, Decision.UNSUPPORTED]


# -- neighbours ----------------------------------------------------------------------------------------------------


def test_a_row_refers_to_the_first_executor_of_its_target_and_count() -> None:
    group = of_counts(1, 4, executors=("threads", "fork"))
    for cell in group.cells:
        found = executor_cell(cell, group.cells, group.spec.executors[0])
        assert found is not None
        assert (found.executor.label, found.workers) == ("threads", cell.workers)
    fork = group.cells[1]
    assert executor_cell(fork, (fork,), group.spec.executors[0]) is None
    portable = group_of("threads", targets=("3.14t",)).cells
    assert executor_cell(fork, portable, group.spec.executors[0]) is None


def recorded_sample(cell: Cell) -> Sample:
    return Sample(cell=cell, interpreter=GIL, key=cell.nodeid)


def test_what_else_went_on_stands_on_every_row_that_was_measured(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ConditionsMonitor, "observe", lambda _: CLEAN)
    project.recorded(launches=12)
    launcher = day()
    project.missing = {FORK: "no 3.14"}
    rows = finish(project.trial(launcher, TWO))
    assert rows[THREADS].conditions == CLEAN
    assert rows[FORK].conditions is None


# -- explanations --------------------------------------------------------------------------------------------------


def profile_of(**on_stack: float) -> Profile:
    """Samples in ten blocks of 100: `body` is on every stack, each of the others on a share of them."""
    names = ("body", *on_stack)
    functions = tuple(Function(file="/trees/x/work.py", line=number, name=name) for number, name in enumerate(names))
    samples = [
        StackSamples(block=block, functions=(0, number), count=round(100 * share))
        for block in range(10)
        for number, share in enumerate(on_stack.values(), 1)
    ]
    return Profile(functions=functions, samples=tuple(samples))


def profiled(launcher: FakeLauncher) -> FakeLauncher:
    """The change is slow in `parse`, its reference is not."""
    launcher.profile = lambda at: profile_of(parse=0.1, write=0.9) if at.reference else profile_of(parse=0.5, write=0.5)
    return launcher


def profiles_of(launcher: FakeLauncher) -> list[tuple[str, bool]]:
    return sorted((each.cell.nodeid, each.reference) for each in launcher.requests if each.role == "profile")


def loads_of(size: float) -> Loads:
    """A line holds so much."""
    line = Held(file="/trees/x/work.py", line=3, text="BALLAST = load()", bytes=size, left=0.0)
    return Loads(lines=(line,), modules=("json",))


def cause_of(row: Row, of: CauseOf) -> Cause:
    assert row.explanation is not None
    found = row.explanation.cause(of)
    assert found is not None
    return found


class TestExplanation:
    def test_a_regressed_cell_costs_one_pair_of_launches_and_others_none(self, project: Project) -> None:
        launcher = profiled(day(cells_slower(1.8, FORK)))
        rows = finish(project.trial(launcher, TWO, against="main"))
        assert profiles_of(launcher) == [(FORK, False), (FORK, True)]
        assert rows[THREADS].explanation is None
        cause = cause_of(rows[FORK], "time")
        assert cause.unknown == ""
        (function,) = cause.parts
        assert (function.name, function.line, function.file) == ("parse", 1, "work.py")
        assert (function.before, function.after) == (0.1, 0.5)
        assert function.added == pytest.approx(12.8 * MS, rel=0.05)  # half of 28.8 ms, a tenth of 16
        assert cause.added == pytest.approx(12.8 * MS, rel=0.05)

    def test_a_cell_beside_the_commit_of_its_recording_is_explained(self, project: Project) -> None:
        project.recorded(launches=12)
        launcher = profiled(day(cells_slower(1.8, FORK)))
        rows = finish(project.trial(launcher, TWO))
        assert profiles_of(launcher) == [(FORK, False), (FORK, True)]
        assert [each.name for each in cause_of(rows[FORK], "time").parts] == ["parse"]

    def test_nothing_is_launched_where_it_is_turned_off(self, project: Project) -> None:
        launcher = profiled(day(cells_slower(1.8, FORK)))
        rows = finish(project.trial(launcher, TWO, against="main", explain=False))
        assert profiles_of(launcher) == []
        assert rows[FORK].verdict.decision is Decision.REGRESSED
        assert rows[FORK].explanation is None

    def test_a_regression_that_is_expected_costs_no_launches(self, project: Project) -> None:
        known = (Xfail(decision=Decision.REGRESSED, reason="known"),)
        group = msgspec.structs.replace(TWO, spec=msgspec.structs.replace(TWO.spec, xfails=known))
        launcher = profiled(day(cells_slower(1.8, THREADS, FORK)))
        rows = finish(project.trial(launcher, group, against="main"))
        assert {row.verdict.decision for row in rows.values()} == {Decision.XFAILED}
        assert profiles_of(launcher) == []

    def test_unchanged_code_has_no_explanation_and_no_launches_for_one(self, project: Project) -> None:
        launcher = profiled(day())
        assert {row.explanation for row in finish(project.trial(launcher, TWO, against="main")).values()} == {None}
        assert profiles_of(launcher) == []

    def test_a_failure_of_a_profile_launch_is_the_explanation_s_alone(self, project: Project) -> None:
        launcher = profiled(day(cells_slower(1.8, FORK)))
        launcher.trouble = lambda at: failed("raised ValueError") if at.side == "profile" else None
        rows = finish(project.trial(launcher, TWO, against="main"))
        assert rows[FORK].verdict.decision is Decision.REGRESSED
        assert rows[FORK].error is None
        unknown = cause_of(rows[FORK], "time").unknown
        assert unknown == "the added time is unexplained: while its stacks were sampled: raised ValueError"

    def test_explaining_has_its_own_time_beside_that_of_the_test(self, project: Project) -> None:
        """However the verdict took all of the test's time, or was fast."""
        launcher = profiled(day(cells_slower(3.0, FORK)))
        trial = project.trial(launcher, TWO, against="main")
        assert trial.phase is not None
        trial.step()
        assert profiles_of(launcher) == []
        trial.phase.measurement.plan.spend(1e6)
        row = finish(trial)[FORK]
        assert row.verdict.decision in (Decision.REGRESSED, Decision.SUSPECT)
        assert cause_of(row, "time").parts[0].name == "parse"

    def test_when_its_own_time_has_ended_no_function_is_sought(self, project: Project) -> None:
        launcher = profiled(day(cells_slower(3.0, FORK)))
        trial = project.trial(launcher, TWO, against="main")
        trial.explainer.spent_s = explaining.OWN_S
        cause = cause_of(finish(trial)[FORK], "time")
        assert (cause.unknown, profiles_of(launcher)) == ("the added time is unexplained: no time left", [])

    def test_a_memory_failure_is_explained_by_lines_and_never_by_a_time(self, project: Project) -> None:
        launcher = profiled(day())
        launcher.memory = lambda at: memory_of((20 if at.reference or "fork" not in at.label else 28) * MIB)
        launcher.loads = lambda at: loads_of(MIB if at.reference else 8 * MIB)
        row = finish(project.trial(launcher, TWO, against="main"))[FORK]
        assert {each.metric for each in row.verdict.metrics if each.decision.worse} == {Metric.USS}
        cause = cause_of(row, "memory")
        assert [(each.file, each.line, each.added) for each in cause.parts] == [("work.py", 3, 7 * MIB)]
        assert cause.added == 8 * MIB
        assert profiles_of(launcher) == []
        texts = said.explained(row.explanation)
        assert texts == ("7.00 MiB of the 8.00 MiB added are held at work.py:3: BALLAST = load()",)

    def test_of_memory_nothing_is_borrowed_from_a_cell_whose_time_grew(self, project: Project) -> None:
        launcher = profiled(day(cells_slower(1.8, THREADS)))
        launcher.memory = lambda at: memory_of((20 if at.reference or "fork" not in at.label else 28) * MIB)
        rows = finish(project.trial(launcher, TWO, against="main"))
        assert [each.name for each in cause_of(rows[THREADS], "time").parts] == ["parse"]
        explanation = rows[FORK].explanation
        assert explanation is not None
        assert [(each.of, each.parts, each.like) for each in explanation.causes] == [("memory", (), "")]
        (text,) = said.explained(explanation)
        assert text.startswith("no line of Python holds a fifth of it")

    def test_a_broken_contract_names_the_lock_however_fast_it_broke(self, project: Project) -> None:
        launcher = profiled(day())
        launcher.wall_ns = lambda at: (20 if at.label.endswith("w1") else 40) * MS
        launcher.waited_ns = lambda at: 0 if at.label.endswith("w1") else 20 * MS
        launcher.profile = lambda at: profile_of(parse=0.5 if at.label.endswith("w1") else 0.9)
        group = required(of_counts(1, 2), "scaling >= 1.5")
        rows = finish(project.trial(launcher, group))
        (row,) = (each for each in rows.values() if each.verdict.decision is Decision.BROKEN)
        assert row.explanation is not None
        assert [(each.name, each.before, each.after > 0.4) for each in row.explanation.sites] == [
            ("work.py:7 Lock", 0.0, True)
        ]
        assert said.where(row) != ""
        assert [each.name for each in cause_of(row, "time").parts] == ["parse"]
        roles = Counter(each.role for each in launcher.requests)
        assert (roles["locks"], roles["profile"]) == (4, 2)

    def test_what_one_launch_of_each_side_leaves_open_two_show(self, project: Project) -> None:
        """7.3 points of the time were seen, and one launch shows 7.7 or more. Work is 0.8 of a wall time."""
        launcher = day()
        launcher.wall_ns = lambda at: (20 if at.label.endswith("w1") else 40) * MS
        launcher.waited_ns = lambda at: 0 if at.label.endswith("w1") else round(0.073 * 0.8 * 40 * MS)
        group = required(of_counts(1, 2), "scaling >= 1.5")
        rows = finish(project.trial(launcher, group))
        (row,) = (each for each in rows.values() if each.verdict.decision is Decision.BROKEN)
        assert row.explanation is not None
        (site,) = row.explanation.sites
        assert site.name == "work.py:7 Lock"
        assert site.after == pytest.approx(0.073, abs=0.001)

    def test_the_holder_of_a_lock_has_its_name_below_the_project_s_root(self) -> None:
        holder = LockHolder(
            file="/side/work.py", line=8, function="f", waiter_file="", waiter_line=0, waited_ns=1, held={1: 1}
        )
        launch = probed(0, 0.5)
        assert launch.locks is not None
        sites = tuple(msgspec.structs.replace(site, holders=(holder,)) for site in launch.locks.sites)
        held = msgspec.structs.replace(launch, locks=msgspec.structs.replace(launch.locks, sites=sites))
        named = explaining._sites_named(sample_of(locks=[held]), lambda file: file.removeprefix("/side/"))
        (launch,) = named.of("locks")
        assert launch.locks is not None
        assert [each.file for site in launch.locks.sites for each in site.holders] == ["work.py", "work.py"]

    def test_a_broken_contract_of_memory_names_what_is_held(self, project: Project) -> None:
        launcher = day()
        launcher.loads = lambda _: loads_of(16 * MIB)
        rows = finish(project.trial(launcher, required(TWO, "threads.uss < 1 MiB")))
        (row,) = (each for each in rows.values() if each.verdict.decision is Decision.BROKEN)
        assert [(each.name, each.before, each.after) for each in cause_of(row, "memory").parts] == [
            ("BALLAST = load()", 0.0, 16 * MIB)
        ]

    @pytest.mark.parametrize("in_processes", [True, False], ids=["a pool of processes", "of threads"])
    def test_growth_of_a_pool_s_processes_is_not_said_to_be_of_no_line(
        self, project: Project, in_processes: bool
    ) -> None:
        def leaking(at: At) -> tuple[MemoryPoint, ...]:
            leaks = at.event == BARRIER and at.side != "empty" and not at.reference
            return memory_of(20 * MIB + leaks * at.number * at.loops * 64 * 1024)

        launcher = day()
        launcher.memory, launcher.loads = leaking, lambda _: loads_of(MIB)
        pool = Executor(kind="executor", name="pool", in_processes=in_processes)
        spec = msgspec.structs.replace(spec_of("threads", reuse="pool"), executors=(pool,))
        (row,) = finish(project.trial(launcher, group_of(spec=spec), against="main")).values()
        cause = cause_of(row, "growth")
        assert cause.parts == ()
        assert ("the workers of a pool are not traced" in cause.unknown) is in_processes
        assert cause.unknown.startswith("no line of Python leaves") is not in_processes

    def test_samples_are_taken_until_they_show_the_function(self, project: Project) -> None:
        launcher = profiled(day(cells_slower(1.8, FORK)))
        whole = launcher.profile

        def a_few(at: At) -> Profile:
            found = whole(at)
            few = [each for each in found.samples if each.block < 2]
            return msgspec.structs.replace(found, samples=tuple(few), cut=at.reference)

        launcher.profile = a_few
        rows = finish(project.trial(launcher, TWO, against="main"))
        explanation = rows[FORK].explanation
        assert explanation is not None
        assert explanation.part
        assert [each.name for each in cause_of(rows[FORK], "time").parts] == ["parse"]
        assert len(profiles_of(launcher)) == 2 * 3  # ten blocks are more than enough, and five are needed

    def test_time_that_is_added_outside_the_body_is_named_as_such(self) -> None:
        start, join = (Moved(name=name, before=1e6, after=3e6) for name in ("start", "join"))
        faster = Moved(name="join", before=2e6, after=1e6)
        for phases, named in (((start, join), "start and join"), ((start, faster), "start")):
            assert explaining.outside(phases) == f"the time is added to {named}, none of it to the body"
        assert "within the noise of its launches" in explaining.outside((faster,))

    def test_samples_that_show_nothing_are_not_taken_for_ever(self, project: Project) -> None:
        launcher = profiled(day(cells_slower(1.8, FORK)))
        launcher.profile = lambda _: Profile()
        rows = finish(project.trial(launcher, TWO, against="main"))
        assert cause_of(rows[FORK], "time").unknown.startswith("only 0 samples")
        assert len(profiles_of(launcher)) == 2 * (1 + explaining.MORE_PAIRS + 1)

    def test_a_cell_whose_functions_are_not_known_has_those_of_the_one_beside_it(self, project: Project) -> None:
        launcher = profiled(day(cells_slower(1.8, THREADS, FORK)))
        launcher.trouble = lambda at: failed("no room") if at.side == "profile" and "fork" in at.label else None
        rows = finish(project.trial(launcher, TWO, against="main"))
        own, other = cause_of(rows[THREADS], "time"), cause_of(rows[FORK], "time")
        assert (own.like, other.like) == ("", "3.14-threads-w2")
        assert other.parts == own.parts
        assert other.unknown == "the added time is unexplained: while its stacks were sampled: no room"

    def test_what_is_accepted_says_what_moved_and_costs_no_launches(
        self, project: Project, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        launcher = profiled(day(cells_slower(1.8, FORK)))
        trial = project.trial(launcher, TWO, against="main")
        accepted = [Acceptance(cells="*", metric=each, reason="known", commit="abc") for each in ("wall", "tail")]
        monkeypatch.setattr(Acceptances, "since", lambda *_: accepted)
        row = finish(trial)[FORK]
        assert row.verdict.decision is Decision.ACCEPTED
        assert profiles_of(launcher) == []
        assert row.explanation is not None
        assert row.explanation.causes == ()

    def test_who_accepts_the_wall_time_accepts_the_tail_that_comes_with_it(
        self, project: Project, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        trial = project.trial(day(cells_slower(1.79, FORK)), TWO, against="main")
        accepted = [Acceptance(cells="*", metric="wall", reason="known", commit="abc")]
        monkeypatch.setattr(Acceptances, "since", lambda *_: accepted)
        row = finish(trial)[FORK]
        tail = next(each for each in row.verdict.metrics if each.metric == Metric.TAIL)
        assert (row.verdict.decision, tail.decision) == (Decision.ACCEPTED, Decision.PASSED)
        assert tail.wall_growth == pytest.approx(1.79, rel=0.05)
        assert re.search(r" beyond the body's own \+(7|8)\d\.\d %$", said.change_text(tail))

    def test_without_a_commit_to_run_one_side_is_no_comparison(self, project: Project) -> None:
        project.recorded(launches=12)
        launcher = profiled(day(cells_slower(3.0, FORK)))
        rows = finish(project.trial(launcher, TWO, against="stored"))
        row = rows[FORK]
        assert row.verdict.decision in (Decision.REGRESSED, Decision.SUSPECT)
        assert cause_of(row, "time").unknown == "the added time is unexplained: --ftgate-against stored"
        assert profiles_of(launcher) == []


def test_of_stored_figures_alone_what_workers_have_unshared_is_known() -> None:
    before, after = entry(forked(2.0, 2.0, uss_mib=25)), forked(12.0, 12.0)
    judged = MetricVerdict(metric="uss", decision=Decision.REGRESSED)
    row = Row(
        cell=after.cell,
        sample=after,
        verdict=Verdict(decision=Decision.REGRESSED, metrics=(judged,), why="no git here"),
    )
    (cause,) = explaining.of_stored(row, ComparedWith(basis="stored", entry=before)).causes
    (part,) = cause.parts
    assert (cause.added, part.added) == pytest.approx((15 << 20, 10 << 20), rel=1e-4)
    assert part.name == "unshared"
    assert cause.unknown == "the rest is unexplained: no git here"
    (cause,) = explaining.of_stored(row, ComparedWith(basis="stored")).causes
    assert (cause.parts, cause.unknown) == ((), "the added memory is unexplained: no git here")


# -- until a cell fails --------------------------------------------------------------------------------------------


class TestUntil:
    """A plain launch of 50 iterations, then a stressed one, and so on: each lasts a second of the script."""

    def test_a_cell_ends_with_its_first_failure_and_the_others_with_the_time(self, project: Project) -> None:
        def trouble(at: At) -> Exception | None:
            fails = at.label.endswith("threads-w2") and at.side == "own" and at.start == 1 and at.number == 3
            return failed("raised KeyError: 3", "Traceback") if fails and not at.reference else None

        launcher = FakeLauncher()
        launcher.trouble = trouble
        rows = finish(project.trial(launcher, TWO, until="failure", against="main", test_time=20.0))
        # 1. With the rates of both sides, and the command that repeats it.
        error = rows[THREADS].error
        assert error is not None
        assert error.reason == "raised KeyError: 3"
        assert error.detail == (
            f"Traceback\nIt came in a plain launch.\nagain: pytest --ftgate --ftgate-seed=11 '{THREADS}'"
        )
        assert rows[THREADS].verdict.decision is Decision.ERROR
        assert errors.whose(rows[THREADS]).startswith(
            "1 in 104 iterations (1 in 4,200 to 1 in 19 at 95 %); 0 of 1 stressed and 1 of 2 plain launches; "
            "of the reference: 0 in 1"
        )
        # 2. Every second launch is stressed, and its iterations are compared as those of the others.
        verdict = rows[FORK].verdict
        assert verdict.decision is Decision.PASSED
        assert re.fullmatch(
            r"0 in \d+ iterations \(below 1 in \d+ at 95 %\); 0 of \d stressed and 0 of \d plain launches; "
            r"of the reference: 0 in \d+ iterations .*",
            verdict.reason,
        )
        observers = {request.role: {Path(each).name for each in request.observers} for request in launcher.requests}
        assert observers == {"own": set(), "observed": {"stress.py"}}
        assert {event.at.event for event in launcher.events} == {"start", "ready", "check", "finish", "kill"}
        assert 19 < launcher.clock() < 22

    def test_what_fails_under_stress_alone_is_counted_until_the_time_is_over(self, project: Project) -> None:
        launcher = FakeLauncher()
        launcher.trouble = lambda at: (
            failed("hung", "  /x/stress.py:9 in _collect") if (at.side, at.event) == ("observed", "check") else None
        )
        (row,) = finish(project.trial(launcher, THREADS_ALONE, until="time", test_time=12.0)).values()
        assert re.search(r"; (\d+) of \1 stressed and 0 of \d+ plain launches", row.verdict.reason)
        assert row.error is not None
        assert "It came in a stressed launch.\nThe thread in stress.py is pytest-ftgate's" in row.error.detail
        assert "no worker is at work: it may be what hangs" in row.error.detail
        # A hang is known by the iterations before it.
        timeouts = [request.timeout_s for request in launcher.requests]
        assert (timeouts[0], {*timeouts[1:]}) == (60.0, {10.0})

    def test_results_that_differ_are_counted_and_the_most_frequent_one_is_right(self, project: Project) -> None:
        launcher = FakeLauncher()
        launcher.results = lambda at: ("1", "2") if at.start == 1 else ("2",)
        launcher.result_counts = lambda at: (3, 47) if at.start == 1 else (50,)
        (row,) = finish(project.trial(launcher, THREADS_ALONE, until="time", test_time=12.0)).values()
        assert row.error is not None
        assert row.error.reason == "gave 2 different results from one iteration to the next"
        assert re.match(r"  2 \(\d{3} times\)\n  1 \(6 times\)\n", row.error.detail)
        assert re.match(r"6 in \d+ iterations .*; 1 of \d stressed and 1 of \d plain launches", row.verdict.reason)

    def test_a_result_that_other_cells_do_not_give_is_no_rate(self, project: Project) -> None:
        launcher = FakeLauncher()
        launcher.results = lambda at: ("1",) if "fork" in at.label else ("2",)
        launcher.result_counts = lambda at: (50,)
        rows = finish(project.trial(launcher, TWO, until="failure", test_time=4.0))
        assert rows[FORK].verdict.reason == "in all of 50 iterations"
        assert rows[THREADS].verdict.decision is Decision.PASSED

    def test_too_few_iterations_show_nothing(self, project: Project) -> None:
        launcher = FakeLauncher()
        for test_time, decision in (
            (0.02, Decision.NOT_MEASURED),
            (0.1, Decision.NOT_MEASURED),
            (0.5, Decision.PASSED),
        ):
            (row,) = finish(project.trial(launcher, THREADS_ALONE, until="failure", test_time=test_time)).values()
            assert row.verdict.decision is decision, row.verdict.reason
            assert ("too few to tell" in row.verdict.reason) == (decision is Decision.NOT_MEASURED)

    def test_what_was_counted_before_an_interruption_is_told(self, project: Project) -> None:
        launcher = FakeLauncher()
        trial = project.trial(launcher, THREADS_ALONE, until="failure")
        trial.step()
        (row,) = trial.rows_in_part()
        assert row.verdict.reason == "0 in 50 iterations (below 1 in 14 at 95 %); 0 of 1 plain launches"
