"""Baselines that several jobs recorded, each in a checkout of its own, added to those of one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from .folder import Store
from .names import SUFFIX, entry_key, is_recording, join_nodeid
from .recording import Change
from .schema import BaselineError, RecordedRun, Recording, StoredCell


class _Recorded(NamedTuple):
    """A recording of a cell in a file of a folder."""

    test: str
    name: str
    label: str
    run: RecordedRun

    @property
    def key(self) -> tuple[str, str, str]:
        """The test, its file and the cell."""
        return self.test, self.name, self.label

    @property
    def recording(self) -> Recording:
        return self.run.cells[self.label]

    @property
    def place(self) -> tuple[str, str, str]:
        """The test, the cell, and the machine and build: two jobs that record the same one contradict each other."""
        return self.test, self.label, entry_key(self.run.machine.fingerprint, self.recording.build)


def join(store: Store, folders: Sequence[Path]) -> list[str]:
    """Add what the folders have and the store has not; a line for each of them.

    Nothing is written if two of them have recordings of one cell, machine and build that are not the same. Raises
    BaselineError.
    """
    known = {each.key: (store.root, each.recording) for each in _recordings(store)}
    places: dict[tuple[str, str, str], Path] = {}
    changes: dict[str, list[Change]] = {}
    lines = []
    for folder in folders:
        others = (path for path in sorted(folder.rglob(f"*{SUFFIX}")) if not is_recording(path.name))
        if other := next(others, None):
            raise BaselineError(
                f"{folder} holds {other.relative_to(folder)}, which is no baseline: name a folder of baselines alone, "
                f"such as {store.root}"
            )
        found = list(_recordings(Store(folder)))
        if not found:
            raise BaselineError(f"{folder}: holds no baselines; name the folder that a run with --ftgate-update wrote")
        added = 0
        for each in found:
            there, recording = known.setdefault(each.key, (folder, each.recording))
            if recording != each.recording:
                raise _twice(each, there, folder)
            if there != folder:
                continue
            if (there := places.setdefault(each.place, folder)) != folder:
                raise _twice(each, there, folder)
            changes.setdefault(each.test, []).append(_change(each))
            added += 1
        lines.append(f"{folder}: {added} recording{'' if added == 1 else 's'} added")
    for test, edits in changes.items():
        store.save(test, edits)
    return lines


def _twice(each: _Recorded, one: Path, other: Path) -> BaselineError:
    cell = join_nodeid(each.test, each.label)
    return BaselineError(
        f"{cell} was recorded twice, in {one} and {other}: which of them counts is not known; leave one of them out"
    )


def _recordings(store: Store) -> Iterator[_Recorded]:
    """Every recording in a folder, by test, the oldest first."""
    for test, runs in store.every_run().items() if store.root.is_dir() else ():
        for name, run in runs.items():
            yield from (_Recorded(test, name, label, run) for label in run.cells)


def _change(each: _Recorded) -> Change:
    run, recording = each.run, each.recording
    whole = msgspec.structs.replace(recording, recorded_at=run.recorded_at, commit=run.commit, seed=run.seed)
    return Change(
        label=each.label,
        key=each.place[2],
        entry=StoredCell(interpreter=run.interpreters[recording.build], recordings=(whole,)),
        machine=run.machine,
        append=not recording.anew,
    )
