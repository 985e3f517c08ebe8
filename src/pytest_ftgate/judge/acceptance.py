"""Regressions that are meant: the trailers of commits, and what they make of a cell's verdict. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from ..kit.errors import FtgateError
from ..kit.text import COMMIT_DIGITS
from ..kit.values import Metric
from ..model.verdict import Acceptance, Decision, MetricVerdict, Verdict
from ..store.names import matches
from . import decide, metrics

KEY: Final = "Ftgate-Accept"
FORM: Final = f"{KEY}: CELLS METRIC: REASON"
_LINE: Final = re.compile(rf"{KEY}:(.*)", re.IGNORECASE)
_ENDS: Final = re.compile(r"\s*$|[A-Z][\w-]*: |\* ")
"""A line that continues none: an empty one, another trailer, the next commit in a squashed message."""
_METRIC: Final = re.compile(r"\s(\S+):(?=\s|$)")


# ---- trailers


def trailers(message: str) -> list[str]:
    """What follows the key, of each line of a commit's message that begins with it; a wrapped one is joined.

    Any line counts, not only those of git's trailer block: a squash merge puts the messages of a branch one after the
    other, and only the last block would be trailers. What a terminal or a page must not get is left out.
    """
    found: list[str] = []
    inside = False
    for line in message.split("\n"):
        if match := _LINE.match(line):
            found.append(match[1])
            inside = True
        elif inside := inside and not _ENDS.match(line):
            found[-1] += f" {line}"
    return ["".join(filter(str.isprintable, " ".join(each.split()))) for each in found]


def parsed(trailer: str, commit: str) -> tuple[Acceptance, ...]:
    """An acceptance for each metric of a trailer, `CELLS METRIC: REASON` or `CELLS METRIC,METRIC: REASON`.

    CELLS may contain spaces and colons: the first word before a colon that is a metric ends it. Raises FtgateError,
    which names the commit.
    """
    # In a node id, `::` and `a:b` are no ends.
    ends = list(_METRIC.finditer(trailer))
    end = next((each for each in ends if all(map(metrics.known, each[1].split(",")))), None)
    if end is None:
        raise _malformed(trailer, commit, _no_metric(ends[0][1].split(",")) if ends else "it names no metric")
    cells, reason = trailer[: end.start()].strip(), trailer[end.end() :].strip()
    if not reason:
        raise _malformed(trailer, commit, "it has no reason")
    names = dict.fromkeys(end[1].split(","))
    return tuple(Acceptance(cells=cells, metric=name, reason=reason, commit=commit) for name in names)


def written(cells: str, names: Sequence[str], reason: str) -> str:
    """The trailer that `parsed` reads. Raises FtgateError for what no trailer can say."""
    trailer = " ".join(f"{cells} {','.join(names)}: {reason}".split())
    found = parsed(trailer, "")
    if [(each.cells, each.metric) for each in found] != [(" ".join(cells.split()), name) for name in names]:
        raise FtgateError(f"{cells!r} cannot be written as a trailer, {FORM}: use ? for the space before the colon")
    return f"{KEY}: {trailer}"


def named(commit: str, trailer: str) -> str:
    """A trailer and its commit, for messages."""
    return f"{f'commit {commit[:COMMIT_DIGITS]}: ' if commit else ''}`{KEY}: {trailer}`"


def _no_metric(words: Sequence[str]) -> str:
    word = next(each for each in words if not metrics.known(each))
    if word in (Metric.CONTRACT, "contract", "require", "requires"):
        return "a broken contract is not accepted: mark the test with @ftgate.expect('broken'), or change its contract"
    return metrics.no_metric(word)


def _malformed(trailer: str, commit: str, why: str) -> FtgateError:
    return FtgateError(f"{named(commit, trailer)}: {why}; write `{FORM}`")


# ---- verdicts


def acceptable(judged: MetricVerdict) -> bool:
    """Whether a metric's verdict can be accepted: it regressed, or is open at a change beyond the effect."""
    return not judged.contract and (judged.decision.worse or judged.beyond)


def covers(accepted: str, metric: str) -> bool:
    """Whether who accepts one metric accepts the other: on another machine the wall time is judged by its ratio."""
    return metric == accepted or (accepted == Metric.WALL and metric == Metric.RATIO)


def applied(verdict: Verdict, nodeid: str, acceptances: Iterable[Acceptance]) -> Verdict:
    """The verdict of a cell in which each metric that a trailer accepts is accepted; the first trailer counts.

    The cell is accepted where nothing worse is left: what else regressed or is broken still decides.
    """
    known = [each for each in acceptances if matches(each.cells, nodeid)]
    judged: list[MetricVerdict] = []
    found: list[Acceptance] = []
    for each in verdict.metrics:
        acceptance = next((one for one in known if covers(one.metric, each.metric)), None) if acceptable(each) else None
        if acceptance is None:
            judged.append(each)
            continue
        reason = f"accepted by commit {acceptance.commit[:COMMIT_DIGITS]}: {acceptance.reason}"
        judged.append(msgspec.structs.replace(each, decision=Decision.ACCEPTED, reason=reason, beyond=False))
        found.append(acceptance)
    if not found:
        return verdict
    return msgspec.structs.replace(decide.again(verdict, judged), accepted=tuple(found))


def otherwise(verdict: Verdict) -> Verdict:
    """The verdict by what was not accepted, which an option may let fail; any verdict but an accepted one as it is."""
    if verdict.decision is not Decision.ACCEPTED:
        return verdict
    passed = (
        msgspec.structs.replace(each, decision=Decision.PASSED) if each.decision is Decision.ACCEPTED else each
        for each in verdict.metrics
    )
    rest = decide.judge(list(passed))
    return msgspec.structs.replace(verdict, decision=rest.decision, reason=rest.reason)
