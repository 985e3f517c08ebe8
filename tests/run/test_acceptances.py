"""Trailers in real git repositories: which commits are of the branch, and which trailers are errors."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fake_launcher import Quiet
from project import git

from pytest_ftgate.features.accept import Acceptances
from pytest_ftgate.kit.errors import FtgateError
from pytest_ftgate.run.folder import RunFolder

TEST = "tests/test_x.py::test_x"


@pytest.fixture(autouse=True)
def _no_branch_of_ci(bare_git: None, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("GITHUB_BASE_REF", "CI_MERGE_REQUEST_TARGET_BRANCH_NAME"):
        monkeypatch.delenv(name, raising=False)


def acceptances(folder: RunFolder, listener: Quiet | None = None) -> Acceptances:
    run: Any = SimpleNamespace(folder=folder, listener=listener or Quiet())
    return Acceptances(run)


class Repo:
    """A repository in which each commit is empty but for its message."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def git(self, *arguments: str) -> str:
        return git(self.folder, *arguments)

    def commit(self, reason: str = "", metric: str = "wall", body: str = "") -> str:
        """A commit that accepts a metric of the test for this reason, or nothing; its id."""
        trailer = [f"Ftgate-Accept: {TEST} {metric}: {reason}"] if reason else []
        words = [word for text in ("change", *trailer, *filter(None, [body])) for word in ("-m", text)]
        self.git("commit", "--quiet", "--allow-empty", *words)
        return self.git("rev-parse", "HEAD")

    def run(self, listener: Quiet | None = None) -> Acceptances:
        """A run of its own."""
        return acceptances(RunFolder(self.folder), listener)

    def reasons(self, since: str = "") -> list[str]:
        """What the commits since one accept."""
        return [each.reason for each in self.run().since(since)]


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    """A branch `mine` off `main`, which has one commit."""
    made = Repo(tmp_path / "repo")
    (made.folder / "tests").mkdir(parents=True)
    (made.folder / "tests" / "test_x.py").write_text("")
    (made.folder / "tests" / "test_y.py").write_text("")
    made.git("init", "--quiet", "--initial-branch=main")
    made.git("add", ".")
    made.commit()
    made.git("checkout", "--quiet", "-b", "mine")
    return made


def clone(repo: Repo, name: str, *arguments: str) -> Repo:
    """A clone as CI makes it."""
    repo.git("clone", "--quiet", *arguments, f"file://{repo.folder}", str(repo.folder.parent / name))
    return Repo(repo.folder.parent / name)


# ---- which commits


def test_the_commits_since_the_reference_count_newest_first(repo: Repo) -> None:
    start = repo.commit("before")
    repo.commit("one")
    repo.commit("two")
    assert repo.reasons(start) == repo.reasons(f"{start}+") == ["two", "one"]
    assert repo.reasons(repo.git("rev-parse", "HEAD")) == []


@pytest.mark.parametrize("unknown", ["", "0123456789" * 4, "no such+"])
def test_without_a_known_reference_the_branch_counts_from_its_merge_base(repo: Repo, unknown: str) -> None:
    repo.commit("one")
    repo.commit("two")
    repo.git("checkout", "--quiet", "main")
    repo.commit("not of the branch")
    repo.git("checkout", "--quiet", "mine")
    assert repo.reasons(unknown) == ["two", "one"]


def test_on_the_default_branch_the_last_commit_counts_and_what_it_merged(repo: Repo) -> None:
    repo.commit("one")
    repo.commit("two")
    repo.git("checkout", "--quiet", "main")
    repo.commit("on main")
    assert repo.reasons() == ["on main"]
    repo.git("merge", "--quiet", "--no-edit", "mine")
    assert sorted(repo.reasons()) == ["one", "two"]


def test_the_only_commit_of_a_repository_counts(repo: Repo) -> None:
    repo.git("checkout", "--quiet", "--orphan", "main2")
    repo.git("branch", "-D", "main", "mine")
    repo.commit("first")
    assert repo.reasons() == ["first"]


def test_a_trailer_within_a_squashed_message_counts(repo: Repo) -> None:
    repo.commit("one", body="* another commit\n\nCo-authored-by: you <you@example.invalid>")
    assert repo.reasons() == ["one"]


def test_the_branch_is_that_of_the_runs_start(repo: Repo) -> None:
    repo.commit("one")
    run = repo.run()
    assert [each.reason for each in run.since("")] == ["one"]
    repo.commit("two")
    run._read.clear()
    assert [each.reason for each in run.since("")] == ["one"]


def test_outside_of_git_and_without_a_commit_nothing_is_accepted(tmp_path: Path, repo: Repo) -> None:
    outside = acceptances(RunFolder(tmp_path))
    assert outside.since("abc") == ()
    outside.check("")
    (tmp_path / "empty").mkdir()
    empty = Repo(tmp_path / "empty")
    empty.git("init", "--quiet")
    assert empty.reasons() == []


def test_the_merge_that_github_checks_out_has_the_trailers_of_its_second_parent(repo: Repo) -> None:
    repo.commit("one")
    repo.commit("two")
    repo.git("checkout", "--quiet", "-b", "pull", "main")
    repo.commit("on the base")
    repo.git("merge", "--quiet", "--no-ff", "--no-edit", "mine")
    whole = clone(repo, "whole", "--branch=pull", "--single-branch")
    whole.git("checkout", "--quiet", "--detach")
    whole.git("update-ref", "-d", "refs/remotes/origin/pull")
    assert sorted(whole.reasons()) == ["one", "two"]


class Heard(Quiet):
    """Keeps the warnings."""

    def __init__(self) -> None:
        super().__init__()
        self.said: list[str] = []

    def warn(self, text: str) -> None:
        self.said.append(text)


@pytest.mark.parametrize(("depth", "found"), [("1", []), ("2", ["two"])])
def test_a_shallow_clone_of_a_merge_says_what_is_missing(repo: Repo, depth: str, found: list[str]) -> None:
    repo.commit("one")
    repo.commit("two")
    repo.git("checkout", "--quiet", "-b", "pull", "main")
    repo.git("merge", "--quiet", "--no-ff", "--no-edit", "mine")
    cut, heard = clone(repo, "cut", "--branch=pull", f"--depth={depth}"), Heard()
    run = cut.run(heard)
    assert [each.reason for each in run.since("")] == found
    run.since("")
    (said,) = heard.said
    assert "this clone is shallow" in said
    assert "fetch-depth: 0" in said


def test_a_shallow_clone_that_reaches_the_reference_says_nothing(repo: Repo) -> None:
    start = repo.commit()
    repo.commit("one")
    cut, heard = clone(repo, "cut", "--branch=mine", "--depth=2"), Heard()
    assert [each.reason for each in cut.run(heard).since(start)] == ["one"]
    assert heard.said == []


# ---- which are errors


def test_only_what_can_still_be_corrected_is_an_error(repo: Repo) -> None:
    """Nobody can correct a trailer that is on the default branch."""
    start = repo.git("rev-parse", "HEAD")
    repo.git("checkout", "--quiet", "main")
    commit = repo.commit("why", metric="wal")
    there = clone(repo, "there")
    there.run().check(start)
    with pytest.raises(FtgateError, match="'wal' is not a metric") as refused:
        repo.run().check(start)
    assert str(refused.value).startswith(f"commit {commit[:10]}: `Ftgate-Accept: {TEST} wal: why`")
    assert "git rebase --interactive" in str(refused.value)
