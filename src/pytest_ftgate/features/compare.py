"""`ftgate compare`: two recorded runs, judged by the rules of stored launches."""

from __future__ import annotations

import argparse
import functools
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import msgspec

from ..hookspec import Subparsers, hookimpl
from ..judge import decide, limits, recorded
from ..judge.judge import SCREEN_LAUNCHES, ComparedWith, Judge, Policy, hypotheses, missed
from ..kit.values import Metric, Struct
from ..model.report import Machine, Report, Row, Table
from ..model.sample import Sample, TestSamples, executor_cell
from ..model.spec import Cell, Expectation, Source, Spec
from ..model.verdict import Decision, Verdict
from ..stats import alpha_spending
from ..store import recording, schema
from ..targets.describe import build_key
from . import expectations
from .inifile import options_of
from .last_run import FINE, REGRESSED, add_rootdir, nothing, read, rootdir
from .report import add_forms, checked, command, show, write

# Two recorded runs, judged by the rules of stored launches: the first is what a baseline would hold. Pure.


class NamedReport(Struct, frozen=True, kw_only=True):
    """A recorded run, and the name of its file."""

    name: str
    report: Report

    def rows(self, fingerprint: str) -> dict[str, Row]:
        """By node id: the row of each cell; of one that several machines measured, that of this one if it has any."""
        there = self.report.rows
        own = [row for row in there if self.report.machine_of(row).fingerprint == fingerprint]
        return {row.cell.nodeid: row for row in (*there, *own)}


def _comparable(rows: Iterable[Row]) -> dict[str, Sample]:
    """Node id -> what can be compared of each cell: its own launches, without those of a reference."""
    samples = (row.sample for row in rows if row.sample is not None and row.sample.launches)
    return {
        sample.cell.nodeid: msgspec.structs.replace(sample, reference=None) for sample in samples if not sample.failed
    }


def judged(before: NamedReport, after: NamedReport, policy: Policy) -> Report:
    """The report of `after`, whose verdicts are those against `before`; cells that only one of them has are named.

    `policy.alpha` is split over all that gates. A cell is compared as with a baseline of one recording: by prediction
    limits on the same machine and build, else by machine-independent metrics. Contracts, which need no reference, and
    what is wrong with a cell of `after` keep their verdict; a known failure is one if `after` says so. That little was
    decided fails nothing: more time would not help.
    """
    policy = msgspec.structs.replace(policy, alpha=_level(before, after, policy))
    known = {row.cell.nodeid for row in after.report.rows}
    rows_before = functools.cache(before.rows)
    tables = [_Test(before, rows_before, after, policy, table).judged() for table in after.report.tables]
    for table in before.report.tables:
        gone = tuple(_left(row, after) for row in table.rows if row.cell.nodeid not in known)
        if gone:
            tables.append(msgspec.structs.replace(table, rows=gone, note=""))
    merged = tuple(_merged(tables))
    failing = (row.cell.nodeid for table in merged for row in table.rows if row.verdict.decision.fails)
    return msgspec.structs.replace(
        after.report,
        tables=merged,
        updates=(),
        unused_baselines=(),
        failing=frozenset(failing),
        undecided_fails=False,
    )


def compared(report: Report) -> bool:
    """Whether any cell of a report was compared."""
    return any(row.verdict.basis for row in report.rows)


def _merged(tables: list[Table]) -> Iterator[Table]:
    """Each test once: the cells that only the first run has are put with the others."""
    for title in dict.fromkeys(table.title for table in tables):
        first, *rest = (table for table in tables if table.title == title)
        yield msgspec.structs.replace(first, rows=tuple(row for table in (first, *rest) for row in table.rows))


def _left(row: Row, other: NamedReport) -> Row:
    """The row of a cell that another run does not have."""
    verdict = Verdict(decision=Decision.INCONCLUSIVE, reason=f"not compared: {other.name} has no such cell")
    return Row(cell=row.cell, verdict=verdict, line=row.line)


def _level(before: NamedReport, after: NamedReport, policy: Policy) -> float:
    """The error level of each hypothesis."""
    common = _comparable(before.report.rows).keys() & _comparable(after.report.rows).keys()
    count = 0
    for table in after.report.tables:
        cells = [row.cell for row in table.rows]
        spec = _spec(table)
        count += sum(hypotheses(spec, _gating(policy, table), cell, cells, cell.nodeid in common) for cell in cells)
    return decide.split_alpha(policy.alpha, policy.beta, max(1, count))[0]


def _gating(policy: Policy, table: Table) -> tuple[str, ...]:
    return (*policy.metrics, *table.gated)


def _spec(table: Table) -> Spec:
    """The declaration of a test as far as its verdicts need it: its contracts are judged already."""
    cells = [row.cell for row in table.rows]
    durations = (row.sample.duration_s for row in table.rows if row.sample is not None)
    return Spec(
        nodeid=table.title,
        source=Source(path=table.title.partition("::")[0], line=0, module="", qualname=""),
        body=cells[0].body if cells else "worker",
        executors=tuple(dict.fromkeys(cell.executor for cell in cells)),
        workers=tuple(dict.fromkeys(cell.workers for cell in cells)),
        reuse="fresh",
        duration_s=next((each for each in durations if each is not None), None),
        thresholds=table.thresholds,
        gated=table.gated,
    )


class _Test:
    """The cells of one test in both runs."""

    def __init__(
        self,
        before: NamedReport,
        rows_before: Callable[[str], dict[str, Row]],
        after: NamedReport,
        policy: Policy,
        table: Table,
    ) -> None:
        self.before = before
        self.after = after
        self.table = table
        self.machine = after.report.machine_of(table.rows[0]) if table.rows else after.report.machine
        known = rows_before(self.machine.fingerprint)
        self.old_rows = {row.cell.nodeid: known[row.cell.nodeid] for row in table.rows if row.cell.nodeid in known}
        self.old = _comparable(self.old_rows.values())
        self.samples = TestSamples(_comparable(table.rows).values())
        all_compared = {sample.cell.nodeid: self._compared_with(sample) for sample in self.samples}
        policy = msgspec.structs.replace(policy, metrics=_gating(policy, table))
        self.judge = Judge(_spec(table), policy, all_compared, SCREEN_LAUNCHES)

    def judged(self) -> Table:
        """The test with the verdicts on its cells."""
        rows = tuple(msgspec.structs.replace(row, verdict=self._verdict(row)) for row in self.table.rows)
        return msgspec.structs.replace(self.table, rows=rows)

    def _verdict(self, row: Row) -> Verdict:
        sample = self.samples.cell(row.cell)
        if sample is None:
            if row.verdict.decision in (Decision.ERROR, Decision.UNSUPPORTED):
                return row.verdict
            return _not_compared(f"{self.after.name} has no launches of it")
        compared_with = self.judge.compared_with(sample)
        if compared_with.entry is None:
            found = _not_compared(compared_with.why)
        else:
            found = self._against(sample, row, compared_with)
        contracts = [each for each in row.verdict.metrics if each.contract]
        if contracts:
            judged = [each for each in found.metrics if each.metric != Metric.CONTRACT]
            found = decide.again(found, [*judged, *contracts])
        expected = row.verdict.expected
        if expected is None:
            return found
        known = Expectation(
            decision=expected.decision, reason=expected.reason, strict=expected.strict, line=expected.line
        )
        return expectations.applied(found, row.cell, [known])

    def _against(self, sample: Sample, row: Row, compared_with: ComparedWith) -> Verdict:
        self.judge.conditions = (self.old_rows[row.cell.nodeid].conditions, row.conditions)
        screened = self.judge.verdict(sample, self.samples, row.figures)
        if screened.decision is Decision.NO_BASELINE:
            return _not_compared(compared_with.why)
        if any(missed(each) for each in screened.metrics):
            screened = self.judge.settled(sample, self.samples, screened, None, compared_with.why)
        return screened

    def _compared_with(self, sample: Sample) -> ComparedWith:
        """What a cell of the second run is compared with: a stored cell that its launches in the first one make."""
        old = self.old.get(sample.cell.nodeid)
        if old is None:
            return ComparedWith(why=f"{self.before.name} has no launches of it")
        machine = self._old_machine(sample.cell)
        builds = {build_key(each.interpreter) for each in (old, sample)}
        alike = machine.fingerprint == self.machine.fingerprint and len(builds) == 1
        here = alike and bool(old.of("control") and sample.of("control"))
        why = f"{self.before.name} is of another machine or build"
        if alike:
            no_control = f"{self.before.name}; without a control workload in both runs no times are compared"
            why = self.before.name if here else no_control
        executor = self._executor(sample.cell)
        stored_executor = None if executor is None else self.old.get(executor.nodeid)
        return ComparedWith(
            basis="stored" if here else "portable",
            why=why,
            entry=self._stored(old),
            executor=None if stored_executor is None else self._stored(stored_executor),
            executor_nodeid=executor.nodeid if executor else "",
            commit=self.before.report.commit,
            elsewhere=not alike,
        )

    def _executor(self, cell: Cell) -> Cell | None:
        """The cell that its ratio refers to."""
        found = executor_cell(cell, self.samples.cells, self.table.rows[0].cell.executor)
        return None if found is None or found == cell else found

    def _old_machine(self, cell: Cell) -> Machine:
        return self.before.report.machine_of(self.old_rows[cell.nodeid])

    def _stored(self, sample: Sample) -> schema.StoredCell:
        """The baseline of one recording that a run's launches of a cell make."""
        report = self.before.report
        change = recording.change_of(
            sample,
            recorded.stored_values(sample),
            recorded_at=report.started_at,
            commit=report.commit,
            seed=report.seed,
            machine=self._old_machine(sample.cell),
        )
        assert change.entry is not None  # nothing is removed
        return change.entry


def _not_compared(why: str) -> Verdict:
    return Verdict(decision=Decision.INCONCLUSIVE, reason=f"not compared: {why}")


@hookimpl
def ftgate_commands(subparsers: Subparsers) -> None:
    """Add `ftgate compare` to the command line."""
    parser = subparsers.add_parser(
        "compare",
        help="judge two recorded runs",
        description="Judge the second of two JSON reports as if the first were its baseline. Limits and metrics are "
        "those of the reports, the environment and the project. Exits with 1 if a cell regressed, is suspect, broken "
        "or an error, and with 3 if nothing can be compared.",
    )
    parser.add_argument("before", metavar="A.json", type=Path, help="the reference, written by --ftgate-report json:")
    parser.add_argument("after", metavar="B.json", type=Path, help="the run that is judged")
    add_forms(parser)
    add_rootdir(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print the comparison, and write the files of --to. Raises FtgateError."""
    targets = checked(args.to)
    before, after = (NamedReport(name=str(path), report=read(path)) for path in (args.before, args.after))
    report = judged(before, after, _policy(rootdir(args)))
    report = msgspec.structs.replace(report, command=command("compare", before.name, after.name))
    show(report, args.verbose)
    write(report, targets)
    if not compared(report):
        return nothing(f"{before.name} and {after.name} have nothing in common that can be compared")
    return REGRESSED if report.failing else FINE


def _policy(root: Path) -> Policy:
    """What the environment and the project say about verdicts."""
    options = options_of(root, "metrics", "alpha", "probe_cost", "gate")
    limits.check(cli=options.thresholds, ini=options.ini_thresholds)
    return Policy(
        metrics=options.metrics,
        cli=options.thresholds,
        ini=options.ini_thresholds,
        alpha=options.alpha,
        beta=alpha_spending.BETA,
        probe_cost=options.probe_cost,
    )
