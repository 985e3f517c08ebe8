"""The `.ftgate` folder of a project: what the processes of one run share, and what stays for the next."""

from __future__ import annotations

import contextlib
import hashlib
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path

from .. import pythons

RUNS_KEPT = 5
LAST_RUN = "last-run.json"


class RunFolder:
    """The folder `path` below the project's `root`, and `run`, what belongs to one run, in it."""

    def __init__(self, root: Path, run: str) -> None:
        self.root = root
        self.path = root / ".ftgate"
        self.run = self.path / "runs" / run

    def make(self) -> None:
        """Make the folder of the run, out of git's sight. Raises OSError."""
        self.run.mkdir(parents=True, exist_ok=True)
        pythons.hide_from_git(self.path)

    @contextlib.contextmanager
    def locked(self, name: str) -> Iterator[None]:
        """Wait until no other process of this project holds the lock of this name; see `waiting.held`."""
        self.make()
        with pythons.waiting.held(self.path / f"{name}.lock"):
            yield

    def shared(self, kind: str, key: str) -> Path:
        """The file in which the process that makes something first leaves it for the others."""
        return self.run / f"{kind}-{hashlib.sha256(key.encode()).hexdigest()[:16]}.json"

    def keep(self, text: Iterable[str]) -> None:
        """Write the report where `ftgate baseline` finds it; remove old runs and unused environments."""
        self.path.mkdir(parents=True, exist_ok=True)
        write_whole(self.path / LAST_RUN, map(str.encode, text))
        self.prune()

    def prune(self) -> None:
        """Remove old runs and unused environments."""
        pythons.prune_environments(self.path / "envs")
        runs = sorted((self.path / "runs").glob("*"), key=lambda path: path.stat().st_mtime)
        for old in runs[:-RUNS_KEPT]:
            shutil.rmtree(old, ignore_errors=True)


def write_whole(path: Path, content: Iterable[bytes]) -> None:
    """Write a file, piece by piece, so that a reader, or a run that is killed meanwhile, never leaves half of it.

    Raises OSError, of a full disk or a directory of that name; what was there stays.
    """
    unfinished = path.with_name(f"{path.name}.part")
    try:
        with unfinished.open("wb") as file:
            file.writelines(content)
        unfinished.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            unfinished.unlink()
        raise
