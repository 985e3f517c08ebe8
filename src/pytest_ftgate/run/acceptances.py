"""The regressions that the commits of a branch accept by their trailers, as git has them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import msgspec

from ..hookspec import hookimpl
from ..judge import acceptance
from ..kit import git
from ..kit.errors import FtgateError
from ..kit.files import write_whole
from ..kit.text import did_you_mean
from ..kit.values import Struct
from ..measure.context import Listener
from ..model.report import Row
from ..model.verdict import Acceptance, Verdict
from ..store.names import matches, split_nodeid
from .folder import RunFolder, decoded
from .sides import worktrees

if TYPE_CHECKING:
    import pytest

    from .run import Session

FIX = "correct it with `git commit --amend` or `git rebase --interactive`"
_DEFAULTS = ("HEAD", "main", "master")


class Collected(Struct, frozen=True, kw_only=True):
    """The node ids of a run before any was deselected, and why they may not be all, as after `--last-failed`.

    `some_files`: the command line names files or folders. `some_targets`: it names targets. `some_cells`: it names
    tests or cells, or leaves some out.
    """

    nodeids: Sequence[str]
    some_files: bool = False
    some_targets: bool = False
    some_cells: bool = False

    @classmethod
    def of(cls, config: pytest.Config, nodeids: Sequence[str]) -> Collected:
        """What the command line says of them."""
        left_out = any(config.getoption(name, None) for name in ("lf", "ignore", "ignore_glob"))
        return cls(
            nodeids=nodeids,
            some_files=config.args_source is config.ArgsSource.ARGS or left_out,
            some_targets=bool(config.getoption("ftgate_python") or os.environ.get("FTGATE_PYTHON")),
            some_cells=left_out or any("::" in argument for argument in config.args),
        )


class Branch(Struct, frozen=True, kw_only=True):
    """HEAD when the run began, and where its branch began: the merge base, else the commit before; "" for neither."""

    head: str
    base: str


@hookimpl
def ftgate_begin(run: Session) -> None:
    """Under `--ftgate-trust=base` a change accepts nothing of itself."""
    run.plugins.register(Acceptances(run.folder, run.listener, counted=run.config.trust == "head"))


class Acceptances:
    """Reads the trailers of a run's branch; outside of git there are none."""

    def __init__(self, folder: RunFolder, listener: Listener, *, counted: bool = True) -> None:
        """Unless they are `counted`, there are none either."""
        self.folder = folder
        self.listener = listener
        self._read: dict[str, tuple[Acceptance, ...]] = {}
        self._repository: git.Repository | None = None
        self._branch: Branch | None = None
        self._known = not counted
        self._warned = False

    @hookimpl
    def ftgate_collected(self, run: Session, config: pytest.Config, nodeids: Sequence[str]) -> None:
        """Refuse trailers of this branch that accept nothing."""
        reference = run.references.requested().reference.commit if run.config.against else ""
        self.check(Collected.of(config, nodeids), reference)

    @hookimpl(tryfirst=True)
    def ftgate_amend(self) -> Callable[[Row], Verdict]:
        """Accept what the commits since a row's reference accept."""
        return self.amended

    def amended(self, row: Row) -> Verdict:
        """The verdict of a row in which that is accepted."""
        if not any(map(acceptance.acceptable, row.verdict.metrics)):
            return row.verdict
        return acceptance.applied(row.verdict, row.cell.nodeid, self.since(row.verdict.commit))

    def since(self, commit: str) -> tuple[Acceptance, ...]:
        """What the commits after `commit` accept, newest first: of the whole branch if git does not have it.

        `commit` is the one that a cell is compared with, "" for none. A trailer that cannot be read accepts nothing.
        """
        repository, branch = self._found()
        if repository is None or branch is None:
            return ()
        start = (repository.commit(commit.removesuffix("+")) if commit else None) or branch.base
        if start not in self._read:
            self._read[start] = tuple(_valid(_trailers(repository, branch.head, start)))
            self._warn_of_shallow(repository, branch.head, start)
        return self._read[start]

    def check(self, collected: Collected, reference: str) -> None:
        """Raise FtgateError for trailers of this branch that cannot be read, and for those that match no cell.

        `reference` is the commit of `--ftgate-against`, "" without it. What is on the remote's default branch already
        is left alone: nobody can correct it.
        """
        repository, branch = self._found() if collected.nodeids else (None, None)
        if repository is None or branch is None:
            return
        published = (repository.commit(f"refs/remotes/{repository.remote}/{name}") for name in _DEFAULTS)
        wrong = []
        for commit, trailer in _trailers(repository, branch.head, reference or branch.base, *filter(None, published)):
            try:
                cells = acceptance.parsed(trailer, commit)[0].cells
            except FtgateError as error:
                wrong.append(f"{error}; {FIX}")
                continue
            if not any(matches(cells, nodeid) for nodeid in collected.nodeids) and _is_lost(
                cells, collected, repository
            ):
                known = [*collected.nodeids, *dict.fromkeys(split_nodeid(each)[0] for each in collected.nodeids)]
                hint = did_you_mean(cells, known)
                wrong.append(f"{acceptance.quoted(commit, trailer)} matches no cell{hint}; {FIX}")
        if wrong:
            raise FtgateError("\n".join(wrong))

    def _found(self) -> tuple[git.Repository | None, Branch | None]:
        if not self._known:
            self._known = True
            try:
                self._repository = git.Repository(self.folder.root)
                self._branch = self._shared_branch(self._repository)
            except git.AgainstError:
                self._repository = self._branch = None
        return self._repository, self._branch

    def _shared_branch(self, repository: git.Repository) -> Branch | None:
        """The same for all processes of a run, whatever is committed meanwhile."""
        with self.folder.locked("branch"):
            shared = self.folder.shared("branch", "")
            if shared.exists():
                return decoded(shared, Branch)
            branch = _branch_of(repository)
            if branch is not None:
                write_whole(shared, [msgspec.json.encode(branch)])
        return branch

    def _warn_of_shallow(self, repository: git.Repository, head: str, start: str) -> None:
        if repository.shallow and not self._warned and _is_cut(repository, head, start):
            self._warned = True
            where = f"before {git.shown(start)}, with which it is compared" if start else "at HEAD"
            self.listener.warn(
                f"{acceptance.KEY} trailers of this branch may be missing: this clone is shallow and its history ends "
                f"{where}: {git.DEEPEN}"
            )


def _branch_of(repository: git.Repository) -> Branch | None:
    head = repository.commit("HEAD")
    if head is None:
        return None
    try:
        base = worktrees.merge_base(repository, os.environ)[1]
    except git.AgainstError:
        base = head
    # A push to the default branch brought what comes after its first parent, and so does the merge that CI checks out.
    return Branch(head=head, base=base if base != head else repository.commit("HEAD^1") or "")


def _trailers(repository: git.Repository, head: str, *starts: str) -> Iterator[tuple[str, str]]:
    """(commit, trailer) of the commits that `head` has and no `starts` have, newest first; without one, of `head`."""
    excluded = [f"^{start}" for start in starts if start]
    wanted = ("-i", "-E", f"--grep=^{acceptance.KEY}:", "--encoding=UTF-8", "-z", "--format=%H%n%B")
    text = repository.git("log", "--no-show-signature", *wanted, *(excluded or ["--no-walk"]), head)
    for entry in filter(None, text.split("\0")):
        commit, _, message = entry.partition("\n")
        for trailer in acceptance.trailers(message):
            yield commit, trailer


def _valid(trailers: Iterator[tuple[str, str]]) -> Iterator[Acceptance]:
    for commit, trailer in trailers:
        try:
            yield from acceptance.parsed(trailer, commit)
        except FtgateError:
            continue  # `check` reports it


def _is_cut(repository: git.Repository, head: str, start: str) -> bool:
    """Whether the history from `head` ends, because the clone is shallow, before it comes to `start`."""
    shallow = repository.root / repository.git("rev-parse", "--git-path", "shallow").rstrip("\n")
    ends = set(shallow.read_text(encoding="ascii").split()) if shallow.is_file() else set()
    reached = repository.git("rev-list", head, *([f"^{start}"] if start else [])).split()
    return not ends.isdisjoint(reached)


def _is_lost(pattern: str, collected: Collected, repository: git.Repository) -> bool:
    """Whether a pattern that matches no collected cell can match none at all, as far as this run can tell."""
    file, separator, rest = pattern.partition("::")
    open_ended = any(letter in file for letter in "*?")
    if open_ended:
        return not (collected.some_files or collected.some_targets or collected.some_cells)
    if not separator:
        return True
    tests = {split_nodeid(nodeid)[0] for nodeid in collected.nodeids}
    if not any(test.partition("::")[0] == file for test in tests):
        # A file whose tests are not collected here may be another run's, or another project's in this repository.
        elsewhere = repository.git("ls-files", "-z", "--", f":(top,literal){file}", f":(top,glob)**/{file}")
        return not (repository.root / file).exists() and not elsewhere
    if collected.some_cells:
        return False
    name, bracket, _ = rest.partition("[")
    if collected.some_targets and (bracket or any(letter in rest for letter in "*?")):
        return bool(bracket) and not any(matches(f"{file}::{name}", test) for test in tests)
    return True
