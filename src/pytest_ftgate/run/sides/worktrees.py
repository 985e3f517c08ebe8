"""The two sides of a comparison: found in git, checked out in separate worktrees, cached and pruned.

Both sides are worktrees, also the changed one: their paths have one length, and an edit during a run is not measured.
"""

from __future__ import annotations

import contextlib
import difflib
import itertools
import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from importlib import metadata
from pathlib import Path
from typing import Final

import msgspec
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from ...kit.errors import FtgateError
from ...kit.files import hide_from_git, read_json, remove, write_whole
from ...kit.git import DEEPEN, AgainstError, GitFailed, Repository, committed_by_us, mapped, shown
from ...kit.values import Struct
from ...kit.waiting import locked
from ...model.spec import Spec, is_path, parse_target
from ...store.names import is_recording
from ...store.update import source_is_gone
from ...targets import find
from ...targets.describe import settings_unsupported
from ...targets.environments import distribution_of, forget_environments, prune_environments, site_packages
from .checkout import OPTION, Checkout

# ---- submodules: the commits that each side names


def of_tree(repository: Repository, *listing: str, cwd: Path | None = None) -> Iterator[tuple[str, str]]:
    """(path, commit) of each submodule in what `ls-tree -r -z COMMIT` or `ls-files -s -z` lists."""
    for line in repository.git(*listing, cwd=cwd).split("\0"):
        words, tab, path = line.partition("\t")
        if tab and words.startswith("160000 "):
            yield path, next(word for word in words.split()[1:] if len(word) >= 40)


def checked_out(folder: Path) -> Repository | None:
    """The repository of a submodule or worktree; None if it is not checked out, broken, or has no commit."""
    with contextlib.suppress(AgainstError):
        inner = Repository(folder) if (folder / ".git").exists() else None  # git would find the repository above
        return inner if inner and inner.commit("HEAD") else None
    return None


def _at_commit(repository: Repository, place: Path, commit: str, original: Path) -> None:
    """Set the files of a worktree, or of a submodule in one, to a commit, and its submodules to theirs.

    `original` is the same repository as the user has it: objects of submodules come from there, and one that is not
    checked out there stays empty here. Raises GitFailed if what is here is broken, else AgainstError.
    """
    repository.git("reset", "--hard", "--quiet", commit, cwd=place)
    for path, wanted in of_tree(repository, "ls-tree", "-r", "-z", commit, cwd=place):
        theirs = checked_out(original / path)
        if theirs is None:
            continue
        _have(theirs, path, wanted)
        if not (place / path / ".git").exists():
            # A repository that borrows objects: a clone would pass through git's rules for transports.
            (place / path).mkdir(parents=True, exist_ok=True)  # a sparse checkout may be without it
            repository.git("init", "--quiet", "--template=", cwd=place / path)
            objects = theirs.root / theirs.git("rev-parse", "--git-path", "objects").rstrip("\n")
            borrowed = place / path / ".git" / "objects" / "info" / "alternates"
            borrowed.parent.mkdir(exist_ok=True)
            borrowed.write_text(f"{objects.resolve()}\n", encoding="utf-8")
        _at_commit(repository, place / path, wanted, theirs.root)


def _have(submodule: Repository, path: str, commit: str) -> None:
    """See to it that the user's submodule has a commit, as `Repository.fetch` does. Raises AgainstError."""
    start = f"{OPTION}: the submodule {path} has no commit {shown(commit)} here"
    if not (submodule.commit(commit) or _fetch(submodule, commit, start, os.environ)):
        raise AgainstError(
            f"{start}: fetch it with `git -C {path} fetch {submodule.remote} {commit}`; in CI let the checkout step "
            "fetch submodules with their history"
        )


# ---- what earlier runs left in a worktree


def remove_extras(root: Path, checkout: Checkout, environments: Path) -> None:
    """Remove from a checkout what is not of its commit, but for what its installation left there.

    If some of that is missing, as in CI, which keeps environments alone, they are made again. Only for the run that
    measures: another one would lose its files. Raises GitFailed.
    """
    top = checkout.top(checkout.project)
    if not checkout.commit or not (top / ".git").exists():
        return
    built, extras = set(read_json(_record(environments, top), list[str]) or ()), set(_extras(Repository(root), top))
    if not built <= extras:
        forget_environments(environments, top)
        built = set()
    for name in extras - built:
        remove(top / name)


def note_built(root: Path, checkout: Checkout, environments: Path) -> None:
    """Remember what an installation has left in a checkout: `remove_extras` keeps it. Raises GitFailed."""
    if checkout.commit:
        top = checkout.top(checkout.project)
        found = [name for name in _extras(Repository(root), top) if "__pycache__" not in Path(name).parts]
        write_whole(_record(environments, top), [msgspec.json.encode(found)])


def _record(environments: Path, top: Path) -> Path:
    """Beside the environments: it holds for them."""
    return environments / f"{top.name}.built"


def _extras(repository: Repository, top: Path) -> Iterator[str]:
    """All files that git does not track, ignored ones too; a repository within, with a slash at its end, as one."""
    yield from filter(None, repository.git("ls-files", "--others", "-z", cwd=top).split("\0"))
    for path, _ in of_tree(repository, "ls-files", "-s", "-z", cwd=top):
        if (top / path / ".git").exists():
            yield from (f"{path}/{name}" for name in _extras(repository, top / path))


# ---- what is requested

KEPT_WORKTREES: Final = 6
"""Worktrees that stay for the next run, beside those that are in use."""
PYTHON: Final = "python:"
_HOW: Final = (
    f"{OPTION} takes a branch, a tag, a commit, merge-base, two as REV..REV, dist:NAME==VERSION, dist:PATH.whl or "
    "python:TARGET"
)
_BASES: Final = ("GITHUB_BASE_REF", "CI_MERGE_REQUEST_TARGET_BRANCH_NAME")


class NothingToCompare(AgainstError):
    """Both sides are the same commit."""


class NotFetched(AgainstError):
    """A commit that this clone lacks since it is shallow; the text says how to fetch it."""


class Pair(Struct, frozen=True, kw_only=True):
    """The two sides."""

    reference: Checkout
    changed: Checkout

    def sides_with(self, test: str) -> tuple[Checkout, ...]:
        """The sides that have a test: the changed one, and the reference unless `lacks` says otherwise."""
        return (self.changed,) if lacks(self.reference, test) else (self.changed, self.reference)


def pair(root: Path, against: str, folder: Path, *, environ: Mapping[str, str] = os.environ) -> Pair:
    """Both sides of `--ftgate-against`, checked out.

    `against` is a revision, `merge-base`, `REV..REV`, `dist:NAME==VERSION`, `dist:PATH.whl` or `python:TARGET`.

    `root` is the project's, `folder` its `.ftgate`; worktrees are in `<folder>/worktrees`. Concurrent runs wait for
    each other. If HEAD is the merge base itself and nothing was edited, the reference is the commit before. Raises
    AgainstError; NothingToCompare if both sides are one commit.
    """
    if against.startswith("dist:"):
        return _distributions(root, against.removeprefix("dist:"))
    if against.startswith(PYTHON):
        return _interpreters(root, against.removeprefix(PYTHON))
    repository = Repository(root)
    against, dots, changed = against.partition("..")
    label, commit = _reference(repository, against, environ)
    if dots:
        return _checked_out(repository, label, commit, folder, _reference(repository, changed or "HEAD", environ))
    try:
        return _checked_out(repository, label, commit, folder)
    except NothingToCompare:
        # A push to the default branch is compared with what it was pushed onto.
        if against != "merge-base":
            raise
        before = repository.commit("HEAD~1") or _fetch(repository, "HEAD~1", f"{OPTION} {label}", environ)
        if before is None:
            raise
        return _checked_out(repository, f"HEAD~1 ({shown(before)}), because HEAD is the {label}", before, folder)


def commit_pair(root: Path, commit: str, folder: Path, *, environ: Mapping[str, str] = os.environ) -> Pair:
    """As `pair`, for the commit that a stored baseline names. Raises AgainstError with the reason."""
    if not commit:
        raise AgainstError("the baseline names no commit: it was recorded outside of git")
    if commit.endswith("+"):
        raise AgainstError(
            f"the baseline was recorded with uncommitted changes on {shown(commit)}, which git does not have"
        )
    repository = Repository(root)
    start = f"the baseline's commit {shown(commit)} is not in this repository"
    present = repository.commit(commit) or _fetch(repository, commit, start, environ)
    if present is None:
        if repository.shallow:
            raise NotFetched(f"{start}, {_shallow(repository, commit)}")
        raise AgainstError(f"{start}, which was dropped or never fetched")
    return _checked_out(repository, f"the baseline's commit ({shown(present)})", present, folder)


def introduced(root: Path, file: Path) -> str:
    """The last commit that touched `file`; "" if it is untracked, changed or staged, or history ends before it.

    A recording of uncommitted changes is usually committed together with them: that commit stands for it.
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
    """(label, commit) of what was requested."""
    if repository.commit("HEAD") is None:
        raise AgainstError(f"{OPTION}: the repository of {repository.root} has no commit yet; commit something first")
    if against == "merge-base":
        return merge_base(repository, environ)
    commit, start = None, f"{OPTION} {against}: git knows no such revision"
    if against and not against.startswith("-"):
        commit = repository.named(against) or _fetch(repository, against, start, environ)
    if commit is not None:
        return shown(commit) if commit.startswith(against.lower()) else f"{against} ({shown(commit)})", commit
    names = repository.git("for-each-ref", "--format=%(refname:short)", "refs/heads", "refs/tags", "refs/remotes")
    close = difflib.get_close_matches(against, names.splitlines())
    if repository.shallow:
        start += f", {_shallow(repository, against)}"
    if close:
        start += f"; did you mean {' or '.join(close)}?"
    raise AgainstError(start if close or repository.shallow else f"{start}; {_HOW}")


def _fetch(repository: Repository, revision: str, start: str, environ: Mapping[str, str]) -> str | None:
    """See `Repository.fetch`. Raises AgainstError that begins with `start`."""
    try:
        return repository.fetch(revision, environ)
    except AgainstError as failed:
        raise NotFetched(f"{start}, {_shallow(repository, revision)} ({failed})") from failed


def _shallow(repository: Repository, revision: str) -> str:
    return f"but this clone is shallow: {repository.how_to_fetch(revision)}"


def merge_base(repository: Repository, environ: Mapping[str, str]) -> tuple[str, str]:
    """(label, commit) of the merge base of HEAD and the branch that it is merged into. Raises AgainstError."""
    base = _base_branch(repository, environ)
    commit = repository.git("merge-base", "HEAD", base, allowed=(0, 1)).strip()
    if commit:
        return f"merge base with {base} ({shown(commit)})", commit
    start = f"{OPTION} merge-base: HEAD and {base} have no common ancestor"
    if repository.shallow:
        raise AgainstError(f"{start} in this clone, which is shallow: {DEEPEN}")
    raise AgainstError(f"{start}; name a revision: {OPTION} REV")


def _base_branch(repository: Repository, environ: Mapping[str, str]) -> str:
    """The branch that a change is merged into: this CI run's target, else the remote's default branch, else a guess."""
    variable, target = next(((name, environ[name]) for name in _BASES if environ.get(name)), ("", ""))
    remote, known = repository.remote, [target]
    if not target:
        mine = repository.git("symbolic-ref", "--quiet", "--short", "HEAD", allowed=(0, 1)).strip()
        of_mine = ("for-each-ref", "--format=%(upstream:short)", f"refs/heads/{mine}")
        upstream = repository.git(*of_mine).strip() if mine else ""
        known = [f"{remote}/HEAD", upstream, f"{remote}/main", f"{remote}/master", "main", "master"]
        # An upstream of the same name is this branch itself, pushed: not what it is merged into.
        if upstream and upstream.partition("/")[2] == mine:
            known.remove(upstream)
            known += [upstream] if repository.commit(upstream) != repository.commit("HEAD") else []
    base = next((name for name in known if name and repository.named(name)), None)
    if base:
        return repository.remote_branch(base)
    fix = f"fetch it with `git fetch {remote} {target or 'NAME'}`"
    if repository.shallow:
        fix += f"; this clone is shallow as well: {DEEPEN}"
    if target:
        raise AgainstError(f"{OPTION} merge-base: {variable} says {target}, which is not in this clone; {fix}")
    raise AgainstError(
        f"{OPTION} merge-base: no default branch was found ({remote}/HEAD, an upstream, main or master); "
        f"name a revision, {OPTION} REV, or {fix}"
    )


def _distributions(root: Path, wanted: str) -> Pair:
    """The files as they are on both sides, and on the reference's one more distribution."""
    if wanted.endswith(".whl"):
        path = root / os.path.expanduser(wanted)
        label, install, name = wanted, str(path), distribution_of(root, str(path))
        if not name or not path.is_file():
            raise AgainstError(
                f"{OPTION} dist:{wanted}: {path} is no wheel: build one with `uv build --wheel`, or fix the path"
            )
    elif name := _with_one_version(wanted):
        label = install = "".join(wanted.split())
    else:
        raise AgainstError(
            f"{OPTION} dist:{wanted}: this is not NAME==VERSION with one exact version, as in dist:numpy==2.1.0"
        )
    here = str(root.resolve())
    return Pair(
        reference=Checkout(label=label, commit="", root=here, install=(install,)),
        changed=Checkout(label="as installed", commit="", root=here, copied=canonicalize_name(name)),
    )


def _interpreters(root: Path, wanted: str) -> Pair:
    """The same files on both sides; the reference's run with one interpreter, whatever the target of a cell."""
    try:
        target = parse_target(wanted)
        interpreter = find.find_interpreter(target)
    except FtgateError as error:
        raise AgainstError(f"{OPTION} {PYTHON}{wanted}: {error}") from error
    if unsupported := settings_unsupported(interpreter, target.settings):
        raise AgainstError(f"{OPTION} {PYTHON}{wanted}: {unsupported}")
    place, settings = f" ({target.request})" if is_path(target.request) else "", target.spec[len(target.request) :]
    here = str(root.resolve())
    return Pair(
        reference=Checkout(label=f"{interpreter.name}{settings}{place}", commit="", root=here, python=target.spec),
        changed=Checkout(label="as installed", commit="", root=here),
    )


def _with_one_version(wanted: str) -> str:
    """The distribution that `NAME==VERSION` names; "" for anything else."""
    try:
        requirement = Requirement(wanted)
    except InvalidRequirement:
        return ""
    versions = [each.version for each in requirement.specifier if each.operator == "=="]
    exact = len(versions) == len(requirement.specifier) == 1 and "*" not in versions[0]
    return requirement.name if exact and requirement.marker is None else ""


def installed_version(python: Path, requirement: str) -> str:
    """The version of the distribution that `requirement` names in the environment of `python`; "" for none."""
    found = metadata.distributions(name=Requirement(requirement).name, path=site_packages(python))
    return next((each.version for each in found), "")


# ---- the working tree as it is


def snapshot(repository: Repository, folder: Path) -> str:
    """A commit of the working tree as it is, with untracked files that are not ignored; HEAD if nothing differs.

    New baselines are not in it: nothing that is measured reads them.

    The same content on the same HEAD is the same commit. A submodule is a commit in it that is made in the same way;
    other repositories within are left out. `folder` holds a copy of the index meanwhile. Raises GitFailed.
    """
    theirs = repository.root / repository.git("rev-parse", "--git-path", "index").strip()
    with tempfile.TemporaryDirectory(prefix="index-", dir=folder) as made:
        index = Path(made) / "index"
        if theirs.exists():
            shutil.copy2(theirs, index)  # with its time, by which git tells what may have changed since
        else:
            repository.git("read-tree", "HEAD", variables={"GIT_INDEX_FILE": str(index)})
        tree = _write_tree(repository, str(index), folder)
    head, head_tree = repository.git("rev-parse", "HEAD", "HEAD^{tree}").split()
    if tree == head_tree:
        return head
    made_at = f"{repository.git('log', '-1', '--no-show-signature', '--format=%ct', head).strip()} +0000"
    words = ("commit-tree", tree, "-p", head, "-m", f"working tree on {shown(head)}")
    return repository.git(*words, variables=committed_by_us(made_at)).strip()


def _write_tree(repository: Repository, index: str, folder: Path) -> str:
    """Update a copy of the index from the files and write it as a git tree.

    Not `git add --all`: that fails on a broken submodule and on a repository without a commit.
    """
    top = repository.top

    def git(*arguments: str, given: str | None = None) -> str:
        return repository.git(*arguments, given=given, cwd=top, variables={"GIT_INDEX_FILE": index})

    def ours(name: str) -> bool:
        return ".ftgate" in name.split("/") or is_recording(name)

    differ = ("diff-files", "--ignore-submodules=all", "--name-only", "-z")
    gone = git(*differ, "--diff-filter=D")
    changed = git(*differ, "--diff-filter=d")
    new = git("ls-files", "--others", "--exclude-standard", "-z")
    # A name with a slash at its end is a repository of its own.
    added = [name for name in new.split("\0") if name and not name.endswith("/")]
    git("update-index", "--force-remove", "-z", "--stdin", given=gone)
    git(
        *("update-index", "--add", "--remove", "--replace", "-z", "--stdin"),
        given="".join(f"{name}\0" for name in [*filter(None, changed.split("\0")), *added] if not ours(name)),
    )
    if staged := [name for name in git("ls-files", "-z").split("\0") if ours(name)]:
        staged = sorted(set(staged) - set(git("ls-tree", "-r", "-z", "--name-only", "HEAD").split("\0")))
        git("update-index", "--force-remove", "-z", "--stdin", given="".join(f"{name}\0" for name in staged))
    for path, committed in of_tree(repository, "ls-files", "-s", "-z", cwd=top):
        inner = checked_out(top / path)
        if inner and (commit := snapshot(inner, folder)) != committed:
            git("update-index", "--cacheinfo", f"160000,{commit},{path}")
    return git("write-tree").strip()


# ---- worktrees


def _checked_out(
    repository: Repository, label: str, commit: str, folder: Path, other: tuple[str, str] | None = None
) -> Pair:
    """`commit` as the reference of the working tree, or of `other`, (label, commit)."""
    worktrees = folder.absolute() / "worktrees"
    hide_from_git(worktrees)
    with locked(Path(f"{worktrees}.lock")):
        if other:
            here, changed = other
            if changed == commit:
                raise NothingToCompare(f"{label} and {here} are one commit: there is nothing to compare; name another")
        else:
            changed = snapshot(repository, worktrees)
            if changed == commit:
                raise NothingToCompare(
                    f"{label} is the commit that is checked out and the working tree is clean: there is nothing to "
                    f"compare; compare with the commit before it: {OPTION} HEAD~1"
                )
            head = repository.commit("HEAD")
            here = f"HEAD ({shown(changed)})" if changed == head else "working tree (uncommitted changes)"
        return Pair(
            reference=_checkout(repository, label, commit, worktrees),
            changed=_checkout(repository, here, changed, worktrees),
        )


def _checkout(repository: Repository, label: str, commit: str, worktrees: Path) -> Checkout:
    """A worktree at a commit, which this process uses until it ends. Extra files in it stay."""
    worktree = _worktree_for(commit, worktrees)
    stamp = _stamp(worktree)
    try:
        if not _is_whole(repository, worktree):
            raise GitFailed("it is not whole")
        if stamp.read_text() != commit:
            stamp.unlink()
            _forget_builds(worktrees.parent / "envs", worktree)
        _at_commit(repository, worktree, commit, repository.top)
    except GitFailed:
        _remove(repository, worktree)
        # Twice: also over the entry of a worktree that is gone, or was locked while it was made.
        repository.git("worktree", "add", "--detach", "--force", "--force", "--quiet", str(worktree), commit)
        _at_commit(repository, worktree, commit, repository.top)
    with stamp.open("a+") as file:
        file.truncate(0)
        file.write(commit)
    if worktree not in _used:
        import fcntl  # Windows, where only plain runs work, has none

        _used[worktree] = os.open(stamp, os.O_RDONLY)
        fcntl.flock(_used[worktree], fcntl.LOCK_SH)
    root = worktree / repository.prefix
    if not root.is_dir():
        raise AgainstError(f"{label} has no folder {repository.prefix}: nothing of this project is in git there")
    return Checkout(label=label, commit=commit, root=str(root), prefix=repository.prefix)


_used: dict[Path, int] = {}
"""The worktrees of this process with their stamps, which are locked: no other process sets them to another commit."""


def _worktree_for(commit: str, worktrees: Path) -> Path:
    """The worktree of a commit; else the last that was used and is free, for what is installed of it serves again; else
    a new one. Names have one length, and a new clone has the same: in CI the cache keeps environments alone.
    """
    stamps = sorted(worktrees.glob("*.whole"), key=lambda each: each.stat().st_mtime_ns, reverse=True)
    of_commit = (each for each in stamps if each.read_text() == commit)
    free = (each for each in stamps if _is_free(each))
    numbered = (worktrees / f"{number:03}.whole" for number in itertools.count(1))
    new = (each for each in numbered if each not in stamps)
    return next(itertools.chain(of_commit, free, new)).with_suffix("")


def _is_free(stamp: Path) -> bool:
    """Whether no process uses a worktree; one without a stamp was not completed."""
    import fcntl

    try:
        with stamp.open() as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except FileNotFoundError:
        pass
    return True


def _forget_builds(environments: Path, worktree: Path) -> None:
    """What was built in a worktree for another commit is made again, and in a clean folder."""
    record = _record(environments, worktree)
    if any(".egg-info/" not in name for name in read_json(record, list[str]) or ()):
        record.unlink()
        forget_environments(environments, worktree)


def _is_whole(repository: Repository, worktree: Path) -> bool:
    """Whether a worktree was completed and is one still: the run may have been killed, the repository moved."""
    inner = checked_out(worktree) if _stamp(worktree).exists() else None
    # Git gives a new worktree the sparse patterns of the worktree that the command runs in.
    return inner is not None and inner.sparse_patterns() == repository.sparse_patterns()


def _stamp(worktree: Path) -> Path:
    """Has the commit once the worktree is complete; its time is the last use. Beside it, where git does not see it."""
    return worktree.with_name(f"{worktree.name}.whole")


def _remove(repository: Repository, worktree: Path) -> None:
    _stamp(worktree).unlink(missing_ok=True)
    if worktree in _used:
        os.close(_used.pop(worktree))
    if worktree.exists():
        repository.git("worktree", "remove", "--force", "--force", str(worktree), allowed=(0, 128))
        shutil.rmtree(worktree, ignore_errors=True)


def prune(root: Path, folder: Path) -> None:
    """Remove all worktrees in `folder` but those in use and those used last, and environments that nothing can use any
    more. Raises GitFailed.
    """
    repository, worktrees = Repository(root), folder.absolute() / "worktrees"
    with locked(Path(f"{worktrees}.lock")):
        used_s = dict[Path, float]()
        for worktree in filter(Path.is_dir, worktrees.iterdir()):
            stamp = _stamp(worktree)
            if _is_free(stamp):
                used_s[worktree] = stamp.stat().st_mtime if stamp.exists() else 0.0
        for worktree in sorted(used_s, key=lambda each: used_s[each], reverse=True)[KEPT_WORKTREES:]:
            _remove(repository, worktree)
            _record(folder / "envs", worktree).unlink(missing_ok=True)
    prune_environments(folder / "envs")


def relocated(spec: Spec, old_root: Path, checkout: Checkout) -> Spec:
    """A test in a checkout: its file and its import path there; other paths of the repository move too."""
    old_top, new_top = checkout.top(old_root.resolve()), checkout.top(checkout.project)
    source = msgspec.structs.replace(
        spec.source,
        path=mapped(spec.source.path, old_top, new_top),
        sys_path=tuple(mapped(entry, old_top, new_top) for entry in spec.source.sys_path),
    )
    return msgspec.structs.replace(spec, source=source)


def lacks(checkout: Checkout, test: str) -> bool:
    """Whether a checkout does not have the test (`a.py::test_x`) at all."""
    return source_is_gone(test, checkout.project)


def ahead(root: Path, pair: Pair, test: str, environ: Mapping[str, str] = os.environ) -> str:
    """The local branch of the name of the remote's one that `merge-base` took, if only the local one has the test.

    Empty for none, and where nothing differs from it.
    """
    repository = Repository(root)
    base = _base_branch(repository, environ)
    name = base.removeprefix(f"{repository.remote}/")
    commit = repository.commit(f"refs/heads/{name}")
    if name == base or commit in (None, pair.changed.commit):
        return ""
    path, _, names = test.partition("::")
    text = repository.git("show", f"{commit}:{repository.prefix}{path}", allowed=(0, 128))
    return name if re.search(rf"\b{re.escape(names.partition('::')[0])}\b", text) else ""


def ignored_hint(detail: str, checkout: Checkout, old_root: Path) -> str:
    """One line for an error whose text names a file or module of the project that is on neither side; "" otherwise."""
    root = re.escape(checkout.root)
    files = [name for name in re.findall(rf"{root}/([^'\"\n]+)", detail) if not (checkout.project / name).exists()]
    # As compilers name them, which run in the project's folder.
    files += [name for name in re.findall(r"(?<![\w./~-])\w[\w./-]*\.\w+", detail) if (old_root / name).is_file()]
    modules = [name.replace(".", "/") for name in re.findall(r"No module named '([\w.]+)'", detail)]
    # A module may be `a/b.py`, `a/b.cpython-314.so` or `a/b`, below the root or its `src`.
    for base, module in itertools.product((old_root, old_root / "src"), modules):
        beside = sorted((base / module).parent.glob(f"{Path(module).name}*"))
        same = (path for path in beside if path.name.partition(".")[0] == Path(module).name)
        files += [str(path.relative_to(old_root)) for path in same]
    for name in files:
        if (old_root / name).exists() and not (checkout.project / name).exists():
            return (
                f"{name} is in the working tree but not in git, so neither side of {OPTION} has it: "
                "commit it, or let ftgate_install or the workload make it"
            )
    return ""
