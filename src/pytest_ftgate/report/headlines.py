"""A cell in one line: the figure that decided, the error itself, and whether the reference has that error. Pure."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Iterable, Sequence

from ..judge import metrics
from ..judge.contracts import grammar
from ..model import Decision, Interval, MetricVerdict, Row, Sample, WorkloadError
from ..store.names import split_nodeid
from ..text import COMMIT_DIGITS, listed, plain
from . import units

VISIBLE, VISIBLE_PART = 0.01, 0.1
"""A change is said to be another one than that of its figures from so many points on, and from that part of it."""
RAISED = re.compile(r"(?:^|.*[:,] )raised (\w+)(?:: (.*))?", re.DOTALL)
FRAME = re.compile(r'^[ \t]*File "(.+?)", line (\d+), in (.+)$', re.MULTILINE)
NAMED = 3
"""Cells that a block names where it has many."""
CHECKOUT = re.compile(r'(?:^|(?<="))[^"\n]*/\.ftgate/worktrees/[^/"\n]+/', re.MULTILINE)
"""The folder of a checkout in a traceback: the user's own file has the same place in the project."""


def headline(row: Row, *, unicode: bool = True) -> str:
    """What pytest's summary says of a cell after its node id, the figure first, because long lines are cut there.

    `wall +182 % (12.3 ms, was 4.36 ms), allowed +2 %`, `threads.scaling >= 1.6: 1.12x`, `KeyError: 'missing'`.
    """
    verdict = row.verdict
    if verdict.decision is Decision.ERROR:
        also = "also in the reference: " if _same_there(row) else ""
        return f"{also}{exception(error_of(row))}"
    deciding = _deciding(row)
    if verdict.decision is Decision.INCONCLUSIVE:
        texts = [_left_open(deciding)]
    else:
        texts = [_contract(each) if each.contract else _change(each, row, unicode) for each in deciding]
    text = "; ".join(filter(None, texts)) or verdict.reason or verdict.why
    return plain(text.partition("\n")[0])


def short(said: str) -> str:
    """What is kept of a headline where there is no room: `wall +182 %`."""
    return re.split(r" \(| beyond the body's own ", said, maxsplit=1)[0]


def where(row: Row) -> str:
    """The function that takes most of the added time, else the lock that is waited for; empty if neither is known."""
    explanation = row.explanation
    if explanation is None:
        return ""
    places = [f"in {each.name}, {each.file}" + f":{each.line}" * bool(each.line) for each in explanation.functions]
    places += [f"at {site.name}" for site in explanation.sites]
    return plain(places[0]) if places else ""


def severity(row: Row) -> float:
    """How much worse a cell is, by the metric that its headline begins with; 0 where that has no change."""
    first = next(iter(_deciding(row)), None)
    if first is None or first.contract:
        return 0.0
    if first.points is not None:
        return first.points.value
    value = first.ratio.value if first.ratio else 1.0
    return (1 / value if metrics.is_gain(first.metric) and value else value) - 1


def _deciding(row: Row) -> list[MetricVerdict]:
    return [each for each in row.verdict.metrics if each.decision is row.verdict.decision]


def _left_open(left: Sequence[MetricVerdict]) -> str:
    """The first open metric with its interval, the names of the others, and what would settle the one that needs most.

    `wall +3.1 % (95 % CI -2.0 % to +8.2 %), uss too; rules out +21 %; +5 % needs about 14 more pairs, 40 s`
    """
    compared = [each for each in left if each.ratio or each.points]
    said = [
        ": ".join(filter(None, (each.contract or each.metric, each.reason))) for each in left if each not in compared
    ]
    if compared:
        too = f", {listed([each.metric for each in compared[1:]], 'and')} too" if compared[1:] else ""
        most = max(compared, key=lambda each: each.more or math.inf)
        said = [f"{compared[0].metric} {change_text(compared[0])}{too}", most.reason, *said]
    return "; ".join(filter(None, said))


def change_text(judged: MetricVerdict) -> str:
    """The change with its interval: in percent, or in percentage points of a share."""
    if judged.points is not None:
        return units.points_and_ends(judged.points)
    return units.change_and_ends(judged.ratio) + units.beyond_body(judged.wall_growth) if judged.ratio else ""


def _contract(judged: MetricVerdict) -> str:
    """The contract and its value; the value of the other side where it is one of another cell."""
    value = judged.reason.partition("; ")[0]
    if len(grammar.all_names(grammar.parse(judged.contract))) == 1:
        value = value.partition(" against ")[0]
    return f"{judged.contract}: {value}" if value else judged.contract


def _change(judged: MetricVerdict, row: Row, unicode: bool) -> str:
    change = judged.points or judged.ratio
    if change is None:
        return f"{judged.metric}: {judged.reason}" if judged.reason else ""
    shown = units.points if judged.points else units.change
    values = now_and_was(judged, row, unicode=unicode)
    said = shown(change.value) + units.beyond_body(judged.wall_growth)
    text = f"{judged.metric} {said}{f' ({values})' if values else ''}"
    return ", ".join(filter(None, (text, allowed(judged))))


def allowed(judged: MetricVerdict) -> str:
    """`allowed +2 %`: the change up to which nothing fails; empty where it is unknown."""
    shown = units.points if judged.points else units.change
    return "" if judged.allowed is None else f"allowed {shown(judged.allowed).replace('.0 %', ' %')}"


def now_and_was(judged: MetricVerdict, row: Row, *, unicode: bool = True) -> str:
    """`12.3 ms, was 4.36 ms`, as measured on each side, without what is unknown.

    A change is judged pair by pair. Where it is not that of the two figures, `, compared pair by pair` follows.
    """
    unit = metrics.row(judged.metric).unit
    here, there = ("" if each is None else units.of(unit, each, unicode=unicode) for each in (judged.now, judged.was))
    return ", ".join(filter(None, (here, here and there and f"was {there}", _compared(judged, row))))


def _compared(judged: MetricVerdict, row: Row) -> str:
    """How the sides were compared, where the change is visibly not that of their figures."""
    if judged.now is None or judged.was is None:
        return ""
    if judged.points is not None:
        change, shown = judged.points.value, judged.now - judged.was
    elif judged.ratio is not None and judged.was > 0:
        change, shown = judged.ratio.value - 1, judged.now / judged.was / judged.wall_growth - 1
    else:
        return ""
    if abs(shown - change) <= max(VISIBLE, VISIBLE_PART * abs(change)):
        return ""
    if row.verdict.basis == "paired":
        return "compared pair by pair"
    return "compared by the control workload" if metrics.row(judged.metric).unit == "time" else "compared by recordings"


def figure(metric: str, row: Row) -> float | Interval | None:
    """A metric as the report's table has it; None where that has none."""
    # A field of Figures has the name of its metric, with the unit as a suffix if it has one.
    shown = (getattr(row.figures, metric + unit, None) for unit in ("", "_ns", "_bytes"))
    return next((each for each in shown if each is not None), None)


# ---- errors


def error_of(row: Row) -> WorkloadError:
    """Why a cell could not be measured; without an error of its own the reason of its verdict."""
    error = row.error or (row.sample.error if row.sample else None)
    return error or WorkloadError(reason=row.verdict.reason or "it could not be measured")


def exception(error: WorkloadError) -> str:
    """`KeyError: 'missing'`, and of an assert what pytest shows: `assert total == 46`; else the reason in one line."""
    found = RAISED.fullmatch(error.reason)
    if found is None:
        return " ".join(plain(error.reason).split())
    kind, text = found[1], found[2] or ""
    if kind == "AssertionError" and text.startswith("assert "):
        return plain(text)
    return plain(f"{kind}: {text}" if text else kind)


def origin(error: WorkloadError) -> tuple[str, int] | None:
    """File and line that raised; None where that is unknown."""
    frames = FRAME.findall(error.detail)
    return (CHECKOUT.sub("", frames[-1][0]), int(frames[-1][1])) if frames else None


def same_error(error: WorkloadError) -> tuple[object, ...]:
    """What errors have in common that are shown once: the exception's type and its calls, else all of their text.

    A detail that begins with the reason says the same at length, with what is its own, such as temporary folders.
    """
    found, frames = RAISED.fullmatch(error.reason), FRAME.findall(error.detail)
    if found and frames:
        return (found[1], *frames)
    return (error.reason, "" if error.detail.startswith(error.reason) else error.detail)


def block_of(row: Row) -> tuple[object, ...]:
    """What the rows have in common that are shown as one: an error and what is said of it; each other row is alone."""
    if row.verdict.decision is not Decision.ERROR:
        return (object(),)
    return (*same_error(error_of(row)), whose(row))


def blocks(rows: Iterable[Row]) -> list[list[Row]]:
    """The rows as every form shows them, one block after the other: cells with the same error are one."""
    found: dict[tuple[object, ...], list[Row]] = {}
    for row in rows:
        found.setdefault(block_of(row), []).append(row)
    return [*found.values()]


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
    """The name of a block: that of its cell, or how many cells it has."""
    return f"{len(block)} cells" if len(block) > 1 else plain(name(block[0]))


def test_of(row: Row) -> str:
    """The node id of a cell's test."""
    return split_nodeid(row.cell.nodeid)[0]


def names(block: Sequence[Row]) -> list[str]:
    """The names of a block's cells: their labels where all are of one test."""
    one = len({*map(test_of, block)}) == 1
    return [(row.cell.label if one else "") or name(row) for row in block]


def failure_text(row: Row) -> str:
    """What pytest's FAILURES say of a cell with an error: the workload's output, then whose error it is.

    Of a failed assert also how to see it as pytest explains it, because no assert of the measured process is rewritten.
    """
    error = error_of(row)
    raised = RAISED.fullmatch(error.reason)
    lines = [error_text(error), *filter(None, [whose(row)])]
    if raised is not None and raised[1] == "AssertionError":
        lines += [f"as a plain test, with pytest's own explanation: {shlex.join(['pytest', row.cell.nodeid])}"]
    return "\n".join(lines)


def error_text(error: WorkloadError) -> str:
    """Where it was raised, and the workload's output; an exception that the output ends with is not said before it."""
    where = "" if error.detail.startswith(error.reason) else error.reason
    if RAISED.fullmatch(error.reason) and error.detail:
        where = error.reason.partition("raised ")[0].rstrip()
    return "\n".join(filter(None, [where, CHECKOUT.sub("", plain(error.detail)).rstrip()]))


def whose(row: Row) -> str:
    """Whether the reference has a cell's error, too; empty where the cell is compared with nothing."""
    sample, verdict = _failed_sample(row), row.verdict
    reference = sample.reference if sample else None
    if sample is None or sample.error is None or reference is None:
        if not verdict.commit or verdict.basis == "paired" or row.error is None:
            return ""
        commit = verdict.commit[:COMMIT_DIGITS]
        return f"not known whether the baseline's commit has this error, too: --ftgate-against={commit} runs both"
    if _same_there(row):
        return "the reference has this error, too: it is not of this change"
    if reference.error is not None:
        return f"the reference has another error: {exception(reference.error)}"
    if reference.unsupported is not None or not reference.begun:
        return f"not known whether the reference has this error, too: {reference.unsupported or 'it was not run'}"
    here = f"1 of {_launches(sample.error.launch)} here, " if sample.error.launch else ""
    return f"{here}0 of {_launches(reference.begun)} of the reference had this error"


def _launches(count: int) -> str:
    return f"{count} launch{'' if count == 1 else 'es'}"


def _failed_sample(row: Row) -> Sample | None:
    """The launches in which it failed: its first, or those that were paired with its baseline's commit."""
    return row.paired if row.paired is not None and row.paired.error is not None else row.sample


def _same_there(row: Row) -> bool:
    """Whether its reference failed in the same way."""
    sample = _failed_sample(row)
    there = sample.reference.error if sample and sample.reference else None
    if sample is None or sample.error is None or there is None:
        return False
    return _kind(sample.error) == _kind(there)


def _kind(error: WorkloadError) -> tuple[object, ...]:
    """What the same error has in common on both sides, whose lines differ: its type and the function that raised it.

    Of what is no exception the beginning of the reason, without numbers: the rest may name processes and lines.
    """
    found, frames = RAISED.fullmatch(error.reason), FRAME.findall(error.detail)
    if found is None:
        return (re.sub(r"\d+", "", re.split("[(;:]", error.reason)[0]),)
    return (found[1], frames[-1][2] if frames else "")
