"""What is stored of a sample."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from pathlib import PurePath

import msgspec

from ..model import (
    Iteration,
    Launch,
    LockSite,
    LockWaits,
    Machine,
    Sample,
    Struct,
    work_ratio,
)
from ..pythons import build_key
from ..stats import rank_tests
from .names import entry_key, split_nodeid
from .schema import (
    INSTALLED,
    BaselineError,
    Entry,
    Recording,
    StoredInterpreter,
    StoredLaunch,
    StoredLocks,
    StoredMemory,
    StoredSite,
)
from .values import (
    launches_of,
    lock_shares,
    recordings,
    scalings,
    uss_bytes,
    wall_floors_ns,
    wall_ratios,
)


class Change(Struct, frozen=True, kw_only=True):
    """One edit of a file: the entry to store under label and key, or None to remove what is there.

    With `append` its recordings join those that are there; the last RECORDINGS_KEPT stay.
    """

    label: str
    key: str
    entry: Entry | None = None
    machine: Machine | None = None
    append: bool = False


class Summary(Struct, frozen=True, kw_only=True):
    """Medians over launches for people: nanoseconds per iteration (or operation), ratio to the candle, bytes.

    `lock_share` and `scaling` are the judge's: a fraction, and throughput over that of one worker.
    """

    wall_ns: float | None
    control_ratio: float | None
    uss_bytes: float | None
    launches: int
    recorded_at: str = ""
    commit: str = ""
    lock_share: float | None = None
    scaling: float | None = None


# ---- from samples to stored form and to the judge's numbers


def entry_from_sample(
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
    entry = Entry(
        interpreter=msgspec.convert(sample.interpreter, StoredInterpreter, from_attributes=True),
        executor=sample.cell.executor.label,
        workers=sample.cell.workers,
        reuse=sample.reuse,
        measures=sample.measures,
        recordings=(recording_from_sample(sample, recorded_at=recorded_at, commit=commit, seed=seed, root=root),),
    )
    key = entry_key(machine.fingerprint, build_key(sample.interpreter))
    return Change(label=split_nodeid(sample.cell.nodeid)[1], key=key, entry=entry, machine=machine, append=append)


def recording_from_sample(
    sample: Sample, *, recorded_at: str = "", commit: str = "", seed: int = 0, root: PurePath | None = None
) -> Recording:
    """All launches of a sample in stored form; new and stored values then go through the same functions.

    `root` is the project's: files below it are stored relative to it, see `portable`.
    """
    windows, share = sample.duration_s is not None, work_ratio(sample)
    controls, singles = ({launch.order: launch for launch in side} for side in (sample.control, sample.single))
    return Recording(
        recorded_at=recorded_at,
        commit=commit,
        seed=seed,
        launches=tuple(
            _stored_launch(launch, controls.get(launch.order), singles.get(launch.order), windows, share)
            for launch in _in_order(sample.launches)
        ),
        memory=tuple(_stored_memory(launch) for launch in _in_order(sample.memory)),
        locks=tuple(
            _stored_locks(launch, launch.locks, sample.cell.workers, root)
            for launch in _in_order(sample.locks)
            if launch.locks is not None and launch.locks.work_ns > 0
        ),
    )


def portable(file: str, root: PurePath | None) -> str:
    """A source file's name as it may be stored: with `/`, and naming no place on this machine.

    Of a file of an installation what stands from its last `lib/pythonX.Y` on; else relative to `root` if it is below
    it; else its name alone. A file that is not known ("") stays so.
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


def _in_order(launches: Iterable[Launch]) -> list[Launch]:
    return sorted(launches, key=lambda launch: launch.order)


def _stored_launch(
    launch: Launch, control: Launch | None, single: Launch | None, windows: bool, work_ratio: int
) -> StoredLaunch:
    iterations = launch.iterations
    lit, alone = (beside.iterations if beside else () for beside in (control, single))
    return StoredLaunch(
        order=launch.order,
        hash_seed=launch.hash_seed,
        started_at=launch.started_at,
        loops=launch.loops,
        wall_ns=tuple(iteration.wall_ns for iteration in iterations),
        start_ns=tuple(iteration.start_ns for iteration in iterations),
        join_ns=tuple(iteration.join_ns for iteration in iterations),
        cpu_ns=tuple(iteration.cpu_ns for iteration in iterations),
        ops=tuple(iteration.ops for iteration in iterations) if windows else (),
        ops_per_s=_rates(iterations) if windows else (),
        cold_ns=launch.cold.wall_ns if launch.cold else None,
        control_wall_ns=tuple(iteration.wall_ns for iteration in lit),
        control_loops=control.loops if control else 1,
        control_ops_per_s=_rates(lit) if windows else (),
        single_wall_ns=tuple(iteration.wall_ns for iteration in alone),
        single_loops=single.loops if single else 1,
        single_ops_per_s=_rates(alone) if windows else (),
        work_ratio=work_ratio if single else 1,
    )


def _rates(iterations: Sequence[Iteration]) -> tuple[float, ...]:
    """Nine digits: more than any clock resolves, and the same text on every machine."""
    return tuple(float(f"{iteration.rate:.9g}") for iteration in iterations)


def _stored_memory(launch: Launch) -> StoredMemory:
    looks, barriers = launch.memory, [barrier.point for barrier in launch.barriers]
    return StoredMemory(
        order=launch.order,
        hash_seed=launch.hash_seed,
        started_at=launch.started_at,
        rss_bytes=tuple(point.rss_bytes for point in looks),
        uss_bytes=_known(point.uss_bytes for point in looks),
        pss_bytes=_known(point.pss_bytes for point in looks),
        written_bytes=_known(point.written_bytes for point in looks),
        barrier_ops=tuple(barrier.ops for barrier in launch.barriers),
        barrier_rss_bytes=tuple(point.rss_bytes for point in barriers),
        barrier_uss_bytes=_known(point.uss_bytes for point in barriers),
        barrier_pss_bytes=_known(point.pss_bytes for point in barriers),
        barrier_written_bytes=_known(point.written_bytes for point in barriers),
    )


def _known(found: Iterable[int | None]) -> tuple[int | None, ...]:
    """Empty where the platform has no such figure."""
    kept = tuple(found)
    return kept if any(figure is not None for figure in kept) else ()


def _stored_locks(launch: Launch, locks: LockWaits, workers: int, root: PurePath | None) -> StoredLocks:
    sites = (_stored_site(site, root) for site in locks.sites if site.contended)
    return StoredLocks(
        order=launch.order,
        hash_seed=launch.hash_seed,
        started_at=launch.started_at,
        workers=workers,
        work_ns=locks.work_ns,
        ops=locks.ops,
        sites=tuple(sorted(sites, key=lambda site: (site.file, site.line, site.kind, site.name, site.waits_for))),
    )


def _stored_site(site: LockSite, root: PurePath | None) -> StoredSite:
    return StoredSite(
        file=portable(site.file, root),
        line=site.line,
        kind=site.kind,
        waits_for=site.waits_for,
        name=site.name,
        contended=site.contended,
        total_ns=site.total_ns,
        max_ns=site.max_ns,
        histogram=tuple(sorted((bucket, waits) for bucket, waits in site.histogram.items() if waits)),
    )


def summary(stored: Entry | Recording, quantile: float = rank_tests.DEFAULT_QUANTILE) -> Summary:
    """Medians over all launches, with the newest recording's time and commit."""
    newest = recordings(stored)[-1]
    return Summary(
        wall_ns=_median(wall_floors_ns(stored, quantile)),
        control_ratio=_median(wall_ratios(stored)),
        uss_bytes=_median(uss_bytes(stored)),
        launches=sum(1 for _ in launches_of(stored)),
        recorded_at=newest.recorded_at,
        commit=newest.commit,
        lock_share=_median(lock_shares(stored)),
        scaling=_median(scalings(stored)),
    )


def _median(values: Sequence[float]) -> float | None:
    return statistics.median(values) if values else None


def mismatch(entry: Entry, sample: Sample) -> str:
    """Why an entry measured something else than the sample does; empty where they can be compared."""
    windows = any(launch.ops_per_s for launch in launches_of(entry))
    cell = sample.cell
    asked = {"executor": (entry.executor, cell.executor.label), "workers": (entry.workers, cell.workers)}
    asked |= {"reuse": (entry.reuse, sample.reuse)}
    asked |= {"body": (_body(windows), _body(sample.duration_s is not None))}
    changed = [f"{name} was {old}, is {new}" for name, (old, new) in asked.items() if old != new]
    if entry.measures and entry.measures != sample.measures:
        changed.append("another command line, load, window or requirement")
    if not changed:
        return ""
    return f"the baseline measured something else ({'; '.join(changed)}): record it anew with --ftgate-update=all"


def _body(windows: bool) -> str:
    return "duration=" if windows else "iterations="
