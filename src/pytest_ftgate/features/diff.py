"""`ftgate diff`: two recorded runs, judged by the rules of stored launches."""

from __future__ import annotations

import argparse
import functools
from collections.abc import Iterable
from pathlib import Path

import msgspec

from ..hookspec import Subparsers, hookimpl
from ..judge import decide, limits
from ..judge.judge import SCREEN_LAUNCHES, ComparedWith, Judge, Policy, hypotheses, missed
from ..judge.values import TestValues, entries_of
from ..kit.values import Metric
from ..model.report import Machine, Report, Row, Table
from ..model.sample import Sample, executor_cell
from ..model.spec import Source, Spec, Xfail
from ..model.verdict import Decision, Verdict
from ..stats import alpha_spending
from ..targets.describe import build_key
from . import xfail
from .last_run import FINE, REGRESSED, nothing, options, read
from .report import add_forms, checked, command, show, write


def _comparable(rows: Iterable[Row]) -> dict[str, Row]:
    """Node id -> each row with launches that can be compared: the cell's own, without those of a reference."""
    measured = ((row, row.sample) for row in rows if row.sample is not None and row.sample.launches)
    return {
        row.cell.nodeid: msgspec.structs.replace(row, sample=msgspec.structs.replace(sample, reference=None))
        for row, sample in measured
        if not sample.failed
    }


def judged(before: Report, after: Report, names: tuple[str, str], policy: Policy) -> Report:
    """The report of `after` with verdicts against `before`; cells that only one of them has are named.

    `names` are those of their files.

    `policy.alpha` is split over all that gates. A cell is compared as with a baseline of one recording: by prediction
    limits on the same machine and build, else by machine-independent metrics. Contracts, which need no reference, and
    what is wrong with a cell of `after` keep their verdict; a known failure is one if `after` says so. That little was
    decided fails nothing: more time would not help.
    """
    # The error level of each hypothesis.
    common = _comparable(before.rows).keys() & _comparable(after.rows).keys()
    count = 0
    for table in after.tables:
        cells, gating = [row.cell for row in table.rows], (*policy.metrics, *table.gated)
        count += sum(hypotheses(_spec(table), gating, cell, cells, cell.nodeid in common) for cell in cells)
    policy = msgspec.structs.replace(policy, alpha=decide.split_alpha(policy.alpha, count))

    @functools.cache
    def rows_before(fingerprint: str) -> dict[str, Row]:
        """By node id: the row of each cell; where several machines measured it, that of this one if there is any."""
        here = [row for row in before.rows if before.machine_of(row).fingerprint == fingerprint]
        return {row.cell.nodeid: row for row in (*before.rows, *here)}

    # Each test once: the cells that only the first run has are put with the others.
    tables: dict[str, Table] = {}
    for table in after.tables:
        machine = after.machine_of(table.rows[0]) if table.rows else after.machine
        _add(tables, _judged_table(table, before, rows_before(machine.fingerprint), names, machine, policy))
    known = {row.cell.nodeid for row in after.rows}
    for table in before.tables:
        missing = _not_compared(f"{names[1]} has no such cell")
        gone = [row for row in table.rows if row.cell.nodeid not in known]
        rows = tuple(Row(cell=row.cell, verdict=missing, line=row.line) for row in gone)
        if rows:
            _add(tables, msgspec.structs.replace(table, rows=rows, note=""))

    failing = (row.cell.nodeid for table in tables.values() for row in table.rows if row.verdict.decision.fails)
    return msgspec.structs.replace(
        after,
        tables=tuple(tables.values()),
        updates=(),
        unused_baselines=(),
        failing=frozenset(failing),
        undecided_fails=False,
    )


def _add(tables: dict[str, Table], table: Table) -> None:
    first = tables.get(table.title)
    tables[table.title] = msgspec.structs.replace(first, rows=first.rows + table.rows) if first else table


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


def _judged_table(
    table: Table, before: Report, known: dict[str, Row], names: tuple[str, str], machine: Machine, policy: Policy
) -> Table:
    """A test of the second run with the verdicts on its cells; `known` are the rows of `before` by node id."""
    there = _comparable(known[row.cell.nodeid] for row in table.rows if row.cell.nodeid in known)
    stored = entries_of(before, list(there.values()))  # as if each had been recorded
    test = TestValues(row.sample for row in _comparable(table.rows).values() if row.sample is not None)

    def compared_with(sample: Sample) -> ComparedWith:
        """What a cell is compared with: a stored cell that its launches in `before` make."""
        nodeid = sample.cell.nodeid
        old = there[nodeid].sample if nodeid in there else None
        if old is None:
            return ComparedWith(why=f"{names[0]} has no launches of it")
        builds = {build_key(each.interpreter) for each in (old, sample)}
        alike = before.machine_of(known[nodeid]).fingerprint == machine.fingerprint and len(builds) == 1
        here = alike and bool(old.of("control") and sample.of("control"))
        why = names[0]
        if not here:
            no_times = "; without a control workload in both runs no times are compared"
            why += no_times if alike else " is of another machine or build"
        executor = executor_cell(sample.cell, test.cells, table.rows[0].cell.executor)  # that its ratio refers to
        if executor == sample.cell:
            executor = None
        return ComparedWith(
            basis="stored" if here else "portable",
            why=why,
            entry=stored[nodeid],
            executor=stored.get(executor.nodeid) if executor else None,
            executor_nodeid=executor.nodeid if executor else "",
            commit=before.commit,
            elsewhere=not alike,
        )

    policy = msgspec.structs.replace(policy, metrics=(*policy.metrics, *table.gated))
    all_compared = {each.cell.nodeid: compared_with(each.sample) for each in test}
    judge = Judge(_spec(table), policy, all_compared, SCREEN_LAUNCHES)
    rows = []
    for row in table.rows:
        values = test.of(row.cell)
        if values is None:
            kept = row.verdict.decision in (Decision.ERROR, Decision.UNSUPPORTED)
            verdict = row.verdict if kept else _not_compared(f"{names[1]} has no launches of it")
            rows.append(msgspec.structs.replace(row, verdict=verdict))
            continue
        # As after a screening by stored launches; what is not judged by a reference is as it was.
        beside = judge.compared_with(values)
        verdict = _not_compared(beside.why)
        if beside.entry is not None:
            judge.conditions = (known[row.cell.nodeid].conditions, row.conditions)
            screened = judge.verdict(values)
            if any(missed(each) for each in screened.metrics):
                verdict = judge.settled(values, screened, None, beside.why)
            elif screened.decision is not Decision.NO_BASELINE:
                verdict = screened
        if of_contracts := [each for each in row.verdict.metrics if each.contract]:
            others = [each for each in verdict.metrics if each.metric != Metric.CONTRACT]
            verdict = decide.again(verdict, [*others, *of_contracts])
        if (expected := row.verdict.expected) is not None:
            mark = Xfail(decision=expected.decision, reason=expected.reason, strict=expected.strict, line=expected.line)
            verdict = xfail.with_known(verdict, row.cell, [mark])
        rows.append(msgspec.structs.replace(row, verdict=verdict))
    return msgspec.structs.replace(table, rows=tuple(rows))


def _not_compared(why: str) -> Verdict:
    return Verdict(decision=Decision.INCONCLUSIVE, reason=f"not compared: {why}")


@hookimpl
def ftgate_commands(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser(
        "diff",
        help="judge two recorded runs",
        description="Judge the second of two JSON reports as if the first were its baseline. Limits and metrics are "
        "those of the reports, the environment and the project. Exits with 1 if a cell regressed, is suspect, broken "
        "or an error, and with 3 if nothing can be compared.",
        exits=(1, 3),
    )
    parser.add_argument("before", metavar="A.json", type=Path, help="the reference, written by --ftgate-report json:")
    parser.add_argument("after", metavar="B.json", type=Path, help="the run that is judged")
    add_forms(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    targets, names = checked(args.to), (str(args.before), str(args.after))
    before, after = read(args.before), read(args.after)

    # What the environment and the project say about verdicts.
    given = options()
    limits.check(cli=given.thresholds, ini=given.ini_thresholds)
    policy = Policy(
        metrics=given.metrics,
        cli=given.thresholds,
        ini=given.ini_thresholds,
        alpha=given.alpha,
        beta=alpha_spending.BETA,
        probe_cost=given.probe_cost,
    )
    report = judged(before, after, names, policy)
    report = msgspec.structs.replace(report, command=command("diff", *names))
    show(report, args.verbose)
    write(report, targets)
    if not any(row.verdict.basis for row in report.rows):
        return nothing(f"{names[0]} and {names[1]} have nothing in common that can be compared")
    return REGRESSED if report.failing else FINE
