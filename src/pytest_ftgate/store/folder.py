"""Stored measurements: a folder for each test, in it a file for each run that recorded it, written whole or not at all.

A recording adds a file and changes no other, so branches of a repository that record the same cell do not conflict. A
file that is not valid is an error that names the place, and is never overwritten.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TypeAlias

import msgspec
from filelock import FileLock, Timeout

from ..kit.files import content_of, hide_from_git, write_whole
from ..kit.text import split_nodeid
from ..kit.values import grouped
from ..targets.environments import discovers_packages
from .names import SUFFIX, entry_key, file_name, folder_name
from .recording import Edit
from .schema import (
    RECORDINGS_KEPT,
    RESTORE,
    SCHEMA,
    STATISTIC,
    BaselineError,
    Recording,
    StoredCell,
    StoredRun,
    TestBaseline,
    broken,
    decode,
    encode,
)

# ---- what a test's files hold together: the recordings that count, changes of them, and the baseline that they make

SPENT_KEPT = 20
"""Files without a recording that counts are removed together, once there are more. Removed one by one with each
recording, they would look to git like renames, and two branches that rename the same file conflict."""
Runs: TypeAlias = Mapping[str, StoredRun]
"""The files of one test by name, in the order of time."""


def assembled(test: str, runs: Runs) -> TestBaseline:
    machines = {run.machine.fingerprint: run.machine for run in runs.values()}
    builds = {build: known for run in runs.values() for build, known in run.interpreters.items()}
    cells: dict[str, dict[str, StoredCell]] = {}
    used = set()
    for (label, key), counting in _counting(runs).items():
        found = ((runs[name], runs[name].cells[label]) for name in counting)
        # Each with what stands once in its file.
        recordings = tuple(
            msgspec.structs.replace(each, recorded_at=run.recorded_at, commit=run.commit, seed=run.seed, tree=run.tree)
            for run, each in found
        )
        cells.setdefault(label, {})[key] = StoredCell(interpreter=builds[recordings[-1].build], recordings=recordings)
        used.add(key.partition("/")[0])
    return TestBaseline(
        test=test, machines={name: machine for name, machine in machines.items() if name in used}, cells=cells
    )


def changed(test: str, runs: Runs, changes: Iterable[Edit]) -> dict[str, StoredRun]:
    found = dict(runs)
    for change in changes:
        if change.entry is None:
            # Each file without the cell on that machine and build, and without builds that no other cell has.
            for name, run in found.items():
                cells = {
                    label: recording
                    for label, recording in run.cells.items()
                    if (label, entry_key(run.machine.fingerprint, recording.build)) != (change.label, change.key)
                }
                builds = {recording.build for recording in cells.values()}
                left = {build: interpreter for build, interpreter in run.interpreters.items() if build in builds}
                found[name] = msgspec.structs.replace(run, cells=cells, interpreters=left)
            continue
        anew = not change.append and (change.label, change.key) in _counting(found)
        assert change.machine is not None  # given with every entry
        for recording in change.entry.recordings:
            # Into the run's file, beside its other cells; what stands once in a file is left out of the cell.
            run_id = recorded_at, commit, seed = recording.recorded_at, recording.commit, recording.seed
            name = file_name(*run_id, change.machine.fingerprint)
            bare = msgspec.structs.replace(recording, anew=anew, recorded_at="", commit="", seed=0, tree="")
            before = found.get(name)
            found[name] = StoredRun(
                schema=SCHEMA,
                statistic=STATISTIC,
                test=test,
                recorded_at=recorded_at,
                commit=commit,
                seed=seed,
                tree=recording.tree,
                machine=change.machine,
                interpreters=(before.interpreters if before else {}) | {recording.build: change.entry.interpreter},
                cells=(before.cells if before else {}) | {change.label: bare},
            )
            anew = False
    return dict(sorted(found.items()))


def kept(runs: Runs) -> dict[str, StoredRun]:
    """The files to keep: all with a cell, or those of which a recording counts once too many others are there."""
    counting = {name for names in _counting(runs).values() for name in names}
    filled = {name: run for name, run in runs.items() if run.cells}
    if len(filled.keys() - counting) <= SPENT_KEPT:
        return filled
    return {name: run for name, run in filled.items() if name in counting}


def _counting(runs: Runs) -> dict[tuple[str, str], list[str]]:
    """A cell's label, machine and build -> the files whose recording of it counts, the newest last.

    These are the newest, back to one that stands anew or to one of something else.
    """
    places = grouped(
        ((label, entry_key(run.machine.fingerprint, recording.build)), name)
        for name, run in runs.items()
        for label, recording in run.cells.items()
    )
    counting: dict[tuple[str, str], list[str]] = {}
    for place, names in places.items():
        recordings = [(name, runs[name].cells[place[0]]) for name in reversed(names[-RECORDINGS_KEPT:])]
        found: list[str] = []
        for name, recording in recordings:
            if recording.measured != recordings[0][1].measured:
                break
            found.append(name)
            if recording.anew:
                break
        counting[place] = found[::-1]
    return counting


# ---- the folder

LOCK_TIMEOUT_S = 60.0
FILE_BYTES = 64 << 20
"""What a file may hold; a cell takes about 2 KB."""


def default_folder(root: Path) -> str:
    """Where the baselines of a project go if nothing is said, relative to its `root`.

    Where setuptools looks for packages at the root by itself, it would take `baselines` for a second one and refuse to
    install the project; it passes over `tests`.
    """
    return "tests/baselines" if discovers_packages(root) else "baselines"


class Store:
    """The folder of baselines: `root` holds a folder per test, `.ftgate/` next to it holds the lock.

    All writers of the same root take the same lock. Nothing is created before the first `save`.
    """

    def __init__(self, root: Path, *, lock_path: Path | None = None) -> None:
        self.root = root
        self.lock_path = lock_path or root.absolute().parent / ".ftgate" / f"{root.absolute().name}.lock"
        self._decoded: dict[Path, tuple[bytes, StoredRun]] = {}
        """Each file as it was read last, with the digest of its content: a run asks several times."""

    def path(self, test: str) -> Path:
        """The folder of a test (a node id without brackets), whether it exists or not."""
        return self.root / folder_name(test)

    def file(self, test: str, fingerprint: str, recording: Recording) -> Path:
        return self.path(test) / file_name(recording.recorded_at, recording.commit, recording.seed, fingerprint)

    def load(self, test: str) -> TestBaseline | None:
        """The baseline of a test, None without a file. Raises BaselineError for a file that is not valid."""
        runs = self.runs(test)
        return assembled(test, runs) if runs else None

    def lookup(self, nodeid: str, fingerprint: str, build: str) -> StoredCell | None:
        """The stored cell of a full node id on that machine and build. Raises BaselineError as `load` does."""
        test, label = split_nodeid(nodeid)
        baseline = self.load(test)
        return baseline.cells.get(label, {}).get(entry_key(fingerprint, build)) if baseline else None

    def baselines(self) -> Iterator[TestBaseline]:
        """Every baseline, by folder name. Raises BaselineError at the first file that is not valid."""
        return (assembled(test, runs) for test, runs in self.every_run().items())

    def every_run(self) -> dict[str, Runs]:
        """Test -> its files, by folder name. Raises BaselineError at the first file that is not valid."""
        tests: dict[str, dict[str, StoredRun]] = {}
        for path in sorted(self.root.rglob(f"*{SUFFIX}")):
            run = self._read(path)
            if run is not None:
                self._check_place(path, run)
                tests.setdefault(run.test, {})[path.name] = run
        return dict(tests)

    def save(self, test: str, changes: Iterable[Edit]) -> TestBaseline:
        """Read and change the files of one test under the lock; cells without a change stay as they are.

        A file that is not valid is not overwritten: the error of `load` is raised first. A file without cells is
        removed. Raises BaselineError if the lock or a file is not available; that file is then unchanged.
        """
        with self._locked():
            old = self.runs(test)
            new = kept(changed(test, old, changes))
            # Written before any is removed: a run that is killed between both loses nothing.
            for name, run in new.items():
                if run != old.get(name):
                    _write(self.path(test) / name, encode(run).encode())
            for path in (self.path(test) / name for name in old.keys() - new.keys()):
                try:
                    path.unlink()
                    # Version control does not track empty folders, so they are removed up to the root.
                    for folder in path.parents:
                        if folder == self.root or any(folder.iterdir()):
                            break
                        folder.rmdir()
                except OSError as error:
                    fault = f"cannot be removed: {error.strerror}"
                    raise BaselineError(f"{path}: {fault}; make its folder writable") from error
        return assembled(test, new)

    def runs(self, test: str) -> Runs:
        """The files of a test by name, in the order of time; none without a folder. Raises BaselineError."""
        found: dict[str, StoredRun] = {}
        for path in sorted(self.path(test).glob(f"*{SUFFIX}")):
            run = self._read(path)
            if run is None:
                continue
            if run.test != test:
                fault = f"holds {run.test} and stands where {test} belongs"
                raise broken(str(path), "$.test", fault, "move it, or give the tests unlike names")
            self._check_place(path, run)
            found[path.name] = run
        return found

    def _check_place(self, path: Path, run: StoredRun) -> None:
        """Raise BaselineError for a file that was copied or renamed: it would be a second recording of the same run."""
        belongs = self.path(run.test) / file_name(run.recorded_at, run.commit, run.seed, run.machine.fingerprint)
        if belongs != path:
            raise broken(str(path), "$.test", f"{run.test} belongs in {belongs}", "move or delete the file")

    def _read(self, path: Path) -> StoredRun | None:
        try:
            content = content_of(path, FILE_BYTES)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            fix = "check its permissions" if isinstance(error, PermissionError) else RESTORE
            raise BaselineError(f"{path}: cannot be read: {error.strerror}; {fix}") from error
        digest = hashlib.sha256(content).digest()
        known = self._decoded.get(path)
        if known is None or known[0] != digest:
            known = self._decoded[path] = digest, decode(content, str(path))
        return known[1]

    @contextmanager
    def _locked(self) -> Iterator[None]:
        folder, lock = self.lock_path.parent, FileLock(self.lock_path, timeout=LOCK_TIMEOUT_S)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            if folder.name == ".ftgate":
                hide_from_git(folder)  # so that projects need no entry for it
            lock.acquire()
        except Timeout as error:
            waited = f"another run has held it for {LOCK_TIMEOUT_S:g} s"
            raise BaselineError(f"{self.lock_path}: {waited}; wait for its end and update again") from error
        except OSError as error:
            fault = f"cannot be locked: {error.strerror}"
            raise BaselineError(f"{self.lock_path}: {fault}; make its folder writable") from error
        try:
            yield
        finally:
            lock.release()


def _write(path: Path, content: bytes) -> None:
    """Write a file whole, and to the disk. Raises BaselineError if it cannot be read back, or cannot be written."""
    # Checked before anything is written: a file that a later run rejects would lose the old recordings too.
    decode(content, f"{path} (left as it was; the new content)")
    # A symbolic link is followed, because a rename would replace it by a file.
    target = Path(os.path.realpath(path))
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        # This run holds the lock, so an unfinished file was left by a run that was killed.
        for left_over in (*target.parent.glob(".ftgate-*.tmp"), *target.parent.glob(f"*{SUFFIX}.*.part")):
            left_over.unlink()
        write_whole(target, [content], durable=True)
    except OSError as error:
        fault = f"cannot be written: {error.strerror}"
        raise BaselineError(f"{path}: {fault}; the old file is unchanged: fix this and update again") from error
