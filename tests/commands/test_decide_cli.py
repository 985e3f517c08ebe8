"""`ftgate decide`: the last run, the baselines for what it lacks, names, weights, JSON, and exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import report_by_hand
from msgspec.structs import replace
from stored_values import MACHINE, TEST, change_of, make_row, make_sample

from pytest_ftgate import cli
from pytest_ftgate.model.report import Report, Table
from pytest_ftgate.model.spec import Executor
from pytest_ftgate.report import json as report_json
from pytest_ftgate.store.folder import Store


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with baselines of two cells and without a run."""
    monkeypatch.chdir(tmp_path)
    for name in ("FTGATE_BASELINES",):
        monkeypatch.delenv(name, raising=False)
    threads, fork = (make_sample(f"3.14t-{name}-w2") for name in ("threads", "fork"))
    fork = replace(fork, cell=replace(fork.cell, executor=Executor(kind="processes", method="fork")))
    Store(tmp_path / "baselines").save(TEST, [change_of(threads), change_of(fork)])
    return tmp_path


def last_run(project: Path, report: Report | None = None) -> None:
    folder = project / ".ftgate"
    folder.mkdir(exist_ok=True)
    text = report_json.render(report or report_by_hand.report())
    (folder / "last-run.json").write_text(text, encoding="utf-8")


def test_a_test_that_the_run_measured_is_not_taken_from_baselines(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = Table(title=TEST, rows=(make_row(make_sample()),), reference="threads")
    last_run(project, replace(report_by_hand.report(), tables=(table,)))
    assert cli.main(["decide"]) == 0
    text = capsys.readouterr().out
    assert text.count(TEST) == 1
    assert "from        the run of" in text
    assert "no other candidate was measured" in " ".join(text.split())


def test_without_a_run_it_takes_the_baselines_and_says_so(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["decide"]) == 0
    text = capsys.readouterr().out
    assert text.startswith(f"{TEST} (2 workers)\n")
    assert "baselines recorded" in text
    assert MACHINE.fingerprint in text


def test_the_run_comes_first_and_baselines_have_what_it_lacks(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    last_run(project)
    assert cli.main(["decide"]) == 0
    both = capsys.readouterr().out
    assert report_by_hand.TOKENISE in both
    assert TEST in both
    assert cli.main(["decide", "--from", "run"]) == 0
    assert TEST not in capsys.readouterr().out
    assert cli.main(["decide", "--from", "baselines"]) == 0
    assert report_by_hand.TOKENISE not in capsys.readouterr().out


def test_tests_are_named_as_elsewhere(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    last_run(project)
    assert cli.main(["decide", "test_tokenise", "test_count"]) == 0
    text = capsys.readouterr().out
    assert report_by_hand.TOKENISE in text
    assert TEST in text
    assert report_by_hand.CACHE not in text


def test_json_holds_the_figures(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["decide", "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)
    assert found["test"] == TEST
    assert {each["name"] for each in found["choices"][0]["time"]["ranked"]} == {"threads on 3.14t", "fork on 3.14t"}


@pytest.mark.parametrize("arguments", [["test_nowhere"], ["--from", "run"]])
def test_what_is_not_there_exits_with_3(
    project: Path, arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["decide", *arguments]) == 3
    assert "pytest --ftgate" in capsys.readouterr().err


def test_weights_are_those_of_the_command_line_or_the_ini(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / "pytest.ini").write_text("[pytest]\nftgate_weights = time=1 memory=0.5\n", encoding="utf-8")
    assert cli.main(["decide"]) == 0
    assert "by time=1 memory=0.5" in " ".join(capsys.readouterr().out.split())
    assert cli.main(["decide", "--weight", "memory=2"]) == 0
    assert "by memory=2" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize("wrong", ["tme=1", "time", "time=-1", "time=nan", "memory=much"])
def test_a_weight_that_is_none_names_the_option(project: Path, wrong: str, capsys: pytest.CaptureFixture[str]) -> None:
    (project / "pytest.ini").write_text(f"[pytest]\nftgate_weights = {wrong}\n", encoding="utf-8")
    assert cli.main(["decide"]) == 2
    error = capsys.readouterr().err
    assert f"ini option ftgate_weights={wrong}" in error
    assert "time=1 memory=0.5" in error
    with pytest.raises(SystemExit):
        cli.main(["decide", "--weight", wrong])
    assert "argument --weight: takes weights such as time=1 memory=0.5" in capsys.readouterr().err


def test_a_report_that_is_broken_is_an_error(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / ".ftgate").mkdir(exist_ok=True)
    (project / ".ftgate" / "last-run.json").write_text("{", encoding="utf-8")
    assert cli.main(["decide"]) == 2
    assert "last-run.json is not JSON" in capsys.readouterr().err
