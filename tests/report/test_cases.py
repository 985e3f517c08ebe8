"""What a reader is told of each kind of result, in the terminal and in the comment: a golden file of small reports.

Who knows only the README can say of each what changed, by how much, why, and what to do next.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from fake_launcher import MS
from report_by_hand import COMMIT, GIL, KIB, MIB, cell, of_rows, site

from golden import check_golden
from pytest_ftgate.features import markdown
from pytest_ftgate.judge import metrics
from pytest_ftgate.kit.values import Interval, Metric
from pytest_ftgate.model.report import Cause, Explanation, Figures, MovedSite, Part, Report, Row, Shortfall
from pytest_ftgate.model.verdict import Basis, Decision, MetricVerdict, Reason, Verdict, Why
from pytest_ftgate.report import said, terminal

REGRESSED, PASSED = Decision.REGRESSED, Decision.PASSED
WHY = "--ftgate-against main; encode() in words.py differs"
PAIRED = Basis(basis="paired", why=WHY, baseline=f"main ({COMMIT[:10]})", commit=COMMIT)
HELD = Basis(why="nothing is stored for it")
UNKNOWN = "no function grew beyond the noise of 770 samples"
BROKEN = (Reason(code=Why.NOT_HELD, counts=(9, 9), level=0.001),)
ACCEPTED = Reason(code=Why.ACCEPTED_LESS, name="1eb3b87e5d", limit=1.72)
OPEN = (Reason(code=Why.RULES_OUT), Reason(code=Why.NEEDS_TO_PASS, seconds=38.0))


def judged(metric: str, decision: Decision, was: float, now: float, spread: float, **fields: Any) -> MetricVerdict:
    """The verdict on two figures in the base unit: their change, with an interval of +- spread of the new one."""
    difference = metrics.row(metric).scale == "difference"
    ends = {"value": now, "low": now * (1 - spread), "high": now * (1 + spread)}
    change = Interval(**{name: end - was if difference else end / was for name, end in ends.items()}, level=0.95)
    return MetricVerdict(
        metric=metric,
        decision=decision,
        now=now,
        was=was,
        launches=7,
        points=change if difference else None,
        ratio=None if difference else change,
        **fields,
    )


def wall(decision: Decision, was_ms: float, now_ms: float, spread: float = 0.03, **fields: Any) -> MetricVerdict:
    return judged(Metric.WALL, decision, was_ms * MS, now_ms * MS, spread, **fields)


def row(word: str, workers: int, *judged: MetricVerdict, basis: Basis = PAIRED, **fields: Any) -> Row:
    """A cell with the figures of its metrics, and the worst of their decisions."""
    decision = min((each.decision for each in judged), key=lambda each: each.severity, default=Decision.NO_BASELINE)
    now = {each.metric: each.now or 0.0 for each in judged}
    time, waited = now.get("wall", 4.2 * MS), now.get("lock_wait", 0.0)
    figures = Figures(
        wall_ns=Interval(value=time, low=time * 0.97, high=time * 1.03, level=0.95),
        uss_bytes=now.get("uss", 5.4 * MIB),
        lock_wait=waited,
        sites=(site("cache.py", 2, "Lock", waited),) if waited else (),
    )
    of = cell("tests/test_words.py::test_encode", "3.14", word, workers)
    return Row(cell=of, verdict=basis.verdict(decision, "", judged), figures=figures, **fields)


def spent(added_ms: float, *others: tuple[str, float]) -> tuple[Cause]:
    """All of the added time is spent in `encode`, whose code changed, and parts of it in others."""
    functions = (("encode", added_ms, True), *((name, ms, False) for name, ms in others))
    parts = tuple(
        Part(file="words.py", line=line, name=name, before=0.1, after=0.6, added=ms * MS, changed=changed)
        for line, (name, ms, changed) in enumerate(functions, 3)
    )
    return (Cause(of="time", added=added_ms * MS, parts=parts),)


def one_cause() -> list[Row]:
    times = (("threads", 1, 4.0, 7.2), ("fork", 1, 4.1, 7.3), ("threads", 2, 8.0, 14.6), ("fork", 2, 4.4, 8.3))
    rows = []
    for word, workers, was, now in times:
        explanation = Explanation(causes=spent(now - was, ("pad", 1.3)))
        rows.append(row(word, workers, wall(REGRESSED, was, now), explanation=explanation))
    return rows


def wall_and_waits() -> list[Row]:
    """A function that is cached became 18 % slower, below its lock: the waits alone were said."""
    waited = judged(Metric.LOCK_WAIT, REGRESSED, 0.004, 0.37, 0.12, allowed=0.01)
    slower = wall(REGRESSED, 4.2, 4.96, 0.04, allowed=1.02, p_fail=0.0001)
    sites = (MovedSite(name="cache.py:2 Lock", before=0.004, after=0.37),)
    explanation = Explanation(causes=spent(0.76), sites=sites)
    return [row("threads", 1, wall(PASSED, 4.2, 4.22)), row("threads", 2, waited, slower, explanation=explanation)]


def memory() -> list[Row]:
    heavier = judged(Metric.USS, REGRESSED, 4.2 * MIB, 12.2 * MIB, 0.01)
    line = Part(file="words.py", line=3, name='BALLAST = b"x" * (8 << 20)', before=0, after=8 * MIB, added=8 * MIB)
    held = Explanation(causes=(Cause(of="memory", added=8 * MIB, parts=(line,)),))
    return [row("threads", 1, heavier, wall(PASSED, 4.2, 4.21), explanation=held)]


def leak() -> list[Row]:
    line = Part(file="words.py", line=5, name="SEEN.append(text)", before=0, after=64 * KIB, added=64 * KIB)
    left = Explanation(causes=(Cause(of="growth", added=64 * KIB, parts=(line,)),))
    grown = judged(Metric.GROWTH, REGRESSED, 0.0, 64 * KIB, 0.02)
    return [row("threads", 1, grown, wall(PASSED, 4.2, 4.21), explanation=left)]


def start() -> list[Row]:
    later = judged(Metric.START, REGRESSED, 196 * MS, 448 * MS, 0.05)
    imported = Part(file="words", line=0, name="asyncio", before=0, after=240 * MS, added=240 * MS)
    cause = Cause(of="start", added=252 * MS, parts=(imported,), modules=("asyncio", "ssl"))
    return [row("spawn", 2, wall(PASSED, 4.2, 4.21), later, explanation=Explanation(causes=(cause,)))]


def slower_than_accepted() -> list[Row]:
    slower = wall(REGRESSED, 4.0, 8.4, reasons=(Reason(code=Why.BEYOND, level=0.001), ACCEPTED), p_fail=0.0001)
    return [row("threads", 1, slower, explanation=Explanation(causes=(Cause(of="time", unknown=UNKNOWN),)))]


def contract() -> list[Row]:
    broken = MetricVerdict(
        metric=Metric.CONTRACT,
        decision=Decision.BROKEN,
        contract="threads.scaling >= 1.5",
        reasons=BROKEN,
        p_fail=0.0002,
        launches=9,
        now=1.04,
        was=1.5,
    )
    locked = Explanation(sites=(MovedSite(name="parsers.py:7 Lock", before=0.0, after=0.48),))
    return [row("threads", 2, broken, basis=HELD, explanation=locked)]


def recording() -> list[Row]:
    rows = [row(word, workers, basis=Basis()) for word in ("threads", "fork") for workers in (1, 2)]
    return [msgspec.structs.replace(each, verdict=Verdict(decision=Decision.RECORDED)) for each in rows]


def undecided() -> list[Row]:
    short = Shortfall(rounds=2, needed=7, cells=2, option="--ftgate-test-time", given_s=30, wanted_s=105)
    noisy = (
        wall(Decision.INCONCLUSIVE, 4.2, now, 0.08, reasons=OPEN, more=5, ruled_out=0.14, effect=1.05)
        for now in (4.3, 4.25)
    )
    return [row("threads", workers, each, shortfall=short) for workers, each in enumerate(noisy, 1)]


RECORDED = (
    "4 recorded in baselines/: git add baselines",
    "recorded tests/test_words.py::test_encode: 4 cells, wall 4.20 ms (new)",
    "next: commit them; pytest --ftgate then compares each change with that commit",
)
CASES: dict[str, Callable[[], list[Row]]] = {
    "one cause in four cells": one_cause,
    "wall and lock wait in one cell": wall_and_waits,
    "memory": memory,
    "a leak": leak,
    "start": start,
    "slower than a commit accepted": slower_than_accepted,
    "a contract": contract,
    "recording": recording,
    "undecided": undecided,
}


def report(name: str) -> Report:
    rows = CASES[name]()
    updates = RECORDED if name == "recording" else ()
    return of_rows(*rows, title="tests/test_words.py::test_encode", updates=updates, interpreters=(GIL,), wall_s=41.0)


def test_what_is_said_of_each_kind_of_result() -> None:
    texts = []
    for name in CASES:
        shown = terminal.render(report(name), width=80, color=False, unicode=True)
        comment = markdown.render(report(name)).partition("\n<details><summary>All cells")[0]
        texts.append(f"==== {name}\n{shown}\n---- the comment\n{comment}\n")
    check_golden("findings.txt", "\n".join(texts))


def test_four_cells_with_one_cause_are_one_screen() -> None:
    """They were 99 lines, of which four had the cause."""
    shown = terminal.render(report("one cause in four cells"), width=80, color=False, unicode=True)
    comment = markdown.render(report("one cause in four cells")).partition("\n<details><summary>All cells")[0]
    assert len(shown.splitlines()) <= 25
    assert len(comment.splitlines()) <= 25
    for text in (shown, comment):
        assert text.count("are spent in encode") == 1
    assert "all 4 cells, most in 3.14-fork-w2" in shown


@pytest.mark.parametrize("name", ["one cause in four cells", "wall and lock wait in one cell"])
def test_the_time_is_said_first_in_every_form(name: str) -> None:
    whole = report(name)
    worst = said.worst(whole)[0]
    assert said.headline(worst).startswith("wall +")
    assert said.finding(worst).changes[0].metric == Metric.WALL
    assert ": wall +" in said.first_line(whole)
    assert said.slower(worst)


@pytest.mark.parametrize(
    ("name", "metric", "change"), [("memory", Metric.USS, "+190 %"), ("start", Metric.START, "+129 %")]
)
def test_what_failed_is_first_where_the_time_did_not(name: str, metric: Metric, change: str) -> None:
    worst = said.worst(report(name))[0]
    assert said.headline(worst).startswith(f"{metric} {change}")
    assert [each.metric for each in said.finding(worst).changes] == [metric, Metric.WALL]
    assert not said.slower(worst)
