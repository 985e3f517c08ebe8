"""The version that both sides are built as."""

from __future__ import annotations

from pathlib import Path

import pytest
from project import commit, git

from pytest_ftgate.run.sides import references

BUILD = '[project]\nname = "sample"\ndynamic = ["version"]\n[build-system]\nrequires = ["hatchling", "{}"]\n'


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    git(folder, "init", "-q")
    return folder


def committed(folder: Path, text: str) -> None:
    (folder / "pyproject.toml").write_text(text, encoding="utf-8")
    commit(folder)


def test_it_is_that_of_the_newest_tag_at_each_commit(project: Path) -> None:
    committed(project, BUILD.format("setuptools-scm"))
    assert references.variables(project, project) == {"SETUPTOOLS_SCM_PRETEND_VERSION_FOR_SAMPLE": "0"}
    git(project, "tag", "v1.2.0")
    for number in range(2):
        committed(project, BUILD.format(f"setuptools-scm>={number}"))
        assert references.variables(project, project) == {"SETUPTOOLS_SCM_PRETEND_VERSION_FOR_SAMPLE": "1.2.0"}


def test_a_build_that_asks_git_for_nothing_is_given_nothing(project: Path) -> None:
    committed(project, BUILD.format("flit_core"))
    assert references.variables(project, project) == {}
