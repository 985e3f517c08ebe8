"""What moves a cursor, colours or reorders a line, or commands the runner of a CI never stands raw in what is shown."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import pytest
import report_by_hand
from mutations import places
from stored_values import TEST, change, make_row, make_sample

from pytest_ftgate import cli
from pytest_ftgate.features.baseline import render_diff, render_list, render_test
from pytest_ftgate.features.decide import rank, sentences
from pytest_ftgate.kit.errors import FtgateError
from pytest_ftgate.model.report import Report
from pytest_ftgate.model.verdict import Decision
from pytest_ftgate.report import json as formats
from pytest_ftgate.report import json as report_json
from pytest_ftgate.report import terminal
from pytest_ftgate.store.folder import assembled, changed
from pytest_ftgate.store.schema import decode, encode

HOSTILE = "\x1b[31m\x9b2J\x1b]0;title\x07\x90q\x9c\u202e\u2066\u200f\x00\x08\x7f\x85\x1b\n ::add-mask::a ##[group]"
RAW = re.compile(
    r"^\s*::[a-z]|##\w*\[|[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]", re.MULTILINE
)
FORMS = sorted(formats.formats())


def poisoned(value: Any, keys: set[str]) -> Any:
    """The value with HOSTILE at the end of each text under one of these keys, and of each key of that name."""
    for container, key in places(value):
        if isinstance(container, dict) and key in keys and isinstance(container[key], str):
            container[key] += HOSTILE
        if isinstance(container, dict) and key in keys and isinstance(container[key], list):
            container[key] = [item + HOSTILE if isinstance(item, str) else item for item in container[key]]
    return value


@cache
def hostile_report() -> Report:
    """A report in which every text is hostile that a report can hold; metrics and kinds have fixed names."""
    text = report_json.render(report_by_hand.report())
    keys: set[str] = set()
    for key in {key for container, key in places(json.loads(text)) if isinstance(container, dict)} - {
        "metric",
        "unit",
        "contract",
    }:
        try:
            report_json.parse(json.dumps(poisoned(json.loads(text), keys | {key})))
        except FtgateError:
            continue
        keys.add(key)
    assert {"reason", "detail", "nodeid", "title", "cells", "baseline", "why", "cpu", "note", "file", "name"} <= keys
    return report_json.parse(json.dumps(poisoned(json.loads(text), keys)))


def shown(report: Report) -> str:
    return terminal.render(report, width=120, color=False, unicode=True, verbosity=2)


@pytest.mark.parametrize("form", FORMS)
def test_no_form_of_a_report_has_them_raw(form: str) -> None:
    assert RAW.findall("".join(formats.rendered(form, hostile_report()))) == []


def test_nor_has_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    report = hostile_report()
    assert RAW.findall(shown(report)) == []
    assert [RAW.findall(terminal.cell_text(row, decorated=True)) for row in report.rows] == [[]] * len(report.rows)
    said = [sentences.said(each) for each in rank.of_report(report)]
    assert RAW.findall(sentences.render(said, 100, unicode=True)) == []


SHOWN: dict[str, Callable[[Any], str]] = {
    "list": lambda baseline: render_list([baseline]),
    "show": render_test,
    "diff": lambda baseline: render_diff(
        [
            (make_row(make_sample(label), Decision.REGRESSED), cell, None, HOSTILE)
            for label, builds in baseline.cells.items()
            for cell in builds.values()
        ],
    ),
}


@pytest.mark.parametrize("how", SHOWN)
def test_nor_has_what_is_said_of_baselines(how: str) -> None:
    (run,) = changed(TEST, {}, [change()]).values()
    content = json.loads(encode(run))
    poisoned(content, {"test", "version", "build", "compiler", "cpu", "kernel", "executor"})
    content["cells"] = {label + HOSTILE: cell for label, cell in content["cells"].items()}
    content["interpreters"] = {
        cell["build"]: next(iter(content["interpreters"].values())) for cell in content["cells"].values()
    }
    baseline = assembled(content["test"], {"x.json": decode(json.dumps(content).encode(), "x.json")})
    assert RAW.findall(SHOWN[how](baseline)) == []


@pytest.mark.parametrize("words", [["report", "{}"], ["merge", "{}", "-o", "out.xml"]])
def test_nor_has_an_error_of_a_command(words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "a\x1b[31m\u202e.json"
    path.write_text(json.dumps({"schema": 6, f"x{HOSTILE}": HOSTILE}), encoding="utf-8")
    assert cli.main([word.replace("{}", str(path)) for word in words]) == 2
    assert RAW.findall(capsys.readouterr().err) == []


def test_nor_has_an_error_of_a_baseline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (run,) = changed(TEST, {}, [change()]).values()
    content = msgspec.to_builtins(run)
    content["cells"] = {f"x{HOSTILE}": {"build": HOSTILE}}
    folder = tmp_path / "baselines" / "test_x.py"
    folder.mkdir(parents=True)
    (folder / "20260102T030405-00000000.json").write_text(json.dumps(content), encoding="utf-8")
    assert cli.main(["baseline", "list"]) == 2
    assert RAW.findall(capsys.readouterr().err) == []
