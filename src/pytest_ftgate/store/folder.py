"""Stored measurements: one sorted JSON file per test, written completely or not at all.

A file holds raw values, so that a later statistic can be computed from an old recording. A file that is not valid is an
error that names the place, and is never overwritten.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
from filelock import FileLock, Timeout

from .file_format import broken, decode, encode
from .names import entry_key, file_name, split_nodeid
from .recording import Change
from .schema import (
    SCHEMA,
    STATISTIC,
    BaselineError,
    Recording,
    StoredCell,
    TestBaseline,
)

LOCK_TIMEOUT_S = 60.0
RECORDINGS_KEPT = 20


# ---- the folder


class Store:
    """The folder of baselines: `root` holds a JSON file per test, `.ftgate/` next to it holds the lock.

    All writers of the same root take the same lock. Nothing is created before the first `save`.
    """

    def __init__(self, root: Path, *, lock_path: Path | None = None, lock_timeout_s: float = LOCK_TIMEOUT_S) -> None:
        self.root = root
        self.lock_path = lock_path or root.absolute().parent / ".ftgate" / f"{root.absolute().name}.lock"
        self.lock_timeout_s = lock_timeout_s

    def path(self, test: str) -> Path:
        """The file of a test (a node id without brackets), whether it exists or not."""
        return self.root / file_name(test)

    def load(self, test: str) -> TestBaseline | None:
        """The baseline of a test, None without a file. Raises BaselineError for a file that is not valid."""
        path = self.path(test)
        baseline = self._read(path)
        if baseline is not None and baseline.test != test:
            fault = f"holds {baseline.test} and stands where {test} belongs"
            raise broken(str(path), "$.test", fault, "move it, or give the tests unlike names")
        return baseline

    def lookup(self, nodeid: str, fingerprint: str, build: str) -> StoredCell | None:
        """The stored cell of a full node id on that machine and build. Raises BaselineError as `load` does."""
        test, label = split_nodeid(nodeid)
        baseline = self.load(test)
        return baseline.cells.get(label, {}).get(entry_key(fingerprint, build)) if baseline else None

    def recordings(self, nodeid: str, fingerprint: str, build: str) -> tuple[Recording, ...]:
        """The recordings of the stored cell, oldest first; none without one."""
        entry = self.lookup(nodeid, fingerprint, build)
        return entry.recordings if entry else ()

    def baselines(self) -> Iterator[TestBaseline]:
        """Every baseline, by file name. Raises BaselineError at the first file that is not valid."""
        for path in sorted(self.root.rglob("*.json")):
            baseline = self._read(path)
            if baseline is None:
                continue
            # A copied or renamed file would be a second baseline of the same test.
            if self.path(baseline.test) != path:
                belongs = self.path(baseline.test)
                raise broken(str(path), "$.test", f"{baseline.test} belongs in {belongs}", "move or delete the file")
            yield baseline

    def save(self, test: str, changes: Iterable[Change]) -> TestBaseline:
        """Read, change and write one file under the lock; cells without a change stay as they are.

        A file that is not valid is not overwritten: the error of `load` is raised first. A file without cells is
        removed. Raises BaselineError if the lock or the file is not available; the old file is then unchanged.
        """
        with self._locked():
            old = self.load(test)
            new = _merged(old or TestBaseline(schema=SCHEMA, statistic=STATISTIC, test=test), changes)
            if new.cells:
                _write(self.path(test), encode(new).encode())
            elif old:
                self._remove(self.path(test))
        return new

    def _read(self, path: Path) -> TestBaseline | None:
        try:
            content = path.read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise BaselineError(f"{path}: cannot be read: {error.strerror}; check its permissions") from error
        return decode(content, str(path))

    def _remove(self, path: Path) -> None:
        try:
            path.unlink()
            # Version control does not track empty folders, so they are removed up to the root.
            for folder in path.parents:
                if folder == self.root or any(folder.iterdir()):
                    break
                folder.rmdir()
        except OSError as error:
            raise BaselineError(f"{path}: cannot be removed: {error.strerror}; make its folder writable") from error

    @contextmanager
    def _locked(self) -> Iterator[None]:
        try:
            self._prepare_lock_folder()
            lock = FileLock(str(self.lock_path), timeout=self.lock_timeout_s)
            lock.acquire()
        except Timeout as error:
            waited = f"another run has held it for {self.lock_timeout_s:g} s"
            raise BaselineError(f"{self.lock_path}: {waited}; wait for its end and update again") from error
        except OSError as error:
            fault = f"cannot be locked: {error.strerror}"
            raise BaselineError(f"{self.lock_path}: {fault}; make its folder writable") from error
        try:
            yield
        finally:
            lock.release()

    def _prepare_lock_folder(self) -> None:
        folder = self.lock_path.parent
        folder.mkdir(parents=True, exist_ok=True)
        ignore = folder / ".gitignore"
        if folder.name == ".ftgate" and not ignore.exists():
            # The folder ignores itself, so that projects need no entry for it.
            ignore.write_text("*\n", encoding="utf-8")


def _merged(old: TestBaseline, changes: Iterable[Change]) -> TestBaseline:
    cells = {label: dict(builds) for label, builds in old.cells.items()}
    machines = dict(old.machines)
    for change in changes:
        builds = cells.setdefault(change.label, {})
        if change.entry is None:
            builds.pop(change.key, None)
        else:
            builds[change.key] = _appended(builds.get(change.key), change)
        if change.machine is not None:
            machines[change.machine.fingerprint] = change.machine
    kept = {label: builds for label, builds in cells.items() if builds}
    # Machines that no stored cell refers to are dropped, else they would stay in the file forever.
    used = {key.partition("/")[0] for builds in kept.values() for key in builds}
    known = {fingerprint: machine for fingerprint, machine in machines.items() if fingerprint in used}
    return TestBaseline(schema=SCHEMA, statistic=STATISTIC, test=old.test, machines=known, cells=kept)


def _appended(old: StoredCell | None, change: Change) -> StoredCell:
    """The stored cell of a change; if it appends, with the old recordings first. The newest ones are kept."""
    assert change.entry is not None
    if old is None or not change.append:
        return change.entry
    recordings = (*old.recordings, *change.entry.recordings)
    return msgspec.structs.replace(change.entry, recordings=recordings[-RECORDINGS_KEPT:])


def _write(path: Path, content: bytes) -> None:
    """Write a file atomically: a temporary file next to the target is flushed to the disk and renamed.

    Raises BaselineError if the content cannot be read back, or if the system refuses to write it.
    """
    # Checked before anything is written: a file that a later run rejects would lose the old recordings too.
    decode(content, f"{path} (left as it was; what was to be written)")
    # A symbolic link is followed, because a rename would replace it by a file.
    target = Path(os.path.realpath(path))
    temporary = target.parent / f".ftgate-{secrets.token_hex(8)}.tmp"
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        # This run holds the lock, so a temporary file was left by a run that was killed.
        for left_over in target.parent.glob(".ftgate-*.tmp"):
            left_over.unlink()
        try:
            with open(temporary, "xb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, target)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        _flush_folder(target.parent)
    except OSError as error:
        fault = f"cannot be written: {error.strerror}"
        raise BaselineError(f"{path}: {fault}; the old file is unchanged: fix this and update again") from error


def _flush_folder(folder: Path) -> None:
    """Make the new name durable across a power cut; systems that cannot open folders need nothing."""
    if os.name == "posix":
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
