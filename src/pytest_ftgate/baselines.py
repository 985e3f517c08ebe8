"""Stored measurements: one sorted JSON file a test, written whole or not at all.

A file holds raw values, so that a later statistic can be computed from an old recording. Whatever cannot be read
without doubt is an error that names the place, and is never written over.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import secrets
import statistics
import urllib.parse
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePath
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from filelock import FileLock, Timeout

from pytest_ftgate import figures, stats
from pytest_ftgate.errors import FtgateError
from pytest_ftgate.model import (
    Decision,
    Launch,
    LockSite,
    LockWaits,
    Machine,
    MetricVerdict,
    Reuse,
    Row,
    Sample,
    Struct,
    Turn,
    Verdict,
    WaitsFor,
)
from pytest_ftgate.pythons import build_key

_INSTALLED = re.compile(r".*(?:^|/)(lib(?:64)?/python\d+\.\d+t?/.*)", re.DOTALL)
SCHEMA = 1
STATISTIC = 1
LOCK_TIMEOUT_S = 60.0
RECORDINGS_KEPT = 20
LONGEST_NAME = 180
"""Bytes of one file name; most file systems end at 255, and a suffix and a temporary name must fit."""

Natural = Annotated[int, msgspec.Meta(ge=0)]
Count = Annotated[int, msgspec.Meta(ge=1)]
Rate = Annotated[float, msgspec.Meta(ge=0)]
T = TypeVar("T")
Action = Literal["record", "skip", "refuse"]


class BaselineError(FtgateError):
    """A stored baseline that cannot be read, kept or written; the text names the file, the place and the mend."""


class Stored(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, kw_only=True):
    """Base of what stands in a file: as strict as the model's, but what is at its default is left out."""


class StoredInterpreter(Stored, omit_defaults=False, frozen=True, kw_only=True):
    """An interpreter without what names a place on one machine."""

    version: str
    implementation: str
    free_threaded: bool
    gil_enabled: bool
    jit_enabled: bool
    pgo: bool
    lto: bool
    shared: bool
    debug: bool
    compiler: str
    build: str


class StoredLaunch(Stored, frozen=True, kw_only=True):
    """The turns of one timing launch, of the candle and of the one-worker cell that took turns with it.

    All arrays have an item a turn. `wall_ns` spans `loops` iterations (of the candle: `candle_loops`, of the
    one-worker cell: `single_loops`). `ops` and all `ops_per_s` are filled for bodies with a duration alone: there a
    turn's value is nanoseconds per operation, and the wall time is merely the window's. `work_ratio` is how much more
    a turn's value does than one of the one-worker cell: the workers, where each runs a body of its own.
    """

    order: int
    hash_seed: int
    started_at: str
    wall_ns: tuple[Natural, ...]
    loops: Count = 1
    start_ns: tuple[Natural, ...] = ()
    join_ns: tuple[Natural, ...] = ()
    cpu_ns: tuple[Natural, ...] = ()
    ops: tuple[Natural, ...] = ()
    ops_per_s: tuple[Rate, ...] = ()
    cold_ns: Natural | None = None
    candle_wall_ns: tuple[Natural, ...] = ()
    candle_loops: Count = 1
    candle_ops_per_s: tuple[Rate, ...] = ()
    single_wall_ns: tuple[Natural, ...] = ()
    single_loops: Count = 1
    single_ops_per_s: tuple[Rate, ...] = ()
    work_ratio: Count = 1


class StoredMemory(Stored, frozen=True, kw_only=True):
    """One memory launch: an item a look; None where there was no such figure, empty where there never was.

    The `barrier_` arrays have an item a barrier: its body calls, and the tree's figures after them.
    """

    order: int
    hash_seed: int
    started_at: str
    rss_bytes: tuple[Natural, ...]
    uss_bytes: tuple[Natural | None, ...] = ()
    pss_bytes: tuple[Natural | None, ...] = ()
    written_bytes: tuple[Natural | None, ...] = ()
    barrier_ops: tuple[Natural, ...] = ()
    barrier_rss_bytes: tuple[Natural, ...] = ()
    barrier_uss_bytes: tuple[Natural | None, ...] = ()
    barrier_pss_bytes: tuple[Natural | None, ...] = ()
    barrier_written_bytes: tuple[Natural | None, ...] = ()


class StoredSite(Stored, frozen=True, kw_only=True):
    """The waits at one creation site of one lock launch, as LockSite has them; `file` names no place on a machine.

    `histogram` holds (bucket, waits) with buckets ascending.
    """

    file: str
    line: Natural
    kind: str
    waits_for: WaitsFor
    name: str = ""
    contended: Natural = 0
    total_ns: Natural = 0
    max_ns: Natural = 0
    histogram: tuple[tuple[Natural, Count], ...] = ()


class StoredLocks(Stored, frozen=True, kw_only=True):
    """What one lock launch saw in its measured turns together; sites that nothing waited at are left out."""

    order: int
    hash_seed: int
    started_at: str
    workers: Count
    work_ns: Count
    ops: Natural = 0
    sites: tuple[StoredSite, ...] = ()


class Recording(Stored, frozen=True, kw_only=True):
    """What one run left: when, of which commit, with which seed, and every launch in its order."""

    recorded_at: str
    commit: str
    seed: int
    launches: tuple[StoredLaunch, ...]
    memory: tuple[StoredMemory, ...] = ()
    locks: tuple[StoredLocks, ...] = ()


class Entry(Stored, frozen=True, kw_only=True):
    """One cell on one machine and one build; the newest recording stands last."""

    interpreter: StoredInterpreter
    executor: str
    workers: Count
    recordings: Annotated[tuple[Recording, ...], msgspec.Meta(min_length=1)]
    reuse: Reuse = "fresh"
    measures: str = ""


class TestBaseline(Stored, omit_defaults=False, frozen=True, kw_only=True):
    """One file: `cells` maps cell label -> `<fingerprint>/<build key>` -> entry."""

    __test__ = False

    schema: int
    statistic: int
    test: str
    machines: dict[str, Machine] = {}
    cells: dict[str, dict[str, Entry]] = {}


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
    candle_ratio: float | None
    uss_bytes: float | None
    launches: int
    recorded_at: str = ""
    commit: str = ""
    lock_share: float | None = None
    scaling: float | None = None


class Difference(Struct, frozen=True, kw_only=True):
    """A cell of a run beside its baseline; `reason` says why there is nothing to compare."""

    nodeid: str
    decision: Decision
    old: Summary | None = None
    new: Summary | None = None
    reason: str = ""


class Update(Struct, frozen=True, kw_only=True):
    """What an update does with one cell, and why; `sample` is what a `record` stores, `append` beside what is there."""

    nodeid: str
    action: Action
    reason: str
    old: Summary | None = None
    new: Summary | None = None
    sample: Sample | None = None
    append: bool = False


# ---- names and keys


def split_nodeid(nodeid: str) -> tuple[str, str]:
    """`a.py::test_x[cell]` -> (`a.py::test_x`, `cell`); brackets in the path stay in the path."""
    path, separator, rest = nodeid.partition("::")
    names, _, label = rest.partition("[")
    return path + separator + names, label.removesuffix("]")


def join_nodeid(test: str, label: str) -> str:
    """The node id of a test's cell: the inverse of `split_nodeid`."""
    return f"{test}[{label}]"


def entry_key(fingerprint: str, build: str) -> str:
    """`<fingerprint>/<build key>`, as it stands in a file."""
    return f"{fingerprint}/{build}"


def file_name(test: str) -> str:
    """A readable path, relative and with `/`, that no other test has: `a/test_x.py/TestA.test_y.json`."""
    path, _, names = test.partition("::")
    folders = [_component(part, keep=".") for part in path.split("/")]
    return "/".join([*folders, _shortened(".".join(_escaped(name) for name in names.split("::"))) + ".json"])


def _component(part: str, keep: str) -> str:
    escaped = _escaped(part, keep)
    return _shortened("%2E" + escaped[1:] if escaped.startswith(".") else escaped)


def _escaped(part: str, keep: str = "") -> str:
    """ASCII letters, digits, `_`, `-` and `keep`; all else as %XX, and `%` alone for nothing at all."""
    text = urllib.parse.quote(part, safe=keep, errors="surrogatepass").replace("~", "%7E")
    return (text if "." in keep else text.replace(".", "%2E")) or "%"


def _shortened(name: str) -> str:
    """A name that file systems take; the hash of the whole name stands after a `~`, which is escaped elsewhere."""
    if len(name) <= LONGEST_NAME:
        return name
    return f"{name[: LONGEST_NAME - 40]}~{hashlib.sha256(name.encode()).hexdigest()[:32]}"


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
    windows, work_ratio = sample.duration_s is not None, figures.work_ratio(sample)
    candles, singles = ({launch.order: launch for launch in side} for side in (sample.candle, sample.single))
    return Recording(
        recorded_at=recorded_at,
        commit=commit,
        seed=seed,
        launches=tuple(
            _stored_launch(launch, candles.get(launch.order), singles.get(launch.order), windows, work_ratio)
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
    if installed := _INSTALLED.search(path.as_posix()):
        return installed[1]
    return path.as_posix() if nowhere else path.name


def _in_order(launches: Iterable[Launch]) -> list[Launch]:
    return sorted(launches, key=lambda launch: launch.order)


def _stored_launch(
    launch: Launch, candle: Launch | None, single: Launch | None, windows: bool, work_ratio: int
) -> StoredLaunch:
    turns = launch.turns
    lit, alone = (beside.turns if beside else () for beside in (candle, single))
    return StoredLaunch(
        order=launch.order,
        hash_seed=launch.hash_seed,
        started_at=launch.started_at,
        loops=launch.loops,
        wall_ns=tuple(turn.wall_ns for turn in turns),
        start_ns=tuple(turn.start_ns for turn in turns),
        join_ns=tuple(turn.join_ns for turn in turns),
        cpu_ns=tuple(turn.cpu_ns for turn in turns),
        ops=tuple(turn.ops for turn in turns) if windows else (),
        ops_per_s=_rates(turns) if windows else (),
        cold_ns=launch.cold.wall_ns if launch.cold else None,
        candle_wall_ns=tuple(turn.wall_ns for turn in lit),
        candle_loops=candle.loops if candle else 1,
        candle_ops_per_s=_rates(lit) if windows else (),
        single_wall_ns=tuple(turn.wall_ns for turn in alone),
        single_loops=single.loops if single else 1,
        single_ops_per_s=_rates(alone) if windows else (),
        work_ratio=work_ratio if single else 1,
    )


def _rates(turns: Sequence[Turn]) -> tuple[float, ...]:
    """Nine digits: more than any clock resolves, and the same text on every machine."""
    return tuple(float(f"{turn.rate:.9g}") for turn in turns)


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


def turn_values(launch: StoredLaunch) -> tuple[float, ...]:
    """Nanoseconds per iteration of each turn, or per operation for a body with a duration; NaN without one."""
    return _values(launch.wall_ns, launch.loops, launch.ops_per_s)


def candle_values(launch: StoredLaunch) -> tuple[float, ...]:
    """The same of the candle beside it; empty without one."""
    return _values(launch.candle_wall_ns, launch.candle_loops, launch.candle_ops_per_s)


def single_values(launch: StoredLaunch) -> tuple[float, ...]:
    """The same of the one-worker cell beside it; empty without one."""
    return _values(launch.single_wall_ns, launch.single_loops, launch.single_ops_per_s)


def _values(wall_ns: Sequence[int], loops: int, ops_per_s: Sequence[float]) -> tuple[float, ...]:
    """A window in which no operation ended has no value: NaN, so that a turn keeps its place."""
    if ops_per_s:
        return tuple(1e9 / rate if rate > 0 else math.nan for rate in ops_per_s)
    return tuple(wall / loops if wall > 0 else math.nan for wall in wall_ns)


def wall_ratios(stored: Entry | Recording, estimator: stats.Estimator = stats.PAIRED) -> tuple[float, ...]:
    """A value a launch, in recording and launch order: the ratio of the cell's turns to the candle's.

    Launches without a candle give none: there is nothing that their speed of the day could be read from.
    """
    return tuple(stats.turns_ratio(own, candle, estimator) for own, candle in paired_turns(stored))


def paired_turns(stored: Entry | Recording) -> list[tuple[tuple[float, ...], tuple[float, ...]]]:
    """The turns of each launch with those of the candle, for the launches that have both."""
    sides = (stats.neighbours(turn_values(launch), candle_values(launch)) for launch in _launches(stored))
    return [(own, candle) for own, candle in sides if own and candle]


def wall_floors_ns(stored: Entry | Recording, quantile: float) -> tuple[float, ...]:
    """A value a launch: the floor of its turns, in nanoseconds per iteration or operation."""
    launches = ([value for value in turn_values(launch) if not math.isnan(value)] for launch in _launches(stored))
    return tuple(stats.floor(values, quantile) for values in launches if values)


def uss_bytes(stored: Entry | Recording) -> tuple[float, ...]:
    """A value a memory launch: the median USS over its looks; launches on platforms without USS give none.

    It is the part of USS that was written to, where all launches have that.
    """
    return uss_of_sides(stored)[0]


def uss_of_sides(*sides: Entry | Recording) -> tuple[tuple[float, ...], ...]:
    """`uss_bytes` of each side, fit to be compared: where any launch lacks the written part, it is all of USS."""
    if all(launch.written_bytes or not launch.uss_bytes for side in sides for launch in _memory(side)):
        return tuple(_medians(launch.written_bytes for launch in _memory(side)) for side in sides)
    return tuple(_medians(launch.uss_bytes for launch in _memory(side)) for side in sides)


def _medians(launches: Iterable[tuple[int | None, ...]]) -> tuple[float, ...]:
    looks = ([figure for figure in found if figure is not None] for found in launches)
    return tuple(float(statistics.median(figures)) for figures in looks if figures)


def lock_shares(stored: Entry | Recording) -> tuple[float, ...]:
    """A value a lock launch: time waited for locks over workers x time at work, queue wait apart."""
    return tuple(
        sum(site.total_ns for site in launch.sites if site.waits_for == "lock") / (launch.workers * launch.work_ns)
        for recording in _recordings(stored)
        for launch in recording.locks
    )


def scalings(stored: Entry | Recording) -> tuple[float, ...]:
    """A value a launch: throughput over that of the one-worker cell; launches without one beside them give none."""
    sides = (
        (launch.work_ratio, *stats.neighbours(single_values(launch), turn_values(launch)))
        for launch in _launches(stored)
    )
    return tuple(work * stats.turns_ratio(single, own, stats.PAIRED) for work, single, own in sides if single and own)


def _recordings(stored: Entry | Recording) -> tuple[Recording, ...]:
    return stored.recordings if isinstance(stored, Entry) else (stored,)


def _launches(stored: Entry | Recording) -> Iterator[StoredLaunch]:
    return (launch for recording in _recordings(stored) for launch in recording.launches)


def _memory(stored: Entry | Recording) -> Iterator[StoredMemory]:
    return (launch for recording in _recordings(stored) for launch in recording.memory)


def summary(stored: Entry | Recording, quantile: float = stats.DEFAULT_QUANTILE) -> Summary:
    """Medians over all launches, with the newest recording's time and commit."""
    newest = _recordings(stored)[-1]
    return Summary(
        wall_ns=_median(wall_floors_ns(stored, quantile)),
        candle_ratio=_median(wall_ratios(stored)),
        uss_bytes=_median(uss_bytes(stored)),
        launches=sum(1 for _ in _launches(stored)),
        recorded_at=newest.recorded_at,
        commit=newest.commit,
        lock_share=_median(lock_shares(stored)),
        scaling=_median(scalings(stored)),
    )


def _median(values: Sequence[float]) -> float | None:
    return statistics.median(values) if values else None


def mismatch(entry: Entry, sample: Sample) -> str:
    """Why an entry measured something else than the sample does; empty where they can be compared."""
    windows = any(launch.ops_per_s for launch in _launches(entry))
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


# ---- the file format


def encode(baseline: TestBaseline) -> str:
    """The text of a file: keys sorted, a launch, an interpreter, a machine a line each, a newline at the end."""
    text = _expanded(msgspec.to_builtins(baseline), (), "") + "\n"
    # Half of a surrogate pair, as a path of stray bytes has it, is no UTF-8.
    return re.sub("[\ud800-\udfff]", lambda half: f"\\u{ord(half[0]):04x}", text)


def _expanded(value: Any, path: tuple[str | int, ...], indent: str) -> str:
    if not value or not isinstance(value, (dict, list, tuple)) or _on_one_line(path):
        return json.dumps(value, sort_keys=True, ensure_ascii=False)
    inner = indent + "  "
    if isinstance(value, dict):
        keyed = ((json.dumps(key, ensure_ascii=False) + ": ", key, value[key]) for key in sorted(value))
        lines = [inner + name + _expanded(item, (*path, key), inner) for name, key, item in keyed]
        return "{\n" + ",\n".join(lines) + f"\n{indent}}}"
    lines = [inner + _expanded(item, (*path, index), inner) for index, item in enumerate(value)]
    return "[\n" + ",\n".join(lines) + f"\n{indent}]"


def _on_one_line(path: tuple[str | int, ...]) -> bool:
    """`machines/*`, `cells/*/*/interpreter` and each launch; by depth, since a cell may be named like a field."""
    match path:
        case ("machines", _) | ("cells", _, _, "interpreter"):
            return True
        case ("cells", _, _, "recordings", int(), "launches" | "memory" | "locks", int()):
            return True
    return False


class _Object(dict[str, Any]):
    """A decoded JSON object that remembers a key it met twice."""

    duplicate: str | None = None


def _object(pairs: list[tuple[str, Any]]) -> _Object:
    read = _Object(pairs)
    if len(read) < len(pairs):
        keys = [key for key, _ in pairs]
        read.duplicate = next(key for key in keys if keys.count(key) > 1)
    return read


DELETE_AND_RECORD = "delete the file and record it again with `pytest --ftgate --ftgate-update`"
RESTORE = f"restore it from version control, or {DELETE_AND_RECORD}"


def decode(content: bytes, name: str) -> TestBaseline:
    """A file's content, checked; `name` stands in errors. Raises BaselineError."""
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise _broken(name, f"byte {error.start}", "is not UTF-8 text") from error
    _refuse_conflict(text, name)
    read = _parsed(text, name)
    _check_version(read, "schema", SCHEMA, name)
    _check_version(read, "statistic", STATISTIC, name)
    baseline = _converted(read, name)
    _check_consistency(baseline, name)
    return baseline


def _broken(name: str, place: str, fault: str, mend: str = RESTORE) -> BaselineError:
    return BaselineError(f"{name}: {place}: {fault}; {mend}")


def _refuse_conflict(text: str, name: str) -> None:
    for number, line in enumerate(text.split("\n"), start=1):
        if line.startswith(("<<<<<<<", "|||||||", ">>>>>>>")):
            mend = f"take one side (`git checkout --ours -- {name}`, or `--theirs`) and record the cell again"
            raise _broken(name, f"line {number}, column 1", f"a merge conflict is not resolved ({line[:7]})", mend)


def _parsed(text: str, name: str) -> Any:
    try:
        read = json.loads(text, object_pairs_hook=_object)
        fault = next(_faults(read, "$"), None)
    except json.JSONDecodeError as error:
        cut = not text[error.pos :].strip()
        said = "the file is cut off" if cut else f"is not JSON: {error.msg}"
        raise _broken(name, f"line {error.lineno}, column {error.colno}", said) from error
    except (RecursionError, ValueError) as error:
        raise _broken(name, "$", f"is not a baseline: {str(error).partition(';')[0]}") from error
    if fault:
        raise _broken(name, *fault)
    return read


def _faults(value: Any, path: str) -> Iterator[tuple[str, str]]:
    """What JSON's grammar lets pass and a baseline must not hold, with its path."""
    if isinstance(value, float) and not math.isfinite(value):
        yield path, f"{json.dumps(value)} is not a number that can be compared"
    elif isinstance(value, _Object):
        if value.duplicate is not None:
            yield path, f"the key {json.dumps(value.duplicate)} stands twice"
        for key, item in value.items():
            yield from _faults(item, _child(path, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _faults(item, f"{path}[{index}]")


def _child(path: str, key: str) -> str:
    return f"{path}.{key}" if re.fullmatch(r"\w+", key) else f"{path}[{json.dumps(key, ensure_ascii=False)}]"


def _check_version(read: Any, field: str, known: int, name: str) -> None:
    version = read.get(field) if isinstance(read, dict) else None
    if type(version) is not int:
        raise _broken(name, f"$.{field}", f"a version number is missing (this version writes {known})")
    if version > known:
        fault = f"version {version} is newer than this pytest-ftgate reads ({known})"
        raise _broken(name, f"$.{field}", fault, "upgrade pytest-ftgate")
    if version < known:
        fault = f"version {version} is older than this pytest-ftgate reads ({known})"
        raise _broken(name, f"$.{field}", fault, DELETE_AND_RECORD)


def _converted(read: dict[str, Any], name: str) -> TestBaseline:
    """Each entry apart first, so that an error's path names the cell and the build."""
    cells = read.get("cells")
    for label, builds in (cells if isinstance(cells, dict) else {}).items():
        for key, entry in (builds if isinstance(builds, dict) else {}).items():
            _convert(entry, Entry, _child(_child("$.cells", label), key), name)
    return _convert(read, TestBaseline, "$", name)


def _convert(value: Any, kind: type[T], path: str, name: str) -> T:
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        fault, _, place = str(error).partition(" - at `")
        raise _broken(name, path + place.removesuffix("`").removeprefix("$"), fault) from error


def _check_consistency(baseline: TestBaseline, name: str) -> None:
    for label, builds in baseline.cells.items():
        for key, entry in builds.items():
            path = _child(_child("$.cells", label), key)
            fingerprint, separator, build = key.partition("/")
            if not (separator and build):
                raise _broken(name, path, "the key is not `<fingerprint>/<build key>`")
            if fingerprint not in baseline.machines:
                raise _broken(name, path, f"$.machines has no {json.dumps(fingerprint)}")
            for place, fault in _uneven(entry):
                raise _broken(name, path + place, fault)


# The arrays of a launch that have an item for each of another's.
_BESIDE = {
    "launches": dict.fromkeys(("start_ns", "join_ns", "cpu_ns", "ops", "ops_per_s"), "wall_ns")
    | {"candle_ops_per_s": "candle_wall_ns", "single_ops_per_s": "single_wall_ns"},
    "memory": dict.fromkeys(("uss_bytes", "pss_bytes", "written_bytes"), "rss_bytes")
    | dict.fromkeys(
        ("barrier_rss_bytes", "barrier_uss_bytes", "barrier_pss_bytes", "barrier_written_bytes"), "barrier_ops"
    ),
}


def _uneven(entry: Entry) -> Iterator[tuple[str, str]]:
    """What does not fit together within a launch, as a badly resolved conflict leaves it: place and fault."""
    for at, recording in enumerate(entry.recordings):
        for field, beside in _BESIDE.items():
            for index, launch in enumerate(getattr(recording, field)):
                found = _unlike_lengths(launch, beside)
                yield from ((f".recordings[{at}].{field}[{index}].{place}", fault) for place, fault in found)
        for index, locks in enumerate(recording.locks):
            faults = ((number, _histogram_fault(site)) for number, site in enumerate(locks.sites))
            place = f".recordings[{at}].locks[{index}].sites"
            yield from ((f"{place}[{number}].histogram", fault) for number, fault in faults if fault)


def _unlike_lengths(launch: Stored, beside: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    for name, first in beside.items():
        items = len(getattr(launch, first))
        if len(getattr(launch, name)) not in (0, items):
            yield name, f"its length is not that of {first}, {items}"


def _histogram_fault(site: StoredSite) -> str:
    buckets = [bucket for bucket, _ in site.histogram]
    if sorted(set(buckets)) != buckets:
        return "its buckets do not ascend"
    waits = sum(count for _, count in site.histogram)
    return f"its waits are {waits}, not {site.contended} as contended says" if waits != site.contended else ""


# ---- the folder


class Store:
    """The folder of baselines: `root` holds a JSON file a test, beside it `.ftgate/` holds the lock.

    Everyone who writes the same root takes the same lock. Nothing is created before the first `save`.
    """

    def __init__(self, root: Path, *, lock_path: Path | None = None, lock_timeout_s: float = LOCK_TIMEOUT_S) -> None:
        self.root = root
        self.lock_path = lock_path or root.absolute().parent / ".ftgate" / f"{root.absolute().name}.lock"
        self.lock_timeout_s = lock_timeout_s

    def path(self, test: str) -> Path:
        """The file of a test (a node id without brackets), whether it exists or not."""
        return self.root / file_name(test)

    def load(self, test: str) -> TestBaseline | None:
        """What is stored of a test, None without a file. Raises BaselineError for a file that cannot be trusted."""
        path = self.path(test)
        baseline = self._read(path)
        if baseline is not None and baseline.test != test:
            fault = f"holds {baseline.test} and stands where {test} belongs"
            raise _broken(str(path), "$.test", fault, "move it, or give the tests unlike names")
        return baseline

    def lookup(self, nodeid: str, fingerprint: str, build: str) -> Entry | None:
        """The entry of a cell (by its full node id) on that machine and build. Raises BaselineError as `load` does."""
        test, label = split_nodeid(nodeid)
        baseline = self.load(test)
        return baseline.cells.get(label, {}).get(entry_key(fingerprint, build)) if baseline else None

    def recordings(self, nodeid: str, fingerprint: str, build: str) -> tuple[Recording, ...]:
        """The recordings of `lookup`'s entry, oldest first; none without one."""
        entry = self.lookup(nodeid, fingerprint, build)
        return entry.recordings if entry else ()

    def baselines(self) -> Iterator[TestBaseline]:
        """Every file, in the order of their names. Raises BaselineError at the first that cannot be trusted."""
        for path in sorted(self.root.rglob("*.json")):
            baseline = self._read(path)
            if baseline is None:
                continue
            if self.path(baseline.test) != path:
                belongs = self.path(baseline.test)
                raise _broken(str(path), "$.test", f"{baseline.test} belongs in {belongs}", "move or delete the file")
            yield baseline

    def save(self, test: str, changes: Iterable[Change]) -> TestBaseline:
        """Read, change and write one file under the lock; what the changes do not name stays as it was.

        A file that cannot be trusted is not written over: the error of `load` is raised first. A file whose last cell
        goes is removed. Raises BaselineError when the lock or the file cannot be had; the old file is then whole.
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
    used = {key.partition("/")[0] for builds in kept.values() for key in builds}
    known = {fingerprint: machine for fingerprint, machine in machines.items() if fingerprint in used}
    return TestBaseline(schema=SCHEMA, statistic=STATISTIC, test=old.test, machines=known, cells=kept)


def _appended(old: Entry | None, change: Change) -> Entry:
    """The entry of a change, after what is there where it appends; the last recordings stay."""
    assert change.entry is not None
    if old is None or not change.append:
        return change.entry
    recordings = (*old.recordings, *change.entry.recordings)
    return msgspec.structs.replace(change.entry, recordings=recordings[-RECORDINGS_KEPT:])


def _write(path: Path, content: bytes) -> None:
    """All or nothing: a temporary file beside the target, flushed to the disk, takes its name.

    Raises BaselineError for what cannot be read back and for what the system refuses.
    """
    decode(content, f"{path} (left as it was; what was to be written)")
    # A link is followed, not replaced by a file.
    target = Path(os.path.realpath(path))
    temporary = target.parent / f".ftgate-{secrets.token_hex(8)}.tmp"
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        # The lock is ours, so what is there was left by a run that was killed.
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
        raise BaselineError(f"{path}: {fault}; what stood there is untouched: mend it and update again") from error


def _flush_folder(folder: Path) -> None:
    """So that the new name outlives a power cut; where folders cannot be opened there is nothing to do."""
    if os.name == "posix":
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


# ---- what is no longer there


def unused(
    store: Store, nodeids: Iterable[str], *, fingerprint: str | None = None, rootdir: Path | None = None
) -> list[tuple[str, str]]:
    """(test, cell label) of what is stored, with that fingerprint or with any, and is not collected any more.

    `nodeids` are all cells as collected, before any is deselected. A run may have been given other files and other
    targets, so that of a test or a target without a collected cell nothing is known: such a cell counts only where
    `rootdir` is given and the test's source is gone from there. Raises BaselineError as `Store.load` does.
    """
    collected = set(nodeids)
    tests = {split_nodeid(nodeid)[0] for nodeid in collected}
    targets = {_target(split_nodeid(nodeid)[1]) for nodeid in collected}
    found: list[tuple[str, str]] = []
    for baseline in store.baselines():
        gone = rootdir is not None and baseline.test not in tests and source_is_gone(baseline.test, rootdir)
        if baseline.test in tests or gone:
            labels = (label for label, builds in sorted(baseline.cells.items()) if _has(builds, fingerprint))
            cells = ((baseline.test, label) for label in labels if gone or _target(label) in targets)
            found += [pair for pair in cells if join_nodeid(*pair) not in collected]
    return found


def _target(label: str) -> str:
    """The word of a label that tells targets apart: `3.14t` of `3.14t-threads-w8`."""
    return label.partition("-")[0]


def _has(builds: Mapping[str, Entry], fingerprint: str | None) -> bool:
    return fingerprint is None or any(key.partition("/")[0] == fingerprint for key in builds)


def source_is_gone(test: str, rootdir: Path) -> bool:
    """Whether the test's file is gone, or does not so much as mention the test's class or function."""
    path, _, names = test.partition("::")
    try:
        text = (rootdir / path).read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        return False
    # A star import or a base class may bring in what the text does not show.
    outermost = names.partition("::")[0]
    return not re.search(rf"\b{re.escape(outermost)}\b|\bimport\s*\*", text)


def prunable(
    store: Store, rows: Iterable[Row], collected_no_more: Iterable[str], rootdir: Path
) -> list[tuple[str, str]]:
    """(test, cell label) that can go: called unused by a run that had the test, or of a test whose source is gone.

    `rows` and `collected_no_more` (full node ids) are those of the run's report. Raises BaselineError.
    """
    measured = {row.cell.nodeid for row in rows}
    tests = {split_nodeid(nodeid)[0] for nodeid in measured}
    named = set(collected_no_more) - measured
    found: list[tuple[str, str]] = []
    for baseline in store.baselines():
        gone = baseline.test not in tests and source_is_gone(baseline.test, rootdir)
        cells = [(baseline.test, label) for label in sorted(baseline.cells)]
        found += [pair for pair in cells if gone or (baseline.test in tests and join_nodeid(*pair) in named)]
    return found


def prune(store: Store, cells: Iterable[tuple[str, str]]) -> None:
    """Remove all entries of these cells, whatever their machine and build. Raises BaselineError."""
    for test, labels in _grouped(cells).items():
        baseline = store.load(test)
        stored = baseline.cells if baseline else {}
        store.save(test, [Change(label=label, key=key) for label in labels for key in stored.get(label, {})])


def _grouped(pairs: Iterable[tuple[str, T]]) -> dict[str, list[T]]:
    groups: dict[str, list[T]] = {}
    for name, item in pairs:
        groups.setdefault(name, []).append(item)
    return groups


# ---- a run beside what is stored


def differences(rows: Iterable[Row], store: Store, *, fingerprint: str) -> list[Difference]:
    """Each row beside its baseline, in the rows' order. Raises BaselineError."""
    return [_difference(row, store, fingerprint) for row in rows]


def _difference(row: Row, store: Store, fingerprint: str) -> Difference:
    nodeid, sample = row.cell.nodeid, row.sample
    absent = _not_measured(row)
    if sample is None or absent:
        return Difference(nodeid=nodeid, decision=row.verdict.decision, reason=absent)
    entry = store.lookup(nodeid, fingerprint, build_key(sample.interpreter))
    return Difference(
        nodeid=nodeid,
        decision=row.verdict.decision,
        old=summary(entry) if entry else None,
        new=summary(recording_from_sample(sample)),
        reason=mismatch(entry, sample) if entry else "",
    )


def _not_measured(row: Row) -> str:
    """Why a row has nothing to record; empty where it has."""
    error = row.error or (row.sample.error if row.sample else None)
    if error:
        return f"not measured: {error.reason}"
    if row.sample and row.sample.unsupported:
        return f"unsupported: {row.sample.unsupported}"
    if row.verdict.decision in (Decision.ERROR, Decision.UNSUPPORTED):
        return f"{row.verdict.decision}: {row.verdict.reason}" if row.verdict.reason else f"{row.verdict.decision}"
    return "" if row.sample and row.sample.launches else "not measured in this run"


def names(pattern: str, nodeid: str) -> bool:
    """Whether a CELL names a cell: its node id, its test's, or either with `*` and `?`; brackets are plain text."""
    regex = "".join({"*": ".*", "?": "."}.get(letter, re.escape(letter)) for letter in pattern)
    return any(re.fullmatch(regex, name, re.DOTALL) for name in (nodeid, split_nodeid(nodeid)[0]))


def update_plan(modes: str | Sequence[str], rows: Sequence[Row], store: Store, *, fingerprint: str) -> list[Update]:
    """What an update does with each cell of a run: a decision alone, nothing is written. Raises BaselineError.

    `modes` are `new`, `all` and names as `names` takes them. A cell without a baseline is recorded always, another
    one by `all` or by name, a regressed or inconclusive one by name alone. A recording joins those that are stored,
    unless the cell changed: then it takes their place. A name that no cell has is a `skip` of its own.
    """
    asked = [modes] if isinstance(modes, str) else list(modes)
    patterns = [mode for mode in asked if mode not in ("new", "all")]
    plan = [_update(row, _difference(row, store, fingerprint), "all" in asked, patterns) for row in rows]
    known = [row.cell.nodeid for row in rows]
    lost = [pattern for pattern in patterns if not any(names(pattern, nodeid) for nodeid in known)]
    unknown = "no cell of this run has that name"
    return plan + [Update(nodeid=pattern, action="skip", reason=unknown) for pattern in lost]


def _update(row: Row, difference: Difference, everything: bool, patterns: Sequence[str]) -> Update:
    named = any(names(pattern, row.cell.nodeid) for pattern in patterns)
    decision = _against_stored(row.verdict)
    action, reason = _action(difference, decision, everything, named)
    same = difference.old is not None and not difference.reason and not _changed(row.verdict, decision)
    return Update(
        nodeid=row.cell.nodeid,
        action=action,
        reason=reason,
        old=difference.old,
        new=difference.new,
        sample=row.sample if action == "record" else None,
        append=action == "record" and same,
    )


def _against_stored(verdict: Verdict) -> Decision:
    """What the verdict says of the baseline: contracts, and what was not judged, say nothing of it."""
    judged = {each.decision for each in verdict.metrics if not each.contract and _was_judged(each)}
    if verdict.same_code:
        return Decision.PASSED
    worst = (Decision.REGRESSED, Decision.INCONCLUSIVE, Decision.IMPROVED, Decision.PASSED)
    return next((decision for decision in worst if decision in judged), verdict.decision)


def _was_judged(judged: MetricVerdict) -> bool:
    return judged.decision is not Decision.INCONCLUSIVE or bool(judged.launches)


def _changed(verdict: Verdict, decision: Decision) -> bool:
    """Whether the code is not what was recorded. Stored launches alone cannot say that it is faster: the day may be."""
    return decision is Decision.REGRESSED or (decision is Decision.IMPROVED and verdict.road == "tandem")


def _action(difference: Difference, decision: Decision, everything: bool, named: bool) -> tuple[Action, str]:
    if difference.new is None:
        return "skip", difference.reason
    if named:
        return "record", "named"
    doubtful = difference.old is not None and decision is Decision.INCONCLUSIVE and not difference.reason
    if decision is Decision.REGRESSED or doubtful:
        # Only an update that would have taken the cell otherwise is refused anything.
        refused = everything or difference.old is None
        return ("refuse", decision.value) if refused else ("skip", "has a baseline")
    if difference.old is None:
        return "record", "new"
    return ("record", "changed") if everything else ("skip", difference.reason or "has a baseline")


def apply_updates(
    updates: Iterable[Update],
    store: Store,
    *,
    machine: Machine,
    recorded_at: str,
    commit: str,
    seed: int,
    root: PurePath | None = None,
) -> None:
    """Write what a plan records, a file at a time; `root` is the project's, see `portable`.

    Raises BaselineError; each file before the one at fault is then written, each after it is as it was.
    """
    changes = (
        (
            split_nodeid(update.nodeid)[0],
            entry_from_sample(
                update.sample,
                recorded_at=recorded_at,
                commit=commit,
                seed=seed,
                machine=machine,
                root=root,
                append=update.append,
            ),
        )
        for update in updates
        if update.action == "record" and update.sample is not None
    )
    for test, edits in _grouped(changes).items():
        store.save(test, edits)
