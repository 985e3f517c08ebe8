"""The two sides of a comparison: found in git, checked out in worktrees of their own, cached and pruned.

Both sides are worktrees, also the changed one: their paths are of one length, and an edit during a run is not measured.
"""

from __future__ import annotations

import difflib
import hashlib
import os
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Final

import filelock
import msgspec

from .. import pythons
from ..model import Spec, Struct
from ..pythons import prune_environments
from ..store import unused
from .git import (
    DEEPEN,
    OPTION,
    AgainstError,
    GitFailed,
    Repository,
    Side,
    commit_at,
    mapped,
    revision_argument,
    shown,
    without_index,
)

KEPT_TREES: Final = 6
"""Worktrees that stay for the next run; a comparison uses two."""
IN_USE_S: Final = 3600.0
"""A tree used more recently may be another run's, and stays."""
FOLDER_DIGITS: Final = 12
_HOW: Final = f"{OPTION} takes a branch, a tag, a commit, merge-base or dist:NAME==VERSION"
_BASES: Final = ("GITHUB_BASE_REF", "CI_MERGE_REQUEST_TARGET_BRANCH_NAME")
_DISTRIBUTION: Final = re.compile(
    r"(?P<name>[a-z0-9](?:[a-z0-9._-]*[a-z0-9])?)(?:\[[a-z0-9._, -]*\])?"  # PEP 508
    r"\s*==\s*v?(?:\d+!)?\d+(?:\.\d+)*(?:[-_.]?(?:a|b|c|rc|alpha|beta|pre|preview)[-_.]?\d*)?"  # PEP 440
    r"(?:-\d+|[-_.]?(?:post|rev|r)[-_.]?\d*)?(?:[-_.]?dev[-_.]?\d*)?(?:\+[a-z0-9]+(?:[-_.][a-z0-9]+)*)?",
    re.IGNORECASE,
)


class NothingToCompare(AgainstError):
    """Both sides would be the same commit."""


class Pair(Struct, frozen=True, kw_only=True):
    """The two sides; it can be encoded, so that the processes of one run share it."""

    reference: Side
    changed: Side


# ---- what is asked for


def pair(root: Path, against: str, folder: Path, *, environ: Mapping[str, str] = os.environ) -> Pair:
    """Both sides of `--ftgate-against`, checked out: `against` is a revision, `merge-base` or `dist:NAME==VERSION`.

    `root` is the project's, `folder` its `.ftgate`; trees stand in `<folder>/trees`. Runs at once wait for each other.
    Where HEAD is the merge base itself and nothing was edited, it is the commit before. Raises AgainstError;
    NothingToCompare where both sides are one commit.
    """
    if against.startswith("dist:"):
        return _distributions(root, against.removeprefix("dist:"))
    repository = Repository(root)
    label, commit = _reference(repository, against, environ)
    try:
        return _checked_out(repository, label, commit, folder)
    except NothingToCompare:
        # A push to the default branch is compared with what it was pushed onto.
        before = repository.commit("HEAD~1") if against == "merge-base" else None
        if before is None:
            raise
        return _checked_out(repository, f"HEAD~1 ({shown(before)}), as HEAD is the {label}", before, folder)


def resolve(root: Path, against: str, *, environ: Mapping[str, str] = os.environ) -> str:
    """The commit that `against`, a revision or `merge-base`, names in the repository of `root`. Raises AgainstError."""
    return _reference(Repository(root), against, environ)[1]


def commit_pair(root: Path, commit: str, folder: Path) -> Pair:
    """As `pair`, for the commit that a stored baseline names. Raises AgainstError with the reason."""
    if not commit:
        raise AgainstError("the baseline names no commit: it was recorded outside of git")
    if commit.endswith("+"):
        raise AgainstError(f"the baseline was recorded from a dirty tree on {shown(commit)}, which git does not have")
    repository = Repository(root)
    found = repository.commit(commit)
    if found is None:
        why = f"but this clone is shallow: {DEEPEN}" if repository.shallow else "which was dropped or never fetched"
        raise AgainstError(f"the baseline's commit {shown(commit)} is not in this repository, {why}")
    return _checked_out(repository, f"the baseline's commit ({shown(found)})", found, folder)


def introduced(root: Path, file: Path) -> str:
    """The last commit that touched `file`; "" where it is untracked, changed or staged, or history ends before it.

    A recording of a dirty tree is usually committed with the change it was made of: that commit stands for it.
    """
    path = root.resolve() / file
    if not path.is_file():
        return ""
    try:
        repository = Repository(root)
        one = ("--literal-pathspecs", "status", "--porcelain", "--untracked-files=all", "--ignored", "--", str(path))
        if repository.git(*one).strip():
            return ""
        commit = repository.git("--literal-pathspecs", "rev-list", "-1", "HEAD", "--", str(path)).strip()
        # The oldest commit of a shallow clone seems to have brought in every file.
        cut = repository.shallow and " " not in repository.git("rev-list", "-1", "--parents", commit or "HEAD").strip()
    except AgainstError:
        return ""
    return "" if cut else commit


def _reference(repository: Repository, against: str, environ: Mapping[str, str]) -> tuple[str, str]:
    """(label, commit) of what was asked for."""
    if repository.commit("HEAD") is None:
        raise AgainstError(f"{OPTION}: the repository of {repository.root} has no commit yet; commit something first")
    if against == "merge-base":
        return _merge_base(repository, environ)
    commit = None if not against or against.startswith("-") else repository.named(against)
    if commit is None:
        raise AgainstError(_unknown(repository, against))
    label = shown(commit) if commit.startswith(against.lower()) else f"{against} ({shown(commit)})"
    return label, commit


def _unknown(repository: Repository, against: str) -> str:
    start = f"{OPTION} {against}: git knows no such revision"
    names = repository.git("for-each-ref", "--format=%(refname:short)", "refs/heads", "refs/tags", "refs/remotes")
    close = difflib.get_close_matches(against, names.splitlines())
    if close:
        start += f"; did you mean {' or '.join(close)}?"
    if repository.shallow:
        return f"{start}; this clone is shallow and may not reach it: {DEEPEN}"
    return start if close else f"{start}; {_HOW}"


def _merge_base(repository: Repository, environ: Mapping[str, str]) -> tuple[str, str]:
    base = _base_branch(repository, environ)
    found = repository.git("merge-base", "HEAD", base, allowed=(0, 1)).strip()
    if found:
        return f"merge base with {base} ({shown(found)})", found
    start = f"{OPTION} merge-base: HEAD and {base} have no common ancestor"
    if repository.shallow:
        raise AgainstError(f"{start} in this clone, which is shallow: {DEEPEN}")
    raise AgainstError(f"{start}; name a revision: {OPTION} REV")


def _base_branch(repository: Repository, environ: Mapping[str, str]) -> str:
    """What a change is merged into: the target of this CI run, else the remote's default branch, else a guess."""
    variable, target = next(((name, environ[name]) for name in _BASES if environ.get(name)), ("", ""))
    known = [target] if target else list(_usual_bases(repository))
    found = next((name for name in known if repository.named(name)), None)
    if found:
        return repository.spelled(found)
    mend = f"fetch it with `git fetch {repository.remote} {target or 'NAME'}`"
    if repository.shallow:
        mend += f"; this clone is shallow as well: {DEEPEN}"
    if target:
        raise AgainstError(f"{OPTION} merge-base: {variable} says {target}, which is not in this clone; {mend}")
    raise AgainstError(
        f"{OPTION} merge-base: no default branch was found ({repository.remote}/HEAD, an upstream, main or master); "
        f"name a revision, {OPTION} REV, or {mend}"
    )


def _usual_bases(repository: Repository) -> Iterator[str]:
    remote = repository.remote
    yield f"{remote}/HEAD"
    mine = repository.git("symbolic-ref", "--quiet", "--short", "HEAD", allowed=(0, 1)).strip()
    upstream = (
        repository.git("for-each-ref", "--format=%(upstream:short)", f"refs/heads/{mine}").strip() if mine else ""
    )
    # An upstream of the same name is this very branch, pushed: not what it is merged into.
    own_copy = upstream.partition("/")[2] == mine and bool(upstream)
    if upstream and not own_copy:
        yield upstream
    yield from (f"{remote}/main", f"{remote}/master", "main", "master")
    if own_copy and repository.commit(upstream) != repository.commit("HEAD"):
        yield upstream


def _distributions(root: Path, wanted: str) -> Pair:
    """The same tree on both sides; the reference's environment gets one distribution more."""
    if not _DISTRIBUTION.fullmatch(wanted.strip()):
        raise AgainstError(
            f"{OPTION} dist:{wanted}: this is not NAME==VERSION with one exact version, as in dist:numpy==2.1.0"
        )
    requirement, here = "".join(wanted.split()), str(root.resolve())
    return Pair(
        reference=Side(label=requirement, commit="", root=here, install=(requirement,)),
        changed=Side(label="as installed", commit="", root=here),
    )


def installed_version(python: Path, requirement: str) -> str:
    """The version of the distribution that `requirement` names in the environment of `python`; "" for none."""
    found = _DISTRIBUTION.match(requirement)
    name = re.sub(r"[-_.]+", "-", found["name"] if found else requirement).lower()
    environment = python.parent.parent
    places = [str(path) for path in (*environment.glob("lib/python*/site-packages"), environment / "Lib/site-packages")]
    for distribution in metadata.distributions(path=places):
        if re.sub(r"[-_.]+", "-", distribution.metadata["Name"] or "").lower() == name:
            return distribution.version
    return ""


# ---- the work tree as it is


def snapshot(repository: Repository, folder: Path) -> str:
    """A commit of the work tree as it is, what is neither tracked nor ignored included; HEAD where nothing differs.

    The same content on the same HEAD is the same commit. Submodules and repositories within are left as HEAD has them.
    `folder` takes a copy of the index meanwhile, and is this run's alone. Raises GitFailed.
    """
    index = folder / "index"
    theirs = repository.root / repository.git("rev-parse", "--git-path", "index").strip()
    without_index(index)  # of a run that was killed
    try:
        if theirs.exists():
            shutil.copy2(theirs, index)  # with its time, by which git tells what may have changed since
            index.chmod(0o600)
        else:
            repository.git("read-tree", "HEAD", variables={"GIT_INDEX_FILE": str(index)})
        tree = _tree_of_files(repository, str(index))
    finally:
        without_index(index)
    head, head_tree = repository.git("rev-parse", "HEAD", "HEAD^{tree}").split()
    return head if tree == head_tree else commit_at(repository, tree, head)


def _tree_of_files(repository: Repository, index: str) -> str:
    """Bring a copy of the index up to the files and write it as a tree.

    Not `git add --all`: that fails on a broken submodule and on a repository without a commit.
    """
    top = Path(repository.git("rev-parse", "--show-toplevel").rstrip("\n"))

    def git(*arguments: str, said: str | None = None) -> str:
        return repository.git(*arguments, said=said, cwd=top, variables={"GIT_INDEX_FILE": index})

    differ = ("diff-files", "--ignore-submodules=all", "--name-only", "-z")
    gone = git(*differ, "--diff-filter=D")
    changed = git(*differ, "--diff-filter=d")
    new = git("ls-files", "--others", "--exclude-standard", "-z")
    # A name with a slash at its end is a repository of its own.
    added = [name for name in new.split("\0") if name and not name.endswith("/")]
    git("update-index", "--force-remove", "-z", "--stdin", said=gone)
    git(
        *("update-index", "--add", "--remove", "--replace", "-z", "--stdin"),
        said="".join(f"{name}\0" for name in [*filter(None, changed.split("\0")), *added] if not _is_ours(name)),
    )
    if staged := [name for name in git("ls-files", "-z").split("\0") if _is_ours(name)]:
        staged = sorted(set(staged) - set(git("ls-tree", "-r", "-z", "--name-only", "HEAD").split("\0")))
        git("update-index", "--force-remove", "-z", "--stdin", said="".join(f"{name}\0" for name in staged))
    return git("write-tree").strip()


def _is_ours(name: str) -> bool:
    return ".ftgate" in name.split("/")


# ---- worktrees


def _checked_out(repository: Repository, label: str, commit: str, folder: Path) -> Pair:
    trees = folder.absolute() / "trees"
    pythons.hide_from_git(trees)
    with filelock.FileLock(f"{trees}.lock"):
        changed = snapshot(repository, trees)
        head = repository.commit("HEAD")
        if changed == commit:
            raise NothingToCompare(
                f"{label} is the commit that is checked out and the work tree is clean: there is nothing to compare; "
                f"compare with the commit before it: {OPTION} HEAD~1"
            )
        found = Pair(
            reference=_side(repository, label, commit, trees),
            changed=_side(
                repository, f"HEAD ({shown(changed)})" if changed == head else "work tree (dirty)", changed, trees
            ),
        )
        _prune(repository, folder, KEPT_TREES, IN_USE_S)
    return found


def _side(repository: Repository, label: str, commit: str, trees: Path) -> Side:
    root = _worktree(repository, commit, trees) / repository.prefix
    if not root.is_dir():
        raise AgainstError(f"{label} has no folder {repository.prefix}: nothing of this project is in git there")
    return Side(label=label, commit=commit, root=str(root), prefix=repository.prefix)


def _worktree(repository: Repository, commit: str, trees: Path) -> Path:
    """The worktree of a commit; made, or brought back to the commit where somebody edited it."""
    # Git gives a new worktree the sparse patterns of the one that it is asked from.
    sparse = repository.sparse_patterns()
    name = hashlib.sha256(f"{commit}\0{sparse}".encode(errors="surrogateescape")).hexdigest() if sparse else commit
    tree = trees / name[:FOLDER_DIGITS]
    stamp = _tree_stamp(tree)
    if stamp.exists() and _is_at(repository, tree, commit):
        if repository.git("status", "--porcelain", "--untracked-files=no", "--ignore-submodules=all", cwd=tree):
            repository.git("reset", "--hard", "--quiet", commit, cwd=tree)
    else:
        _remove_tree(repository, tree)
        # Twice: also over the entry of a worktree that is gone, or was locked while it was made.
        repository.git("worktree", "add", "--detach", "--force", "--force", "--quiet", str(tree), commit)
    stamp.touch()
    return tree


def _is_at(repository: Repository, tree: Path, commit: str) -> bool:
    """Whether a worktree is sound: not so once the repository was moved or copied, or git's entry of it is gone."""
    if not (tree / ".git").exists():
        return False  # git would find the repository around it
    try:
        head, *its = repository.git("rev-parse", "HEAD", "--git-common-dir", cwd=tree).splitlines()
    except GitFailed:
        return False
    ours = repository.git("rev-parse", "--git-common-dir").splitlines()
    return head == commit and (tree / its[0]).resolve() == (repository.root / ours[0]).resolve()


def _tree_stamp(tree: Path) -> Path:
    """Written once the tree is whole; its time is that of the last use. Beside the tree: within, git would see it."""
    return tree.with_name(f"{tree.name}.whole")


def _remove_tree(repository: Repository, tree: Path) -> None:
    _tree_stamp(tree).unlink(missing_ok=True)
    if tree.exists():
        repository.git("worktree", "remove", "--force", "--force", str(tree), allowed=(0, 128))
        shutil.rmtree(tree, ignore_errors=True)


def mark_used(side: Side) -> None:
    """Say that a run still uses this side: a tree used within the last hour is never pruned."""
    stamp = _tree_stamp(side.top(side.project))
    if side.commit and stamp.exists():
        stamp.touch()


def prune(root: Path, folder: Path, *, keep: int = KEPT_TREES, in_use_s: float = IN_USE_S) -> list[Path]:
    """Remove the worktrees in `folder` but for the `keep` used last, and environments that nothing can use any more.

    One used within `in_use_s` seconds stays: another run may be measuring it. Returns what was removed.
    Raises AgainstError outside of git.
    """
    trees = folder.absolute() / "trees"
    if not trees.is_dir():
        return []
    with filelock.FileLock(f"{trees}.lock"):
        return _prune(Repository(root), folder, keep, in_use_s)


def _prune(repository: Repository, folder: Path, keep: int, in_use_s: float) -> list[Path]:
    trees = folder.absolute() / "trees"
    now_s = datetime.now(UTC).timestamp()
    ages_s = {tree: now_s - _used_at_s(tree) for tree in trees.iterdir() if tree.is_dir()}
    by_age = sorted(ages_s, key=lambda tree: ages_s[tree])
    old = [tree for tree in by_age[keep:] if ages_s[tree] > in_use_s]
    for tree in old:
        _remove_tree(repository, tree)
    _forget_gone(repository, trees)
    return [*old, *prune_environments(folder / "envs")]


def _used_at_s(tree: Path) -> float:
    try:
        return _tree_stamp(tree).stat().st_mtime
    except FileNotFoundError:
        return 0.0


def _forget_gone(repository: Repository, trees: Path) -> None:
    """Drop git's entries of trees of ours that are gone; `git worktree prune` would drop the user's as well."""
    for line in repository.git("worktree", "list", "--porcelain").splitlines():
        name, _, place = line.partition(" ")
        path = Path(place)
        if name == "worktree" and path.parent == trees.resolve() and not path.exists():
            repository.git("worktree", "remove", "--force", "--force", str(path), allowed=(0, 128))


def relocated(spec: Spec, old_root: Path, side: Side) -> Spec:
    """A test as it stands on a side: its file and its import path there; all of the repository moves along."""
    old_top, new_top = side.top(old_root.resolve()), side.top(side.project)
    source = msgspec.structs.replace(
        spec.source,
        path=mapped(spec.source.path, old_top, new_top),
        sys_path=tuple(mapped(entry, old_top, new_top) for entry in spec.source.sys_path),
    )
    return msgspec.structs.replace(spec, source=source)


def install_of(arguments: Iterable[str], old_root: Path, side: Side) -> tuple[str, ...]:
    """Install arguments as they hold on a side, with its own last.

    An absolute path in the repository becomes the side's; a relative one that leads out of it stays where it is.
    """
    return (*(revision_argument(argument, old_root.resolve(), side) for argument in arguments), *side.install)


def lacks(side: Side, test: str) -> bool:
    """Whether a side has not got the test (`a.py::test_x`) at all."""
    return unused.source_is_gone(test, side.project)


def ignored_hint(detail: str, side: Side, old_root: Path) -> str:
    """One line for an error whose text names a file or module of the project that is on neither side; "" otherwise."""
    root = re.escape(side.root)
    files = [name for name in re.findall(rf"{root}/([^'\"\n]+)", detail) if not (side.project / name).exists()]
    modules = [name.replace(".", "/") for name in re.findall(r"No module named '([\w.]+)'", detail)]
    for name in (*files, *(found for module in modules for found in _module_files(old_root, module))):
        if (old_root / name).exists() and not (side.project / name).exists():
            return (
                f"{name} is in the work tree but not in git, so neither side of {OPTION} has it: "
                "commit it, or let ftgate_install or the workload make it"
            )
    return ""


def _module_files(root: Path, module: str) -> Iterator[str]:
    """The files below `root` or its `src` that may be this module: `a/b.py`, `a/b.cpython-314.so`, `a/b`."""
    for base in (root, root / "src"):
        for path in sorted((base / module).parent.glob(f"{Path(module).name}*")):
            if path.name.partition(".")[0] == Path(module).name:
                yield str(path.relative_to(root))
