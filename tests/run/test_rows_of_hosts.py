"""Rows of several machines in one report: their tables, machines and baselines."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest
from fake_launcher import CONFIG, Quiet
from stored_values import MACHINE, OTHER_MACHINE, TEST, change, make_row, make_sample

from pytest_ftgate.features import junit, markdown
from pytest_ftgate.features.decide import rank
from pytest_ftgate.features.html import page
from pytest_ftgate.model.report import PlacedRow, Report
from pytest_ftgate.model.verdict import Decision, Verdict
from pytest_ftgate.report import json, said, terminal
from pytest_ftgate.run.rows import on_host
from pytest_ftgate.run.run import Run

DAYS = ("2026-01-01T00:00:00+00:00", "2026-01-02T00:00:00+00:00")
HOSTS = {"one": MACHINE, "two": MACHINE, "other": OTHER_MACHINE}


class Nobody(Quiet):
    """Listens to a run that measures nothing."""

    def begin(self, title: str, cells: Sequence[str]) -> None: ...


def placed(host: str, label: str = "3.14t-threads-w2", position: int = 0, scale: int = 1) -> PlacedRow:
    row = make_row(make_sample(label, scale=scale), Decision.NO_BASELINE)
    made = PlacedRow(table=TEST, reference="threads", position=position, row=row)
    return on_host(made, host, HOSTS[host]) if host else made


@pytest.fixture
def session(tmp_path: Path) -> Run:
    made = Run(dataclasses.replace(CONFIG, update=("new",)), tmp_path, "run", Nobody())
    made.start()
    return made


def reported(session: Run, *rows: PlacedRow) -> Report:
    return session.report(rows, "0.1.0", None)


def test_a_report_of_this_machine_has_no_hosts(session: Run) -> None:
    report = reported(session, placed(""))
    assert report.hosts == ()
    assert report.machine == session.machine
    assert report.machine_of(report.rows[0]) == session.machine


def test_hosts_of_one_class_share_a_table_and_the_report_names_the_one_of_each_row(session: Run) -> None:
    report = reported(session, placed("two"), placed("one", "3.14t-threads-w4", position=1))
    assert [table.title for table in report.tables] == [TEST]
    assert [row.host for row in report.rows] == ["two", "one"]
    assert [host.name for host in report.hosts] == ["one", "two"]
    assert report.machine == MACHINE, "not that of the controller, which measured nothing"
    marks = f"{MACHINE.fingerprint}"
    assert report.tables[0].note == f"measured on two ({marks}); measured on one ({marks})"
    assert report.by_fingerprint() == [(MACHINE, report.rows)]


def test_unlike_hosts_have_tables_and_advice_of_their_own(session: Run) -> None:
    report = reported(session, placed("one"), placed("other", scale=3))
    titles = [f"{TEST} on {machine.fingerprint}" for machine in (MACHINE, OTHER_MACHINE)]
    assert [table.title for table in report.tables] == titles
    assert [len(table.rows) for table in report.tables] == [1, 1]
    assert [each.test for each in rank.of_report(report)] == titles
    text = terminal.render(report, width=200, color=False, unicode=True, verbosity=0)
    for shown in (text, markdown.render(report), page.render(report)):
        assert all(machine.fingerprint in shown for machine in (MACHINE, OTHER_MACHINE))


def test_each_machine_s_rows_are_stored_under_its_fingerprint(session: Run) -> None:
    report = session.store(reported(session, placed("one"), placed("other", scale=3)))
    assert [line.startswith("recorded ") for line in report.updates] == [True, True]
    stored = session.stored.store.load(TEST)
    assert stored is not None
    assert [key.partition("/")[0] for key in sorted(stored.cells["3.14t-threads-w2"])] == sorted(
        (MACHINE.fingerprint, OTHER_MACHINE.fingerprint)
    )
    assert {run.fingerprint: run.cores for run in stored.machines.values()} == {
        each.fingerprint: each.cores for each in (MACHINE, OTHER_MACHINE)
    }


def test_rows_show_the_history_of_their_own_machine(session: Run) -> None:
    label = "3.14t-threads-w2"
    for machine in (MACHINE, OTHER_MACHINE):
        for day in DAYS:
            session.stored.store.save(TEST, [change(label, recorded_at=day, machine=machine, append=True)])
    for row in reported(session, placed("one"), placed("other")).rows:
        fingerprints = {point.fingerprint for history in row.history for point in history.points}
        assert fingerprints == {HOSTS[row.host].fingerprint}


def test_a_host_s_rows_keep_what_was_noted_there(session: Run) -> None:
    noted = msgspec.structs.replace(placed(""), note="2 other tests ran meanwhile")
    table = reported(session, on_host(noted, "one", MACHINE)).tables[0]
    assert table.note == f"measured on one ({MACHINE.fingerprint}); 2 other tests ran meanwhile"


def test_a_cell_that_failed_on_one_machine_did_not_on_the_other(session: Run) -> None:
    good, bad = placed("one"), placed("other", scale=3)
    verdicts = {"one": Decision.PASSED, "other": Decision.REGRESSED}
    both = [
        msgspec.structs.replace(each, row=msgspec.structs.replace(each.row, verdict=Verdict(decision=verdicts[host])))
        for host, each in (("one", good), ("other", bad))
    ]
    report = msgspec.structs.replace(reported(session, *both), failing=frozenset({good.row.cell.nodeid}))
    assert {row.host for row in report.rows if said.fails(report, row)} == {"other"}


@pytest.mark.parametrize("kind", ["bmf", "gha-benchmark", "openmetrics"])
def test_no_export_mixes_the_figures_of_two_machines(session: Run, kind: str) -> None:
    both = reported(session, placed("one"), placed("other", scale=3))
    text = "".join(json.rendered(kind, both))
    if kind == "openmetrics":
        series = [line.rpartition(" ")[0] for line in text.splitlines()]
        assert len(set(series)) == len(series)
    assert all(machine.fingerprint in text for machine in (MACHINE, OTHER_MACHINE))
    alike = reported(session, placed("one"), placed("two", "3.14t-threads-w4", position=1))
    assert MACHINE.fingerprint not in "".join(json.rendered(kind, alike))


def test_junit_names_the_machine_of_each_suite(session: Run) -> None:
    text = junit.render(reported(session, placed("one"), placed("other", scale=3)))
    assert all(f'hostname="{machine.fingerprint}"' in text for machine in (MACHINE, OTHER_MACHINE))


def test_the_seconds_of_all_processes_add_up_to_the_wall_time(session: Run) -> None:
    session.time.started_s -= 100
    session.folder.make()
    session.rows.keep_spent("gw0", {"time": 20.0, "locks": 1.5})
    session.rows.keep_spent("gw1", {"time": 4.0})
    session.spent.seconds["environments"] = 3.0
    report = reported(session, placed(""))
    assert report.seconds.items() >= {"time": 24.0, "locks": 1.5, "environments": 3.0}.items()
    assert report.seconds.keys() == {"time", "locks", "environments", "own code"}
    assert sum(report.seconds.values()) == pytest.approx(report.wall_s)


def test_seconds_of_other_hosts_are_not_known(session: Run) -> None:
    session.spent.seconds["environments"] = 3.0
    assert not reported(session, placed("one")).seconds
