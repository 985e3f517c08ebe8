"""A library of ours that is the project under test."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pytest_ftgate.features import html
from pytest_ftgate.model.report import Format
from pytest_ftgate.report.json import formats
from pytest_ftgate.run import libraries

INFO = "Metadata-Version: 2.1\nName: fakejinja\nVersion: 1.0\n"


@pytest.fixture(autouse=True)
def fakejinja(monkeypatch: pytest.MonkeyPatch) -> None:
    """The library that the page is made with, in these tests."""
    monkeypatch.setitem(formats(), "html", Format(html.render, ("fakejinja",)))
    monkeypatch.setattr(libraries, "DECIDING", ("fakejinja",))


def on_path(folder: Path, monkeypatch: pytest.MonkeyPatch, installed: dict[str, object] | None = None) -> None:
    """The library in a folder of sys.path; `installed`: what direct_url.json says of its installation."""
    (folder / "fakejinja").mkdir(parents=True)
    (folder / "fakejinja" / "__init__.py").write_text("raise ImportError", encoding="utf-8")
    if installed is not None:
        about = folder / "fakejinja-1.0.dist-info"
        about.mkdir()
        (about / "METADATA").write_text(INFO, encoding="utf-8")
        (about / "direct_url.json").write_text(json.dumps(installed), encoding="utf-8")
    monkeypatch.syspath_prepend(folder)


def test_a_form_made_with_the_projects_own_library_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    on_path(tmp_path / "src", monkeypatch)
    assert list(libraries.left_out(tmp_path, ["html", "json", "md"])) == ["html"]
    assert libraries.left_out(tmp_path, ["json"]) == {}
    assert libraries.note(tmp_path) == "measures and judges with this project's own fakejinja"


@pytest.mark.parametrize("place", ["root/.venv/lib/python3.14/site-packages", "elsewhere"])
def test_a_release_is_nobodys(tmp_path: Path, place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    on_path(tmp_path / place, monkeypatch)
    assert libraries.left_out(tmp_path / "root", ["html"]) == {}
    assert libraries.note(tmp_path / "root") == ""


@pytest.mark.parametrize(
    ("given", "own"),
    [
        ({"url": "{root}", "dir_info": {}}, True),
        ({"url": "{root}/", "dir_info": {"editable": True}}, True),
        ({"url": "{root}-other", "dir_info": {}}, False),
        ({"url": "{root}/.tox/.tmp/fakejinja-1.0.tar.gz", "archive_info": {}}, True),
        ({"url": "{root}/wheels/other-1.0.tar.gz", "archive_info": {}}, False),
        ({}, False),
    ],
)
def test_an_installation_of_the_project_is_the_projects(
    tmp_path: Path, given: dict[str, object], own: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "root"
    root.mkdir()
    name = "other" if "wheels" in str(given) else "fakejinja"
    (root / "pyproject.toml").write_text(f'[project]\nname = "{name}"\n', encoding="utf-8")
    if "url" in given:
        given = {**given, "url": str(given["url"]).format(root=root.as_uri())}
    on_path(tmp_path / "site-packages", monkeypatch, given)
    assert bool(libraries.left_out(root, ["html"])) is own
