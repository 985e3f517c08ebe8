"""Which commit has the files that were measured: trees as git names them, without recordings of ours.

A recording is committed after it was made, so no commit has the tree that it names, but for recordings.
"""

from __future__ import annotations

import contextlib
import tempfile
from pathlib import Path

from ...kit.files import hide_from_git
from ...kit.git import AgainstError, Repository
from ...kit.waiting import locked
from ...store.names import is_recording
from . import worktrees


def tree_of(repository: Repository, commit: str) -> str:
    """The tree of a commit without recordings, and without the bytecode that runs leave. Raises GitFailed."""
    names = repository.git("ls-tree", "-r", "-z", "--full-tree", "--name-only", commit).split("\0")
    left_out = "".join(f"{name}\0" for name in names if is_recording(name) or "__pycache__" in name.split("/"))
    if not left_out:
        return repository.git("rev-parse", f"{commit}^{{tree}}").strip()
    with tempfile.TemporaryDirectory(prefix="ftgate-") as folder:
        index = {"GIT_INDEX_FILE": str(Path(folder, "index"))}
        repository.git("read-tree", commit, variables=index)
        words = ("update-index", "--force-remove", "-z", "--stdin")
        repository.git(*words, given=left_out, cwd=repository.top, variables=index)
        return repository.git("write-tree", variables=index).strip()


def working_tree(root: Path, folder: Path) -> str:
    """The tree of the files as they are in the project at `root`; empty without git. `folder` is its `.ftgate`."""
    with contextlib.suppress(AgainstError, OSError):
        repository, place = Repository(root), folder.absolute() / "worktrees"
        hide_from_git(place)
        with locked(Path(f"{place}.lock")):
            return tree_of(repository, worktrees.snapshot(repository, place))
    return ""
