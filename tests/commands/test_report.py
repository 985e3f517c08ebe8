"""`ftgate report`: a recorded run in any form, its errors and exit codes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import report_by_hand

from pytest_ftgate.features import html
from pytest_ftgate.model.report import Format
from pytest_ftgate.report import json, terminal

Ftgate = Callable[..., str]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def written(folder: Path) -> Path:
    path = folder / "run.json"
    path.write_text(json.render(report_by_hand.report()), encoding="utf-8")
    return path


def test_it_prints_what_the_run_printed(written: Path, ftgate: Ftgate) -> None:
    expected = terminal.render(report_by_hand.report(), width=80, color=False, unicode=True)
    assert ftgate("report", written.name) == expected


def test_it_takes_the_last_run(folder: Path, ftgate: Ftgate) -> None:
    kept = folder / ".ftgate" / "last-run.json"
    kept.parent.mkdir()
    kept.write_text(json.render(report_by_hand.report()), encoding="utf-8")
    assert report_by_hand.TOKENISE in ftgate("report")


def test_it_writes_files(written: Path, folder: Path, ftgate: Ftgate) -> None:
    assert ftgate("report", written.name, "--to", "json:out/again.json") == "wrote out/again.json\n"
    assert json.parse((folder / "out" / "again.json").read_bytes()) == json.parse(written.read_bytes())


def test_there_is_no_run(folder: Path, ftgate: Ftgate) -> None:
    assert "run pytest --ftgate first" in ftgate("report", code=3)


@pytest.mark.parametrize(
    ("arguments", "content", "said"),
    [
        (["missing.json"], "", "missing.json: cannot be read: No such file or directory; name a file"),
        (["/dev/zero"], "", "/dev/zero: cannot be read: it is not a regular file; name a file"),
        (["run.json"], "{", "run.json is not JSON"),
        (["run.json"], '{"schema": 99}', "run.json has schema 99, this pytest-ftgate reads 6"),
        (["run.json", "--to", "jsn:x"], "{}", "--to takes "),
        (["run.json", "--to", "json:"], "{}", "--to takes "),
    ],
)
def test_an_error_names_the_file_or_the_option(
    folder: Path, ftgate: Ftgate, arguments: list[str], content: str, said: str
) -> None:
    (folder / "run.json").write_text(content, encoding="utf-8")
    assert said in ftgate("report", *arguments, code=2)


def test_a_file_that_cannot_be_written(written: Path, folder: Path, ftgate: Ftgate) -> None:
    (folder / "a").write_text("", encoding="utf-8")
    assert "--to json:a/b.json: cannot be written" in ftgate("report", written.name, "--to", "json:a/b.json", code=2)


def test_a_library_under_test_makes_no_form(
    written: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, ftgate: Ftgate
) -> None:
    (folder / "src" / "fakejinja").mkdir(parents=True)
    (folder / "src" / "fakejinja" / "__init__.py").touch()
    monkeypatch.syspath_prepend(folder / "src")
    monkeypatch.setitem(json.formats(), "html", Format(html.render, ("fakejinja",)))
    assert "--to html: fakejinja here is this project's own" in ftgate(
        "report", written.name, "--to", "html:page.html", code=2
    )
    assert not (folder / "page.html").exists()
