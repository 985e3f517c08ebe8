"""`ftgate decide`: the last run, the baselines for what it lacks, names, weights, JSON, and exit codes."""

from __future__ import annotations

import json
from collections.abc import Callable
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

Ftgate = Callable[..., str]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with baselines of two cells and without a run."""
    monkeypatch.chdir(tmp_path)
    threads, fork = (make_sample(f"3.14t-{name}-w2") for name in ("threads", "fork"))
    fork = replace(fork, cell=replace(fork.cell, executor=Executor(kind="processes", method="fork")))
    Store(tmp_path / "baselines").save(TEST, [change_of(threads), change_of(fork)])
    return tmp_path


def last_run(project: Path, report: Report | None = None) -> None:
    folder = project / ".ftgate"
    folder.mkdir(exist_ok=True)
    text = report_json.render(report or report_by_hand.report())
    (folder / "last-run.json").write_text(text, encoding="utf-8")


def test_a_test_that_the_run_measured_is_not_taken_from_baselines(project: Path, ftgate: Ftgate) -> None:
    table = Table(title=TEST, rows=(make_row(make_sample()),), reference="threads")
    last_run(project, replace(report_by_hand.report(), tables=(table,)))
    text = ftgate("decide")
    assert text.count(TEST) == 1
    assert "from        the run of" in text
    assert "no other candidate was measured" in " ".join(text.split())


def test_without_a_run_it_takes_the_baselines_and_says_so(project: Path, ftgate: Ftgate) -> None:
    text = ftgate("decide")
    assert text.startswith(f"{TEST} (2 workers)\n")
    assert "baselines recorded" in text
    assert MACHINE.fingerprint in text


def test_the_run_comes_first_and_baselines_have_what_it_lacks(project: Path, ftgate: Ftgate) -> None:
    last_run(project)
    both = ftgate("decide")
    assert report_by_hand.TOKENISE in both
    assert TEST in both
    assert TEST not in ftgate("decide", "--from", "run")
    assert report_by_hand.TOKENISE not in ftgate("decide", "--from", "baselines")


def test_tests_are_named_as_elsewhere(project: Path, ftgate: Ftgate) -> None:
    last_run(project)
    text = ftgate("decide", "test_tokenise", "test_count")
    assert report_by_hand.TOKENISE in text
    assert TEST in text
    assert report_by_hand.CACHE not in text


def test_json_holds_the_figures(project: Path, ftgate: Ftgate) -> None:
    (found,) = json.loads(ftgate("decide", "--json"))
    assert found["test"] == TEST
    assert {each["name"] for each in found["choices"][0]["time"]["ranked"]} == {"threads on 3.14t", "fork on 3.14t"}


@pytest.mark.parametrize("arguments", [["test_nowhere"], ["--from", "run"]])
def test_what_is_not_there_exits_with_3(project: Path, arguments: list[str], ftgate: Ftgate) -> None:
    assert "pytest --ftgate" in ftgate("decide", *arguments, code=3)


def test_weights_are_those_of_the_command_line_or_the_ini(project: Path, ftgate: Ftgate) -> None:
    (project / "pytest.ini").write_text("[pytest]\nftgate_weights = time=1 memory=0.5\n", encoding="utf-8")
    assert "by time=1 memory=0.5" in " ".join(ftgate("decide").split())
    assert "by memory=2" in " ".join(ftgate("decide", "--weight", "memory=2").split())


@pytest.mark.parametrize("wrong", ["tme=1", "time", "time=-1", "time=nan", "memory=much"])
def test_a_weight_that_is_none_names_the_option(
    project: Path, wrong: str, ftgate: Ftgate, capsys: pytest.CaptureFixture[str]
) -> None:
    (project / "pytest.ini").write_text(f"[pytest]\nftgate_weights = {wrong}\n", encoding="utf-8")
    error = ftgate("decide", code=2)
    assert f"ini option ftgate_weights={wrong}" in error
    assert "time=1 memory=0.5" in error
    with pytest.raises(SystemExit):
        cli.main(["decide", "--weight", wrong])
    assert "argument --weight: takes weights such as time=1 memory=0.5" in capsys.readouterr().err


def test_a_report_that_is_broken_is_an_error(project: Path, ftgate: Ftgate) -> None:
    (project / ".ftgate").mkdir(exist_ok=True)
    (project / ".ftgate" / "last-run.json").write_text("{", encoding="utf-8")
    assert "last-run.json is not JSON" in ftgate("decide", code=2)
