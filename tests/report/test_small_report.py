"""The small report holds together: a reader of a golden file can follow each figure from the others."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest
import report_by_hand
import small_report

from pytest_ftgate.features import markdown
from pytest_ftgate.judge.figures import figures
from pytest_ftgate.judge.values import Values
from pytest_ftgate.kit.values import Interval
from pytest_ftgate.model.report import Cause, Explanation, Figures, Report, Row
from pytest_ftgate.model.sample import Iteration, one_worker_cell
from pytest_ftgate.model.verdict import Decision
from pytest_ftgate.report import said
from pytest_ftgate.stats.speedup import amdahl

SHARES = {"share", "contended_ratio", "lock_wait", "queue_wait", "efficiency", "serial_fraction", "p_fail", "p_pass"}
STATES = ("running", "runnable", "gil", "lock", "queue", "process", "unattributed", "asleep")


def near(one: float | None, other: float | None) -> bool:
    return one is not None and other is not None and math.isclose(one, other, rel_tol=1e-6, abs_tol=1e-9)


def structs(value: object) -> Iterator[msgspec.Struct]:
    """It and all within it."""
    if isinstance(value, msgspec.Struct):
        yield value
        value = msgspec.structs.astuple(value)
    if isinstance(value, dict):
        value = tuple(value.values())
    if isinstance(value, tuple | list):
        for each in value:
            yield from structs(each)


def of_struct(found: msgspec.Struct) -> Iterator[str]:
    """What cannot be in one part of a report."""
    fields = msgspec.structs.asdict(found)
    if isinstance(found, Interval) and not (found.low <= found.value <= found.high and 0 <= found.level < 1):
        yield f"interval {found}"
    if isinstance(found, Iteration) and found.wall_ns != found.start_ns + found.work_ns + found.join_ns:
        yield f"phases of {found}"
    for name in fields.keys() & SHARES:
        if fields[name] is not None and not 0 <= fields[name] <= 1:
            yield f"{name} {fields[name]}"
    orders = [("p50_ns", "p95_ns", "p99_ns", "max_ns"), ("gil_p50_ns", "gil_p95_ns", "gil_max_ns")]
    orders += [(f"{kind}_uss", f"{kind}_pss", f"{kind}_rss") for kind in ("steady", "peak")]
    orders += [(f"steady_{kind}", f"peak_{kind}") for kind in ("uss", "pss", "rss")]
    orders += [("uss_bytes", "pss_bytes", "rss_bytes"), ("floor_uss_bytes", "uss_bytes", "uss_peak_bytes")]
    for names in orders:
        known = [fields[name] for name in names if fields.get(name) is not None]
        if known != sorted(known):
            yield f"order of {', '.join(names)}: {known}"


def of_figures(of: Figures, workers: int) -> Iterator[str]:
    """What does not follow from other figures of the same cell."""
    phases = [each for each in (of.start_ns, of.work_ns, of.join_ns) if each is not None]
    if of.wall_ns and phases and not near(sum(phases), of.wall_ns.value):
        yield "the phases are not the wall time"
    for kind, whole in (("lock", of.lock_wait), ("queue", of.queue_wait)):
        shares = [site.share for site in of.sites if site.waits_for == kind]
        if whole is not None and not near(sum(shares), whole):
            yield f"the sites are not the {kind}_wait"
    for site in of.sites:
        if sum(holder.share for holder in site.holders) > 1:
            yield "a lock is held for longer than it is waited for"
        if not near(site.share * workers, site.contended_per_s * site.total_ns / site.contended / 1e9):
            yield "the waits of a site are not its share"
    if (waits := of.waits) and not waits.unavailable:
        if not near(sum(getattr(waits, state) for state in STATES), 1):
            yield "the states are not the workers' time"
        if sum(waits.native.values()) > waits.unattributed:
            yield "native waits are more than the unattributed ones"
        if not near(sum(waits.cores.values()), of.cores):
            yield "the processes do not keep the cores busy"
    if tree := of.memory.get("tree"):
        parts_of = [part for name, part in of.memory.items() if name != "tree"]
        if tree.processes != sum(part.processes for part in parts_of):
            yield "the processes are not the tree's"
        for kind in ("uss", "pss", "rss"):
            whole, of_cell = getattr(tree, f"steady_{kind}"), getattr(of, f"{kind}_bytes")
            if not near(whole, sum(getattr(part, f"steady_{kind}") for part in parts_of)) or not near(whole, of_cell):
                yield f"the {kind} is not that of its processes"
        if not near(tree.peak_uss, of.uss_peak_bytes):
            yield "the peak is not the tree's"
    if of.scaling:
        if not near(of.efficiency, of.scaling.value / workers):
            yield "the efficiency is not the scaling's"
        if not near(of.serial_fraction, amdahl(of.scaling.value, workers)):
            yield "the serial fraction is not the scaling's"


def of_verdict(row: Row) -> Iterator[str]:
    """What is judged is what was measured."""
    metrics = row.verdict.metrics
    if metrics and row.verdict.decision is not min((each.decision for each in metrics), key=lambda each: each.severity):
        yield "the decision is not that of the worst metric"
    if (row.verdict.decision is Decision.ERROR) is not (row.error is not None):
        yield "an error without its verdict"
    for each in metrics:
        figure = row.figures.of(each.metric)
        if not near(each.now, figure.value if isinstance(figure, Interval) else figure):
            yield f"what was judged is not the figure of {each.metric}"
        elif each.ratio and not near(each.ratio.value, each.now / each.was if each.now and each.was else None):
            yield f"the ratio of {each.metric} is not that of its sides"
        elif each.points and not near(each.points.value, (each.now or 0.0) - (each.was or 0.0)):
            yield f"the points of {each.metric} are not those of its sides"
        worst = each.ruled_out if each.points else 1 + (each.ruled_out or 0.0)
        if each.decision is Decision.PASSED and (worst is None or each.effect is None or worst > each.effect + 1e-9):
            yield f"{each.metric} passed without ruling out its effect"
        end = each.points.low if each.points else each.ratio.low if each.ratio else None
        if each.decision is Decision.REGRESSED and (end is None or each.allowed is None or end <= each.allowed):
            yield f"{each.metric} regressed within what is allowed"
        if row.sample and each.launches > len(row.sample.launches):
            yield f"{each.metric} was judged by more launches than there are"


def numbers(of: Figures) -> dict[str, float]:
    """The figures by name, those of the workload's own too; of an interval its value."""
    fields = msgspec.structs.asdict(of)
    own = {f"{name}.{key}": each for name in ("counters_per_s", "timers_mean_ns") for key, each in fields[name].items()}
    found = {name: each.value if isinstance(each, Interval) else each for name, each in (fields | own).items()}
    return {name: each for name, each in found.items() if isinstance(each, float)}


def of_launches(row: Row) -> Iterator[str]:
    """Figures follow from the launches that the report has."""
    if row.sample is None:
        return
    read, shown = numbers(figures(Values(row.sample), reference=None)), numbers(row.figures)
    yield from (
        f"{name} is {shown.get(name)}, its launches say {read[name]}"
        for name in read
        if not near(read[name], shown.get(name))
    )
    if row.sample.reference:
        was = figures(Values(row.sample.reference), reference=None)
        wall = next(each for each in row.verdict.metrics if each.metric == "wall")
        if was.wall_ns is None or not near(was.wall_ns.value, wall.was):
            yield "the reference is not that of the verdict"
        yield from of_explanation(row.explanation or Explanation(), was, row.figures)


def of_explanation(of: Explanation, was: Figures, now: Figures) -> Iterator[str]:
    """What changed did so between both sides."""
    was_ns, now_ns = was.work_ns or 0.0, now.work_ns or 0.0
    cause = of.cause("time") or Cause(of="time")
    if sum(each.added for each in cause.parts) > cause.added:
        yield "the functions take more than was added"
    if not all(near(each.added, each.after * now_ns - each.before * was_ns) for each in cause.parts):
        yield "a function's time is not its share"
    if of.cores and not (near(of.cores.before, was.cores) and near(of.cores.after, now.cores)):
        yield "the cores kept busy are not those of both sides"
    if any(not near(each.after, getattr(now.waits, each.name)) for each in of.shares):
        yield "what moved is not where the cell waits"


def of_report(report: Report) -> Iterator[str]:
    rows = report.rows
    if len({row.cell.nodeid for row in rows}) < len(rows):
        yield "a cell twice"
    if report.failing != frozenset(row.cell.nodeid for row in rows if row.verdict.decision.fails):
        yield "what fails is not what fails by default"
    if not near(sum(report.seconds.values()), report.wall_s):
        yield "the seconds are not the run's"
    names = {re.sub(r"\.\d+(t?)$", r"\1", each.name) for each in report.interpreters}
    if names != {row.cell.target.spec for row in rows}:
        yield "the interpreters are not those of the cells"
    for table in report.tables:
        times = {row.cell: row.figures.wall_ns.value for row in table.rows if row.figures.wall_ns}
        for row in table.rows:
            alone = one_worker_cell(row.cell, times)
            more = row.cell.workers * times[alone] / times[row.cell] if alone and row.figures.scaling else None
            if row.figures.scaling and not near(row.figures.scaling.value, more):
                yield "the scaling is not that of one worker to several"


def faults(report: Report) -> list[str]:
    """What cannot be in a report of one run."""
    found = [*of_report(report), *(text for each in structs(report) for text in of_struct(each))]
    for row in report.rows:
        found += of_figures(row.figures, row.cell.workers)
        found += [*of_verdict(row), *of_launches(row)]
    return found


def test_it_holds_together() -> None:
    assert faults(small_report.report()) == []


def test_the_cells_that_are_counted_are_those_of_the_table() -> None:
    report = small_report.report()
    assert Counter(row.verdict.decision for row in report.rows) == said.counts(report)
    assert sorted(row.verdict.decision for row in report.rows) == ["error", "passed", "regressed"]
    text = markdown.render(report)
    assert "3 cells in 2 min 5 s: 1 regressed, 1 error, 1 passed." in text
    listed = re.findall(r"^\| `(.*?)` \| (\w+) \|", text, re.MULTILINE)
    assert listed == [(row.cell.label, row.verdict.decision.value) for row in report.rows]


def changed(**fields: Callable[[Any], Any]) -> Report:
    """The report, whose regressed cell has these figures made anew of what they are."""
    report = small_report.report()
    table = report.tables[0]
    one, row, other = table.rows
    new = {name: change(getattr(row.figures, name)) for name, change in fields.items()}
    row = msgspec.structs.replace(row, figures=msgspec.structs.replace(row.figures, **new))
    return msgspec.structs.replace(report, tables=(msgspec.structs.replace(table, rows=(one, row, other)),))


@pytest.mark.parametrize(
    ("report", "said_of_it"),
    [
        (changed(wall_ns=lambda wall: msgspec.structs.replace(wall, low=wall.high)), "interval"),
        (changed(lock_wait=lambda share: share + 1), "lock_wait 1.231"),
        (changed(sites=lambda _: ()), "the sites are not the lock_wait"),
        (changed(waits=lambda waits: msgspec.structs.replace(waits, running=0.5)), "the states are not"),
        (changed(cores=lambda cores: cores + 0.1), "cores is 2.1, its launches say 2.0"),
        (changed(pss_bytes=lambda size: size / 2), "order of uss_bytes"),
        (changed(scaling=lambda of: msgspec.structs.replace(of, value=1.605)), "the scaling is not that of one"),
        (msgspec.structs.replace(small_report.report(), wall_s=1.0), "the seconds are not the run's"),
        (msgspec.structs.replace(small_report.report(), failing=frozenset()), "what fails is not"),
    ],
)
def test_a_figure_that_does_not_fit_is_found(report: Report, said_of_it: str) -> None:
    assert any(text.startswith(said_of_it) for text in faults(report)), faults(report)


def test_the_large_report_does_not_hold_together() -> None:
    """It has every verdict and every kind of gap, for texts alone."""
    assert faults(report_by_hand.report())
