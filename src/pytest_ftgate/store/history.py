"""All recordings of a test that its files ever held, as series of what can be compared. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import msgspec

from .folder import Runs
from .schema import BaselineError, RecordedRun, Recording, decode


class Everything(NamedTuple):
    """Files by name, those of former commits included; `unread` are those that this version cannot read."""

    runs: Mapping[str, RecordedRun]
    unread: int = 0


class Series(NamedTuple):
    """Recordings of one cell on one machine and build that measured the same, oldest first."""

    label: str
    fingerprint: str
    build: str
    recordings: tuple[Recording, ...]


def everything(current: Runs, former: Iterable[tuple[str, bytes]]) -> Everything:
    """The files that are there, and name and content of former ones, the newest first.

    A file may have lost cells, or been removed, when a newer recording took its place: then it is as it was before.
    """
    runs = dict(current)
    unread = set()
    for name, content in former:
        try:
            run = decode(content, name)
        except BaselineError:
            unread.add(name)
            continue
        newer = runs.get(name, run)
        runs[name] = msgspec.structs.replace(
            newer, cells=run.cells | newer.cells, interpreters=run.interpreters | newer.interpreters
        )
    return Everything(dict(sorted(runs.items())), len(unread - runs.keys()))


def series_of(runs: Mapping[str, RecordedRun]) -> list[Series]:
    """The series of a test's files, which are in the order of time; by cell, machine and build."""
    found: dict[tuple[object, ...], list[Recording]] = {}
    for run in runs.values():
        for label, recording in run.cells.items():
            whole = msgspec.structs.replace(recording, recorded_at=run.recorded_at, commit=run.commit, seed=run.seed)
            place = (label, run.machine.fingerprint, recording.build, recording.measured)
            found.setdefault(place, []).append(whole)
    ordered = sorted(found.items(), key=lambda item: (*map(str, item[0][:3]), item[1][0].recorded_at))
    return [Series(str(place[0]), str(place[1]), str(place[2]), tuple(each)) for place, each in ordered]
