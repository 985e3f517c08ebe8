"""A worktree as its commit has it: nothing that an earlier run, or anybody else, left in it is measured."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path
from typing import Final

import msgspec

from .. import pythons
from ..files import write_whole
from . import submodules
from .git import Checkout, Repository

_CACHE: Final = "__pycache__"


def mend(repository: Repository, place: Path, commit: str) -> None:
    """Make the index of a worktree, or of a submodule in one, anew from its commit, and reset the files that differ.

    The index that is there can hide edits (assume-unchanged, skip-worktree), and a git that was killed leaves locks.
    Files that are the same keep their times, by which builds tell what changed. Raises GitFailed.
    """
    folder = place / repository.git("rev-parse", "--git-dir", cwd=place).rstrip("\n")
    for left in (folder / "index", *folder.glob("*.lock")):
        left.unlink(missing_ok=True)
    repository.git("read-tree", commit, cwd=place)
    repository.git("update-index", "-q", "--refresh", allowed=(0, 1), cwd=place)
    repository.git("reset", "--hard", "--quiet", commit, cwd=place)


def remove_extras(root: Path, checkout: Checkout, environments: Path) -> None:
    """Remove from a checkout what is not of its commit, but for what its installation left there.

    If that differs from what it was, the environments that belong to it are made again. Only for the run that measures:
    another one would lose its files. Raises GitFailed.
    """
    top = checkout.top(checkout.project)
    if not checkout.commit or not (top / ".git").exists():
        return
    repository = Repository(root)
    kept = _built(top)
    found = _extras(repository, top)
    for name in found:
        if not _same(top / name, kept.get(name)):
            _remove(top / name)
    if any(not _same(top / name, digest) for name, digest in kept.items()):
        pythons.forget_environments(environments, top)
        for name in kept:
            _remove(top / name)
        _record(top).unlink(missing_ok=True)


def remove_all_extras(root: Path, checkout: Checkout, environments: Path) -> None:
    """As `remove_extras`, with what its installation left; its environments are made again. Raises GitFailed."""
    top = checkout.top(checkout.project)
    pythons.forget_environments(environments, top)
    _record(top).unlink(missing_ok=True)
    remove_extras(root, checkout, environments)


def note_built(root: Path, checkout: Checkout) -> None:
    """Remember what an installation has left in a checkout: `remove_extras` keeps it. Raises GitFailed."""
    if checkout.commit:
        top = checkout.top(checkout.project)
        found = (name for name in _extras(Repository(root), top) if _CACHE not in Path(name).parts)
        write_whole(_record(top), [msgspec.json.encode({name: _digest(top / name) for name in found})])


def _record(top: Path) -> Path:
    """Beside the worktree, where git does not see it, as the stamp of its last use is."""
    return top.with_name(f"{top.name}.built")


def _built(top: Path) -> dict[str, str]:
    try:
        return msgspec.json.decode(_record(top).read_bytes(), type=dict[str, str])
    except (FileNotFoundError, msgspec.DecodeError):
        return {}


def _extras(repository: Repository, top: Path) -> list[str]:
    """All files that git does not track, ignored ones too; a repository within, with a slash at its end, as one."""
    found = []
    for place in (top, *submodules.places(repository, top)):
        names = repository.git("ls-files", "--others", "-z", cwd=place).split("\0")
        found += [str((place / name).relative_to(top)) + ("/" if name.endswith("/") else "") for name in names if name]
    return found


def _digest(path: Path) -> str:
    """Of a file its content, of a link its target; empty for a folder, or if it is gone."""
    if path.is_symlink():
        return f"link to {path.readlink()}"
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""


def _same(path: Path, digest: str | None) -> bool:
    return digest is not None and _digest(path) == digest


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
