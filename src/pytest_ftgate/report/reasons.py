"""The words of the judge's reasons, and of the changes and limits in them. Pure."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping

from ..judge import contract_grammar, metrics
from ..judge.contract_grammar import SHARES, SIZE, TIME, Contract, dimension_in, powers_of
from ..judge.limits import SIZES_BYTES, TIMES_S
from ..judge.prediction import MOST_LAUNCHES
from ..kit import units
from ..kit.text import COMMIT_DIGITS, apart, p_value, plural
from ..kit.values import Metric
from ..model.verdict import MetricVerdict, Reason, Verdict, Why
from . import errors

SAID_BY_CHANGE = {Why.BEYOND, Why.BETTER, Why.PREDICTED_WORSE, Why.PREDICTED_BETTER, Why.PREDICTED_LIKELY}
"""The change, its interval and its limit say these, too."""
IF = "if each operation holds this lock as long as it did alone; other limits may come first"
"""The condition of what locks allow."""
TOO_SHORT = "and below 50 µs it counts more how long it takes to hand it over: how many workers it allows is not known"
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
            told = _told(reason, judged)
            yield f"{told}: {p_value(p or 0.0, reason.level or 0.0)}" if tested else told


def _told(reason: Reason, judged: MetricVerdict) -> str:
    """What a reason says of a metric."""
    metric, name, text = judged.metric, reason.name, reason.text
    count, total, *_ = (*reason.counts, 0, 0)  # a report from a file may lack them
    match reason.code:
        # Nothing to compare, or no figures.
        case Why.NO_REFERENCE:
            return "the reference gave no value"
        case Why.NO_VALUE:
            return f"no {name} launch gave a value of {metric}"
        case Why.IMPOSSIBLE:
            possible = "a number of 0 or more" if metrics.row(metric).may_be_zero else "a positive number"
            return f"a {name} launch gave {metric} = {text}: not {possible}"
        case Why.NOT_STORED:
            again = f"record it again with --ftgate-update='{name}'"
            return f"nothing is stored of it, so no change of it can be seen: {again}"
        case Why.FIGURES_GONE:
            return f"the reference has figures and this run has none: {metrics.row(metric).absent}"
        case Why.NOT_MEASURED:
            return f"{name} could not be measured"
        case Why.NOT_REPORTED:
            return f"no launch has a {name}"
        case Why.NO_ROUND:
            return ": ".join(filter(None, ("no launch gave a value", text)))
        case Why.GIL_UNKNOWN:
            return "no launch reported whether the GIL was on"
        case Why.PROBE_FAILED:
            return f"{name}: {text}" if name else text
        case Why.PROBE_COST:
            # `the lock probe slowed it 1.40x (limit 1.25x, ...): the waits are not the workload's alone; do more ...`
            probe, figure, fix = PROBES.get(metrics.row(metric).need, PROBES["time"])
            figures = reason.change or math.nan, reason.limit or math.nan
            slowed, most = apart(*figures, lambda each, more: f"{each:.{2 + more}f}x")
            slower = f"{probe} slowed it {slowed} (limit {most}, ftgate_probe_cost)"
            return f"{slower}: {figure} not the workload's alone; {fix}"
        case Why.LOCKS_ALLOW if name:
            ceiling, share, *_ = (*reason.figures, math.nan, math.nan)
            held = f"{errors.in_project(name)}, holds a lock for {units.whole_share(share)} of one worker's time"
            return f"{held}, which allows {ceiling:.2g} workers {IF}"
        case Why.LOCKS_ALLOW:
            return "no lock limits it that more workers take than one"
        case Why.HOLDS_UNKNOWN if name:
            hold = units.time((*reason.figures, math.nan)[0], digits=2)
            return f"{errors.in_project(name)}, holds a lock for {hold} at a time, {TOO_SHORT}"
        case Why.HOLDS_UNKNOWN:
            return "how long its locks are held is not known: their ends were not seen"
        # The tests of pairs and of rounds.
        case Why.BEYOND:
            return " is beyond ".join(_change_and_limit(reason, judged))
        case Why.BETTER:
            side = "above" if metrics.is_gain(metric) else "below"
            return f" is {side} ".join(_change_and_limit(reason, judged))
        case Why.BY_CPU:
            alone = change_text(Metric.WALL, reason.limit)
            return f"by CPU time, {change_text(Metric.CPU, reason.change)}; wall alone rules out {alone}"
        case Why.RARE_WAITS:
            sides = zip(reason.counts[::2], reason.counts[1::2], ("", f" {name}"), strict=False)
            rare = " and ".join(f"{none} of {of}{side} launches" for none, of, side in sides if of)
            return f"{rare} had no waits: use a longer workload"
        case Why.SCATTERS:
            spread = change_text(metric, reason.change).lstrip("+")
            modes = " and ".join(units.of(metrics.row(metric).unit, each) for each in reason.figures)
            return f"its pairs scatter by {spread}, more than is expected{f': in two modes, {modes}' if modes else ''}"
        case Why.RULES_OUT:
            ruled_out = "nothing" if judged.ruled_out is None else worse_text(metric, judged.ruled_out)
            return f"{'1 pair ' if judged.launches == 1 else ''}rules out {ruled_out}"
        case Why.WORSE_THAN_EFFECT:
            return f"the estimate {' is worse than the effect '.join(_change_and_limit(reason, judged))}"
        case Why.NEEDS_TO_FAIL:
            return f"whether it exceeds {change_text(metric, judged.allowed)} shows after about {_more(reason, judged)}"
        case Why.NEEDS_TO_PASS:
            return f"{change_text(metric, judged.effect)} needs about {_more(reason, judged)}"
        case Why.SETTLES:
            if judged.more is not None:
                return f"about {_more(reason, judged)} would settle it"
            return (
                f"more {_round_or_pair(judged)}s are unlikely to settle it; try a longer workload or a quieter machine"
            )
        case Why.HELD:
            return f"it held in {count} of {plural(total, 'round')}"
        case Why.NOT_HELD:
            return f"it did not hold in {count} of {plural(total, 'round')}"
        case Why.GIL:
            return f"the GIL was {name} in {count} of {total} launches"
        # The prediction from stored recordings.
        case Why.PREDICTED_WORSE | Why.PREDICTED_BETTER | Why.PREDICTED_LIKELY:
            change, limit = _change_and_limit(reason, judged)
            stored, at = f"what is stored of {plural(count, 'day')}", f"(needs p <= {reason.level or 0.0:.2g})"
            if reason.code is Why.PREDICTED_WORSE:
                return f"{change} is beyond {limit}, the limit predicted from {stored} {at}"
            if reason.code is Why.PREDICTED_BETTER:
                return f"{change} is beyond the range predicted from {stored} {at}"
            return f"{change} is beyond {limit}, the limit of a likely regression by {stored}"
        case Why.PREDICTED_OPEN:
            limit = _change_and_limit(reason, judged)[1]
            return f"the figures of {plural(count, 'day')} only show a change beyond {limit}"
        case Why.ONE_LAUNCH:
            more = "more time (--ftgate-test-time) or launches (ftgate_launches) would settle it"
            return f"{_change_and_limit(reason, judged)[0]} by one launch, which may have been disturbed: {more}"
        case Why.MORE_DAYS | Why.OTHER_WORK | Why.SCATTER:
            record = f"record on {plural(count, 'more day')} (pytest --ftgate-update=all)" if count else ""
            if reason.code is Why.MORE_DAYS:
                return record
            quieter, record = "measure on a quieter machine", record and f", and {record}"
            if reason.code is Why.OTHER_WORK:
                return f"{quieter}{record}: other work may have moved the times"
            more = " or with more launches (--ftgate-test-time)" if judged.launches < MOST_LAUNCHES else ""
            return f"{quieter}{more}{record}: the launches scatter too much"
        case Why.TOO_SMALL:
            return "stored figures hardly show so small a change"
        # What became of a decision.
        case Why.TIME_NOT_WORSE:
            return "the cell's own time is not worse"
        case Why.NO_TIME_WORSE:
            return "no time is known to be worse"
        case Why.DOUBT:
            return f"in doubt: {text}"
        case Why.ACCEPTED:
            return f"accepted by commit {name[:COMMIT_DIGITS]}: {text}"
        case Why.ACCEPTED_LESS:
            change, limit = _change_and_limit(reason, judged)
            return f"accepted up to {limit} by commit {name[:COMMIT_DIGITS]}, now {change}"


def _change_and_limit(reason: Reason, judged: MetricVerdict) -> tuple[str, str]:
    """The change and its limit, which differ in the text if they do."""
    change, limit = judged.points or judged.ratio, reason.limit
    if limit is None:
        limit = judged.effect if reason.code is Why.WORSE_THAN_EFFECT else judged.allowed
    figures = (math.nan if change is None else change.value), (math.nan if limit is None else limit)
    return apart(*figures, lambda value, more: change_text(judged.metric, value, more))


def _more(reason: Reason, judged: MetricVerdict) -> str:
    """`9 more pairs, 40 s`: with the time that they take if that is known."""
    seconds, pairs = reason.seconds, plural(judged.more or 0, f"more {_round_or_pair(judged)}")
    if seconds is None:
        return pairs
    return f"{pairs}, {f'{seconds:.0f} s' if seconds < 100 else f'{seconds / 60:.0f} min'}"


def _round_or_pair(judged: MetricVerdict) -> str:
    return "round" if judged.contract else "pair"


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
