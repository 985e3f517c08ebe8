"""A regression that is meant, end to end: what pytest, the reports and `ftgate` make of a commit's trailer."""

from __future__ import annotations

from typing import Any

import pytest
from example import Example
from project import NOBODY, commit, git

from pytest_ftgate import cli

FILES = {
    "pytest.ini": "[pytest]\n",
    ".gitignore": ".ftgate/\n__pycache__/\n",
    "test_a.py": """
        @ftgate.compare(threads, workers=1)
        def test_slower(worker):
            return 1
        """,
}
# A single pair of launches decides what is a hundred times slower.
QUICK = (
    "-p", "fake_run", "--ftgate", "--ftgate-against=HEAD~1", "-oftgate_launches=1", "-oftgate_iterations=2",
    "--ftgate-python=3.14t",
)  # fmt: skip
CELL = "test_a.py::test_slower[3.14t-threads-w1]"
SUBJECT = "The index is looked up"


class Project:
    """A project in git whose last commit made its one cell slower."""

    def __init__(self, pytester: pytest.Pytester) -> None:
        self.example = Example(pytester, FILES)
        self.folder = pytester.path
        commit(self.folder, "first")
        commit(self.folder, SUBJECT)

    def git(self, *arguments: str) -> str:
        return git(self.folder, *arguments)

    def say(self, *trailers: str) -> str:
        """Give the last commit these trailers; returns its id."""
        self.git(
            "commit",
            "--quiet",
            "--amend",
            "--allow-empty",
            "-m",
            SUBJECT,
            "-m",
            "\n".join(f"Ftgate-Accept: {each}" for each in trailers),
        )
        return self.git("rev-parse", "HEAD")

    def gate(self, *options: str) -> pytest.RunResult:
        """The last commit against the one before."""
        return self.example.run_pytest(*QUICK, *options)

    def verdict(self) -> Any:
        (row,) = self.example.rows()
        return row["verdict"]


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, scripted_runs: None) -> Project:
    for name, value in NOBODY.items():
        monkeypatch.setenv(name, value)
    return Project(pytester)


def test_an_accepted_regression_passes_with_its_reason_in_the_report(project: Project) -> None:
    commit = project.say("test_a.py::test_slower[3.14t-*] wall: the index costs it")
    result = project.gate("-v", "-n1")
    assert result.ret == 0
    assert result.parseoutcomes()["passed"] == 1
    text = result.stdout.str()
    assert "ACCEPTED" in text
    assert f"accepted by commit {commit[:10]}: the index costs it" in text
    verdict = project.verdict()
    assert verdict["decision"] == "accepted"
    assert verdict["accepted"] == [
        {"cells": "test_a.py::test_slower[3.14t-*]", "commit": commit, "metric": "wall", "reason": "the index costs it"}
    ]
    refused = project.gate("--ftgate-fail-on=regressed,suspect,accepted", "-rA")
    assert refused.ret == pytest.ExitCode.TESTS_FAILED
    assert f"accepted by commit {commit[:10]}" in refused.stdout.str()


def test_without_a_trailer_it_fails_and_the_command_writes_one(project: Project) -> None:
    assert project.gate().ret == pytest.ExitCode.TESTS_FAILED
    assert cli.main(["accept", CELL, "wall", "the index costs it"]) == 0
    assert project.git("log", "-1", "--format=%B").endswith(f"Ftgate-Accept: {CELL} wall: the index costs it")
    result = project.example.run_pytest(*(each.replace("HEAD~1", "HEAD~2") for each in QUICK))
    assert result.ret == 0
    assert project.verdict()["decision"] == "accepted"


@pytest.mark.parametrize("options", [(), ("-n1",)])
def test_a_trailer_that_accepts_nothing_is_an_error_before_anything_is_measured(
    project: Project, options: tuple[str, ...]
) -> None:
    commit = project.say("test_a.py::test_slowe wall: why", "test_a.py::test_slower wal: why")
    result = project.gate(*options)
    text = result.stdout.str() + result.stderr.str()
    assert result.ret == (pytest.ExitCode.TESTS_FAILED if options else pytest.ExitCode.USAGE_ERROR)
    assert (
        f"commit {commit[:10]}: `Ftgate-Accept: test_a.py::test_slowe wall: why` matches no cell "
        "(did you mean 'test_a.py::test_slower'?); correct it with `git commit --amend`" in text
    )
    assert f"commit {commit[:10]}: `Ftgate-Accept: test_a.py::test_slower wal: why`: 'wal' is not a metric" in text
    assert not (project.folder / ".ftgate" / "last-run.json").exists()


def test_a_run_of_another_file_does_not_ask_for_the_cells_of_a_trailer(project: Project) -> None:
    (project.folder / "test_b.py").write_text((project.folder / "test_a.py").read_text())
    project.say("test_a.py::test_slower wall: why")
    assert project.gate("test_b.py", "-k", "nothing").ret == pytest.ExitCode.NO_TESTS_COLLECTED
