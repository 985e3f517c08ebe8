"""A regression that is meant, end to end: what pytest, the reports and `ftgate` make of a commit's trailer."""

from __future__ import annotations

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
# Two pairs of launches decide what is a hundred times slower.
QUICK = (
    "-p", "fake_run", "--ftgate", "--ftgate-against=HEAD~1", "-oftgate_launches=2", "-oftgate_iterations=2",
    "--ftgate-python=3.14t",
)  # fmt: skip
CELL = "test_a.py::test_slower[3.14t-threads-w1]"
SUBJECT = "The index is looked up"


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, scripted_runs: None) -> Example:
    """A project in git whose last commit made its one cell slower."""
    for name, value in NOBODY.items():
        monkeypatch.setenv(name, value)
    made = Example(pytester, FILES)
    commit(made.folder, "first")
    commit(made.folder, SUBJECT)
    return made


def say(project: Example, *trailers: str) -> str:
    """Give the last commit these trailers; returns its id."""
    body = "\n".join(f"Ftgate-Accept: {each}" for each in trailers)
    git(project.folder, "commit", "--quiet", "--amend", "--allow-empty", "-m", SUBJECT, "-m", body)
    return git(project.folder, "rev-parse", "HEAD")


def test_an_accepted_regression_passes_with_its_reason_in_the_report(project: Example) -> None:
    commit = say(project, "test_a.py::test_slower[3.14t-*] wall: the index costs it")
    result = project.run_pytest(*QUICK, "-v", "-n1")
    assert result.ret == 0
    assert result.parseoutcomes()["passed"] == 1
    text = result.stdout.str()
    assert "ACCEPTED" in text
    assert f"accepted by commit {commit[:10]}: the index costs it" in text
    (verdict,) = project.verdicts().values()
    assert verdict["decision"] == "accepted"
    assert verdict["accepted"] == [
        {
            "cells": "test_a.py::test_slower[3.14t-*]",
            "commit": commit,
            "metric": "wall",
            "reason": "the index costs it",
            "most": None,
        }
    ]
    refused = project.run_pytest(*QUICK, "--ftgate-fail-on=regressed,suspect,accepted", "-rA")
    assert refused.ret == pytest.ExitCode.TESTS_FAILED
    assert f"accepted by commit {commit[:10]}" in refused.stdout.str()


def test_without_a_trailer_it_fails_and_the_command_writes_one(project: Example) -> None:
    assert project.run_pytest(*QUICK).ret == pytest.ExitCode.TESTS_FAILED
    assert cli.main(["accept", CELL, "wall", "the index costs it"]) == 0
    assert git(project.folder, "log", "-1", "--format=%B").endswith(
        f"Ftgate-Accept: {CELL} wall+9905%: the index costs it"
    )
    result = project.run_pytest(*(each.replace("HEAD~1", "HEAD~2") for each in QUICK))
    assert result.ret == 0
    assert [*project.decisions().values()] == ["accepted"]


@pytest.mark.parametrize("options", [(), ("-n1",)])
def test_a_trailer_that_cannot_be_read_is_an_error_before_anything_is_measured(
    project: Example, options: tuple[str, ...]
) -> None:
    commit = say(project, "test_a.py::test_slower wal: why")
    result = project.run_pytest(*QUICK, *options)
    text = result.stdout.str() + result.stderr.str()
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert f"commit {commit[:10]}: `Ftgate-Accept: test_a.py::test_slower wal: why`: 'wal' is not a metric" in text
    assert not (project.folder / ".ftgate" / "last-run.json").exists()
