"""The steps between two commits, each of which can be measured."""

from __future__ import annotations

from pathlib import Path

from ...kit.files import hide_from_git
from ...kit.git import AgainstError, Repository, shown
from ...kit.values import Struct
from ...kit.waiting import locked
from ...run.sides.worktrees import snapshot


class Step(Struct, frozen=True):
    """The state after a step, as a commit, and what the step is."""

    commit: str
    text: str


def commits(repository: Repository, good: str, bad: str) -> list[Step]:
    """The commits after `good` up to `bad`, oldest first; a merge is one step."""
    words = ("log", "--reverse", "--first-parent", "--no-show-signature", "--format=%H %s", f"{good}..{bad}")
    lines = (line.partition(" ") for line in repository.git(*words).splitlines())
    return [Step(commit, f"{shown(commit)} {subject}") for commit, _, subject in lines]


def working_tree(root: Path, folder: Path) -> Step | None:
    """Uncommitted changes as a step after HEAD; None without any."""
    repository, worktrees = Repository(root), folder / "worktrees"
    hide_from_git(worktrees)
    with locked(Path(f"{worktrees}.lock")):
        commit = snapshot(repository, worktrees)
    return None if commit == repository.commit("HEAD") else Step(commit, "uncommitted changes")


def ends(repository: Repository, good: str, bad: str) -> tuple[str, str]:
    """Both commits; where `good` is not before `bad`, the commit where they parted. Raises AgainstError."""
    found = [repository.named(each) for each in (good, bad)]
    for revision, commit in zip((good, bad), found, strict=True):
        if commit is None:
            raise AgainstError(f"{revision}: git knows no such revision; name a branch, a tag or a commit")
    base = repository.git("merge-base", str(found[0]), str(found[1]), allowed=(0, 1)).strip()
    if not base:
        raise AgainstError(f"{good} and {bad} have no common ancestor: name a commit before {bad}")
    return base, str(found[1])
