"""The words of the judge's reasons, and of the changes and limits in them. Pure."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from typing import Final

from ..judge import contract_grammar, metrics
from ..judge.contract_grammar import SHARES, SIZE, TIME, Contract, dimension_in, powers_of
from ..judge.limits import SIZES_BYTES, TIMES_S
from ..judge.prediction import MOST_LAUNCHES
from ..kit import units
from ..kit.text import COMMIT_DIGITS, apart, p_value, plural
from ..kit.values import Metric
from ..model.verdict import MetricVerdict, Reason, Verdict, Why

WORDS: Final[Mapping[Why, str]] = {
    Why.NO_REFERENCE: "the reference gave no value",
    Why.NO_VALUE: "no {name} launch gave a value of {metric}",
    Why.IMPOSSIBLE: "a {name} launch gave {metric} = {text}: not {possible}",
    Why.NOT_STORED: "nothing is stored of it, so no change of it can be seen: "
    "record it again with --ftgate-update='{name}'",
    Why.FIGURES_GONE: "the reference has figures and this run has none: {absent}",
    Why.NOT_MEASURED: "{name} could not be measured",
    Why.NOT_REPORTED: "no launch has a {name}",
    Why.NO_ROUND: "no launch gave a value",
    Why.GIL_UNKNOWN: "no launch reported whether the GIL was on",
    Why.PROBE_FAILED: "{of_cell}{text}",
    Why.PROBE_COST: "{probe}",
    Why.BEYOND: "{change} is beyond {limit}",
    Why.BETTER: "{change} is {side} {limit}",
    Why.BY_CPU: "by CPU time, {cpu_change}; wall alone rules out {wall_ruled_out}",
    Why.RARE_WAITS: "{rare} had no waits: use a longer workload",
    Why.RULES_OUT: "{one_pair}rules out {ruled_out}",
    Why.WORSE_THAN_EFFECT: "the estimate {change} is worse than the effect {limit}",
    Why.NEEDS_TO_FAIL: "whether it exceeds {allowed} shows after about {more}",
    Why.NEEDS_TO_PASS: "{effect} needs about {more}",
    Why.SETTLES: "{settles}",
    Why.HELD: "it held in {rounds}",
    Why.NOT_HELD: "it did not hold in {rounds}",
    Why.GIL: "the GIL was {name} in {counts} launches",
    Why.PREDICTED_WORSE: "{change} is beyond {limit}, the limit predicted from {stored} (needs p <= {level})",
    Why.PREDICTED_BETTER: "{change} is beyond the range predicted from {stored} (needs p <= {level})",
    Why.PREDICTED_LIKELY: "{change} is beyond {limit}, the limit of a likely regression by {stored}",
    Why.PREDICTED_OPEN: "the figures of {days} only show a change beyond {limit}",
    Why.ONE_LAUNCH: "{change} by one launch, which may have been disturbed: more time (--ftgate-test-time) or launches "
    "(ftgate_launches) would settle it",
    Why.MORE_DAYS: "{record}",
    Why.OTHER_WORK: "measure on a quieter machine{and_record}: other work may have moved the times",
    Why.SCATTER: "measure on a quieter machine{or_launches}{and_record}: the launches scatter too much",
    Why.TOO_SMALL: "stored figures hardly show so small a change",
    Why.TIME_NOT_WORSE: "the cell's own time is not worse",
    Why.NO_TIME_WORSE: "no time is known to be worse",
    Why.DOUBT: "in doubt: {text}",
    Why.ACCEPTED: "accepted by commit {commit}: {text}",
    Why.ACCEPTED_LESS: "accepted up to {limit} by commit {commit}, now {change}",
}
"""What each reason says; a word in braces is a property of `_Figures`."""
SAID_BY_CHANGE = {Why.BEYOND, Why.BETTER, Why.PREDICTED_WORSE, Why.PREDICTED_BETTER, Why.PREDICTED_LIKELY}
"""The change, its interval and its limit say these, too."""
WITH_P_VALUE = {Why.BEYOND, Why.BETTER, Why.NOT_HELD}
PROBES = {
    "locks": ("the lock probe", "the waits are", "do more between two acquisitions"),
    "memory": ("memory sampling", "the memory is", "a longer workload is sampled less often"),
    "time": ("its probe", "the figure is", "a longer workload may be slowed less"),
}
"""By kind of launch: the probe, the figure that is in doubt, and a fix."""


def of_cell(verdict: Verdict) -> str:
    """Why a cell has its verdict: its own reason, or those of the metrics that decided."""
    decisions = {each.decision for each in verdict.metrics}
    known = (
        verdict.decision
        if verdict.decision in decisions
        else min(decisions, key=lambda each: each.severity, default=None)
    )
    deciding = ((each, of_metric(each)) for each in verdict.metrics if each.decision is known)
    return verdict.reason or "; ".join(f"{each.contract or each.metric}: {text}" for each, text in deciding if text)


def of_metric(judged: MetricVerdict) -> str:
    """Why a metric was decided as it was: `+30 % is beyond +2 %: p = 0.0001, limit 0.0012`."""
    sides = contract_sides(judged)
    return "; ".join([*([" against ".join(sides)] if sides else []), *_texts(judged, with_p=True)])


def beside_change(judged: MetricVerdict) -> list[str]:
    """What the reasons say that the change and its interval do not, without p-values."""
    return list(_texts(judged, but=SAID_BY_CHANGE))


def contract_sides(judged: MetricVerdict) -> tuple[str, str] | None:
    """`20 ms` and `15 ms`: both sides of a contract, as they were measured; None where they are not known."""
    if not judged.contract or judged.now is None or judged.was is None:
        return None
    contract = contract_grammar.parse(judged.contract)
    return apart(judged.now, judged.was, lambda value, more: value_text(contract, value, more))


def _texts(judged: MetricVerdict, but: Collection[Why] = (), *, with_p: bool = False) -> Iterator[str]:
    for reason in judged.reasons:
        if reason.code not in but:
            p = judged.p_fail if reason.p is None else reason.p
            tested = with_p and reason.code in WITH_P_VALUE and p is not None and reason.level is not None
            told = WORDS[reason.code].format_map(_Figures(reason, judged))
            yield f"{told}: {p_value(p or 0.0, reason.level or 0.0)}" if tested else told


class _Figures:
    """The figures of a reason as texts, each made when a template of WORDS asks for it."""

    def __init__(self, reason: Reason, judged: MetricVerdict) -> None:
        self.reason = reason
        self.judged = judged
        self.name, self.text, self.metric = reason.name, reason.text, judged.metric

    def __getitem__(self, name: str) -> str:
        return str(getattr(self, name))

    # -- a change and its limit

    @property
    def change(self) -> str:
        return self._beside_limit[0]

    @property
    def limit(self) -> str:
        return self._beside_limit[1]

    @property
    def _beside_limit(self) -> tuple[str, str]:
        """The change and its limit, which differ in the text if they do."""
        change, limit = self.judged.points or self.judged.ratio, self.reason.limit
        if limit is None:
            limit = self.judged.effect if self.reason.code is Why.WORSE_THAN_EFFECT else self.judged.allowed
        return apart(
            math.nan if change is None else change.value,
            math.nan if limit is None else limit,
            lambda value, more: change_text(self.metric, value, more),
        )

    @property
    def side(self) -> str:
        return "above" if metrics.is_gain(self.metric) else "below"

    @property
    def allowed(self) -> str:
        return change_text(self.metric, self.judged.allowed)

    @property
    def effect(self) -> str:
        return change_text(self.metric, self.judged.effect)

    @property
    def ruled_out(self) -> str:
        return "nothing" if self.judged.ruled_out is None else worse_text(self.metric, self.judged.ruled_out)

    @property
    def one_pair(self) -> str:
        return "1 pair " if self.judged.launches == 1 else ""

    @property
    def cpu_change(self) -> str:
        return change_text(Metric.CPU, self.reason.change)

    @property
    def wall_ruled_out(self) -> str:
        return change_text(Metric.WALL, self.reason.limit)

    # -- what would settle it

    @property
    def more(self) -> str:
        """`9 more pairs, 40 s`: with the time that they take if that is known."""
        seconds, pairs = self.reason.seconds, plural(self.judged.more or 0, f"more {self._unit}")
        if seconds is None:
            return pairs
        return f"{pairs}, {f'{seconds:.0f} s' if seconds < 100 else f'{seconds / 60:.0f} min'}"

    @property
    def settles(self) -> str:
        if self.judged.more is None:
            return f"more {self._unit}s are unlikely to settle it; try a longer workload or a quieter machine"
        return f"about {self.more} would settle it"

    @property
    def _unit(self) -> str:
        return "round" if self.judged.contract else "pair"

    @property
    def record(self) -> str:
        days = self._count(0)
        return f"record on {plural(days, 'more day')} (pytest --ftgate-update=all)" if days else ""

    @property
    def and_record(self) -> str:
        return self.record and f", and {self.record}"

    @property
    def or_launches(self) -> str:
        return " or with more launches (--ftgate-test-time)" if self.judged.launches < MOST_LAUNCHES else ""

    # -- counts

    def _count(self, place: int) -> int:
        return dict(enumerate(self.reason.counts)).get(place, 0)  # a report from a file may lack it

    @property
    def counts(self) -> str:
        return f"{self._count(0)} of {self._count(1)}"

    @property
    def rounds(self) -> str:
        return f"{self._count(0)} of {plural(self._count(1), 'round')}"

    @property
    def days(self) -> str:
        return plural(self._count(0), "day")

    @property
    def stored(self) -> str:
        return f"what is stored of {self.days}"

    @property
    def rare(self) -> str:
        """`5 of 8 launches and 6 of 8 reference launches`."""
        sides = ((self._count(0), self._count(1), ""), (self._count(2), self._count(3), f" {self.name}"))
        return " and ".join(f"{none} of {total}{side} launches" for none, total, side in sides if total)

    # -- others

    @property
    def level(self) -> str:
        return f"{self.reason.level or 0.0:.2g}"

    @property
    def possible(self) -> str:
        return "a number of 0 or more" if metrics.row(self.metric).may_be_zero else "a positive number"

    @property
    def absent(self) -> str:
        return metrics.row(self.metric).absent

    @property
    def commit(self) -> str:
        return self.name[:COMMIT_DIGITS]

    @property
    def of_cell(self) -> str:
        return self.name and f"{self.name}: "

    @property
    def probe(self) -> str:
        """`the lock probe slowed it 1.40x (limit 1.25x, ftgate_probe_cost): the waits are not the workload's alone`."""
        probe, figure, fix = PROBES.get(metrics.row(self.metric).need, PROBES["time"])
        cost, limit = self.reason.change or math.nan, self.reason.limit or math.nan
        slowed, most = apart(cost, limit, lambda each, more: f"{each:.{2 + more}f}x")
        slower = f"{probe} slowed it {slowed} (limit {most}, ftgate_probe_cost)"
        return f"{slower}: {figure} not the workload's alone; {fix}"


# ---- changes


def change_text(metric: str, value: float | None, more: int = 0) -> str:
    """A change as `MetricVerdict.ratio` or `points` has it: `+7 %`, `+1.2 points`, `+32 KiB`, with `more` digits."""
    value, unit = math.nan if value is None else value, metrics.row(metric).unit
    if unit == "share":
        return _percent(value, more).removesuffix(" %") + " points"
    return units.difference(unit, value, more) if metrics.by_difference(metric) else _percent(value - 1, more)


def worse_text(metric: str, worse: float) -> str:
    """A change as `MetricVerdict.ruled_out` has it, in words: of a gain `-20 %` for 0.25."""
    if metrics.by_difference(metric):
        return change_text(metric, worse)
    return change_text(metric, 1 / (1 + worse) if metrics.is_gain(metric) else 1 + worse)


def _percent(fraction: float, more: int) -> str:
    """`+7.1 %`: signed; whole percents lose their decimals."""
    text = f"{100 * fraction:+.{1 + more}f}".rstrip("0").removesuffix(".")
    return ("0" if text in {"+0", "-0"} else text) + " %"


# ---- the sides of a contract


def value_text(contract: Contract, value: float, more: int = 0) -> str:
    """A value of one of the contract's sides with its unit: `1.83 ms`, `64 MiB`, `12.5 %`, `1.21`.

    `more` digits are added.
    """
    dimension = dimension_in(contract, contract.left)
    if dimension == TIME:
        return _in_units(value, {unit: TIMES_S[unit] for unit in ("s", "ms", "us", "ns")}, more)
    if dimension == SIZE:
        return _in_units(value, {unit: SIZES_BYTES[unit] for unit in ("GiB", "MiB", "KiB", "B")}, more)
    # Whether a side is a share of the time, and not a ratio of two.
    terms = [product[1] for side in (contract.left, contract.right) if (product := powers_of(side)) is not None]
    share = any([(name in SHARES, power) for (name, _), power in each.items()] == [(True, 1)] for each in terms)
    return f"{_digits(100 * value, more)} %" if share else _digits(value, more)


def _in_units(value: float, units: Mapping[str, float], more: int) -> str:
    """In the largest of the units (which descend) in which the rounded value is at least one."""
    unit = next((unit for unit, size in units.items() if float(f"{abs(value) / size:.3g}") >= 1), list(units)[-1])
    return f"{_digits(value / units[unit], more)} {unit}"


def _digits(value: float, more: int) -> str:
    """Three significant digits and `more`, without an exponent where the number is large."""
    large = math.isfinite(value) and abs(value) >= 999.5
    return f"{value:,.{more}f}" if large else f"{value:.{3 + more}g}"
