"""The git commands that a run needs."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Final

from . import waiting
from .errors import FtgateError
from .text import COMMIT_DIGITS

DEEPEN: Final = (
    "deepen it with `git fetch --unshallow` or `git fetch --deepen=100`; in CI let the checkout step fetch the history "
    "(`fetch-depth: 0` of actions/checkout, `GIT_DEPTH: 0` of GitLab)"
)
_COMMIT_ID: Final = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
# As `git rev-parse --local-env-vars`, without the settings by which a CI machine declares safe directories.
_OF_A_HOOK: Final = frozenset(
    {
        *("GIT_ALTERNATE_OBJECT_DIRECTORIES", "GIT_CONFIG", "GIT_OBJECT_DIRECTORY", "GIT_DIR", "GIT_WORK_TREE"),
        *("GIT_IMPLICIT_WORK_TREE", "GIT_GRAFT_FILE", "GIT_INDEX_FILE", "GIT_NO_REPLACE_OBJECTS", "GIT_COMMON_DIR"),
        *("GIT_REPLACE_REF_BASE", "GIT_PREFIX", "GIT_SHALLOW_FILE", "GIT_NAMESPACE", "GIT_QUARANTINE_PATH"),
        *("GIT_INTERNAL_SUPER_PREFIX", "GIT_LITERAL_PATHSPECS", "GIT_GLOB_PATHSPECS", "GIT_NOGLOB_PATHSPECS"),
        *("GIT_ICASE_PATHSPECS", "GIT_INDEX_VERSION", "GIT_DEFAULT_HASH"),
    }
)
_BEFORE: Final = re.compile(r"(?:HEAD|@)(?:~(\d*)|\^\d?)")
_REFUSED: Final = re.compile(r"(?:dubious ownership in repository at|unsafe repository) \(?'(.+?)'")
_BRANCHES = ("GITHUB_HEAD_REF", "GITHUB_REF_NAME", "CI_COMMIT_REF_NAME")
"""Variables of GitHub and GitLab that hold the branch of a run; the first only for a pull request."""
_IDENTITY: Final = re.compile(r"GIT_(AUTHOR|COMMITTER)_")
_SETTINGS: Final = (
    f"core.hooksPath={os.devnull}",
    "core.fsmonitor=false",
    "core.splitIndex=false",
    "core.safecrlf=false",
    "submodule.recurse=false",
    "gc.auto=0",
    "maintenance.auto=false",
)


class AgainstError(FtgateError):
    """A reference that cannot be checked out; the text names what was requested and suggests a fix."""


class GitFailed(AgainstError):
    """A git command failed; the text is git's own."""


class NotTrusted(GitFailed):
    """git refuses a repository because another user owns it; the text has the fixes."""


def git(
    folder: Path,
    *arguments: str,
    allowed: tuple[int, ...] = (0,),
    given: str | None = None,
    variables: Mapping[str, str] | None = None,
) -> str:
    """The output of git; `given` is its input. Raises GitFailed with git's text for an exit code not `allowed`.

    Raises AgainstError where git cannot be run, or takes too long.
    """
    settings = [word for setting in _SETTINGS for word in ("-c", setting)]
    try:
        done = waiting.run_within(
            ["git", *settings, *arguments],
            cwd=folder,
            environment=environment() | dict(variables or {}),
            given=given or "",
            errors="surrogateescape",
            named=f"git {shlex.join(arguments)}",
        )
    except waiting.TooLong as late:
        raise AgainstError(str(late)) from late
    except OSError as error:  # it is missing, or no process can be started
        raise AgainstError(f"comparing commits needs git, which could not be run: {error}") from error
    if done.returncode in allowed:
        return done.stdout
    words = done.stderr.strip().encode(errors="replace").decode() or f"exit code {done.returncode}"
    if refused := _REFUSED.search(words):
        place = shlex.quote(refused[1])
        raise NotTrusted(
            f"git refuses the repository {refused[1]}, which belongs to another user than this process: run "
            f"`git config --global --add safe.directory {place}`, or, where there is no home, set "
            f"GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=safe.directory GIT_CONFIG_VALUE_0={place}"
        )
    raise GitFailed(f"git {' '.join(arguments[:2])}: {words}")


class Repository:
    """The git repository that a project stands in; the user's index, branches, stash and files are never written."""

    def __init__(self, root: Path) -> None:
        """`root` is the project's; raises AgainstError if it is in no git worktree, NotTrusted if git refuses it."""
        self.root = root.resolve()
        try:
            answer = self.git("rev-parse", "--is-inside-work-tree", "--show-prefix").splitlines()
        except NotTrusted:
            raise
        except GitFailed as failed:
            raise AgainstError(f"comparing commits needs {self.root} to be in a git repository: {failed}") from failed
        if answer[0] != "true":
            raise AgainstError(f"comparing commits needs {self.root} to be in a worktree; this is a bare repository")
        self.prefix = answer[1] if len(answer) > 1 else ""

    def git(
        self,
        *arguments: str,
        allowed: tuple[int, ...] = (0,),
        given: str | None = None,
        cwd: Path | None = None,
        variables: Mapping[str, str] | None = None,
    ) -> str:
        return git(cwd or self.root, *arguments, allowed=allowed, given=given, variables=variables)

    def commit(self, revision: str) -> str | None:
        """The commit that git's own rules find for a revision; None for none. Raises GitFailed for an ambiguous one."""
        try:
            return self.git("rev-parse", "--verify", "--end-of-options", f"{revision}^{{commit}}").strip()
        except GitFailed as failed:
            if "is ambiguous" in str(failed):
                raise
            return None

    def named(self, revision: str) -> str | None:
        """As `commit`, but also a branch that only a remote has: CI checks out a commit and makes no local branches."""
        on_remote = self.commit(f"refs/remotes/{revision}") if revision.startswith(f"{self.remote}/") else None
        return on_remote or self.commit(revision) or self.commit(f"refs/remotes/{self.remote}/{revision}")

    def remote_branch(self, name: str) -> str:
        """The remote's branch of this name if there is one: a local one may be out of date."""
        if name == f"{self.remote}/HEAD":
            branch = self.git("rev-parse", "--abbrev-ref", name).strip()
            return branch or name
        on_remote = f"{self.remote}/{name}"
        return on_remote if self.commit(f"refs/remotes/{on_remote}") else name

    @cached_property
    def top(self) -> Path:
        """The folder of the whole repository."""
        return Path(self.git("rev-parse", "--show-toplevel").rstrip("\n"))

    @cached_property
    def remote(self) -> str:
        """`origin`, else the first remote."""
        names = self.git("remote").split()
        return "origin" if "origin" in names or not names else names[0]

    @property
    def shallow(self) -> bool:
        """Whether a part of the history is not here: it was cut off when this was cloned."""
        return self.git("rev-parse", "--is-shallow-repository").strip() == "true"

    def fetch(self, revision: str, environ: Mapping[str, str]) -> str | None:
        """Fetch a commit that a shallow clone lacks, by its id, the remote's name of it or its distance from HEAD.

        None if it is not there, or may not be fetched: where CI is set the clone is the job's own, elsewhere it is a
        person's. No reference is written. Raises AgainstError with git's text.
        """
        if not (self.shallow and environ.get("CI", "").lower() in ("1", "true")):
            return None
        depth, commit = "--depth=1", revision
        if before := _BEFORE.fullmatch(revision):
            # git deepens what leads to the commit that it is asked for, here HEAD
            depth, commit = f"--deepen={before[1] or 1}", self.git("rev-parse", "HEAD").strip()
        elif not _COMMIT_ID.fullmatch(revision):
            name = revision.removeprefix(f"{self.remote}/")
            places = f"refs/heads/{name}", f"refs/tags/{name}"
            lines = self.git("ls-remote", self.remote, *places).splitlines()
            ids = {name: commit_id for commit_id, _, name in (line.partition("\t") for line in lines)}
            commit = next(filter(None, map(ids.get, places)), "")
        if not commit:
            return None
        alone = ("--no-tags", "--no-recurse-submodules", "--no-write-fetch-head")
        self.git("fetch", "--quiet", depth, *alone, self.remote, commit)
        return self.commit(revision if before else commit)

    def how_to_fetch(self, revision: str) -> str:
        """The command that gets a commit which a shallow clone lacks."""
        if _COMMIT_ID.fullmatch(revision):
            return f"fetch it with `git fetch --depth=1 {self.remote} {revision}`"
        if before := _BEFORE.fullmatch(revision):
            return f"fetch it with `git fetch --deepen={before[1] or 1} {self.remote} $(git rev-parse HEAD)`"
        return DEEPEN

    def sparse_patterns(self) -> str:
        """The patterns of a sparse checkout; "" if all files are checked out."""
        if self.git("config", "--type=bool", "core.sparseCheckout", allowed=(0, 1)).strip() != "true":
            return ""
        path = self.root / self.git("rev-parse", "--git-path", "info/sparse-checkout").rstrip("\n")
        return path.read_text(encoding="utf-8", errors="surrogateescape") if path.is_file() else ""


def environment() -> dict[str, str]:
    """This process's environment for git: no repository that a hook was called for, no prompt, no written index."""
    kept = {name: value for name, value in os.environ.items() if name not in _OF_A_HOOK and not _IDENTITY.match(name)}
    return kept | {"LC_ALL": "C", "GIT_TERMINAL_PROMPT": "0", "GIT_OPTIONAL_LOCKS": "0"}


def shown(commit: str) -> str:
    """A commit id in short."""
    return commit.removesuffix("+")[:COMMIT_DIGITS]


def committed_by_us(made_at: str) -> dict[str, str]:
    """Variables by which a commit or tag is the same whenever and by whomever it is made; no user name is needed."""
    return {
        f"GIT_{role}_{field}": value
        for role in ("AUTHOR", "COMMITTER")
        for field, value in (("NAME", "pytest-ftgate"), ("EMAIL", "pytest-ftgate@invalid"), ("DATE", made_at))
    }


def mapped(path: str, old_root: Path, new_root: Path) -> str:
    """The path in `new_root` of a path in or below `old_root`, also through a link; any other path is unchanged."""
    given, real = Path(path), old_root.resolve()
    for place, root in ((given, old_root), (given, real), (given.resolve(), real)):
        if given.is_absolute() and place.is_relative_to(root):
            return str(new_root / place.relative_to(root))
    return path


def commit_of(root: Path) -> str:
    """The commit of the worktree at `root`, with `+` if it has uncommitted changes; empty without git."""
    try:
        repository = Repository(root)
        head = repository.git("rev-parse", "HEAD").strip()
        return head + ("+" if repository.git("status", "--porcelain", "-uno").strip() else "")
    except AgainstError:
        return ""


def branch_of(root: Path, environ: Mapping[str, str] = os.environ) -> str:
    """The branch that is checked out at `root`; in CI, which checks out a commit, what that says; else empty."""
    try:
        own = Repository(root).git("symbolic-ref", "--quiet", "--short", "HEAD", allowed=(0, 1)).strip()
    except AgainstError:
        return ""
    return own or next(filter(None, map(environ.get, _BRANCHES)), "")
