"""What lies between two commits, in steps that can be measured: commits, and the pins that one of them changed."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from ...kit.files import hide_from_git
from ...kit.git import AgainstError, Repository, committed_by_us, shown
from ...kit.processes import locked
from ...kit.values import Struct
from ...run.sides.worktrees import snapshot

_LOCK: Final = re.compile(
    r"(?:[\w.-]*(?:requirements|constraints)[\w.-]*\.txt|pylock(?:\.[\w.-]+)?\.toml|[\w.-]+\.lock)"
)
_REQUIREMENT: Final = re.compile(r"([A-Za-z0-9][\w.-]*)(?:\[[^\]]*\])?\s*==\s*([^\s;\\]+)")
_PACKAGE: Final = re.compile(r'\[\[packages?\]\]\n(?:.*\n)*?name = "([^"]+)"\n(?:version = "([^"]*)")?')


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
    """What is not committed, as a step after HEAD; none where all is."""
    repository, worktrees = Repository(root), folder / "worktrees"
    hide_from_git(worktrees)
    with locked(Path(f"{worktrees}.lock")):
        commit = snapshot(repository, worktrees)
    return None if commit == repository.commit("HEAD") else Step(commit, "uncommitted changes")


def pins(repository: Repository, commit: str, folder: Path) -> list[Step]:
    """The steps within a commit that changed several pins of lock or requirements files: the rest, then each pin.

    The states are commits that no branch holds; a package that only one side has is in all of them. Empty for a commit
    that changed fewer, and for a merge.
    """
    if len(repository.git("rev-list", "-1", "--parents", commit).split()) != 2:
        return []
    parent = f"{commit}~1"
    names = repository.git("diff", "--name-only", "-z", "--diff-filter=M", parent, commit).split("\0")
    files = [name for name in names if name and _LOCK.fullmatch(Path(name).name)]
    texts = {name: tuple(repository.git("show", f"{each}:{name}") for each in (parent, commit)) for name in files}
    changed: dict[str, str] = {}
    for before, after in texts.values():
        old, new = _pinned(before), _pinned(after)
        for name in old.keys() & new.keys():
            if old[name][1] != new[name][1]:
                changed.setdefault(name, f"{name} {old[name][0]} -> {new[name][0]}")
    if len(changed) < 2:
        return []
    found, parent_commit, taken = [], repository.git("rev-parse", parent).strip(), set[str]()
    others = [name for name in names if name and name not in files]
    order = sorted(changed)
    for name in ["", *order] if others else order:
        taken.add(name)
        if taken.issuperset(order):
            found.append(Step(commit, changed[name]))
            break
        given = {file: _mixed(before, after, taken) for file, (before, after) in texts.items()}
        state = _with_files(repository, commit, parent_commit, given, folder)
        found.append(Step(state, changed.get(name, f"{shown(commit)} without its changed pins")))
    return found


def _chunks(text: str) -> list[tuple[str, str, str]]:
    """(package, version, text) of each part of a lock or requirements file; what is of no package has no name."""
    found: list[tuple[str, str, str]] = []
    if "[[package" in text:
        for part in re.split(r"^(?=\[\[packages?\]\]$)", text, flags=re.MULTILINE):
            match = _PACKAGE.match(part)
            found.append((match[1], match[2] or "", part) if match else ("", "", part))
        return found
    for line in text.splitlines(keepends=True):
        if match := _REQUIREMENT.match(line):
            found.append((match[1].lower(), match[2], line))
        elif line[:1].isspace() and line.strip() and found:  # hashes, and who asked for it
            name, version, before = found[-1]
            found[-1] = (name, version, before + line)
        else:
            found.append(("", "", line))
    return found


def _pinned(text: str) -> dict[str, tuple[str, str]]:
    """Package -> its version, and all of its text."""
    found: dict[str, tuple[str, str]] = {}
    for name, version, part in _chunks(text):
        if name:
            found[name] = (version, found.get(name, ("", ""))[1] + part)
    return found


def _mixed(before: str, after: str, taken: set[str]) -> str:
    """The file after the change, in which each changed package that is not `taken` is as it was."""
    old, done, parts = _pinned(before), set[str](), []
    for name, _, part in _chunks(after):
        if not name or name not in old or name in taken:
            parts.append(part)
        elif name not in done:
            parts.append(old[name][1])
        done.add(name)
    gone = (text for name, (_, text) in old.items() if name not in done)
    return "".join((*parts, *gone))


def _with_files(repository: Repository, commit: str, parent: str, given: dict[str, str], folder: Path) -> str:
    """The commit with other texts of some files; the user's index and branches stay as they are."""
    hide_from_git(folder)
    index = folder / "index-bisect"
    variables = {"GIT_INDEX_FILE": str(index)}

    def git(*words: str, text: str | None = None, more: dict[str, str] | None = None) -> str:
        return repository.git(*words, given=text, cwd=repository.top, variables=variables | (more or {})).strip()

    try:
        git("read-tree", commit)
        for name, text in given.items():
            mode = git("ls-files", "-s", "--", name).split()[0]
            blob = git("hash-object", "-w", "--stdin", text=text)
            git("update-index", "--cacheinfo", f"{mode},{blob},{name}")
        tree = git("write-tree")
    finally:
        index.unlink(missing_ok=True)
    made = committed_by_us(f"{git('log', '-1', '--no-show-signature', '--format=%ct', commit)} +0000")
    return git("commit-tree", tree, "-p", parent, "-m", f"some pins of {shown(commit)}", more=made)


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
