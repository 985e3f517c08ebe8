"""Conversion of a sample to a recording and back: both hold the same launches, so metrics read them alike."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import PurePath
from typing import get_args

import msgspec

from ..model import (
    Cell,
    Executor,
    Interpreter,
    Iteration,
    Launch,
    LockSite,
    Machine,
    MemoryPoint,
    Program,
    Sample,
    StartMethod,
    Struct,
    Target,
)
from ..pythons import build_key
from .names import entry_key, split_nodeid
from .schema import INSTALLED, BaselineError, Recording, StoredCell, StoredInterpreter


class Change(Struct, frozen=True, kw_only=True):
    """One edit of a file: the cell to store under label and key, or None to remove it.

    With `append` its recordings are added to the stored ones; the newest RECORDINGS_KEPT are kept.
    """

    label: str
    key: str
    entry: StoredCell | None = None
    machine: Machine | None = None
    append: bool = False


# ---- sample to recording


def change_of(
    sample: Sample,
    *,
    recorded_at: str,
    commit: str,
    seed: int,
    machine: Machine,
    root: PurePath | None = None,
    append: bool = False,
) -> Change:
    """The change that makes this sample the cell's baseline: one new recording, in place of the old ones or after them.

    `root` is the project's, see `portable`. Raises BaselineError for a sample that holds an error or no launch.
    """
    if sample.error or not sample.launches:
        reason = sample.error.reason if sample.error else "it has no timing launch"
        raise BaselineError(f"{sample.cell.nodeid}: cannot be recorded as a baseline: {reason}")
    entry = StoredCell(
        interpreter=msgspec.convert(sample.interpreter, StoredInterpreter, from_attributes=True),
        executor=sample.cell.executor.label,
        workers=sample.cell.workers,
        body=sample.cell.body,
        reuse=sample.reuse,
        measures=sample.measures,
        recordings=(recording_of(sample, recorded_at=recorded_at, commit=commit, seed=seed, root=root),),
    )
    key = entry_key(machine.fingerprint, build_key(sample.interpreter))
    return Change(label=split_nodeid(sample.cell.nodeid)[1], key=key, entry=entry, machine=machine, append=append)


def recording_of(
    sample: Sample, *, recorded_at: str, commit: str, seed: int, root: PurePath | None = None
) -> Recording:
    """The launches of a sample, without data that no metric reads and without absolute paths of this machine."""
    return Recording(
        recorded_at=recorded_at,
        commit=commit,
        seed=seed,
        launches=_kept(sample.launches),
        control=tuple(map(_times_alone, _kept(sample.control))),
        single=tuple(map(_times_alone, _kept(sample.single))),
        memory=tuple(map(_without_processes, _kept(sample.memory))),
        locks=tuple(_portable_sites(launch, root) for launch in _kept(sample.locks) if _waited(launch)),
    )


def _kept(launches: Iterable[Launch]) -> tuple[Launch, ...]:
    """The launches in their order, without the results of checks and the sampling overhead, which no metric reads."""
    ordered = sorted(launches, key=lambda launch: launch.order)
    return tuple(msgspec.structs.replace(launch, results=(), sampling_cost=None) for launch in ordered)


def _times_alone(launch: Launch) -> Launch:
    """A launch that only serves as a reference: its times without phases."""
    # `work_ns` is a required field.
    iterations = (Iteration(wall_ns=each.wall_ns, work_ns=each.wall_ns, rate=each.rate) for each in launch.iterations)
    return msgspec.structs.replace(launch, iterations=tuple(iterations), cold=None)


def _without_processes(launch: Launch) -> Launch:
    """A memory launch with only the sums over the process tree."""

    def whole(point: MemoryPoint) -> MemoryPoint:
        return msgspec.structs.replace(point, at_ns=0, roles={})

    barriers = (msgspec.structs.replace(barrier, point=whole(barrier.point)) for barrier in launch.barriers)
    return msgspec.structs.replace(launch, memory=tuple(map(whole, launch.memory)), barriers=tuple(barriers))


def _waited(launch: Launch) -> bool:
    return launch.locks is not None and launch.locks.work_ns > 0


def _portable_sites(launch: Launch, root: PurePath | None) -> Launch:
    """A lock launch with the sites that had waits, sorted so that diffs stay small."""
    assert launch.locks is not None

    def stored(site: LockSite) -> LockSite:
        histogram = {bucket: waits for bucket, waits in sorted(site.histogram.items()) if waits}
        return msgspec.structs.replace(site, file=portable(site.file, root), histogram=histogram, acquisitions=None)

    sites = sorted(
        (stored(site) for site in launch.locks.sites if site.contended),
        key=lambda site: (site.file, site.line, site.kind, site.name, site.waits_for),
    )
    # Only waits are compared with a stored recording, so its acquisitions are not needed.
    locks = msgspec.structs.replace(launch.locks, sites=tuple(sites), counted_ops=0)
    return msgspec.structs.replace(launch, locks=locks, iterations=())


def portable(file: str, root: PurePath | None) -> str:
    """A source file's name for storage: with `/`, and without absolute paths of this machine.

    For an installed file, the part from its last `lib/pythonX.Y`; else the path relative to `root` if it is below it;
    else the name alone. An unknown file ("") stays empty.
    """
    if not file:
        return ""
    path = PurePath(file)
    nowhere = not (path.is_absolute() or ".." in path.parts)
    if root is not None and path.is_relative_to(root):
        path, nowhere = path.relative_to(root), True
    if installed := INSTALLED.search(path.as_posix()):
        return installed[1]
    return path.as_posix() if nowhere else path.name


# ---- recording to sample


def samples_of(stored: StoredCell, nodeid: str) -> tuple[Sample, ...]:
    """A sample for each recording, the newest last, in the form of this run's samples."""
    return tuple(_sample(stored, recording, nodeid) for recording in stored.recordings)


def _sample(stored: StoredCell, recording: Recording, nodeid: str) -> Sample:
    known = {field: getattr(stored.interpreter, field) for field in StoredInterpreter.__struct_fields__}
    # Fields that are not stored name a place on the recording machine; no metric reads them.
    interpreter = Interpreter(executable="", jit_available=False, config_args="", found="", **known)
    cell = Cell(
        nodeid=nodeid,
        target=Target(spec="", request=""),
        executor=_executor(stored.executor, stored.body),
        workers=stored.workers,
        body=stored.body,
    )
    return Sample(
        cell=cell,
        interpreter=interpreter,
        key="",
        launches=recording.launches,
        control=recording.control,
        single=recording.single,
        memory=recording.memory,
        locks=recording.locks,
        reuse=stored.reuse,
        measures=stored.measures,
    )


def _executor(label: str, body: str) -> Executor:
    """An executor from its label: a start method, a kind, or else the name of a program."""
    if label in get_args(StartMethod):
        return Executor(kind="processes", method=label)  # type: ignore[arg-type]
    if label in ("serial", "threads", "interpreters", "tasks"):
        return Executor(kind=label)  # type: ignore[arg-type]
    return Executor(kind="server" if body == "server" else "command", program=Program(name=label, argv=()))


def mismatch(stored: StoredCell, sample: Sample) -> str:
    """Why a stored cell measured something other than the sample; empty if they can be compared."""
    windows = any(launch.window_ns for recording in stored.recordings for launch in recording.launches)
    cell = sample.cell
    settings = {"executor": (stored.executor, cell.executor.label), "workers": (stored.workers, cell.workers)}
    settings |= {"reuse": (stored.reuse, sample.reuse)}
    settings |= {"body": (_body(windows), _body(sample.duration_s is not None))}
    changed = [f"{name} was {old}, is {new}" for name, (old, new) in settings.items() if old != new]
    if stored.measures and stored.measures != sample.measures:
        changed.append("another command line, load, window or requirement")
    if not changed:
        return ""
    return f"the baseline measured something else ({'; '.join(changed)}): record it again with --ftgate-update=all"


def _body(windows: bool) -> str:
    return "duration=" if windows else "iterations="
