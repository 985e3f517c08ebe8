"""Which commit has the files that were recorded: real repositories, with recordings in them or beside them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from fake_launcher import Quiet
from project import commit, git

from pytest_ftgate.kit.git import AgainstError, Repository
from pytest_ftgate.run.folder import RunFolder
from pytest_ftgate.run.sides import trees, worktrees
from pytest_ftgate.run.sides.references import Newest, References
from pytest_ftgate.run.sides.worktrees import NothingToCompare
from pytest_ftgate.store.names import file_name

TEST = "test_a.py::test_it"
pytestmark = pytest.mark.usefixtures("bare_git")


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    """A project below the top of a repository with one commit."""
    folder = tmp_path / "repo" / "project"
    folder.mkdir(parents=True)
    (folder.parent / ".gitignore").write_text(".ftgate/\n")
    write(folder, 1)
    git(folder.parent, "init", "--quiet", "--template=")
    commit(folder.parent)
    return folder


def write(folder: Path, number: int) -> None:
    (folder / "test_a.py").write_text(f"def test_it(worker): return {number}\n")


def recording(folder: Path, seed: int) -> Path:
    path = folder / "baselines" / "test_a.py" / "test_it" / file_name("2026-01-02T03:04:05", "", seed, "machine")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("{}")
    return path


def now(folder: Path) -> str:
    return trees.working_tree(folder, folder / ".ftgate")


def test_recordings_are_no_part_of_a_tree(repo: Path) -> None:
    of_commit = trees.tree_of(Repository(repo), "HEAD")
    assert now(repo) == of_commit
    recording(repo, 1)
    assert now(repo) == of_commit
    commit(repo.parent)
    assert trees.tree_of(Repository(repo), "HEAD") == now(repo) == of_commit
    recording(repo, 1).write_text('{"changed": 1}')
    assert now(repo) == of_commit
    (repo / "__pycache__").mkdir()
    (repo / "__pycache__" / "test_a.cpython-314.pyc").touch()
    assert now(repo) == of_commit, "a run has left it"
    (repo / "baselines" / "notes.json").write_text("{}")
    assert now(repo) != of_commit, "any other file counts"


def test_a_tree_is_of_the_files_as_they_are(repo: Path) -> None:
    index, first = (repo.parent / ".git" / "index").read_bytes(), now(repo)
    write(repo, 2)
    edited = now(repo)
    assert edited != first
    (repo / "new.py").write_text("")
    assert now(repo) not in (first, edited)
    (repo / "new.py").unlink()
    assert (repo.parent / ".git" / "index").read_bytes() == index
    commit(repo.parent)
    assert now(repo) == edited == trees.tree_of(Repository(repo), "HEAD")


def test_outside_of_git_there_is_none(tmp_path: Path) -> None:
    assert now(tmp_path) == ""


# -- the commit of a recording -------------------------------------------------------------------------------------


def references(folder: Path) -> References:
    return References(RunFolder(folder), "", Quiet())


def test_the_files_of_a_recording_are_nothing_to_compare(repo: Path) -> None:
    at = git(repo, "rev-parse", "HEAD")
    file = recording(repo, 1)
    commit(repo.parent)
    newest = Newest(at, "", file)
    with pytest.raises(NothingToCompare, match=f"the files are those of {at[:10]}"):
        references(repo).recorded(newest, TEST)
    assert not (repo / ".ftgate" / "worktrees" / at[:12]).exists(), "nothing was checked out for that"
    write(repo, 2)
    pair = references(repo).recorded(newest, TEST)
    assert (pair.reference.commit, pair.changed.label) == (at, "working tree (uncommitted changes)")


def test_an_edited_tree_is_that_of_the_commit_that_brought_the_recording_if_the_files_agree(repo: Path) -> None:
    before = git(repo, "rev-parse", "HEAD")
    write(repo, 2)
    newest = Newest(f"{before}+", now(repo), recording(repo, 1))
    with pytest.raises(NothingToCompare, match="the files are those that were recorded"):
        references(repo).recorded(newest, TEST)
    at = commit(repo.parent)
    write(repo, 3)
    assert references(repo).recorded(newest, TEST).reference.commit == at
    for tree in ("", "f" * 40):
        with pytest.raises(AgainstError, match="recorded with uncommitted changes on"):
            references(repo).recorded(newest._replace(tree=tree), TEST)


def test_a_test_that_git_did_not_have_yet_is_of_the_commit_that_brought_it(repo: Path) -> None:
    """Untracked files are no changes by git status as commits are recorded with it."""
    before = git(repo, "rev-parse", "HEAD")
    (repo / "test_b.py").write_text("def test_it(worker): ...\n")
    newest = Newest(before, now(repo), recording(repo, 1))
    at = commit(repo.parent)
    write(repo, 2)
    assert references(repo).recorded(newest, "test_b.py::test_it").reference.commit == at
    assert references(repo).recorded(newest, TEST).reference.commit == before


def test_one_commit_is_checked_out_once_for_all_tests(repo: Path) -> None:
    at = git(repo, "rev-parse", "HEAD")
    write(repo, 2)
    found = references(repo)
    one, other = (found.recorded(Newest(at, "", Path(name)), TEST) for name in ("one", "other"))
    assert one is other


def test_the_end_of_a_run_removes_what_no_run_has_used_for_long(repo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worktrees, "KEPT_WORKTREES", 0)
    at = git(repo, "rev-parse", "HEAD")
    references(repo).prune()  # nothing was compared
    write(repo, 2)
    found = references(repo)
    pair = found.recorded(Newest(at, "", Path("one")), TEST)
    found.prune()
    assert pair.changed.project.exists()
    os.close(worktrees._used.pop(pair.changed.top(pair.changed.project)))  # as if another process had used it
    found.prune()
    assert (pair.reference.project.exists(), pair.changed.project.exists()) == (True, False)
