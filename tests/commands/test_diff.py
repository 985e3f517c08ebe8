"""`ftgate diff`: two recorded runs by the rules of stored launches, with every exit code."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from stored_values import MACHINE, OTHER_MACHINE, PYTHON, RECORDED, TEST, make_row, make_sample

from pytest_ftgate import cli
from pytest_ftgate.kit.values import Metric, Threshold
from pytest_ftgate.model.report import Conditions, Host, Machine, Report, Row, Table
from pytest_ftgate.model.sample import Sample, WorkloadError
from pytest_ftgate.model.verdict import Decision, Expected, MetricVerdict, Verdict
from pytest_ftgate.report import json


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("FTGATE_METRICS", raising=False)
    return tmp_path


def left(name: str, *rows: Row, machine: Machine = MACHINE, **of_table: object) -> str:
    """The name of a report with these rows."""
    report = Report(
        version="0.1.0",
        seed=1,
        started_at=RECORDED,
        wall_s=1.0,
        machine=machine,
        interpreters=(PYTHON,),
        tables=(msgspec.structs.replace(Table(title=TEST, rows=rows, reference="threads"), **of_table),),
        commit="a" * 40,
    )
    Path(name).write_text(json.render(report), encoding="utf-8")
    return name


def compared(*argv: str) -> tuple[int, Report]:
    """The exit code and the report of a comparison."""
    code = cli.main(["diff", *argv, "--to", "json:found.json"])
    return code, json.parse(Path("found.json").read_bytes())


def verdict_of(report: Report, label: str = "3.14t-threads-w2") -> Verdict:
    rows = {row.cell.label: row for table in report.tables for row in table.rows}
    return rows[label].verdict


def paired(sample: Sample) -> Sample:
    """As a run with --ftgate-against leaves it: beside a reference, without control launches."""
    return msgspec.structs.replace(sample.with_launches("control", ()), reference=sample)


def test_the_same_run_does_not_regress(capsys: pytest.CaptureFixture[str]) -> None:
    a = left("a.json", make_row(make_sample()))
    code, report = compared(a, a)
    assert code == 0
    verdict = verdict_of(report)
    assert verdict.decision in (Decision.PASSED, Decision.INCONCLUSIVE)
    assert {each.metric for each in verdict.metrics} == {"wall", "uss"}
    assert "the runs" not in capsys.readouterr().out


def test_a_slower_run_regresses(capsys: pytest.CaptureFixture[str]) -> None:
    before, after = left("a.json", make_row(make_sample())), left("b.json", make_row(make_sample(scale=4)))
    code, report = compared(before, after)
    assert code == 1
    verdict = verdict_of(report)
    assert (verdict.decision, verdict.basis, verdict.why) == (Decision.REGRESSED, "predicted", "a.json")
    assert verdict.commit == "a" * 40
    assert "regressed: 3.14t-threads-w2" in capsys.readouterr().out
    assert report.command == "ftgate diff a.json b.json"
    assert compared(after, before)[0] == 0


def test_limits_declared_beside_the_test_hold() -> None:
    wide = (Threshold(metric="wall", margin=9.0, effect=9.5),)
    before = left("a.json", make_row(make_sample()))
    after = left("b.json", make_row(make_sample(scale=4)), thresholds=wide)
    assert compared(before, after)[0] == 0


def test_limits_of_the_project_hold(folder: Path) -> None:
    (folder / "pytest.ini").write_text("[pytest]\nftgate_limit = wall: margin=900%, effect=950%\n", encoding="utf-8")
    before, after = left("a.json", make_row(make_sample())), left("b.json", make_row(make_sample(scale=4)))
    assert compared(before, after)[0] == 0


def test_each_row_is_compared_with_that_of_its_machine(capsys: pytest.CaptureFixture[str]) -> None:
    """One cell on two unlike hosts: the slower one did not become slower, the other one did."""

    def of_hosts(name: str, scale: int, other: int) -> str:
        rows = {host: make_row(make_sample(scale=each)) for host, each in (("one", scale), ("other", other))}
        left(name, rows["one"])
        tables = [
            Table(title=f"{TEST} on {host}", rows=(msgspec.structs.replace(row, host=host),), reference="threads")
            for host, row in rows.items()
        ]
        hosts = tuple(Host(name=host, machine=each) for host, each in (("one", MACHINE), ("other", OTHER_MACHINE)))
        made = msgspec.structs.replace(json.parse(Path(name).read_bytes()), tables=tuple(tables), hosts=hosts)
        Path(name).write_text(json.render(made), encoding="utf-8")
        return name

    code, report = compared(of_hosts("a.json", 1, 8), of_hosts("b.json", 4, 8))
    assert code == 1
    found = {row.host: row.verdict for row in report.rows}
    assert found["one"].decision is Decision.REGRESSED
    assert found["other"].decision in (Decision.PASSED, Decision.INCONCLUSIVE)
    assert {each.metric for each in found["other"].metrics} == {"wall", "uss"}, "by time, as the machine is the same"
    of_one = left("c.json", make_row(make_sample(scale=4)), machine=OTHER_MACHINE)
    of_two = of_hosts("b.json", 4, 8)
    assert {row.verdict.basis for row in compared(of_one, of_two)[1].rows if row.host == "one"} == {"portable"}


def test_another_machine_has_machine_independent_metrics(capsys: pytest.CaptureFixture[str]) -> None:
    before = left("a.json", make_row(make_sample()), machine=OTHER_MACHINE)
    code, report = compared(before, left("b.json", make_row(make_sample(scale=4))))
    assert code == 0
    verdict = verdict_of(report)
    assert verdict.basis == "portable"
    assert {each.metric for each in verdict.metrics} == {"uss"}
    assert "a.json is of another machine or build" in " ".join(capsys.readouterr().out.split())


def test_what_another_machine_recorded_fails_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    before = left("a.json", make_row(make_sample()), machine=OTHER_MACHINE)
    code, report = compared(before, left("b.json", make_row(make_sample(uss=40_000_000))))
    assert code == 0
    assert verdict_of(report).decision is Decision.INCONCLUSIVE
    said = " ".join(capsys.readouterr().out.split())
    assert "0 of 1 decided" in said
    assert "what another machine recorded fails nothing" in said
    assert "undecided-run" not in said, "the exit code is 0"


def test_another_build_on_the_machine_has_machine_independent_metrics() -> None:
    sample = make_sample()
    newer = msgspec.structs.replace(sample, interpreter=msgspec.structs.replace(sample.interpreter, version="3.14.8"))
    _, report = compared(left("a.json", make_row(sample)), left("b.json", make_row(newer)))
    assert verdict_of(report).basis == "portable"


def test_paired_runs_have_no_times_but_memory() -> None:
    before = left("a.json", make_row(paired(make_sample())))
    code, report = compared(before, left("b.json", make_row(paired(make_sample(scale=4, uss=40_000_000)))))
    assert code == 1
    verdict = verdict_of(report)
    assert [each.metric for each in verdict.metrics] == ["uss"]
    assert verdict.why.endswith("without a control workload in both runs no times are compared")


def test_cells_of_one_run_alone_are_named() -> None:
    both, old, new = (make_row(make_sample(f"3.14t-{word}-w2")) for word in ("threads", "old", "new"))
    code, report = compared(left("a.json", both, old), left("b.json", both, new))
    assert code == 0
    assert verdict_of(report, "3.14t-old-w2").reason == "not compared: b.json has no such cell"
    assert verdict_of(report, "3.14t-new-w2").reason == "not compared: a.json has no launches of it"
    assert len(report.tables) == 1


def test_nothing_in_common(capsys: pytest.CaptureFixture[str]) -> None:
    code, _ = compared(left("a.json", make_row(make_sample("x"))), left("b.json", make_row(make_sample("y"))))
    assert code == 3
    assert "a.json and b.json have nothing in common that can be compared" in capsys.readouterr().err


def test_what_measured_something_else_is_not_compared() -> None:
    before = left("a.json", make_row(make_sample(reuse="pool")))
    code, report = compared(before, left("b.json", make_row(make_sample())))
    assert code == 3
    assert "reuse was pool, is fresh" in verdict_of(report).reason


@pytest.mark.parametrize("decision", [Decision.ERROR, Decision.UNSUPPORTED])
def test_what_could_not_be_measured_keeps_its_verdict(decision: Decision) -> None:
    good = make_row(make_sample("good"))
    bad = Row(cell=make_sample().cell, verdict=Verdict(decision=decision, reason="so"))
    code, report = compared(left("a.json", good, make_row(make_sample())), left("b.json", good, bad))
    assert code == (1 if decision is Decision.ERROR else 0)
    assert verdict_of(report).decision is decision


def test_an_error_of_the_reference_is_not_compared() -> None:
    good = make_row(make_sample("good"))
    failed = make_row(make_sample(error=WorkloadError(reason="it hung")), Decision.ERROR)
    code, report = compared(left("a.json", good, failed), left("b.json", good, make_row(make_sample())))
    assert code == 0
    assert verdict_of(report).decision is Decision.INCONCLUSIVE


def test_a_broken_contract_stays_broken() -> None:
    contract = MetricVerdict(metric=Metric.CONTRACT, decision=Decision.BROKEN, contract="scaling >= 2", reason="so")
    row = make_row(make_sample())
    broken = msgspec.structs.replace(row, verdict=Verdict(decision=Decision.BROKEN, metrics=(contract,)))
    code, report = compared(left("a.json", row), left("b.json", broken))
    assert (code, verdict_of(report).decision) == (1, Decision.BROKEN)
    assert [each.contract for each in verdict_of(report).metrics if each.metric == Metric.CONTRACT] == ["scaling >= 2"]


def test_a_known_failure_is_one() -> None:
    known = Expected(decision=Decision.REGRESSED, reason="GH-1", strict=False)
    row = make_row(make_sample(scale=4))
    row = msgspec.structs.replace(row, verdict=Verdict(decision=Decision.XFAILED, expected=known))
    code, report = compared(left("a.json", make_row(make_sample())), left("b.json", row))
    assert (code, verdict_of(report).decision) == (0, Decision.XFAILED)


@pytest.mark.parametrize("disturbed", ["a", "b"])
def test_a_disturbed_machine_widens_the_limit_and_hides_nothing_obvious(disturbed: str) -> None:
    loud = Conditions(span_s=10.0, cores=2, others=1.9)

    def allowed(conditions: Conditions | None) -> float:
        rows = {"a": make_row(make_sample()), "b": make_row(make_sample(scale=4))}
        rows[disturbed] = msgspec.structs.replace(rows[disturbed], conditions=conditions)
        code, report = compared(left("a.json", rows["a"]), left("b.json", rows["b"]))
        (wall,) = (each for each in verdict_of(report).metrics if each.metric == Metric.WALL)
        assert (code, wall.decision) == (1, Decision.REGRESSED)
        return wall.allowed or 0.0

    assert allowed(loud) > 1.5 * allowed(None)


def test_a_missing_file(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["diff", "a.json", "b.json"]) == 2
    assert "a.json: cannot be read" in capsys.readouterr().err
