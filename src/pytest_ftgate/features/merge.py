"""`ftgate merge`: what several jobs left, joined: reports of shards, JUnit files, or folders of baselines."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator, Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import msgspec

from ..hookspec import Subparsers, hookimpl
from ..kit.errors import FtgateError
from ..kit.text import listed, plain
from ..model.report import Host, Report, Shard, Table
from ..model.verdict import Decision
from ..report import said
from ..store.folder import Store
from ..store.names import SUFFIX, entry_key, is_recording, join_nodeid
from ..store.recording import Edit
from ..store.schema import BaselineError, RecordedRun, Recording, StoredCell
from .last_run import FINE, NOTHING_FOUND, REGRESSED, add_rootdir, nothing, read, store
from .report import add_forms, checked, command, show, write

if TYPE_CHECKING:
    from junitparser import JUnitXml, TestCase, TestSuite


# JUnit files of several jobs, shards or workers, joined into one.

Name: TypeAlias = tuple[str, str]
XFAILED = ("pytest.xfail", "xfailed")
SHOWN = 5
"""Cases, cells and shards that an error names."""


def merge(paths: Sequence[Path], output: Path | None) -> int:
    """Write the joined file and print its totals. Raises FtgateError."""
    if output is None:
        raise FtgateError("JUnit files are joined into one: name it with -o OUT.xml")
    merged = joined_junit({path: _read(path) for path in paths})
    written = BytesIO()
    merged.write(written)
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        output.write_bytes(written.getvalue())
    except OSError as error:
        raise FtgateError(f"{output}: cannot be written: {error.strerror}") from None
    counts = ((merged.failures, "failed"), (merged.errors, "in error"), (merged.skipped, "skipped"))
    said = ", ".join(f"{count} {word}" for count, word in counts if count) or "none failed"
    print(f"{output}: {merged.tests} cases of {len(paths)} files: {said}")
    return 0


def joined_junit(files: dict[Path, JUnitXml]) -> JUnitXml:
    """All suites of all files, without cases that are skipped in one and run in another.

    Raises FtgateError for a case that was run in two.
    """
    from junitparser import JUnitXml

    ran: dict[Name, list[Path]] = {}
    for path, xml in files.items():
        for name in dict.fromkeys(_case_name(case) for suite in xml for case in suite if _ran(case)):
            ran.setdefault(name, []).append(path)
    _refuse({name: paths for name, paths in ran.items() if len(paths) > 1})
    merged, skipped = JUnitXml(), set[Name]()
    for path, xml in files.items():
        for suite in _suites(xml):
            for case in list(suite.iterchildren(suite.testcase)):
                name = _case_name(case)
                if not _ran(case) and (name in skipped or ran.get(name, [path]) != [path]):
                    suite._elem.remove(case._elem)  # `suite.remove` compares with every case
                elif not _ran(case):
                    skipped.add(name)
        for suite in xml:
            merged.append(suite)
    merged.update_statistics()
    return merged


def _suites(parent: Iterable[TestSuite]) -> Iterator[TestSuite]:
    """All suites, also those within others."""
    for suite in parent:
        yield suite
        yield from _suites(suite.testsuites())


def _ran(case: TestCase) -> bool:
    """Whether it was run: one that failed as expected was, although it counts as skipped."""
    return not case.is_skipped or any(each.type in XFAILED for each in case.result)


def _case_name(case: TestCase) -> Name:
    return case.classname or "", case.name or ""


def _refuse(twice: dict[Name, list[Path]]) -> None:
    if not twice:
        return
    lines = [f"  {'.'.join(filter(None, name))}: {', '.join(map(str, paths))}" for name, paths in twice.items()]
    more = [f"  and {len(lines) - SHOWN} more"] if len(lines) > SHOWN else []
    said = "case was run in two files" if len(lines) == 1 else "cases were run in two files or more"
    head = f"{len(lines)} {said}: which result holds is not known; leave the other files out"
    raise FtgateError("\n".join([head, *lines[:SHOWN], *more]))


def _read(path: Path) -> JUnitXml:
    """The JUnit file at that path. Raises FtgateError, which names it."""
    from junitparser import JUnitXml, JUnitXmlError

    try:
        content = path.read_bytes()
    except OSError as error:
        raise FtgateError(f"{path}: cannot be read: {error.strerror}") from None
    try:
        return JUnitXml.fromstring(content)
    except (SyntaxError, JUnitXmlError, ValueError) as error:
        hint = "was its run killed?" if not content.strip() else "write it again with --ftgate-report junit:PATH"
        raise FtgateError(f"{path} is not a JUnit file: {error}; {hint}") from None


# The reports of a run's shards, joined: as if one machine had measured all of its tests. Pure.
#
# Nothing is judged again. Each shard split the error level over the hypotheses of the whole run, so its verdicts are
# those of one run; that this holds is checked.

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
    return _joined(sorted(reports.values(), key=lambda report: report.shard.part if report.shard else 0), missing)


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
    yield "ftgate_alpha", shard.alpha, other.alpha
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
    hosts = (", ".join(filter(None, (_name(report), row.host))) for row in table.rows)
    rows = tuple(msgspec.structs.replace(row, host=host) for row, host in zip(table.rows, hosts, strict=True))
    return msgspec.structs.replace(table, rows=rows, note=note)


def _name(report: Report) -> str:
    return report.shard.name if report.shard else ""


# Baselines that several jobs recorded, each in a checkout of its own, added to those of one.


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
    changes: dict[str, list[Edit]] = {}
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


def _change(each: _Recorded) -> Edit:
    run, recording = each.run, each.recording
    whole = msgspec.structs.replace(recording, recorded_at=run.recorded_at, commit=run.commit, seed=run.seed)
    return Edit(
        label=each.label,
        key=each.place[2],
        entry=StoredCell(interpreter=run.interpreters[recording.build], recordings=(whole,)),
        machine=run.machine,
        append=not recording.anew,
    )


@hookimpl
def ftgate_commands(subparsers: Subparsers) -> None:
    """Add `ftgate merge` to the command line."""
    parser = subparsers.add_parser(
        "merge",
        help="join reports of shards, JUnit files, or baselines that several jobs recorded",
        description="Join the JSON reports of all shards of a run (--ftgate-shard) into one and show it. A shard that "
        "is missing, or a cell that was measured twice, is an error. Exits with 1 if a cell fails the run, and with 3 "
        "if the report is partial or (almost) nothing was decided. JUnit files, of --ftgate-report junit:PATH or of "
        "pytest's --junit-xml, are joined into the file of -o: a case that was run in two of them is an error; one "
        "that was skipped in some is taken from the file in which it was run. What folders of baselines have in "
        "addition to this project's is added.",
    )
    parser.add_argument(
        "sources", metavar="PATH", nargs="+", type=Path, help="a JSON report, a JUnit file, or a folder of baselines"
    )
    parser.add_argument("-o", "--output", metavar="OUT", type=Path, help="the joined report as JSON, or as JUnit")
    parser.add_argument("--partial", action="store_true", help="join the reports that there are: exits with 3, or 1")
    add_forms(parser)
    add_rootdir(parser)
    parser.add_argument("--baselines", type=Path, metavar="DIR", help="where recordings go (default: as in a run)")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Join what is given, by its kind. Raises FtgateError."""
    kinds: dict[str, Path] = {}
    for path in args.sources:
        kinds.setdefault(_kind(path), path)
    if len(kinds) > 1:
        found = ", ".join(f"{path} is a {kind}" for kind, path in kinds.items())
        raise FtgateError(f"only sources of one kind can be joined: {found}")
    if "folder" in kinds:
        print("\n".join(join(store(args), args.sources)))
        return FINE
    if "JSON report" in kinds:
        return _reports(args)
    return merge(args.sources, args.output)


def _kind(path: Path) -> str:
    if path.is_dir():
        return "folder"
    try:
        with path.open("rb") as file:
            began = file.read(64)
    except OSError as error:
        raise FtgateError(f"{path}: cannot be read: {error.strerror}") from None
    return "JSON report" if began.lstrip()[:1] in (b"{", b"[") else "JUnit file"


def _reports(args: argparse.Namespace) -> int:
    """Show the joined report, write its files, and say how it was judged; its exit code is that of a run."""
    output = [f"json:{args.output}"] if args.output else []
    targets = checked([*output, *args.to])
    if twice := next((path for number, path in enumerate(args.sources) if path in args.sources[:number]), None):
        raise FtgateError(f"{twice} is given twice")
    reports = {str(path): read(path) for path in args.sources}
    whole = joined(reports, partial=args.partial)
    words = [*(["--partial"] if args.partial else []), *reports]
    whole = msgspec.structs.replace(whole, command=command("merge", *words))
    show(whole, args.verbose)
    write(whole, targets)
    print(budget(reports.values()))
    if whole.failing:
        return REGRESSED
    if whole.partial or said.undecided(whole):
        return NOTHING_FOUND
    if whole.rows and all(row.verdict.decision is Decision.UNSUPPORTED for row in whole.rows):
        return nothing("nothing was measured: every cell is unsupported on its machine")
    return FINE
