"""The reports of a run's shards, joined: as if one machine had measured all of its tests. Pure.

Nothing is judged again. Each shard split the error level over the hypotheses of the whole run, so its verdicts are
those of one run; that this holds is checked.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from ..kit.errors import FtgateError
from ..kit.text import listed, plain
from ..model.report import Host, Report, Row, Shard, Table

SHOWN = 5
"""Cells and shards that an error names."""
SLACK = 1e-9
UNSET = "at its default"


def joined(reports: Mapping[str, Report], *, partial: bool = False) -> Report:
    """One report out of those of all shards, by the names of their files; its rows name the shard that measured them.

    Raises FtgateError for reports that are not of one run, for what is measured twice, and for what is missing: a shard
    that is missing makes the report partial instead, where `partial` is true.
    """
    reports = {name: report for name, report in reports.items() if not (partial and _is_lost(report))}
    if not reports:
        raise FtgateError("no shard came as far as its first test: see the logs of their jobs")
    shards = {name: _shard_of(name, report) for name, report in reports.items()}
    _refuse_unlike(reports, shards)
    _refuse_twice(reports, shards)
    missing = _missing(shards)
    if missing and not partial:
        raise FtgateError(f"{missing}; --partial joins what there is")
    _check_level(shards)
    return _joined(sorted(reports.values(), key=lambda report: _part(report.shard)), missing)


def budget(reports: Iterable[Report]) -> str:
    """What to say of the error level of the joined report."""
    shards = [report.shard for report in reports if report.shard]
    counts = sorted({shard.hypotheses for shard in shards})
    return (
        f"{len(shards)} of {shards[0].parts} shards, one error budget: each verdict is at alpha "
        f"{shards[0].alpha:g} / {listed([str(count) for count in counts])}, split over the hypotheses of the whole run"
    )


# ---- what is refused


def _is_lost(report: Report) -> bool:
    """Whether it is of a shard that ended before its tests were collected."""
    return report.shard is None and bool(report.partial) and not report.tables


def _shard_of(name: str, report: Report) -> Shard:
    shard = report.shard
    if _is_lost(report):
        raise FtgateError(f"{name} has no cells: {plain(report.partial)}; --partial joins the others")
    if shard is None:
        raise FtgateError(f"{name} is the report of a whole run: ftgate merge joins those of --ftgate-shard")
    if shard.part > shard.parts or max(shard.places, default=-1) >= len(shard.planned):
        raise FtgateError(f"{name} contradicts itself: {shard.name} of {len(shard.planned)} cells")
    own, planned = {shard.planned[place] for place in shard.places}, set(shard.planned)
    cells = [row.cell.nodeid for row in report.rows]
    # Under --ftgate-trust=base the first part also names the cells that only the reference has.
    strange = [each for each in cells if each not in own and (each in planned or not report.limits_from)]
    if strange:
        raise FtgateError(f"{name} is {shard.name} and has cells that are not in that: {_named(strange)}")
    return shard


def _refuse_unlike(reports: Mapping[str, Report], shards: Mapping[str, Shard]) -> None:
    """Raise FtgateError for reports of unlike commits, versions, options or plans; it names what differs."""
    (first, one), *others = shards.items()
    for name, other in others:
        for what, here, there in _alike(reports[first], one, reports[name], other):
            if here != there:
                shown = (plain(str(each)) or "unknown" for each in (here, there))
                raise FtgateError(f"{first} and {name} are not of one run: {what} is {' and '.join(shown)}")
        differ = set(one.planned) ^ set(other.planned)
        if differ:
            raise FtgateError(f"{first} and {name} did not collect the same cells: {_named(sorted(differ))}")


def _alike(one: Report, shard: Shard, two: Report, other: Shard) -> Iterator[tuple[str, Any, Any]]:
    """What must be the same in all reports: its name, and the values of two."""
    yield "the number of shards", shard.parts, other.parts
    yield "the commit", one.commit, two.commit
    yield "the version of pytest-ftgate", one.version, two.version
    yield "the commit that limits are read from", one.limits_from, two.limits_from
    yield "--ftgate-alpha", shard.alpha, other.alpha
    for option in sorted({*shard.options, *other.options}):
        yield option, shard.options.get(option, UNSET), other.options.get(option, UNSET)


def _refuse_twice(reports: Mapping[str, Report], shards: Mapping[str, Shard]) -> None:
    """Raise FtgateError for a shard that two files have, and for cells that two shards measured."""
    by_part: dict[int, str] = {}
    by_place: dict[int, str] = {}
    for name, shard in shards.items():
        if (there := by_part.setdefault(shard.part, name)) != name:
            raise FtgateError(f"{there} and {name} are both {shard.name}: leave one of them out")
        twice = [place for place in _places(shard, shards) if by_place.setdefault(place, name) != name]
        if twice:
            cells = _named([_first(shards).planned[place] for place in twice])
            raise FtgateError(
                f"measured twice, in {by_place[twice[0]]} and {name}: {cells}; the machines did not split the tests in "
                "the same way: are their baselines the same?"
            )
        counted = [row.cell.nodeid for row in reports[name].rows]
        if len(set(counted)) < len(counted):
            raise FtgateError(f"{name} has a cell twice")


def _missing(shards: Mapping[str, Shard]) -> str:
    """Which shards are missing, and how many cells are theirs. Raises FtgateError for cells that no shard has."""
    one = _first(shards)
    there = {shard.part for shard in shards.values()}
    cells = len(one.planned) - sum(len(set(shard.places)) for shard in shards.values())
    absent = [part for part in range(1, one.parts + 1) if part not in there]
    if absent:
        names = [f"{part}/{one.parts}" for part in absent[:SHOWN]]
        more = [f"{len(absent) - SHOWN} more"] if len(absent) > SHOWN else []
        said = f"shard{'s' if len(absent) > 1 else ''} {listed([*names, *more], 'and')}"
        return f"{said} {'are' if len(absent) > 1 else 'is'} missing: {cells} of {len(one.planned)} cells"
    if cells:
        has = {place for shard in shards.values() for place in _places(shard, shards)}
        names = [nodeid for place, nodeid in enumerate(one.planned) if place not in has]
        raise FtgateError(
            f"no shard measured {_named(names)}: the machines did not split the tests in the same way: are their "
            "baselines the same?"
        )
    return ""


def _check_level(shards: Mapping[str, Shard]) -> None:
    """Raise FtgateError if the shards together have a higher error level than one run.

    Each hypothesis of a shard has the level alpha / hypotheses. That number depends on the machine where a test has as
    many workers as there are cores.
    """
    level = sum(shard.own / shard.hypotheses for shard in shards.values())
    if level > 1 + SLACK:
        raise FtgateError(
            "the shards split alpha over unlike numbers of hypotheses, so that together they have "
            f"{level:.2f} times its level: measure all of them on machines with the same number of cores, or without "
            'workers="cores"'
        )


def _first(shards: Mapping[str, Shard]) -> Shard:
    return next(iter(shards.values()))


def _places(shard: Shard, shards: Mapping[str, Shard]) -> list[int]:
    """The places of a shard's cells in the plan of the first one: the order of tests may differ."""
    one = _first(shards)
    if shard.planned == one.planned:
        return list(dict.fromkeys(shard.places))
    place = {nodeid: number for number, nodeid in enumerate(one.planned)}
    return list(dict.fromkeys(place[shard.planned[each]] for each in shard.places))


def _named(cells: list[str]) -> str:
    more = f" and {len(cells) - SHOWN} more" if len(cells) > SHOWN else ""
    return plain(", ".join(cells[:SHOWN])) + more


# ---- the joined report


def _joined(reports: list[Report], missing: str) -> Report:
    """All tables in the order of the plan, and the rest of each report."""
    first = reports[0]
    planned = first.shard.planned if first.shard else ()
    place = {nodeid: number for number, nodeid in enumerate(planned)}
    tables = [_located(table, report) for report in reports for table in report.tables]
    partial = [missing, *(f"{_name(report)}: {report.partial}" for report in reports if report.partial)]
    return Report(
        version=first.version,
        seed=first.seed,
        started_at=min(report.started_at for report in reports),
        wall_s=max(report.wall_s for report in reports),
        machine=first.machine,
        interpreters=_each(report.interpreters for report in reports),
        tables=tuple(sorted(tables, key=lambda table: _first_place(table, place))),
        unused_baselines=tuple(sorted(_each(report.unused_baselines for report in reports))),
        updates=_each(report.updates for report in reports),
        commit=first.commit,
        partial="; ".join(filter(None, partial)),
        failing=frozenset().union(*map(_failing, reports)),
        hosts=tuple(host for report in reports for host in _hosts(report)),
        limits_from=first.limits_from,
        undecided_fails=first.undecided_fails,
        project=first.project,
        branch=first.branch,
    )


def _first_place(table: Table, place: Mapping[str, int]) -> int:
    """Of its first cell in the plan; cells that only the reference has are the last."""
    return min((place.get(row.cell.nodeid, len(place)) for row in table.rows), default=len(place))


def _each(found: Iterable[tuple[Any, ...]]) -> tuple[Any, ...]:
    """Everything once, in the order of its first appearance."""
    return tuple(dict.fromkeys(each for group in found for each in group))


def _failing(report: Report) -> frozenset[str]:
    if report.failing is not None:
        return report.failing
    return frozenset(row.cell.nodeid for row in report.rows if row.verdict.decision.fails)


def _hosts(report: Report) -> Iterator[Host]:
    """The machine of a shard, and others that measured for it, by the shard's name."""
    yield Host(name=_name(report), machine=report.machine)
    for host in report.hosts:
        yield Host(name=f"{_name(report)}, {host.name}", machine=host.machine)


def _located(table: Table, report: Report) -> Table:
    """A table that names the shard that measured it, as its rows do."""
    note = "; ".join(filter(None, (f"measured by {_name(report)}", table.note)))
    return msgspec.structs.replace(table, rows=tuple(_at(row, _name(report)) for row in table.rows), note=note)


def _at(row: Row, shard: str) -> Row:
    return msgspec.structs.replace(row, host=f"{shard}, {row.host}" if row.host else shard)


def _name(report: Report) -> str:
    return report.shard.name if report.shard else ""


def _part(shard: Shard | None) -> int:
    return shard.part if shard else 0
