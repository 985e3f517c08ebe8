"""What a test's files hold together: the recordings that count, changes of them, and the baseline that they make."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeAlias

import msgspec

from .names import entry_key, file_name
from .recording import Change
from .schema import SCHEMA, STATISTIC, RecordedRun, Recording, StoredCell, TestBaseline

RECORDINGS_KEPT = 20
SPENT_KEPT = 20
"""Files without a recording that counts are removed together, once there are more. Removed one by one with each
recording, they would look to git like renames, and two branches that rename the same file conflict."""
Runs: TypeAlias = Mapping[str, RecordedRun]
"""The files of one test by name, in the order of time."""
_Place: TypeAlias = tuple[str, str]
"""A cell's label, and the machine and build."""


def assembled(test: str, runs: Runs) -> TestBaseline:
    """The baseline that a test's files make."""
    machines = {run.machine.fingerprint: run.machine for run in runs.values()}
    builds = {build: known for run in runs.values() for build, known in run.interpreters.items()}
    cells: dict[str, dict[str, StoredCell]] = {}
    used = set()
    for (label, key), counting in _counting(runs).items():
        recordings = tuple(_whole(runs[name], label) for name in counting)
        cells.setdefault(label, {})[key] = StoredCell(interpreter=builds[recordings[-1].build], recordings=recordings)
        used.add(key.partition("/")[0])
    return TestBaseline(
        test=test, machines={name: machine for name, machine in machines.items() if name in used}, cells=cells
    )


def changed(test: str, runs: Runs, changes: Iterable[Change]) -> dict[str, RecordedRun]:
    """The files after these changes."""
    found = dict(runs)
    for change in changes:
        if change.entry is None:
            found = {name: _without(run, change) for name, run in found.items()}
            continue
        anew = not change.append and (change.label, change.key) in _counting(found)
        for recording in change.entry.recordings:
            name, run = _recorded(test, change, change.entry, msgspec.structs.replace(recording, anew=anew))
            before = found.get(name, run)
            found[name] = msgspec.structs.replace(
                run, interpreters=before.interpreters | run.interpreters, cells=before.cells | run.cells
            )
            anew = False
    return dict(sorted(found.items()))


def kept(runs: Runs) -> dict[str, RecordedRun]:
    """The files to keep: all with a cell, or those of which a recording counts once too many others are there."""
    counting = {name for names in _counting(runs).values() for name in names}
    filled = {name: run for name, run in runs.items() if run.cells}
    if len(filled.keys() - counting) <= SPENT_KEPT:
        return filled
    return {name: run for name, run in filled.items() if name in counting}


def _counting(runs: Runs) -> dict[_Place, list[str]]:
    """Place -> the names of the files whose recording of it counts, the newest last.

    These are the newest, back to one that stands anew or to one of something else.
    """
    places: dict[_Place, list[str]] = {}
    for name, run in runs.items():
        for label, recording in run.cells.items():
            places.setdefault((label, entry_key(run.machine.fingerprint, recording.build)), []).append(name)
    return {place: _newest(place[0], names, runs) for place, names in places.items()}


def _newest(label: str, names: list[str], runs: Runs) -> list[str]:
    measured = runs[names[-1]].cells[label].measured
    found: list[str] = []
    for name in reversed(names[-RECORDINGS_KEPT:]):
        recording = runs[name].cells[label]
        if recording.measured != measured:
            break
        found.append(name)
        if recording.anew:
            break
    return found[::-1]


def _whole(run: RecordedRun, label: str) -> Recording:
    """A recording with what stands once in its file."""
    return msgspec.structs.replace(run.cells[label], recorded_at=run.recorded_at, commit=run.commit, seed=run.seed)


def _recorded(test: str, change: Change, entry: StoredCell, recording: Recording) -> tuple[str, RecordedRun]:
    """The name and the content of the file that holds this recording alone."""
    assert change.machine is not None  # given with every entry
    recorded_at, commit, seed = recording.recorded_at, recording.commit, recording.seed
    run = RecordedRun(
        schema=SCHEMA,
        statistic=STATISTIC,
        test=test,
        recorded_at=recorded_at,
        commit=commit,
        seed=seed,
        machine=change.machine,
        interpreters={recording.build: entry.interpreter},
        cells={change.label: msgspec.structs.replace(recording, recorded_at="", commit="", seed=0)},
    )
    return file_name(recorded_at, commit, seed, change.machine.fingerprint), run


def _without(run: RecordedRun, change: Change) -> RecordedRun:
    """A file without a cell on a machine and build."""
    cells = {
        label: recording
        for label, recording in run.cells.items()
        if (label, entry_key(run.machine.fingerprint, recording.build)) != (change.label, change.key)
    }
    builds = {recording.build for recording in cells.values()}
    kept = {build: interpreter for build, interpreter in run.interpreters.items() if build in builds}
    return msgspec.structs.replace(run, cells=cells, interpreters=kept)
