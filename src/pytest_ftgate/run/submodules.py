"""Submodules of the two sides: the commits that each side names, checked out from the objects that are here."""

from __future__ import annotations

import posixpath
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from .git import OPTION, AgainstError, GitFailed, Repository, shown

_NOT_OF_THE_USER: Final = {"GIT_PROTOCOL_FROM_USER": "0"}
"""As git fetches submodules: a url that stands in a repository does not reach local folders unless the user says so."""


class Submodule(NamedTuple):
    """A submodule as a commit or the index has it: its path in the repository above, and its commit."""

    path: str
    commit: str


def of_tree(repository: Repository, *listing: str, cwd: Path | None = None) -> list[Submodule]:
    """The submodules in what `ls-tree -r -z COMMIT` or `ls-files -s -z` lists."""
    found = []
    for line in repository.git(*listing, cwd=cwd).split("\0"):
        words, tab, path = line.partition("\t")
        if tab and words.startswith("160000 "):
            found.append(Submodule(path, next(word for word in words.split()[1:] if len(word) >= 40)))
    return found


def check_out(repository: Repository, worktree: Path, original: Path, homes: tuple[Path, ...] = ()) -> None:
    """Check out the submodules of a worktree, and theirs, each at the commit that its side names.

    `original` is the same repository as the user has it. Objects come from there, from `homes`, its folders of
    submodules' repositories, else from the submodule's url. One whose folder is empty there stays empty here. Nothing
    of the user's is written. Raises AgainstError.
    """
    homes = homes or tuple(dict.fromkeys(_git_folder(repository, original, name) for name in ("own", "common")))
    for each in of_tree(repository, "ls-tree", "-r", "-z", "HEAD", cwd=worktree):
        place, theirs = worktree / each.path, original / each.path
        if _is_at(repository, place, each.commit):
            continue
        if (place / ".git").exists():
            shutil.rmtree(place)
        settings = _settings(repository, worktree, each.path)
        candidates = [theirs, *(home / "modules" / settings.name for home in homes)]
        objects = [found for folder in candidates if (found := _objects(repository, folder))]
        if not objects and theirs.is_dir():
            continue  # not initialized: what is built here does without it
        _make(repository, each, place, objects)
        if not _has(repository, place, each.commit):
            _fetch(repository, each, place, original, settings)
        repository.git("checkout", "--quiet", "--force", "--detach", each.commit, cwd=place)
        check_out(repository, place, theirs, tuple(home / "modules" / settings.name for home in homes))


def places(repository: Repository, worktree: Path) -> Iterator[Path]:
    """The folders of the submodules of a worktree, and of theirs, that are checked out."""
    for each in of_tree(repository, "ls-files", "-s", "-z", cwd=worktree):
        place = worktree / each.path
        if (place / ".git").exists():
            yield place
            yield from places(repository, place)


class _Settings(NamedTuple):
    name: str
    url: str


def _settings(repository: Repository, worktree: Path, path: str) -> _Settings:
    """The name and url of a submodule by the `.gitmodules` of its commit; its path and no url if that has none."""
    listing = repository.git("config", "--file", ".gitmodules", "--list", "-z", cwd=worktree, allowed=(0, 1, 128))
    values = dict(entry.partition("\n")[::2] for entry in listing.split("\0") if entry)
    key = next((key for key, value in values.items() if key.endswith(".path") and value == path), "")
    name = key.removeprefix("submodule.").removesuffix(".path")
    return _Settings(name or path, values.get(f"submodule.{name}.url", ""))


def _git_folder(repository: Repository, folder: Path, which: str) -> Path:
    option = "--git-dir" if which == "own" else "--git-common-dir"
    return folder / repository.git("rev-parse", option, cwd=folder).rstrip("\n")


def _objects(repository: Repository, folder: Path) -> Path | None:
    """The folder of a repository's objects; None if there is no repository, or a broken one."""
    if not (folder / ".git").exists() and not (folder / "objects").is_dir():
        return None
    try:
        found = folder / repository.git("rev-parse", "--git-path", "objects", cwd=folder).rstrip("\n")
    except GitFailed:
        return None
    return found if found.is_dir() else None


def _is_at(repository: Repository, place: Path, commit: str) -> bool:
    """Whether a submodule is checked out and whole; not if the objects that it borrowed are gone."""
    if not (place / ".git").exists():
        return False  # git would find the repository above
    try:
        return repository.git("log", "-1", "--format=%H", cwd=place).strip() == commit
    except GitFailed:
        return False


def _has(repository: Repository, place: Path, commit: str) -> bool:
    try:
        repository.git("cat-file", "-e", f"{commit}^{{tree}}", cwd=place)
    except GitFailed:
        return False
    return True


def _make(repository: Repository, each: Submodule, place: Path, objects: list[Path]) -> None:
    """A repository of its own that borrows objects: a clone would pass through git's rules for transports."""
    place.mkdir(parents=True, exist_ok=True)
    hashes = "sha256" if len(each.commit) > 40 else "sha1"
    repository.git("init", "--quiet", "--template=", f"--object-format={hashes}", cwd=place)
    borrowed = place / ".git" / "objects" / "info" / "alternates"
    borrowed.parent.mkdir(parents=True, exist_ok=True)
    borrowed.write_text("".join(f"{folder.resolve()}\n" for folder in objects), encoding="utf-8")


def _fetch(repository: Repository, each: Submodule, place: Path, original: Path, settings: _Settings) -> None:
    url = settings.url
    if url.startswith(("./", "../")):  # relative to the remote of the repository above
        base = repository.git("config", f"remote.{repository.remote}.url", cwd=original, allowed=(0, 1)).strip()
        head, separator, path = base.rpartition(":") if "://" not in base else ("", "", base)
        scheme, slashes, rest = path.rpartition("://")
        url = f"{head}{separator}{scheme}{slashes}{posixpath.normpath(posixpath.join(rest, url))}"
    try:
        if not url:
            raise GitFailed("no url is known for it")
        words = ("fetch", "--quiet", "--depth=1", "--no-tags", url, each.commit)
        repository.git(*words, cwd=place, variables=_NOT_OF_THE_USER)
    except GitFailed as failed:
        shutil.rmtree(place, ignore_errors=True)
        raise AgainstError(
            f"{OPTION}: the submodule {each.path} has no commit {shown(each.commit)} here, and it could not be "
            f"fetched: {failed}; fetch it with `git -C {each.path} fetch origin {each.commit}`, or all with "
            "`git submodule update --init --recursive`; in CI let the checkout step fetch submodules with their history"
        ) from failed
