"""What every printed form says of a cell: its decision, what changed, why, and what to run. Pure.

The terminal, the page, the comment and the JUnit file are made of these texts, so that they cannot differ.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from ..judge import metrics, scale
from ..model import FAILURES, WORST_FIRST, Acceptance, Decision, Machine, MetricVerdict, Report, Row, Verdict
from ..text import COMMIT_DIGITS, plain
from . import budgets, headlines, units
from .explanation import sentences

AGAINST = "--ftgate-against "


class Status(NamedTuple):
    """How pytest shows a decision: the category in the summary, the letter, the word with -v, and its markup."""

    category: str
    letter: str
    word: str
    markup: dict[str, bool]


STATUS: dict[Decision, Status] = {
    Decision.PASSED: Status("passed", ".", "PASSED", {"green": True}),
    Decision.ACCEPTED: Status("accepted", "A", "ACCEPTED", {"yellow": True}),
    Decision.UNCHANGED: Status("unchanged", ",", "UNCHANGED", {"green": True}),
    Decision.REGRESSED: Status("regressed", "R", "REGRESSED", {"red": True}),
    Decision.SUSPECT: Status("suspect", "S", "SUSPECT", {"red": True}),
    Decision.BROKEN: Status("broken", "B", "BROKEN", {"red": True}),
    Decision.XFAILED: Status("xfailed", "x", "XFAIL", {"yellow": True}),
    Decision.XPASSED: Status("xpassed", "X", "XPASS", {"yellow": True}),
    Decision.IMPROVED: Status("improved", "I", "IMPROVED", {"green": True}),
    Decision.INCONCLUSIVE: Status("inconclusive", "?", "INCONCLUSIVE", {"yellow": True}),
    Decision.NOT_MEASURED: Status("not measured", "-", "NOT MEASURED", {"yellow": True}),
    Decision.NO_BASELINE: Status("no baseline", "n", "NO BASELINE", {"yellow": True}),
    Decision.ERROR: Status("error", "E", "ERROR", {"red": True}),
    Decision.UNSUPPORTED: Status("unsupported", "u", "UNSUPPORTED", {"yellow": True}),
}
BASES = {
    "stored": "the stored launches",
    "predicted": "a prediction from the stored recordings",
    "portable": "machine-independent metrics",
    "paired": "paired launches",
}
ATTENTION = (Decision.REGRESSED, Decision.BROKEN, Decision.SUSPECT, Decision.ERROR, Decision.XPASSED)
"""Decisions that are said in full, also where they do not fail the run."""
KNOWN = (Decision.ACCEPTED, Decision.XFAILED)
"""Regressions that somebody has answered for."""
LEAST_DECIDED = 0.1
"""The share of the compared cells of which a run has to decide some."""


class Change(NamedTuple):
    """One judged metric of a cell: its label, `now` and what it was, its change with the interval, and why.

    `evidence` is what is ruled out, and the p-value. Of a contract `now` is its text. A text that is unknown
    is empty.
    """

    metric: str
    label: str
    decision: Decision
    now: str
    change: str
    reason: str
    evidence: str

    @property
    def text(self) -> str:
        """`4.09 ms, was 3.12 ms, +31.2 % (95 % CI +28.1 % to +34.0 %)`."""
        return ", ".join(filter(None, (self.now, self.change)))


class Finding(NamedTuple):
    """What is said of one cell: `changes` of the metrics that decided (or of all), `reason` where they have none.

    `against` is the baseline and its commit, `basis` what it was judged by and why. `explanation` has a sentence for
    each thing that changed beneath a regression.
    """

    row: Row
    changes: tuple[Change, ...]
    reason: str
    against: str
    basis: str
    explanation: tuple[str, ...] = ()


def finding(row: Row, *, unicode: bool = True, every: bool = False) -> Finding:
    """What is said of a cell; with `every` of all its metrics, not only of those that decided."""
    verdict = row.verdict
    worst = (verdict.decision, Decision.ACCEPTED)
    decided = [each for each in verdict.metrics if each.decision in worst or _left_open(each, verdict)]
    shown = verdict.metrics if every else decided
    said = any(each.reason and each.reason in verdict.reason for each in shown)
    baseline, at = verdict.baseline, commit(verdict.commit)
    return Finding(
        row=row,
        changes=tuple(change(each, row, unicode=unicode) for each in shown),
        reason="" if said else plain(verdict.reason),
        against=plain(" at ".join(filter(None, (baseline, "" if at and at in baseline else at)))),
        basis=plain(basis(verdict)),
        explanation=sentences(row.explanation, unicode=unicode),
    )


def _left_open(judged: MetricVerdict, verdict: Verdict) -> bool:
    """Whether it is a contract that was undecided when another one was found broken, which ends the measurement."""
    return verdict.decision is Decision.BROKEN and judged.decision is Decision.INCONCLUSIVE and bool(judged.contract)


def change(judged: MetricVerdict, row: Row, *, unicode: bool = True) -> Change:
    """What is said of one metric of a cell."""
    return Change(
        metric=judged.metric,
        label=metrics.row(judged.metric).label,
        decision=judged.decision,
        now=plain(judged.contract) or headlines.now_and_was(judged, row, unicode=unicode),
        change="" if judged.contract else headlines.change_text(judged),
        reason=plain(judged.reason),
        evidence=_evidence(judged),
    )


def _evidence(judged: MetricVerdict) -> str:
    """What is ruled out, unless the reason says so, and the p-value of the decision."""
    ruled = "" if "rules out" in judged.reason else rules_out(judged)
    parts = [f"rules out {ruled}"] if ruled else []
    p = {Decision.PASSED: judged.p_pass, Decision.IMPROVED: None}.get(judged.decision, judged.p_fail)
    return ", ".join([*parts, *([] if p is None else [units.p_value(p)])])


def rules_out(judged: MetricVerdict) -> str:
    """`+25 %`, of a metric that passed or was left open; empty where nothing is known to be ruled out."""
    if judged.ruled_out is None or judged.decision not in (Decision.PASSED, Decision.INCONCLUSIVE):
        return ""
    return scale.worse_text(judged.metric, judged.ruled_out)


def basis(verdict: Verdict) -> str:
    """What the verdict was judged by, and the reason for that."""
    text = BASES.get(verdict.basis, "")
    return f"{text} ({verdict.why})" if text and verdict.why else text or verdict.why


def commands(*rows: Row) -> tuple[str, ...]:
    """The commands to rerun cells, of many their whole tests, and to see their baseline; cells with the same options
    are one command.
    """
    reruns: dict[tuple[str, ...], list[str]] = {}
    stored = False
    for row in rows:
        asked = row.verdict.why.partition("; ")[0].replace(" ", "=", 1) if row.verdict.why.startswith(AGAINST) else ""
        own = [asked] if asked and not _is_against(row) else []
        reruns.setdefault((*own, *row.options), []).append(row.cell.nodeid)
        stored = stored or bool(row.verdict.baseline and not asked)
    named = {
        words: cells if len(cells) <= headlines.NAMED else dict.fromkeys(cell.partition("[")[0] for cell in cells)
        for words, cells in reruns.items()
    }
    texts = (plain(shlex.join(["pytest", "--ftgate", *words, *cells])) for words, cells in named.items())
    return (*texts, *(["ftgate baseline diff"] if stored else []))


def commit(text: str) -> str:
    """A commit's first digits, and the `+` of a tree that was not clean."""
    return text[:COMMIT_DIGITS] + ("+" if text.endswith("+") else "")


def fails(report: Report, row: Row) -> bool:
    """Whether a cell fails the run, as its `--ftgate-fail-on` says; by the default of that if the report lacks it."""
    decision = row.verdict.decision
    if report.failing is None:
        return decision in FAILURES
    # The same cell may have passed on one machine and failed the run on another.
    return row.cell.nodeid in report.failing and decision not in (Decision.PASSED, Decision.UNCHANGED)


def limits_text(report: Report) -> str:
    """Where the limits of a run came from; empty if they are the change's own."""
    if not report.limits_from:
        return ""
    return plain(
        f"from commit {commit(report.limits_from)} (--ftgate-trust=base), as what fails and the set of tests; "
        "Ftgate-Accept trailers do not count"
    )


def result(report: Report, rows: Sequence[Row] | None = None) -> str:
    """`7 of 8 decided, 2 regressed`: the heading of a report, or of these rows of it, in every form."""
    rows = report.rows if rows is None else rows
    found = Counter(row.verdict.decision for row in rows)
    failing = Counter(row.verdict.decision for row in rows if fails(report, row))
    decided, compared = _decided(rows)
    so_far = " so far" if report.partial else ""
    none = "nothing was compared" if rows else "nothing was measured"
    said = [f"{decided} of {compared} decided{so_far}" if compared else none]
    if failing:
        said += [counted(failing)]
    elif attention := counted({each: found[each] for each in ATTENTION}):
        said += ["nothing fails", attention]
    elif decided:
        known = counted({each: found[each] for each in KNOWN})
        said += ["nothing else regressed", known] if known else ["nothing regressed"]
    others = sum(not row.verdict.compared and not fails(report, row) for row in rows)
    return ", ".join([*said, *([f"{others} not compared"] if compared and others else [])])


def headline(report: Report, rows: Sequence[Row] | None = None) -> str:
    """What a report says first, in every form: the worst of what fails, its change and its function; else `result`.

    `test_put[3.14t-threads-w8]: wall +31.2 %, in iterencode, json/encoder.py:204`
    """
    block = worst(report, rows)
    if not block:
        return undecided(report).partition(";")[0] * (rows is None) or result(report, rows)
    failed = block[0].verdict.decision is Decision.ERROR  # `main (1eb3b87e5d): cannot install ...` has no figure
    text = said(block[0]) if failed else headlines.short(said(block[0]))
    return ", ".join(filter(None, (f"{headlines.together(block)}: {text}", headlines.where(block[0]))))


def said(row: Row) -> str:
    """A cell in one line: what was expected of it, else its `headlines.headline`."""
    return known_text(row.verdict) or headlines.headline(row)


def worst(report: Report, rows: Sequence[Row] | None = None) -> list[Row]:
    """The worst of the cells that fail, with those that have the same error; empty if none fails."""
    failing = [row for row in (report.rows if rows is None else rows) if fails(report, row)]
    return next(iter(headlines.blocks(sorted(failing, key=lambda row: place(report, row)))), [])


def about(report: Report) -> str:
    """What was measured, against what: `words, branch faster at 1a2b3c4d5e, against main (2b3c4d5e6f)`."""
    branch = f"branch {report.branch}" if report.branch else ""
    at = commit(report.commit)
    here = " at ".join(filter(None, (branch, at))) if branch else at and f"commit {at}"
    against = reference(report)
    return plain(", ".join(filter(None, (report.project, here, against and f"against {against}"))))


def reference(report: Report) -> str:
    """What all cells were compared with, else the commit that is the same for all; empty where there are several."""
    verdicts = [row.verdict for row in report.rows if row.verdict.baseline]
    names = {each.baseline for each in verdicts if each.basis == "paired"}
    commits = {commit(each.commit) for each in verdicts}
    if len(names) == 1 and all(each.basis == "paired" for each in verdicts):
        return names.pop()
    return f"commit {commits.pop()}" if len(commits) == 1 and "" not in commits else ""


def undecided(report: Report) -> str:
    """Why a run fails of which (almost) nothing was decided, and what to do; empty if it does not.

    It has tested nothing, and who looks at the exit status alone would take that for a pass.
    """
    decided, compared = _decided(report.rows)
    if not report.undecided_fails or report.shard or report.partial or decided >= LEAST_DECIDED * compared:
        return ""
    if any(fails(report, row) for row in report.rows):  # that is the reason then
        return ""
    left = [row for row in report.rows if row.verdict.compared and not row.verdict.decision.decided]
    short = [row.shortfall for row in left if row.shortfall]
    if all(row.verdict.basis == "portable" for row in left):
        advice = (
            "what another machine recorded decides little: record on this one, or compare with a commit "
            "(--ftgate-against)"
        )
    elif short:
        advice = budgets.sentence(max(short, key=lambda each: each.wanted_s))
    else:
        fixed = any(option.startswith("--ftgate-launches") for row in report.rows for option in row.options)
        more = "launches (--ftgate-launches)" if fixed else "time (--ftgate-test-time)"
        advice = f"give the tests more {more}, a longer workload or a quieter machine"
    cells = f"{decided} of {compared} compared cell{'' if compared == 1 else 's'}"
    almost = "almost " if decided else ""
    return f"{almost}nothing was decided: {cells}; {advice}; the run fails by undecided-run of --ftgate-fail-on"


def all_decided(report: Report) -> bool:
    """Whether something was compared, and all of it decided."""
    decided, compared = _decided(report.rows)
    return 0 < compared == decided


def _decided(rows: Iterable[Row]) -> tuple[int, int]:
    """How many cells were decided, and of how many that are compared."""
    compared = [row.verdict.decision.decided for row in rows if row.verdict.compared]
    return sum(compared), len(compared)


def counted(counts: Mapping[Decision, int]) -> str:
    """`2 regressed, 1 error`, worst first."""
    words = (
        (each, "errors" if each is Decision.ERROR and counts[each] != 1 else each.value)
        for each in WORST_FIRST
        if counts.get(each)
    )
    return ", ".join(f"{counts[each]} {word}" for each, word in words)


def worst_first(report: Report) -> list[Row]:
    """All rows by their `place`, then in the order of the report."""
    return sorted(report.rows, key=lambda row: place(report, row))


def place(report: Report, row: Row) -> tuple[bool, int, float]:
    """Where a cell is said: those that fail first, then by decision; of those that fail the larger change first."""
    failing = fails(report, row)
    worse = -headlines.severity(row) if failing else 0.0
    return not failing, WORST_FIRST.index(row.verdict.decision), worse


def machines(report: Report) -> list[tuple[str, Machine]]:
    """Each machine that measured, with the names of the hosts that are it: of the report's own none."""
    named: dict[Machine, list[str]] = {report.machine: []}
    for host in report.hosts:
        named.setdefault(host.machine, []).append(host.name)
    return [(", ".join(names), machine) for machine, names in named.items()]


def counts(report: Report) -> Counter[Decision]:
    """How many cells there are of each decision."""
    return Counter(row.verdict.decision for row in report.rows)


def unrecorded(report: Report) -> int:
    """How many cells a recording would give a baseline; a reference that has none of a cell is no baseline."""
    return sum(row.verdict.decision is Decision.NO_BASELINE and not _is_against(row) for row in report.rows)


def new_since(report: Report) -> list[str]:
    """Why cells have no reference in a comparison, each reason once: `main (1eb3b87e5d) has no such test: ...`."""
    new = (row for row in report.rows if row.verdict.decision is Decision.NO_BASELINE and _is_against(row))
    return [*dict.fromkeys(plain(row.verdict.reason) for row in new if row.verdict.reason)]


def _is_against(row: Row) -> bool:
    return any(word.startswith("--ftgate-against") for word in row.options)


def accepted_texts(accepted: Iterable[Acceptance]) -> list[str]:
    """`wall accepted by commit 1eb3b87e5d: the reason`, for each."""
    return [plain(f"{each.metric} accepted by commit {commit(each.commit)}: {each.reason}") for each in accepted]


def known_text(verdict: Verdict) -> str:
    """`broken, as expected: the reason`, and what was accepted; empty for a cell of which nothing was expected."""
    expected = verdict.expected
    if expected is None:
        return ""
    if verdict.decision is Decision.XFAILED:
        text = plain(f"{expected.decision}, as expected: {expected.reason}")
        return "; ".join([text, *accepted_texts(verdict.accepted)])
    mark = f"the mark in line {expected.line}"
    meant = f": remove {mark}" if expected.strict else f", as {mark} allows"
    return plain(f"expected {expected.decision}, passed{meant} ({expected.reason})")
