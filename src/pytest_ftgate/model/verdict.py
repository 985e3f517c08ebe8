"""Comparisons and verdicts."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum, auto
from typing import Literal, NamedTuple, Self, TypeAlias

from ..kit.values import Interval, Struct

Outcome: TypeAlias = Literal["failed", "passed", "undecided", "skipped", "xfailed", "xpassed"]


class Decision(StrEnum):
    """The verdict on one metric of one cell, or on the cell.

    BROKEN is a contract that does not hold. SUSPECT is probably regressed, but the time ended before that was decided.
    ACCEPTED regressed, but a commit of the branch says that this is meant. UNCHANGED runs the same as its reference,
    with which it was not compared. XFAILED regressed or is broken, as @ftgate.xfail
    says; XPASSED is not, although it says so. NOT_MEASURED: the time ended before its turn came. RECORDED has no
    baseline, and its figures become one.
    """

    # Worst first: a cell's is the first that one of its metrics has, and reports list the first ones first.
    REGRESSED = "regressed", "fails worse"
    BROKEN = "broken", "fails"
    SUSPECT = "suspect", "fails worse"
    ERROR = "error", "fails"
    XPASSED = "xpassed", ""
    ACCEPTED = "accepted", ""
    INCONCLUSIVE = "inconclusive", "strict open"
    NOT_MEASURED = "not measured", "strict open"
    XFAILED = "xfailed", ""
    UNCHANGED = "unchanged", "good"
    IMPROVED = "improved", "good"
    PASSED = "passed", "good"
    RECORDED = "recorded", "good"
    NO_BASELINE = "no baseline", "strict"
    UNSUPPORTED = "unsupported", "strict"

    severity: int
    """Its place in this list, 0 is the worst."""
    fails: bool
    """Whether it fails a run by default."""
    strict: bool
    """Whether nothing was decided."""
    worse: bool
    """Whether a metric is, or probably is, worse than its limit allows."""
    open: bool
    """Whether it was to be decided, and more launches may do that."""
    good: bool
    """Whether nothing is to be done."""

    def __new__(cls, value: str, columns: str = "") -> Self:
        """A row of the table above: `columns` are the attributes that are true of it."""
        self = str.__new__(cls, value)
        self._value_, self.severity = value, len(cls.__members__)
        for column in ("fails", "strict", "worse", "open", "good"):
            setattr(self, column, column in columns.split())
        return self

    @property
    def outcome(self) -> Outcome:
        """Pytest's, or `undecided`."""
        if self.fails:
            return "failed"
        if self.good or self is Decision.ACCEPTED:
            return "passed"
        if self.name[0] == "X":
            return "xfailed" if self is Decision.XFAILED else "xpassed"
        return "skipped" if self is Decision.UNSUPPORTED else "undecided"

    @property
    def skipped(self) -> bool:
        """Whether pytest's reports have the cell as skipped, with the reason, unless it fails the run."""
        return self.strict or self.fails or self is Decision.XFAILED

    @property
    def color(self) -> str:
        """That of its outcome in a terminal."""
        return {"failed": "red", "passed": "green"}.get(self.outcome, "yellow")

    @property
    def word(self) -> str:
        """`REGRESSED`; of known failures pytest's own words, `XFAIL` and `XPASS`."""
        return self.value.upper().removesuffix("ED") if self.name[0] == "X" else self.value.upper()

    @property
    def decided(self) -> bool:
        """Whether it says something of what was compared."""
        return not self.strict and self not in (Decision.ERROR, Decision.RECORDED)

    @property
    def measured(self) -> bool:
        """Whether it was measured: what it is compared with may be missing."""
        return self not in (Decision.NOT_MEASURED, Decision.UNSUPPORTED)

    @property
    def missed(self) -> bool:
        """Whether it was measured and fails: a limit or a contract was missed."""
        return self.fails and self is not Decision.ERROR

    @property
    def wants_time(self) -> bool:
        """Whether the time may have been too short for it."""
        return self.open or self is Decision.SUSPECT

    @property
    def needs_attention(self) -> bool:
        """Whether it is said in full, also where it does not fail the run."""
        return self.fails or self is Decision.XPASSED


class Limits(NamedTuple):
    """What counts as a change of a metric: it fails beyond (1 + margin) times the reference + floor.

    It passes where (1 + effect) times the reference is ruled out. The floor is in the metric's unit (s, bytes, a
    fraction of the time, x), of a `Comparison` in the unit of its values.
    """

    margin: float
    effect: float
    floor: float = 0.0


class Comparison(Struct, frozen=True, kw_only=True):
    """New launches against a reference's, one metric, as numbers per launch.

    `errors` are the standard errors of the pairs' log-ratios that their own iterations show; empty: none is known.

    `new` and `reference` are per-launch values: for wall and tail a time in ns, for USS bytes, for the lock-wait share
    a fraction, for scaling a ratio of which more is better. `new[i]` and `reference[i]` are of the same round: a pair;
    unless there are `recordings`, whose launches the reference then holds: those of each day together. `computing` is
    the part of a time that differs from day to day, see `MetricRow.day`. The pass limit of a difference has twice the
    floor.

    `alpha` and `beta` are the error rates of this hypothesis, of at most `at_most` pairs. With `final` no more launches
    follow: the levels that are left are spent on those there are, and what has probably regressed is suspect. `pair_s`
    is what a pair took so far, 0 where that is not known.

    Of the tail, the values of the reference (or of the recordings) are multiplied by the `wall_growth` of each pair, so
    that what is judged is what the tail adds to the body's own change; empty: they are as they were measured.
    """

    metric: str
    new: tuple[float, ...]
    reference: tuple[float, ...]
    unit: str
    limits: Limits = Limits(0.0, 0.0)
    alpha: float = 0.01
    beta: float = 0.05
    errors: tuple[float, ...] = ()
    recordings: tuple[tuple[float, ...], ...] = ()
    computing: float = 1.0
    at_most: int = 80
    final: bool = True
    pair_s: float = 0.0
    wall_growth: tuple[float, ...] = ()

    @property
    def stored(self) -> bool:
        """Whether the reference is what is stored, and not interleaved."""
        return bool(self.recordings)

    @property
    def growth(self) -> float:
        """The `wall_growth` by all that is compared."""
        return self.wall_growth[-1] if self.wall_growth else 1.0


class Why(StrEnum):
    """What a reason says; `report/reasons.py` has the words."""

    # Nothing to compare, or no figures.
    NO_REFERENCE = auto()
    NO_VALUE = auto()
    IMPOSSIBLE = auto()
    NOT_STORED = auto()
    FIGURES_GONE = auto()
    NOT_MEASURED = auto()
    NOT_REPORTED = auto()
    NO_ROUND = auto()
    GIL_UNKNOWN = auto()
    PROBE_FAILED = auto()
    PROBE_COST = auto()
    LOCKS_ALLOW = auto()
    HOLDS_UNKNOWN = auto()
    # The tests of pairs and of rounds.
    BEYOND = auto()
    BETTER = auto()
    BY_CPU = auto()
    RARE_WAITS = auto()
    SCATTERS = auto()
    RULES_OUT = auto()
    WORSE_THAN_EFFECT = auto()
    NEEDS_TO_FAIL = auto()
    NEEDS_TO_PASS = auto()
    SETTLES = auto()
    HELD = auto()
    NOT_HELD = auto()
    GIL = auto()
    # The prediction from stored recordings.
    PREDICTED_WORSE = auto()
    PREDICTED_BETTER = auto()
    PREDICTED_LIKELY = auto()
    PREDICTED_OPEN = auto()
    ONE_LAUNCH = auto()
    MORE_DAYS = auto()
    OTHER_WORK = auto()
    SCATTER = auto()
    TOO_SMALL = auto()
    # What became of a decision.
    TIME_NOT_WORSE = auto()
    NO_TIME_WORSE = auto()
    DOUBT = auto()
    ACCEPTED = auto()
    ACCEPTED_LESS = auto()


class Reason(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Why a metric was decided as it was: a code, and the figures that its `MetricVerdict` does not have.

    `change` and `limit` are as `ratio` or `points` is; of the cost of a probe they are times. `level` is the one at
    which the p-value was tested. `counts` are numbers of launches, rounds or days, each before the number that it is
    of. `seconds` is the time that what would settle it takes, `figures` are in the metric's base unit. `name` is that
    of a side, a cell, a value or a commit; `text` was said elsewhere.
    """

    code: Why
    change: float | None = None
    limit: float | None = None
    p: float | None = None
    level: float | None = None
    counts: tuple[int, ...] = ()
    seconds: float | None = None
    figures: tuple[float, ...] = ()
    name: str = ""
    text: str = ""


class MetricVerdict(Struct, frozen=True, kw_only=True):
    """The decision on one metric: the change with its interval, and the p-values.

    `ruled_out` is the smallest change for the worse that the test of a pass rejects at its level: (1 + `ruled_out`)
    times the reference (of a gain: the reference over that), of a difference so much above it. None if no whole
    percent up to 900 is rejected. What passes has none above the effect, or above the limit that a floor makes.

    `ratio` is new / reference; of what may be 0 it is None and `points` is new - reference, in its base unit.
    `launches` is the number of new launches (pairs) behind the decision, `more` how many more would settle an
    inconclusive one, None if unknown; `beyond` says that its estimate is worse than the effect. `allowed` is the change
    at which it fails, and `effect` the one that is ruled out where it passes, as `ratio` or `points` is. `contract` is
    the text of a contract, of Metric.CONTRACT alone. Of the tail, `ratio` is new / (`wall_growth` x reference): see
    `Comparison`.

    `now` is the figure of the launches that were judged, `was` that of what they were compared with: the medians and
    means of a table, each read from its own side alone, in the base unit of the metric table (ns, bytes, a fraction).
    Of a contract they are its left and its right side, in s, bytes or a fraction.
    `ratio` and `points` compare pair by pair, so they may differ from the two. `stored` is the figure of this machine's
    recordings, where `was` is that of a reference.
    """

    metric: str
    decision: Decision
    ratio: Interval | None = None
    points: Interval | None = None
    p_fail: float | None = None
    p_pass: float | None = None
    reasons: tuple[Reason, ...] = ()
    launches: int = 0
    more: int | None = None
    ruled_out: float | None = None
    allowed: float | None = None
    effect: float | None = None
    contract: str = ""
    beyond: bool = False
    now: float | None = None
    was: float | None = None
    stored: float | None = None
    wall_growth: float = 1.0

    @property
    def acceptable(self) -> bool:
        """Whether a commit can accept it: it regressed, or is open at a change beyond the effect."""
        return not self.contract and (self.decision.worse or self.beyond)


class Expected(Struct, frozen=True, kw_only=True):
    """A known failure (REGRESSED or BROKEN), as @ftgate.xfail in line `line` of the test's file says.

    If it is `strict`, a pass fails the test.
    """

    decision: Decision
    reason: str
    strict: bool = True
    line: int = 0


class Acceptance(Struct, frozen=True, kw_only=True):
    """A regression that is meant, as the trailer `Ftgate-Accept: CELLS METRIC+N%: REASON` of a commit says.

    `most` is the largest change that it accepts, as a fraction, or as a difference in the metric's base unit; None:
    any.
    """

    cells: str
    metric: str
    reason: str
    commit: str
    most: float | None = None


BasisKind = Literal["", "stored", "paired"]
"""What a cell was judged by: the recordings of this machine, or its interleaved reference."""


CANNOT_RUN, NOT_AT_HAND = "whose test cannot run here", "which is not at hand"
"""Of the commit of a recording, in a reason or in a why, which a report says in its last lines: it has to be recorded
again, or what is said helps."""


class Basis(Struct, frozen=True, kw_only=True):
    """What a cell is judged by, and why by that; empty: by nothing. `baseline` and `commit` name it in reports."""

    basis: BasisKind = ""
    why: str = ""
    baseline: str = ""
    commit: str = ""

    def verdict(self, decision: Decision, reason: str, metrics: Iterable[MetricVerdict] = ()) -> Verdict:
        """A verdict on this basis."""
        return Verdict(
            decision=decision,
            metrics=tuple(metrics),
            reason=reason,
            basis=self.basis,
            why=self.why,
            baseline=self.baseline,
            commit=self.commit,
        )


class Verdict(Basis, frozen=True, kw_only=True):
    """The decision on one cell: the worst of its metrics; its basis, and why it is that one.

    `reason` is empty where metrics decided: they have reasons of their own. `expected` is the known failure that made
    the decision XFAILED or XPASSED, `accepted` the trailers that made it ACCEPTED.
    """

    decision: Decision
    metrics: tuple[MetricVerdict, ...] = ()
    reason: str = ""
    expected: Expected | None = None
    accepted: tuple[Acceptance, ...] = ()

    @property
    def compared(self) -> bool:
        """Whether it was to be decided: it has a basis or a contract; an error always was."""
        wanted = self.decision.open and bool(self.basis or self.metrics)
        return self.decision.decided or wanted or self.decision is Decision.ERROR

    @property
    def beyond(self) -> bool:
        """Whether it is inconclusive at a change that is worse than the effect."""
        return self.decision is Decision.INCONCLUSIVE and any(each.beyond for each in self.metrics)
