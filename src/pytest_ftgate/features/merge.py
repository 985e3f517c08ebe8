"""`ftgate merge`: what several jobs left, joined: reports of shards, JUnit files, or folders of baselines."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator, Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from ..hookspec import Subparsers, hookimpl
from ..kit.errors import FtgateError
from ..kit.files import content_of, open_regular
from ..kit.text import first_of, listed, plain, plural
from ..model.report import Report, Shard, Table
from ..report import said
from ..store.folder import Store
from ..store.names import SUFFIX, entry_key, is_recording, join_nodeid
from ..store.recording import Edit
from ..store.schema import BaselineError, StoredCell, StoredRun
from .last_run import FINE, NOTHING_FOUND, REGRESSED, read, store
from .report import add_forms, checked, command, show, write

if TYPE_CHECKING:
    from junitparser import JUnitXml, TestCase, TestSuite

XFAILED = ("pytest.xfail", "xfailed")
SHOWN = 5
"""Cases, cells and shards that an error names."""
SLACK = 1e-9
UNSET = "at its default"


@hookimpl
def ftgate_commands(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser(
        "merge",
        help="join reports of shards, JUnit files, or baselines that several jobs recorded",
        description="Join the JSON reports of all shards of a run (--ftgate-shard) into one and show it. A shard that "
        "is missing, or a cell that was measured twice, is an error. Exits with 1 if a cell fails the run, and with 3 "
        "if the report is partial or (almost) nothing was decided. JUnit files of pytest's --junit-xml are joined into "
        "the file of -o: a case that was run in two of them is an error; one "
        "that was skipped in some is taken from the file in which it was run. From folders of baselines, recordings "
        "that this project lacks are added.",
        exits=(1, 3),
    )
    parser.add_argument(
        "sources", metavar="PATH", nargs="+", type=Path, help="a JSON report, a JUnit file, or a folder of baselines"
    )
    parser.add_argument("-o", "--output", metavar="OUT", type=Path, help="the joined report as JSON, or as JUnit")
    text = "join the shards that exist; exits with 3, or with 1 if a cell fails"
    parser.add_argument("--partial", action="store_true", help=text)
    add_forms(parser)
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
        print("\n".join(join(store(), args.sources)))
        return FINE
    if "JSON report" in kinds:
        return _reports(args)
    return _junit_files(args.sources, args.output)


def _kind(path: Path) -> str:
    if path.is_dir():
        return "folder"
    try:
        with open_regular(path) as file:
            began = file.read(64)
    except OSError as error:
        raise FtgateError(f"{path}: cannot be read: {error.strerror}") from None
    return "JSON report" if began.lstrip()[:1] in (b"{", b"[") else "JUnit file"


# -- JUnit files ---------------------------------------------------------------------------------------------------


def _junit_files(paths: Sequence[Path], output: Path | None) -> int:
    """Write all suites of all files, without cases that are skipped in one and run in another, and print the totals.

    Raises FtgateError.
    """
    from junitparser import JUnitXml, JUnitXmlError

    if output is None:
        raise FtgateError("JUnit files are joined into one: name it with -o OUT.xml")
    # 1. Which cases were run in which files. One that failed as expected was run, although it counts as skipped.
    files: dict[Path, JUnitXml] = {}
    ran: dict[tuple[str, str], dict[Path, None]] = {}
    not_run = []
    for path in dict.fromkeys(paths):
        content = content_of(path)
        try:
            files[path] = JUnitXml.fromstring(content)
        except (SyntaxError, JUnitXmlError, ValueError) as error:
            hint = "was its run killed?" if not content.strip() else "write it again with --junit-xml=PATH"
            raise FtgateError(f"{path} is not a JUnit file: {error}; {hint}") from None
        for suite, case in _cases(files[path]):
            name = case.classname or "", case.name or ""
            if not case.is_skipped or any(each.type in XFAILED for each in case.result):
                ran.setdefault(name, {})[path] = None
            else:
                not_run.append((name, path, suite, case))
    lines = [f"  {'.'.join(filter(None, of))}: {', '.join(map(str, by))}" for of, by in ran.items() if len(by) > 1]
    if lines:
        more = [f"  and {len(lines) - SHOWN} more"] if len(lines) > SHOWN else []
        what = "case was run in two files" if len(lines) == 1 else "cases were run in two files or more"
        head = f"{len(lines)} {what}: it is unknown which result holds; leave the other files out"
        raise FtgateError("\n".join([head, *lines[:SHOWN], *more]))

    # 2. Each case once.
    skipped = set[tuple[str, str]]()
    for name, path, suite, case in not_run:
        if name in skipped or [*ran.get(name, [path])] != [path]:
            suite._elem.remove(case._elem)  # `suite.remove` compares with every case
        else:
            skipped.add(name)
    merged, written = JUnitXml(), BytesIO()
    for xml in files.values():
        for suite in xml:
            merged.append(suite)  # not `+=`, which copies each, and joins suites of one name
    merged.update_statistics()
    merged.write(written)
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        output.write_bytes(written.getvalue())
    except OSError as error:
        raise FtgateError(f"{output}: cannot be written: {error.strerror}") from None
    counts = ((merged.failures, "failed"), (merged.errors, "in error"), (merged.skipped, "skipped"))
    totals = ", ".join(f"{count} {word}" for count, word in counts if count) or "none failed"
    print(f"{output}: {merged.tests} cases of {len(paths)} files: {totals}")
    return FINE


def _cases(suites: Iterable[TestSuite]) -> Iterator[tuple[TestSuite, TestCase]]:
    """All cases with their suites, also those of suites within others."""
    for suite in suites:
        yield from ((suite, case) for case in suite.iterchildren(suite.testcase))
        yield from _cases(suite.testsuites())


# -- reports of shards: as if one machine had measured all tests ---------------------------------------------------
#
# Nothing is judged again. Each shard split the error level over the hypotheses of the whole run, so its verdicts are
# those of one run; that this holds is checked.


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
    shards = [report.shard for report in reports.values() if report.shard]
    counts = sorted({shard.hypotheses for shard in shards})
    print(
        f"{len(shards)} of {shards[0].parts} shards, one error budget: each verdict is at alpha "
        f"{shards[0].alpha:g} / {listed([str(count) for count in counts])}, split over the hypotheses of the whole run"
    )
    if whole.failing:
        return REGRESSED
    if whole.partial or said.undecided(whole):
        return NOTHING_FOUND
    return FINE


def joined(reports: Mapping[str, Report], *, partial: bool = False) -> Report:
    """One report out of those of all shards, by the names of their files; its tables say which shard measured them.

    Raises FtgateError for reports that are not of one run, for what is measured twice, and for what is missing: a shard
    that is missing makes the report partial instead, where `partial` is true.
    """
    # A shard that ended before its tests were collected is missing.
    lost = [name for name, each in reports.items() if each.shard is None and each.partial and not each.tables]
    if lost and not partial:
        raise FtgateError(f"{lost[0]} has no cells: {plain(reports[lost[0]].partial)}; --partial joins the others")
    reports = {name: report for name, report in reports.items() if name not in lost}
    if not reports:
        raise FtgateError("no shard came as far as its first test: see the logs of their jobs")

    # Each is the part that it says.
    shards: dict[str, Shard] = {}
    for name, report in reports.items():
        if (shard := report.shard) is None:
            raise FtgateError(f"{name} is the report of a whole run: ftgate merge joins those of --ftgate-shard")
        if shard.part > shard.parts or max(shard.places, default=-1) >= len(shard.planned):
            raise FtgateError(f"{name} contradicts itself: {shard.name} of {len(shard.planned)} cells")
        own = {shard.planned[place] for place in shard.places}
        cells = [row.cell.nodeid for row in report.rows]
        if strange := [each for each in cells if each not in own]:
            raise FtgateError(f"{name} is {shard.name} and has cells that are not in that: {_named(strange)}")
        shards[name] = shard

    # All are of one run.
    first, one = next(iter(shards.items()))
    for name, other in shards.items():
        here, there = reports[first], reports[name]
        options = sorted({*one.options, *other.options})
        alike: list[tuple[str, Any, Any]] = [
            ("the number of shards", one.parts, other.parts),
            ("the commit", here.commit, there.commit),
            ("the version of pytest-ftgate", here.version, there.version),
            ("ftgate_alpha", one.alpha, other.alpha),
            *((option, one.options.get(option, UNSET), other.options.get(option, UNSET)) for option in options),
        ]
        for what, ours, theirs in alike:
            if ours != theirs:
                shown = (plain(str(each)) or "unknown" for each in (ours, theirs))
                raise FtgateError(f"{first} and {name} are not of one run: {what} is {' and '.join(shown)}")
        if differ := set(one.planned) ^ set(other.planned):
            raise FtgateError(f"{first} and {name} did not select the same cells: {_named(sorted(differ))}")

    # Each shard, and each cell, is there once. The order of tests may differ: places are those in the first plan.
    place_of = {nodeid: place for place, nodeid in enumerate(one.planned)}
    unlike_split = (
        "the machines did not split the tests in the same way: did they collect the same, with the same baselines?"
    )
    by_part: dict[int, str] = {}
    by_cell: dict[str, str] = {}
    for name, shard in shards.items():
        if (before := by_part.setdefault(shard.part, name)) != name:
            raise FtgateError(f"{before} and {name} are both {shard.name}: leave one of them out")
        places = dict.fromkeys(shard.planned[place] for place in shard.places)
        twice = [nodeid for nodeid in places if by_cell.setdefault(nodeid, name) != name]
        if twice:
            files = f"{by_cell[twice[0]]} and {name}"
            raise FtgateError(f"measured twice, in {files}: {_named(twice)}; {unlike_split}")
        counted = [row.cell.nodeid for row in reports[name].rows]
        if len(set(counted)) < len(counted):
            raise FtgateError(f"{name} has a cell twice")

    # None is missing.
    absent = [f"{part}/{one.parts}" for part in range(1, one.parts + 1) if part not in by_part]
    unmeasured = [nodeid for nodeid in one.planned if nodeid not in by_cell]
    missing = ""
    if absent:
        more = [f"{len(absent) - SHOWN} more"] if len(absent) > SHOWN else []
        which = f"shard{'s' if len(absent) > 1 else ''} {listed([*absent[:SHOWN], *more], 'and')}"
        of = f"{len(unmeasured)} of {len(one.planned)} cells"
        missing = f"{which} {'are' if len(absent) > 1 else 'is'} missing: {of}"
    elif unmeasured:
        raise FtgateError(f"no shard measured {_named(unmeasured)}: {unlike_split}")
    if missing and not partial:
        raise FtgateError(f"{missing}; --partial joins the others")

    # Each hypothesis of a shard has the level alpha / hypotheses. That number depends on the machine where a test has
    # as many workers as there are cores: together the shards could have a higher level than one run.
    level = sum(shard.own / shard.hypotheses for shard in shards.values())
    if level > 1 + SLACK:
        counts = first_of([f"{shard.hypotheses} in {name}" for name, shard in shards.items()], SHOWN)
        raise FtgateError(
            f"the shards split alpha over unlike numbers of hypotheses, so that together they have {level:.2f} times "
            f"its level: {counts}; measure all of them on machines with the same number of cores, or without "
            'workers="cores"'
        )
    return _whole({shards[by_part[part]].name: reports[by_part[part]] for part in sorted(by_part)}, place_of, missing)


def _named(cells: Sequence[str]) -> str:
    return plain(first_of(cells, SHOWN))


def _whole(reports: Mapping[str, Report], place_of: Mapping[str, int], missing: str) -> Report:
    """The reports of shards by the shards' names: all tables in the order of the plan, and the rest of each."""
    tables, failing, partial = [], set[str](), [missing]
    for name, report in reports.items():
        for table in report.tables:
            note = "; ".join(filter(None, (f"measured by {name}", table.note)))
            tables.append(msgspec.structs.replace(table, machine=report.machine, note=note))
        by_default = {row.cell.nodeid for row in report.rows if row.verdict.decision.fails}
        failing |= by_default if report.failing is None else report.failing
        partial += [f"{name}: {report.partial}"] if report.partial else []

    def place(table: Table) -> int:
        """The place of its first cell in the plan."""
        return min((place_of[row.cell.nodeid] for row in table.rows), default=len(place_of))

    every = reports.values()
    return msgspec.structs.replace(
        next(iter(every)),
        started_at=min(report.started_at for report in every),
        wall_s=max(report.wall_s for report in every),
        interpreters=_each(report.interpreters for report in every),
        tables=tuple(sorted(tables, key=place)),
        unused_baselines=tuple(sorted(_each(report.unused_baselines for report in every))),
        updates=_each(report.updates for report in every),
        partial="; ".join(filter(None, partial)),
        failing=frozenset(failing),
        shard=None,
        seconds={},
    )


def _each(found: Iterable[tuple[Any, ...]]) -> tuple[Any, ...]:
    """Everything once, in the order of its first appearance."""
    return tuple(dict.fromkeys(each for group in found for each in group))


# -- baselines that several jobs recorded, each in a checkout of its own, added to those of one --------------------


def join(store: Store, folders: Sequence[Path]) -> list[str]:
    """Add what the folders have and the store has not; a line for each of them.

    Nothing is written if two of them have recordings of one cell, machine and build that are not the same. Raises
    BaselineError.
    """
    known = {key: (store.root, run.cells[key[2]]) for key, run in _recordings(store)}
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
        for (test, name, label), run in found:
            recording = run.cells[label]
            there, same = known.setdefault((test, name, label), (folder, recording))
            if there == folder:  # it is new, and so must be its cell on this machine and build
                key = entry_key(run.machine.fingerprint, recording.build)
                there = places.setdefault((test, label, key), folder)
            elif same == recording:
                continue
            if there != folder:
                raise BaselineError(
                    f"{join_nodeid(test, label)} was recorded twice, in {there} and {folder}: it is unknown which "
                    "one counts; leave one of them out"
                )
            whole = msgspec.structs.replace(recording, recorded_at=run.recorded_at, commit=run.commit, seed=run.seed)
            entry = StoredCell(interpreter=run.interpreters[recording.build], recordings=(whole,))
            edit = Edit(label=label, key=key, entry=entry, machine=run.machine, append=not recording.anew)
            changes.setdefault(test, []).append(edit)
            added += 1
        lines.append(f"{folder}: {plural(added, 'recording')} added")
    for test, edits in changes.items():
        store.save(test, edits)
    return lines


def _recordings(store: Store) -> Iterator[tuple[tuple[str, str, str], StoredRun]]:
    """Every recording in a folder: its test, file and cell, and what the file holds; by test, the oldest first."""
    for test, runs in store.every_run().items() if store.root.is_dir() else ():
        for name, run in runs.items():
            yield from (((test, name, label), run) for label in run.cells)
