"""The version that both sides are built as."""

from __future__ import annotations

from pathlib import Path

import pytest
from project import commit, git

from pytest_ftgate.run.sides import references

QUESTIONS = (
    "rev-parse --is-inside-work-tree",
    "ls-files --error-unmatch .",
    "describe --long --dirty --always --tags",
    "show --no-patch --format=%ad",
)
"""What versioningit asks git."""
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


def answers(project: Path) -> list[str]:
    given = references.variables(project, project)
    return [git(project, *question.split(), **given) for question in QUESTIONS]


def test_a_build_that_asks_git_gets_the_newest_tag_at_each_commit(project: Path) -> None:
    committed(project, BUILD.format("versioningit"))
    git(project, "tag", "v1.2.0")
    committed(project, BUILD.format("versioningit>=2"))
    of_one = answers(project)
    committed(project, BUILD.format("versioningit>=3"))
    (project / "pyproject.toml").write_text(BUILD.format("versioningit>=4"), encoding="utf-8")
    assert answers(project) == of_one
    assert of_one[0] == "true"
    assert of_one[2].startswith("v1.2.0-0-g")
    assert not of_one[2].endswith("dirty")
    assert git(project, "status", "--porcelain") == "M pyproject.toml"
    git(project, "tag", "v1.3.0")
    assert answers(project)[2].startswith("v1.3.0-0-g")


def test_a_history_without_tags_is_version_0(project: Path) -> None:
    committed(project, BUILD.format("versioningit"))
    assert answers(project)[2].startswith("0-0-g")
    committed(project, BUILD.format("setuptools-scm"))
    assert references.variables(project, project) == {"SETUPTOOLS_SCM_PRETEND_VERSION_FOR_SAMPLE": "0"}


def test_a_build_that_asks_git_for_nothing_is_given_nothing(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    committed(project, BUILD.format("flit_core"))
    assert references.variables(project, project) == {}
    committed(project, BUILD.format("versioningit"))
    monkeypatch.setenv("GIT_DIR", str(project / ".git"))
    assert references.variables(project, project) == {}
