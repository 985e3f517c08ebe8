"""What every printed form says of a cell, of a block of cells and of a report. Pure.

The terminal, the page, the comment and the JUnit file are made of these texts, so that they cannot differ.
"""

from __future__ import annotations

import math
import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from ..judge import contract_grammar, limits, metrics
from ..kit import units
from ..kit.text import COMMIT_DIGITS, first_of, listed, plain, plural, split_nodeid
from ..kit.values import Metric, grouped
from ..model.report import OWN_CODE, Cause, Explanation, Machine, Moved, Part, Report, Row, Shortfall
from ..model.verdict import CANNOT_RUN, NOT_AT_HAND, Acceptance, Decision, MetricVerdict, Verdict
from . import errors, reasons

VISIBLE, VISIBLE_PART = 0.01, 0.1
"""A change is said to be another one than that of its figures from so many points on, and from that part of it."""
Tests: TypeAlias = Mapping[str, Sequence[Row]]
"""The cells of each test of a run."""
NAMED = 3
"""Cells that a block names where it has many."""
STATES = {
    "running": ("running", "running"),
    "runnable": ("runnable", "waiting for a core"),
    "gil": ("GIL", "waiting for the GIL"),
    "lock": ("lock", "waiting for locks"),
    "queue": ("queue", "waiting in queues"),
    "process": ("another process", "waiting for another process"),
    "unattributed": ("unattributed", "waiting inside the interpreter or for unknown locks"),
    "asleep": ("asleep", "asleep (I/O, sleep)"),
}
"""The states of the workers' threads, by their name in WaitFigures: in a line of figures, and in a sentence."""
LEGS = {"dispatch to": "from submit to the start of a task", "dispatch back": "from the end of a task to its result"}
SHORT = 60
"""Characters of a line of code that are said."""
COPIED = (
    "a page is copied when an object in it is used, changed, or visited by a garbage collection; "
    "gc.freeze() before the fork keeps collections out"
)
AGAINST = "--ftgate-against "
BASES = {
    "stored": "stored figures",
    "paired": "paired launches",
}
NOTHING_JUDGED = "no cell was judged"
LEAST_DECIDED = 0.5
"""The share of the compared cells of which a run has to decide some."""


# ---- one metric of a cell


def change_text(judged: MetricVerdict) -> str:
    """The change with its interval, or the range of its launches: in percent, or as a difference."""
    launches = plural(judged.launches, "pair")
    if judged.p_fail is None:  # nothing was tested
        launches = "exact" if metrics.row(judged.metric).exact else plural(judged.launches, "launch", "launches")
    if judged.points is not None:
        return units.difference_and_ends(metrics.row(judged.metric).unit, judged.points, launches)
    if judged.ratio is None:
        return ""
    return units.change_and_ends(judged.ratio, launches) + units.beyond_body(judged.wall_growth)


def allowed(judged: MetricVerdict) -> str:
    """`allowed +2 %`: the change up to which nothing fails; empty where it is unknown."""
    if judged.allowed is None:
        return ""
    unit, limit = metrics.row(judged.metric).unit, judged.allowed
    return f"allowed {units.difference(unit, limit) if judged.points else units.change(limit)}".replace(".0 %", " %")


def now_and_was(judged: MetricVerdict, row: Row) -> str:
    """`12.3 ms, was 4.36 ms`, as measured on each side, without what is unknown.

    A change is judged pair by pair. Where it is not that of the two figures, `, compared pair by pair` follows.
    """
    unit, now, was = metrics.row(judged.metric).unit, judged.now, judged.was
    here, there = ("" if each is None else units.of(unit, each, unicode=True) for each in (now, was))
    here += " a call" * (judged.metric == Metric.GROWTH)
    change = shown = 0.0  # what was judged, and what the two figures show
    if now is not None and was is not None:
        if judged.points is not None:
            change, shown = judged.points.value, now - was
        elif judged.ratio is not None and was > 0:
            change, shown = judged.ratio.value - 1, now / was / judged.wall_growth - 1
    how = ""
    if not abs(shown - change) <= max(VISIBLE, VISIBLE_PART * abs(change)):
        elsewhere = "at one speed" if unit == "time" else "by recordings"
        how = f"compared {'pair by pair' if row.verdict.basis == 'paired' else elsewhere}"
    return ", ".join(filter(None, (here, here and there and f"was {there}", how)))


class MetricText(NamedTuple):
    """What is said of one judged metric of a cell; a text that is unknown is empty."""

    metric: str
    decision: Decision
    change: str
    """`+31.2 % (+28.1 to +34.0)`; of a contract its text."""
    now: str
    """`4.09 ms, was 3.12 ms`; of a contract its value."""
    reason: str
    """What is to be known beside these, such as what would settle it."""
    evidence: str
    """The level of the interval, the limit, what is ruled out, and the whole reason with its p-value."""

    def text(self, but: Decision | None = None) -> str:
        """`+31.2 % (+28.1 to +34.0), regressed: 4.09 ms, was 3.12 ms`, without the decision where it is that one.

        By which commit it is accepted is a reason.
        """
        decided = "" if self.decision in (but, Decision.ACCEPTED) else self.decision
        return ": ".join(filter(None, (", ".join(filter(None, (self.change, decided))), self.now)))


def metric_text(judged: MetricVerdict, row: Row) -> MetricText:
    interval, told = judged.points or judged.ratio, reasons.beside_change(judged)
    if judged.contract:
        change, sides = judged.contract, reasons.contract_sides(judged)
        if sides:
            # The value of the other side is said where it is one of another cell.
            alone = len(contract_grammar.all_names(contract_grammar.parse(change))) == 1
            now = sides[0] if alone else " against ".join(sides)
            told = told[judged.decision is Decision.BROKEN :]  # after that it did not hold, which `now` shows
        else:
            now, *told = told or [""]
    else:
        change, now = change_text(judged), now_and_was(judged, row)
    p = {Decision.PASSED: judged.p_pass, Decision.IMPROVED: None}.get(judged.decision, judged.p_fail)
    level = f"{units.level(interval.level)} CI" if interval and interval.level > 0 else ""
    found = [level, allowed(judged) if judged.decision.fails else ""]
    if judged.ruled_out is not None and judged.decision is Decision.PASSED:
        found.append(f"rules out {reasons.worse_text(judged.metric, judged.ruled_out)}")
    tested = any(each.code in reasons.WITH_P_VALUE for each in judged.reasons)
    found += ["" if p is None or tested else units.p_value(p)]
    return MetricText(
        metric=judged.metric,
        decision=judged.decision,
        change=plain(change),
        now=plain(now),
        reason=plain("; ".join(told)),
        evidence=plain("; ".join(filter(None, (", ".join(filter(None, found)), reasons.of_metric(judged))))),
    )


# ---- a cell in one line


def headline(row: Row) -> str:
    """What pytest's summary says of a cell after its node id, the figure first, because long lines are cut there.

    `wall +182 % (+171 to +193): 12.3 ms, was 4.36 ms`, `threads.scaling >= 1.6: 1.12x`, `KeyError: 'missing'`; of an
    open cell `wall +3.1 % (-2.0 to +8.2), uss too; rules out +21 %; +5 % needs about 14 more pairs, 40 s`.
    """
    verdict = row.verdict
    if verdict.decision is Decision.ERROR:
        return f"{'also in the reference: ' if errors.same_there(row) else ''}{errors.exception(errors.error_of(row))}"
    if verdict.decision is Decision.INCONCLUSIVE:
        left = told(row)
        compared, most = _compared(left), _needs_most(left)
        bare = [each for each in left if each not in compared]
        others = [each.metric for each in compared[1:]]
        too = f", {listed(others, 'and')} too" if others else ""
        settles = reasons.of_metric(most) if most else "" if left else verdict.reason
        texts = [*(f"{each.metric} {change_text(each)}{too}" for each in compared[:1]), settles]
        texts += [": ".join(filter(None, (each.contract or each.metric, reasons.of_metric(each)))) for each in bare]
    else:
        texts = [_worded(metric_text(each, row), verdict.decision) for each in told(row)]
    text = "; ".join(filter(None, texts)) or reasons.of_cell(verdict) or verdict.why
    return plain(text.partition("\n")[0])


def skip_reason(row: Row) -> str:
    """What pytest's reports say of a cell that is skipped: `inconclusive: wall +3.1 % (...); rules out +21 %`."""
    verdict = row.verdict
    if verdict.decision is Decision.UNSUPPORTED:
        return verdict.reason
    return ": ".join(filter(None, (verdict.decision, headline(row))))


def _worded(each: MetricText, but: Decision) -> str:
    """A metric with its name and its decision, unless it is that of its cell; of one without a change its reason."""
    name = "" if each.metric == Metric.CONTRACT else each.metric
    if each.change:
        return " ".join(filter(None, (name, each.text(but))))
    return f"{name}: {each.reason}" if each.reason else ""


def _compared(judged: Iterable[MetricVerdict]) -> list[MetricVerdict]:
    """Those with a change."""
    return [each for each in judged if each.ratio or each.points]


def _needs_most(judged: Iterable[MetricVerdict]) -> MetricVerdict | None:
    """The open metric with a change that needs most to be settled."""
    return max(_compared(judged), key=lambda each: each.more or math.inf, default=None)


def told(row: Row) -> list[MetricVerdict]:
    """The metrics that led to a verdict; of a cell that fails all that are worse: the time, what fails, what may be."""
    decision = row.verdict.decision
    if not decision.missed:
        return [each for each in row.verdict.metrics if each.decision is decision]
    worse = [each for each in row.verdict.metrics if each.decision.missed or each.beyond]
    return sorted(worse, key=lambda each: (each.metric != Metric.WALL, not each.decision.missed))


def shortened(text: str) -> str:
    """What is kept of a headline where there is no room: `wall +182 %`."""
    return text.partition(" (")[0]


def in_one_line(row: Row) -> str:
    """A cell in one line: what was expected of it, else its `headline`."""
    return known_text(row.verdict) or headline(row)


def where(row: Row) -> str:
    """What takes most of what was added, else the lock that is waited for; empty if neither is known."""
    explanation = row.explanation
    if explanation is None:
        return ""
    places = [_where(cause.of, each) for cause in explanation.causes for each in cause.parts]
    places += [f"at {site.name}" for site in explanation.sites]
    return plain(places[0]) if places else ""


def severity(row: Row) -> float:
    """How much worse a cell is, by the metric that its headline begins with; 0 where no percentage says it."""
    first = next(iter(told(row)), None)
    if first is None or first.contract or (first.points and metrics.row(first.metric).unit != "share"):
        return 0.0
    return limits.worse(first)


def slower(row: Row) -> bool:
    """Whether a cell fails by its wall time, or may."""
    return row.verdict.decision.missed and any(each.metric == Metric.WALL for each in told(row)[:1])


def locks_allow(row: Row) -> str:
    """`its locks allow 3.3 workers: LRU.get, cache.py:40`; empty where none limits it, or that is not known.

    It says if a call of the body holds the lock longer or shorter than with one worker.
    """
    ceiling, limit = row.figures.lock_ceiling, row.figures.lock_limit
    if ceiling is None or limit is None:
        return ""
    other = (
        ""
        if limit.longer is None
        else f"; with {row.cell.workers}, each call holds it {units.ratio(limit.longer)} as long"
    )
    return plain(f"{allowing(ceiling, limit.place)}{other}")


def allowing(ceiling: float, place: str) -> str:
    """`its locks allow 3.3 workers: LRU.get, cache.py:40`, without a place that is not known."""
    return ": ".join(filter(None, (f"its locks allow {ceiling:.2g} workers", errors.in_project(place))))


# ---- a cell at length


class Finding(NamedTuple):
    """What is said of the cells of a block."""

    changes: tuple[MetricText, ...]
    """Of the metrics that led to the verdict, or of all."""
    reason: str
    """Where the changes have none."""
    against: str
    """The baseline and its commit."""
    basis: str
    """What it was judged by, and why."""
    explanation: tuple[str, ...] = ()
    """A sentence for each thing that changed beneath a regression."""


def finding(row: Row, *others: Row, every: bool = False) -> Finding:
    """What is said of a cell and the others of its block, of which it is the worst; with `every` of all its metrics.

    A cell that fails by another metric says whether its time has changed.
    """
    verdict, changes = row.verdict, dict[str, MetricText]()
    for of in (row, *others):
        for each in of.verdict.metrics if every else _shown(of):
            text = metric_text(each, of)
            if (
                verdict.decision.missed
                and each.decision is Decision.INCONCLUSIVE
                and not (each.contract or each.beyond)
            ):
                text = text._replace(reason="")  # what would settle it is of no use to a cell that fails
            where = "" if of is row else f" ({plain(of.cell.label)})"
            changes.setdefault(each.contract or each.metric, text._replace(now=text.now + where))
    baseline, at = verdict.baseline, commit(verdict.commit)
    against = " at ".join(filter(None, (baseline, "" if at and at in baseline else at)))
    known = (each.explanation for each in (row, *others) if each.explanation)
    own = (each for each in known if not any(cause.like for cause in each.causes))
    alone = verdict.decision is Decision.BROKEN and not verdict.basis and not every  # a contract needs no baseline
    return Finding(
        changes=tuple(changes.values()),
        reason=plain(verdict.reason),
        against=plain("; ".join(filter(None, (against, stored_text(verdict))))),
        basis="" if alone else plain(basis(verdict)),
        explanation=explained(next(own, row.explanation)),
    )


def _shown(row: Row) -> list[MetricVerdict]:
    verdict, found = row.verdict, told(row)
    for each in verdict.metrics:
        open_too = verdict.decision is Decision.BROKEN and each.contract and each.decision is Decision.INCONCLUSIVE
        time_too = verdict.decision.missed and each.metric == Metric.WALL and each.ratio is not None
        if each not in found and (each.decision is Decision.ACCEPTED or open_too or time_too):
            found.append(each)
    return found


def stored_text(verdict: Verdict) -> str:
    """`stored 3.66 ms, the reference 3.71 ms here`, of the time, or else of the first metric that is stored."""
    found = [(each, each.stored, each.was) for each in verdict.metrics if None not in (each.stored, each.was)]
    for each, *figures in sorted(found, key=lambda each: each[0].metric != Metric.WALL)[:1]:
        stored, was = (units.of(metrics.row(each.metric).unit, value or 0.0, unicode=True) for value in figures)
        return f"stored {stored}, the reference {was} here"
    return ""


def basis(verdict: Verdict) -> str:
    """What the verdict was judged by, and the reason for that; of stored figures what a pass of the time rules out."""
    text = BASES.get(verdict.basis, "")
    walls = [each.effect for each in verdict.metrics if each.metric == Metric.WALL and each.effect is not None]
    if verdict.basis == "stored" and walls:
        text += f", by which a pass rules out {units.change(walls[0]).replace('.0 %', ' %')}"
    return f"{text} ({verdict.why})" if text and verdict.why else text or verdict.why


def explained(explanation: Explanation | None) -> tuple[str, ...]:
    """What changed beneath a regression, the causes first; empty without an explanation.

    `38.0 ms of the 41.2 ms added are spent in iterencode, json/encoder.py:204`. What is not known is said, too.
    """
    if explanation is None:
        return ()

    def shares(moved: Moved) -> str:
        return f"{units.whole_share(moved.before)} -> {units.whole_share(moved.after)}"

    texts = [text for cause in explanation.causes for text in _cause(cause)]
    if explanation.part:
        texts.append(
            "the sampled stacks are so deep that they filled their space: only the first iterations were sampled"
        )
    for site in explanation.sites:
        held = f", held at {errors.in_project(site.holder)}" if site.holder else ""
        texts.append(f"waits for {site.name}: {shares(site)} of the workers' time{held}")
    if explanation.shares:
        words = {name: words for name, (_, words) in STATES.items()}
        states = [f"{words.get(each.name, each.name)} {shares(each)}" for each in explanation.shares]
        texts.append(f"of the workers' time {listed(states, 'and')}")
    if (busy := explanation.cores) is not None:
        texts.append(f"cores kept busy: {units.cores(busy.before)} -> {units.cores(busy.after)}")
    texts += [f"{phase.name}: {units.time(phase.before)} -> {units.time(phase.after)}" for phase in explanation.phases]
    return tuple(map(plain, texts))


def _cause(cause: Cause) -> list[str]:
    """`all 12.3 ms that were added are spent in encode, words.py:3, which changed; 4.15 ms of them in dumps, ...`.

    What is not known is a sentence, too, and the modules that came.
    """
    unit = units.size if cause.of in ("memory", "growth", "payload") else units.time
    verb = {"memory": "held", "growth": "left"}.get(cause.of, "spent")
    by = " by each call" if cause.of == "growth" else ""
    there = f"as in {cause.like}: " if cause.like else ""
    whole, parts = unit(cause.added), list[str]()
    if cause.of in ("payload", "dispatch"):
        texts = [f"{there}{_where(cause.of, each)}: {_from_to(each, unit)} a task" for each in cause.parts]
        return [*texts, *([cause.unknown] if cause.unknown else [])]
    for each in cause.parts:
        place = _where(cause.of, each) + ", which changed" * each.changed
        # One that takes more than was added, because something else takes less, takes all of it.
        part = unit(min(each.added, cause.added))
        of_whole = f"all {whole} that were added{by} are" if part == whole else f"{part} of the {whole} added{by} are"
        parts.append(f"{part} of them {place}" if parts else f"{of_whole} {verb} {place}")
    texts = [there + "; ".join(parts)] if parts else []
    texts += [
        f"the workers' own copies of such pages: {unit(each.before)} -> {unit(each.after)}; {COPIED}"
        for each in cause.parts
        if each.name == Metric.UNSHARED
    ]
    if cause.unknown and not cause.like:
        texts.append(cause.unknown)
    tops = Counter(name.partition(".")[0] for name in cause.modules if not cause.parts or cause.of == "memory")
    if tops:
        named = [f"{top} ({plural(count, 'module')})" if count > 1 else top for top, count in tops.most_common()]
        texts.append(f"{there}modules that came: {few(named)}")
    return texts


def _from_to(part: Part, unit: Callable[[float], str]) -> str:
    """`5 B -> 1.01 MiB`; `1.01 MiB` of what was not there before."""
    return " -> ".join(map(unit, (part.before, part.after) if part.before else (part.after,)))


def _where(of: str, part: Part) -> str:
    """`in iterencode, json/encoder.py:204`, `at cache.py:3: BALLAST = b"x" * (8 << 20)`, `importing ssl (asyncio)`."""
    place = f"{part.file}:{part.line}" if part.line else part.file
    if of == "time":
        return f"in {part.name}, {place}"
    if of in ("payload", "dispatch"):
        return LEGS.get(part.name, part.name)
    if of == "start":
        return f"importing {part.name}" + (f", imported by {part.file}" if part.file else "")
    if part.name == Metric.UNSHARED:
        return "in pages that workers no longer share with their parent"
    return f"at {place}" + (f": {short(part.name)}" if part.name else "")


def short(text: str) -> str:
    """The beginning of a line of code."""
    return text if len(text) <= SHORT else f"{text[:SHORT].rstrip()} ..."


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


def commands(block: Sequence[Row], run: Tests) -> tuple[str, ...]:
    """The commands to rerun cells, of many their whole tests, and to see their baseline; cells with the same options
    are one command.
    """
    reruns: dict[tuple[str, ...], list[str]] = {}
    stored = False
    for row in block:
        asked = row.verdict.why.partition("; ")[0].replace(" ", "=", 1) if row.verdict.why.startswith(AGAINST) else ""
        measures = [] if is_against(row) else [asked or "--ftgate"]
        reruns.setdefault((*measures, *row.options), []).append(row.cell.nodeid)
        stored = stored or bool(row.verdict.baseline and not asked)
    texts = (plain(shlex.join(["pytest", *words, *_cells_or_tests(cells, run)])) for words, cells in reruns.items())
    return (*texts, *(["ftgate baseline diff"] if stored else []))


def meant(block: Sequence[Row], run: Tests) -> str:
    """The command that accepts what regressed in a block, with all metrics that did, the time first; empty where none.

    A name is without its file where that fits one test of the run. Outside of git, where no commit can accept, it is
    the command that records the cells.
    """
    regressed = dict.fromkeys(each.metric for row in block for each in row.verdict.metrics if each.acceptable)
    cells = _cells_or_tests([row.cell.nodeid for row in block], run)
    if not regressed:
        return ""
    if all(row.verdict.basis == "stored" and not row.verdict.commit for row in block):
        return plain(shlex.join(["pytest", *(f"--ftgate-update={cell}" for cell in cells), *cells]))
    ends = [split_nodeid(cell)[0].partition("::")[2] for cell in cells]
    clear = [sum(test.endswith(end) for test in run) == 1 for end in ends]
    names = [cell.partition("::")[2] if only else cell for only, cell in zip(clear, cells, strict=True)]
    failed = sorted(regressed, key=lambda metric: metric != Metric.WALL)
    return plain(f"{shlex.join(['ftgate', 'accept', *names, ','.join(failed)])} 'why'")


def _cells_or_tests(cells: Sequence[str], run: Tests) -> list[str]:
    """The node ids that a command names: of many cells, or all that a run has of a test, their tests'."""
    tests = [*dict.fromkeys(split_nodeid(cell)[0] for cell in cells)]
    every = {row.cell.nodeid for test in tests for row in run.get(test, ())} == {*cells}
    return tests if len(cells) > NAMED or (every and len(cells) > 1) else [*cells]


def commit(text: str) -> str:
    """A commit's first digits, and the `+` of a tree that was not clean."""
    return text[:COMMIT_DIGITS] + ("+" if text.endswith("+") else "")


def shortfall_text(short: Shortfall) -> str:
    """`use --ftgate-test-time=3m or fewer cells: 30 s allow 2 rounds of these 8 cells, about 7 are needed to decide`"""
    allowed = f"allow {plural(short.rounds, 'round')}" if short.rounds else "do not allow a round"
    of, fewer = (f"these {short.cells} cells", " or fewer cells") if short.cells > 1 else ("this cell", "")
    minutes, rest = divmod(round(short.wanted_s), 60)
    wanted = f"{short.wanted_s:.0f}s" if rest else f"{minutes}m"
    needed = f"{short.needed} {'is' if short.needed == 1 else 'are'} needed to decide"
    return f"use {short.option}={wanted}{fewer}: {units.span(short.given_s)} {allowed} of {of}, about {needed}"


def ratios_of_rounds(rows: Iterable[Row]) -> list[str]:
    """Of which rounds ratios are that are not those of the times beside them."""
    found = grouped((row.figures.ratio_rounds, row.cell.label) for row in rows if row.figures.ratio_rounds)
    return [
        f"{', '.join(cells)}: of the {plural(count or 0, 'round')} that both cells have; the times are of all rounds"
        for count, cells in found.items()
    ]


def shortfalls(rows: Iterable[Row]) -> list[str]:
    """What the cells that were left open say about their time: of each option the one that wants most of it."""
    short = grouped(
        (row.shortfall.option, row.shortfall) for row in rows if row.verdict.decision.wants_time and row.shortfall
    )
    return [shortfall_text(max(each, key=lambda one: one.wanted_s)) for each in short.values()]


# ---- the cells that share an error, or a cause


def block_of(row: Row) -> tuple[object, ...]:
    """What the rows have in common that are shown as one; each row that needs no attention is alone.

    Of cells that fail their test, what failed first, where it is, and what they were compared with. Of an exception its
    type and its calls, else all of the text. A detail that begins with the reason says the same at length, with what is
    its own, such as temporary folders.
    """
    verdict = row.verdict
    if verdict.decision.missed:
        first = next(iter(told(row)), None)
        failed = (first.contract or first.metric) if first else verdict.reason
        return (verdict.decision, test_of(row), failed, where(row), verdict.baseline, verdict.basis, verdict.why)
    if verdict.decision is not Decision.ERROR:
        return (object(),)
    error = errors.error_of(row)
    found, frames = errors.RAISED.fullmatch(error.reason), errors.FRAME.findall(error.detail)
    if found and frames:
        return (found[1], *frames, errors.whose(row))
    return (error.reason, "" if error.detail.startswith(error.reason) else error.detail, errors.whose(row))


def blocks(rows: Iterable[Row]) -> list[list[Row]]:
    """The rows as every form shows them, one block after the other: cells with one error, or one cause, are one."""
    return [*grouped((block_of(row), row) for row in rows).values()]


def cells(names: Iterable[str]) -> str:
    """The names of a block's cells: `8 cells: a, b, c, and 5 more`."""
    named = list(names)
    return f"{len(named)} cells: {few(named)}" if len(named) > NAMED + 1 else few(named)


def few(names: Sequence[str]) -> str:
    """`a, b, c, and 5 more`."""
    return ", ".join(names if len(names) <= NAMED + 1 else [*names[:NAMED], f"and {len(names) - NAMED} more"])


def name(row: Row) -> str:
    """A cell's name without its file."""
    return row.cell.nodeid.partition("::")[2] or row.cell.nodeid


def together(block: Sequence[Row]) -> str:
    """The name of a block: that of its cell, or how many cells it has, `test_put, 4 cells`."""
    if len(block) == 1:
        return plain(name(block[0]))
    tests = {split_nodeid(name(row))[0] for row in block}
    return ", ".join([*(map(plain, tests) if len(tests) == 1 else ()), f"{len(block)} cells"])


def in_block(block: Sequence[Row], run: Tests, written: Callable[[str], str] = plain) -> str:
    """The cells of a block, among those of their tests: `all 4 cells, most in 3.14-threads-w2`."""
    found = list(map(written, names(block)))
    if len(block) == 1 or block[0].verdict.decision is Decision.ERROR:
        return cells(found)
    every = sum(len(run.get(test, ())) for test in {*map(test_of, block)}) == len(block)
    whole = "both cells" if len(block) == 2 else f"all {len(block)} cells"
    return f"{whole if every else cells(found)}, most in {found[0]}"


def test_of(row: Row) -> str:
    return split_nodeid(row.cell.nodeid)[0]


def by_test(rows: Iterable[Row]) -> Tests:
    return grouped((test_of(row), row) for row in rows)


def names(block: Sequence[Row]) -> list[str]:
    """The names of a block's cells: their labels where all are of one test."""
    one = len({*map(test_of, block)}) == 1
    return [(row.cell.label if one else "") or name(row) for row in block]


def uncompared(verdict: Verdict) -> str:
    """Why a cell passed of which no metric was judged; empty of all others."""
    return verdict.reason if verdict.decision is Decision.PASSED and not verdict.metrics else ""


# ---- a report


def fails(report: Report, row: Row) -> bool:
    """Whether a cell fails the run, as its `--ftgate-fail-on` says; by the default of that if the report lacks it."""
    if report.failing is None:
        return row.verdict.decision.fails
    return row.cell.nodeid in report.failing


def seconds_text(report: Report) -> str:
    """Where the seconds of a run went, most of them first; empty where that is not known."""
    measured = sorted(((each, kind) for kind, each in report.seconds.items() if kind != OWN_CODE), reverse=True)
    rest = [f"{OWN_CODE} (the rest) {report.seconds[OWN_CODE]:.1f}"] if measured else []
    return ", ".join([*(f"{kind} {each:.1f}" for each, kind in measured), *rest])


def result(report: Report, rows: Sequence[Row] | None = None) -> str:
    """`7 of 8 decided, 2 regressed`: the heading of a report, or of these rows of it, in every form."""
    rows = report.rows if rows is None else rows
    found = Counter(row.verdict.decision for row in rows)
    failing = Counter(row.verdict.decision for row in rows if fails(report, row))
    decided, compared = _decided(rows)
    so_far = " so far" if report.partial else ""
    recorded = counted({Decision.RECORDED: found[Decision.RECORDED]})
    none = recorded or ("nothing was compared" if rows else "nothing was measured")
    said = [f"{decided} of {compared} decided{so_far}" if compared else none]
    if failing:
        said += [counted(failing)]
    elif attention := counted({each: found[each] for each in Decision if each.needs_attention}):
        said += ["nothing fails", attention]
    elif decided:
        known = counted({each: found[each] for each in (Decision.ACCEPTED, Decision.XFAILED)})
        said += ["nothing else regressed", known] if known else ["nothing regressed"]
    quiet = (row.verdict for row in rows if not row.verdict.compared and not fails(report, row))
    others = sum(verdict.decision is not Decision.RECORDED for verdict in quiet)
    said += [recorded] if compared and recorded else []
    return ", ".join([*said, *([f"{others} not compared"] if compared and others else [])])


def first_line(report: Report, rows: Sequence[Row] | None = None) -> str:
    """What a report says first, in every form: the worst of what fails, its change and its function; else `result`.

    `test_put[3.14t-threads-w8]: wall +31.2 %, in iterencode, json/encoder.py:204`
    """
    block = worst(report, rows)
    if not block:
        return next(iter(undecided(report) if rows is None else ()), "") or result(report, rows)
    text = in_one_line(block[0])
    if block[0].verdict.decision is not Decision.ERROR:  # `main (1eb3b87e5d): cannot install ...` has no figure
        text = shortened(text)
    return ", ".join(filter(None, (f"{together(block)}: {text}", where(block[0]))))


def worst(report: Report, rows: Sequence[Row] | None = None) -> list[Row]:
    """The worst of the cells that fail, by its time or else by what failed, with its block; empty if none fails."""
    failing = [row for row in (report.rows if rows is None else rows) if fails(report, row)]
    return next(iter(blocks(sorted(failing, key=lambda row: (not slower(row), place(report, row))))), [])


def about(report: Report) -> str:
    """What was measured, against what: `words, branch faster at 1a2b3c4d5e, against main (2b3c4d5e6f)`."""
    branch, at = f"branch {report.branch}" if report.branch else "", commit(report.commit)
    here = " at ".join(filter(None, (branch, at))) if branch else at and f"commit {at}"
    other = against(report)
    return plain(", ".join(filter(None, (report.project, here, other and f"against {other}"))))


def against(report: Report) -> str:
    """What all cells were compared with, else the commit that is the same for all; empty without such."""
    verdicts = [row.verdict for row in report.rows if row.verdict.baseline]
    names = {each.baseline for each in verdicts if each.basis == "paired"}
    commits = {commit(each.commit) for each in verdicts}
    if len(names) == 1 and all(each.basis == "paired" for each in verdicts):
        return names.pop()
    return f"commit {commits.pop()}" if len(commits) == 1 and "" not in commits else ""


def worse_by_one(row: Row) -> bool:
    """Whether the only launch of an open cell is worse than the effect: one that was disturbed looks the same."""
    return any(each.beyond and each.launches == 1 for each in row.verdict.metrics)


def undecided(report: Report) -> tuple[str, ...]:
    """Why a run fails that judged no cell, or decided less than half; what to do; the option. Empty if it does not.

    It has tested nothing, or left a change open that one launch shows (see `worse_by_one`); who looks at the exit
    status alone would take that for a pass.
    """
    if report.shard or any(fails(report, row) for row in report.rows):  # that is the reason then
        return ()
    if not any(row.verdict.decision.measured for row in report.rows):
        found = counted(counts(report))
        return () if report.partial and not found else (f"{NOTHING_JUDGED}: {found or 'all were skipped'}",)
    decided, compared = _decided(report.rows)
    rare = decided < LEAST_DECIDED * compared
    by_one = [row.cell.nodeid for row in report.rows if worse_by_one(row)]
    if not report.undecided_fails or report.partial or not (rare or by_one):
        return ()
    left = [row for row in report.rows if row.verdict.compared and not row.verdict.decision.decided]
    short = [row.shortfall for row in left if row.shortfall]
    if short:
        advice = shortfall_text(max(short, key=lambda each: each.wanted_s))
    else:
        fixed = any(option.startswith("ftgate_launches") for row in report.rows for option in row.options)
        some = any(each.more for row in left for each in row.verdict.metrics)
        more = "launches (ftgate_launches)" if fixed else "time (--ftgate-test-time)"
        longer = "more rounds would hardly settle it: give the body more work, or measure on a quieter machine"
        wanting = (_needs_most(told(row)) for row in left if row.verdict.basis == "stored")
        stored = (text for each in wanting if each for text in reasons.beside_change(each)[:1])
        advice = f"give the tests more {more}" if fixed or some or by_one else next(filter(None, stored), longer)
    few = "less than half" if decided else "nothing"
    what = f"{few} was decided: {decided} of {plural(compared, 'compared cell')}"
    if not rare:
        what = f"one launch is worse than the effect, and decides nothing: {first_of(by_one, NAMED)}"
    return what, advice, "failed by --ftgate-fail-on=undecided-run"


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
    return ", ".join(count_text(each, counts[each]) for each in Decision if counts.get(each))


def count_text(decision: Decision, count: int) -> str:
    """`2 regressed`, `2 errors`."""
    return plural(count, decision) if decision is Decision.ERROR else f"{count} {decision}"


def worst_first(report: Report) -> list[Row]:
    """All rows by their `place`, then in the order of the report."""
    return sorted(report.rows, key=lambda row: place(report, row))


def place(report: Report, row: Row) -> tuple[bool, int, bool, float]:
    """Sort key of a cell: failures first, then by decision; among failures the slower, then the worse, first."""
    failing = fails(report, row)
    return not failing, row.verdict.decision.severity, failing and not slower(row), -severity(row) * failing


def machines(report: Report) -> list[Machine]:
    """Each machine that measured, once."""
    return list(dict.fromkeys(map(report.machine_of, report.tables))) or [report.machine]


def machine_parts(machine: Machine) -> list[str]:
    """What a machine is, and what limits it."""
    parts = [machine.cpu or machine.arch, plural(machine.cores, "core")]
    parts += [f"{machine.system} {machine.kernel} {machine.arch}"]
    parts += [f"governor {machine.governor}"] if machine.governor else []
    parts += [f"limited to {machine.cpu_quota:g} cores"] if machine.cpu_quota is not None else []
    limit = machine.memory_limit_bytes
    return parts + ([f"limited to {units.size(limit)}"] if limit is not None else [])


def counts(report: Report) -> Counter[Decision]:
    return Counter(row.verdict.decision for row in report.rows)


def stale_or_missing(row: Row) -> tuple[str, str]:
    """`stale` and why the commit of a cell's recording could not be measured, where only another recording helps;
    `missing` and what does, where something else does; empty where it could be measured, or need not be.
    """
    for word, why in (("stale", CANNOT_RUN), ("missing", NOT_AT_HAND)):
        if text := next((text for text in (row.verdict.reason, row.verdict.why) if why in text), ""):
            return word, text
    return "", ""


def recording_commands(rows: Sequence[Row]) -> list[str]:
    """The commands that record cells again: those without figures of this machine at once, others by their names.

    Not those that are worse: recording them would accept that.
    """
    stored_here = ((row.verdict.basis == "stored", row.cell.nodeid) for row in rows if not row.verdict.decision.worse)
    texts = []
    for stored, cells in sorted(grouped(stored_here).items()):
        named = _cells_or_tests(cells, {})
        updates = [f"--ftgate-update={name}" for name in named] if stored else ["--ftgate-update=new"]
        if not stored and len(named) > NAMED:
            named = list(dict.fromkeys(name.partition("::")[0] for name in named))
        texts.append(plain(shlex.join(["pytest", *updates, *named])))
    return texts


def is_against(row: Row) -> bool:
    """Whether a cell was measured beside a commit, which is no baseline of it if it lacks it."""
    return any(word.startswith("--ftgate-against") and word != "--ftgate-against=stored" for word in row.options)
