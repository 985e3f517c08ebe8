"""A regression that is meant, end to end: what pytest, the reports and `ftgate` make of a commit's trailer."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from example import Example

FILES = {
    "pytest.ini": "[pytest]\n",
    ".gitignore": ".ftgate/\n__pycache__/\n",
    "helper.py": "SECONDS = 0.001\n",
    "test_a.py": """
        import time

        import helper

        @ftgate.compare(threads, workers=1)
        def test_it(worker):
            time.sleep(helper.SECONDS)
        """,
}
# A single pair of launches decides what is a hundred times slower.
QUICK = ("--ftgate", "--ftgate-against=HEAD~1", "--ftgate-launches=1", "--ftgate-iterations=2", "--ftgate-python=3.14t")
CELL = "test_a.py::test_it[3.14t-threads-w1]"
SUBJECT = "The index is looked up"


class Project:
    """A project in git whose last commit made its one cell slower."""

    def __init__(self, pytester: pytest.Pytester) -> None:
        self.example = Example(pytester, FILES)
        self.folder = pytester.path
        self.git("init", "--quiet")
        self.git("add", ".")
        self.git("commit", "--quiet", "-m", "first")
        (self.folder / "helper.py").write_text("SECONDS = 0.1\n")
        self.git("commit", "--quiet", "--all", "-m", SUBJECT)

    def git(self, *arguments: str) -> str:
        return subprocess.run(
            ["git", *arguments], cwd=self.folder, check=True, capture_output=True, text=True
        ).stdout.strip()

    def say(self, *trailers: str) -> str:
        """Give the last commit these trailers; returns its id."""
        self.git(
            "commit",
            "--quiet",
            "--amend",
            "-m",
            SUBJECT,
            "-m",
            "\n".join(f"Ftgate-Accept: {each}" for each in trailers),
        )
        return self.git("rev-parse", "HEAD")

    def gate(self, *options: str) -> pytest.RunResult:
        """The last commit against the one before."""
        return self.example.run_fresh(*QUICK, *options)

    def verdict(self) -> Any:
        ((row,),) = (table["rows"] for table in self.example.report()["tables"])
        return row["verdict"]


@pytest.fixture
def project(pytester: pytest.Pytester, interpreters_on_path: None, monkeypatch: pytest.MonkeyPatch) -> Project:
    for role in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{role}_NAME", "nobody")
        monkeypatch.setenv(f"GIT_{role}_EMAIL", "nobody@example.invalid")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", "/dev/null")
    return Project(pytester)


def test_an_accepted_regression_passes_with_its_reason_in_the_report(project: Project) -> None:
    commit = project.say("test_a.py::test_it[3.14t-*] wall: the index costs it")
    result = project.gate("-v", "-n1")
    assert result.ret == 0
    assert result.parseoutcomes()["accepted"] == 1
    text = result.stdout.str()
    assert "ACCEPTED" in text
    assert f"accepted by commit {commit[:10]}: the index costs it" in text
    verdict = project.verdict()
    assert verdict["decision"] == "accepted"
    assert verdict["accepted"] == [
        {"cells": "test_a.py::test_it[3.14t-*]", "commit": commit, "metric": "wall", "reason": "the index costs it"}
    ]
    refused = project.gate("--ftgate-fail-on=regressed,suspect,accepted", "-rA")
    assert refused.ret == pytest.ExitCode.TESTS_FAILED
    assert f"accepted by commit {commit[:10]}" in refused.stdout.str()


def test_without_a_trailer_it_fails_and_the_command_writes_one(project: Project) -> None:
    assert project.gate().ret == pytest.ExitCode.TESTS_FAILED
    command = (sys.executable, "-m", "pytest_ftgate.cli", "accept", CELL, "wall", "the index costs it")
    assert project.example.pytester.run(*command).ret == 0
    assert project.git("log", "-1", "--format=%B").endswith(f"Ftgate-Accept: {CELL} wall: the index costs it")
    result = project.example.run_fresh(*(each.replace("HEAD~1", "HEAD~2") for each in QUICK))
    assert result.ret == 0
    assert project.verdict()["decision"] == "accepted"


@pytest.mark.parametrize("options", [(), ("-n1",)])
def test_a_trailer_that_accepts_nothing_is_an_error_before_anything_is_measured(
    project: Project, options: tuple[str, ...]
) -> None:
    commit = project.say("test_a.py::test_if wall: why", "test_a.py::test_it wal: why")
    result = project.gate(*options)
    text = result.stdout.str() + result.stderr.str()
    assert result.ret == (pytest.ExitCode.TESTS_FAILED if options else pytest.ExitCode.USAGE_ERROR)
    assert (
        f"commit {commit[:10]}: `Ftgate-Accept: test_a.py::test_if wall: why` matches no cell "
        "(did you mean 'test_a.py::test_it'?); correct it with `git commit --amend`" in text
    )
    assert f"commit {commit[:10]}: `Ftgate-Accept: test_a.py::test_it wal: why`: 'wal' is not a metric" in text
    assert not (project.folder / ".ftgate" / "last-run.json").exists()


def test_a_run_of_another_file_does_not_ask_for_the_cells_of_a_trailer(project: Project) -> None:
    (project.folder / "test_b.py").write_text((project.folder / "test_a.py").read_text())
    project.say("test_a.py::test_it wall: why")
    assert project.gate("test_b.py", "-k", "nothing").ret == pytest.ExitCode.NO_TESTS_COLLECTED
