"""The `.ftgate` folder of a project: what a run leaves for the next, and for the commands."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from pathlib import Path

from ..kit.errors import FtgateError
from ..kit.files import hide_from_git, write_whole
from ..kit.git import AgainstError, Repository
from ..kit.text import first_of
from ..kit.waiting import locked
from ..model.report import Report
from ..report import json
from ..targets.environments import prune_environments

LAST_RUN = "last-run.json"


class RunFolder:
    """The folder `path` below the project's `root`."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.path = root / ".ftgate"

    def make(self) -> None:
        """Make the folder, which git does not see. Raises FtgateError where that is not possible."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            hide_from_git(self.path)
        except OSError as error:
            fix = f"a run keeps what it measures there: make {self.root} writable and see that its disk has room"
            raise FtgateError(f"{error.filename or self.path}: {error.strerror}; {fix}") from error

    @contextlib.contextmanager
    def locked(self, name: str) -> Iterator[None]:
        """Wait until no other run of this project holds the lock of this name; see `kit.waiting.locked`."""
        self.make()
        with locked(self.path / f"{name}.lock"):
            yield

    def keep(self, text: Iterable[str]) -> None:
        """Write the report where `ftgate baseline` finds it; remove unused environments."""
        self.path.mkdir(parents=True, exist_ok=True)
        write_whole(self.path / LAST_RUN, map(str.encode, text))
        prune_environments(self.path / "envs")


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
            f"git tracks {first_of(tracked, 1)}: the files in {folder.name} are executed, so no commit "
            f"may contain them; remove them with `git rm -r -f {folder.name}` and commit that"
        )
