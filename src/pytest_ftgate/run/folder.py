"""The `.ftgate` folder of a project: what the processes of one run share, and what stays for the next."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TypeVar

import msgspec

from ..kit.errors import FtgateError
from ..kit.files import hide_from_git, write_whole
from ..kit.git import AgainstError, Repository
from ..kit.processes import locked
from ..kit.text import first_of
from ..model.report import Report
from ..report import json
from ..targets.environments import prune_environments

RUNS_KEPT = 5
LAST_RUN = "last-run.json"
T = TypeVar("T")


class RunFolder:
    """The folder `path` below the project's `root`, and `run`, what belongs to one run, in it."""

    def __init__(self, root: Path, run: str) -> None:
        self.root = root
        self.path = root / ".ftgate"
        self.run = self.path / "runs" / run

    def make(self) -> None:
        """Make the run's folder, which git does not see. Raises FtgateError where that is not possible."""
        try:
            self.run.mkdir(parents=True, exist_ok=True)
            hide_from_git(self.path)
        except OSError as error:
            fix = f"a run keeps its rows there: make {self.root} writable and see that its disk has room"
            raise FtgateError(f"{error.filename or self.path}: {error.strerror}; {fix}") from error

    @contextlib.contextmanager
    def locked(self, name: str) -> Iterator[None]:
        """Wait until no other process of this project holds the lock of this name; see `kit.processes.locked`."""
        self.make()
        with locked(self.path / f"{name}.lock"):
            yield

    def shared(self, kind: str, key: str) -> Path:
        """The file in which the process that makes something first leaves it for the others."""
        return self.run / f"{kind}-{hashlib.sha256(os.fsencode(key)).hexdigest()[:16]}.json"

    def keep(self, text: Iterable[str]) -> None:
        """Write the report where `ftgate baseline` finds it; remove old runs and unused environments."""
        self.path.mkdir(parents=True, exist_ok=True)
        write_whole(self.path / LAST_RUN, map(str.encode, text))
        prune_environments(self.path / "envs")
        runs = sorted((self.path / "runs").glob("*"), key=lambda path: path.stat().st_mtime)
        for old in runs[:-RUNS_KEPT]:
            shutil.rmtree(old, ignore_errors=True)


def decoded(path: Path, kind: type[T]) -> T:
    """What a process of this run has left for the others. Raises FtgateError for what none of them wrote."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except (OSError, ValueError, RecursionError) as error:
        raise FtgateError(f"{path}: cannot be read: {error}; remove it and run again") from error


def write_report(target: str, report: Report, folder: Path) -> Path:
    """Write the report as `KIND:PATH` says, a path relative to `folder`; a file that is there stays if that fails.

    Raises OSError.
    """
    kind, _, name = target.partition(":")
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, map(str.encode, json.rendered(kind, report)))
    return path


def refuse_tracked(folder: Path) -> None:
    """Raise FtgateError if git tracks anything in `folder`, or the folder as a link or a submodule.

    A change could bring its own runner, environments and worktrees. Outside of a repository nothing is refused.
    """
    try:
        repository = Repository(folder.parent)
        tracked = repository.git("ls-files", "-z", "--", f":(icase,literal){folder.name}").split("\0")[:-1]
    except AgainstError:
        return
    if tracked:
        raise FtgateError(
            f"git tracks {first_of(tracked, 1)}: what is in {folder.name} is run and measured with, so no commit may "
            f"bring it; remove it with `git rm -r -f {folder.name}` and commit that"
        )
