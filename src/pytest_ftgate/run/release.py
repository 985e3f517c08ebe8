"""The version that both sides of a comparison are built as: that of the newest tag of the project's history.

Builds that take a version from git would differ in it, and in file names, at each commit.
"""

from __future__ import annotations

import hashlib
import os
import re
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Final

from .. import pythons
from .git import Repository

_FILE: Final = "pyproject.toml"
_NEVER_AT: Final = "2000-01-01T00:00:00Z"


def variables(root: Path, project: Path) -> dict[str, str]:
    """The environment variables by which a build of `project`, a checkout of the one at `root`, is of that version."""
    repository = Repository(root)
    tag = repository.git("describe", "--tags", "--abbrev=0", "--match=*[0-9]*", allowed=(0, 128)).strip() or "0"
    found = re.search(r"\d+(\.\d+)*", tag)
    given = pythons.pretended(project, found[0] if found else "0")
    if pythons.asks_git_alone(project) and "GIT_DIR" not in os.environ:
        given["GIT_DIR"] = str(_tagged(repository, tag))
    return given


def _tagged(repository: Repository, tag: str) -> Path:
    """The git folder of a repository whose one commit has this tag, and never a change.

    git finds the file of its index in the folder where a build asks, and does not look at it.
    """
    releases = repository.root / ".ftgate" / "releases"
    folder = releases / hashlib.sha256(tag.encode()).hexdigest()[:12]
    if not folder.exists():
        pythons.hide_from_git(releases)
        with tempfile.TemporaryDirectory(dir=releases, ignore_cleanup_errors=True) as made:
            _make(repository, Path(made), tag)
            with suppress(OSError):  # another process was faster
                (Path(made) / ".git").rename(folder)
    return folder


def _make(repository: Repository, folder: Path, tag: str) -> None:
    """The same commit whenever and by whomever it is made: its id may be part of a version."""
    made_by = {
        f"GIT_{role}_{field}": value
        for role in ("AUTHOR", "COMMITTER")
        for field, value in (("NAME", "pytest-ftgate"), ("EMAIL", "pytest-ftgate@invalid"), ("DATE", _NEVER_AT))
    }
    (folder / _FILE).touch()
    for words in (
        ("init", "--quiet", "--template="),
        ("add", "--force", _FILE),
        ("commit", "--quiet", "--no-gpg-sign", "-m", tag),
        ("tag", "--no-sign", "-m", tag, tag),
        ("update-index", "--skip-worktree", _FILE),
    ):
        repository.git(*words, cwd=folder, variables=made_by)
