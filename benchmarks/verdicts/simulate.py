"""Error rates of the judge of pairs by simulation: how often unchanged code fails, and worse code passes.

    python benchmarks/verdicts/simulate.py [PAIRS.json] [--tests 20000] [--at-most 40] [--only GLOB ...]

A row is a noise of one metric. Its sides are drawn by themselves, unless it says that neighbouring pairs are alike.
With a file of `kinds.py --save` there is a row too for each metric of each kind of unchanged code, but where none of it
fails and 99 % pass: pairs are drawn anew in blocks of neighbours, with both sides exchanged or not. The judge is a
vectorised copy of the product's; the script first checks that both decide the same after as many pairs on a random
sample of all rows.

The hypothesis is one of twenty of a run. `worse` is how far the new side is moved, in multiples of what has to be ruled
out: for `wall` 1.2 is +6 %, 2 is +10 % and 6 is +30 %. `said` is how often a verdict says that its pairs scatter more
than is expected, `interval holds` how often the 95 % interval holds the truth, of 200 series. Failed has the suspect
ones, and passed the improved ones.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

import msgspec
import numpy as np
import page
import rates
from numpy.typing import NDArray
from scipy.special import chdtrc, stdtr

from pytest_ftgate.judge import decide, limits, metrics
from pytest_ftgate.kit.values import Metric
from pytest_ftgate.model.verdict import Comparison, Decision, Limits, MetricVerdict, Why
from pytest_ftgate.stats import alpha_spending, intervals, moderated
from pytest_ftgate.stats.alpha_spending import Look

HYPOTHESES = 20
ALPHA = 0.01
WORSE = (1.2, 2.0, 6.0)
COLUMNS = (
    "metric",
    "noise",
    "unchanged: failed (at most)",
    "of runs of 20",
    "passed; pairs",
    "said",
    "interval holds",
    "worse by 1.2: failed / passed (unsaid); pairs",
    "worse by 2: failed / passed (unsaid); pairs",
    "worse by 6: failed / passed (unsaid); pairs",
    "2x: pairs of 95 %",
)
BLOCK = 4
CHUNK = 5_000
COVERED, CLEAR = 200, 0.99
MIB = 2.0**20
OPEN, PASSED, REGRESSED, IMPROVED, SUSPECT = range(5)
CODES = {
    Decision.INCONCLUSIVE: OPEN,
    Decision.PASSED: PASSED,
    Decision.REGRESSED: REGRESSED,
    Decision.IMPROVED: IMPROVED,
    Decision.SUSPECT: SUSPECT,
}
Floats = NDArray[np.float64]
Shape = tuple[int, int]
"""Series, and the pairs of each."""
Drawn = tuple[Floats, Floats, Floats]
"""The values of the new side and of the reference, and the standard errors of their log-ratios; a series a row."""
Draw = Callable[[np.random.Generator, Shape], Floats]


@dataclass(frozen=True)
class Noise:
    """A metric's values of unchanged code."""

    metric: str
    name: str
    draw: Callable[[np.random.Generator, Shape], Drawn]
    real: bool = False


# -- the judge, many series at once ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Design:
    """What the product judges a metric by."""

    metric: str
    limits: Limits
    alpha: float
    spread: float
    floor: float

    @classmethod
    def of(cls, metric: str) -> Design:
        """The design of one of so many hypotheses. The floor is added to both sides of what may be 0."""
        row, usual = metrics.row(metric), limits.effective(metric, "paired")
        if row.unit == "time":
            usual = usual._replace(floor=usual.floor * 1e9)
        floor = usual.floor if row.scale == "difference" else 0.0
        return cls(metric, usual, decide.split_alpha(ALPHA, HYPOTHESES), row.spread, floor)

    def fails(self, side: Floats) -> Floats:
        return (1 + self.limits.margin) * side + self.limits.floor

    def passes(self, side: Floats) -> Floats:
        return np.maximum((1 + self.limits.effect) * side + 2 * self.floor, self.fails(side))

    def moved(self, drawn: Drawn, by: float) -> Drawn:
        """The new side worse by so many times what is to be ruled out of its mean."""
        new, reference, errors = drawn
        if not self.floor:
            return new * (1 + by * self.limits.effect), reference, errors
        middle = np.mean(reference)
        return new + by * (self.passes(middle) - middle), reference, errors


def _gini(rows: Floats) -> Floats:
    count = rows.shape[1]
    weights = 2 * np.arange(count) - (count - 1)
    deviations: Floats = np.sort(rows, axis=1) @ weights * (math.sqrt(math.pi) / (count * (count - 1)))
    return deviations


def _centred(rows: Floats, scales: Floats, clip: float) -> Floats:
    return np.clip((rows - np.median(rows, axis=1, keepdims=True)) / scales, -clip, clip)


def _scales(shifts: Floats, errors: Floats, spread: float) -> Floats:
    expected = np.hypot(spread, errors)
    freedom, prior = shifts.shape[1] - 1, moderated.PRIOR_FREEDOM
    own = _gini(_centred(shifts, expected, moderated.FARTHEST))
    scales: Floats = expected * np.sqrt((prior + freedom * own**2) / (prior + freedom))[:, None]
    return scales


def _p_above(distances: Floats, scales: Floats, *, own: bool) -> Floats:
    """The product's p-value of each row."""
    count = distances.shape[1]

    def p_of(at: NDArray[np.bool_], times: Floats, freedom: int) -> Floats:
        scores = np.clip(distances[at] / (scales[at] * times[:, None]), -moderated.CLIP, moderated.CLIP)
        found: Floats = stdtr(freedom, -scores.sum(axis=1) / math.sqrt(count))
        return found

    every = np.ones(len(distances), np.bool_)
    p_values = p_of(every, np.ones(len(distances)), moderated.PRIOR_FREEDOM + count - 1)
    if own and count >= intervals.FEWEST:
        times = _gini(_centred(distances, scales, moderated.CLIP))
        wide = times > 1
        p_values[wide] = np.maximum(p_values[wide], p_of(wide, times[wide], count - 1))
    return np.where(_lower_medians(distances) > 0, p_values, np.maximum(p_values, 0.5))


def _lower_medians(rows: Floats) -> Floats:
    place = (rows.shape[1] - 1) // 2
    medians: Floats = np.partition(rows, place, axis=1)[:, place]
    return medians


@dataclass
class Tally:
    """Of each series the decision, the pairs, and whether the verdict says that they scatter."""

    decisions: NDArray[np.int8]
    pairs: NDArray[np.int64]
    said: NDArray[np.bool_]

    def share(self, *codes: int, unsaid: bool = False) -> float:
        """The share that ended with one of these decisions."""
        ended = np.isin(self.decisions, codes) & ~(self.said & unsaid)
        return float(ended.mean())


def judge(drawn: Drawn, design: Design) -> Tally:
    """The verdict on each series; the last analysis uses whole rows."""
    count, there = drawn[0].shape
    tally = Tally(np.full(count, OPEN, np.int8), np.full(count, there), np.zeros(count, np.bool_))
    undecided = np.arange(count)
    for look in alpha_spending.planned_looks(design.alpha, alpha_spending.BETA, at_most=there):
        seen = [side[undecided, : look.launches] for side in drawn]
        codes = _decided(*seen, design, look, last=look.launches == there)
        tally.decisions[undecided] = codes
        ends = (codes != OPEN) | (look.launches == there)
        tally.pairs[undecided[ends]] = look.launches
        tally.said[undecided[ends]] = _says(*(side[ends] for side in seen), design)
        undecided = undecided[~ends]
        if not len(undecided):
            break
    return tally


def _decided(
    new: Floats, reference: Floats, errors: Floats, design: Design, look: Look, *, last: bool
) -> NDArray[np.int8]:
    """Decisions in the product's order: regressed, improved, passed; at the end suspect."""

    def log(side: Floats) -> Floats:
        return np.log(side + design.floor)

    shifts, enough = log(new) - log(reference), look.launches >= decide.FEWEST_TO_FAIL
    expected, bound = (_scales(shifts, errors, times * design.spread) for times in (1.0, moderated.BOUND))
    p_far = _p_above(log(new) - log((1 + decide.EARLY) * design.fails(reference)), bound, own=False)
    if design.floor:
        p_far[:] = 1.0
    p_fail = np.minimum(p_far, _p_above(log(new) - log(design.fails(reference)), bound, own=enough))
    fails = (p_fail if enough else p_far) <= look.alpha
    better = _p_above(log(reference) - log(design.fails(new)), bound, own=True) <= look.alpha
    passes = _p_above(log(design.passes(reference)) - log(new), expected, own=True) <= look.beta
    codes = np.select([fails, better, passes], [REGRESSED, IMPROVED, PASSED], OPEN).astype(np.int8)
    if last:
        likely = (codes == OPEN) & (p_fail <= decide.suspect_level(design.alpha))
        middle = np.median(reference, axis=1)
        beyond = (
            _lower_medians(new - reference) > design.passes(middle) - middle
            if design.floor
            else _lower_medians(shifts) > np.log(design.passes(middle) / middle)
        )
        codes[likely & beyond] = SUSPECT
    return codes


def _says(new: Floats, reference: Floats, errors: Floats, design: Design) -> NDArray[np.bool_]:
    freedom = new.shape[1] - 1
    if freedom < intervals.FEWEST - 1:
        return np.zeros(len(new), np.bool_)
    shifts = np.log(new + design.floor) - np.log(reference + design.floor)
    own = _gini(_centred(shifts, np.hypot(design.spread, errors), moderated.CLIP))
    found: NDArray[np.bool_] = chdtrc(freedom, freedom * own**2) <= moderated.SCATTERED
    return found


def product(new: Floats, reference: Floats, errors: Floats, design: Design) -> MetricVerdict:
    """The product's verdict on one series, after which no pairs follow."""
    comparison = Comparison(
        metric=design.metric,
        new=tuple(new.tolist()),
        reference=tuple(reference.tolist()),
        errors=tuple(errors.tolist()),
        unit="",
        limits=design.limits,
        alpha=design.alpha,
        beta=alpha_spending.BETA,
        at_most=len(new),
    )
    return decide.by_pairs(comparison)


def check_equal(found: Sequence[Noise], at_most: int, rng: np.random.Generator) -> int:
    """Assert that the product decides the same on some series of each noise; the number of series compared."""
    checked = 0
    for noise in found:
        design = Design.of(noise.metric)
        for count, by in ((3, 0.0), (4, 6.0), (7, 1.2), (at_most, 0.0), (at_most, -2.0)):
            drawn = design.moved(noise.draw(rng, (4, count)), by)
            if (drawn[0] + design.floor <= 0).any():
                continue
            tally = judge(drawn, design)
            for at, series in enumerate(zip(*drawn, strict=True)):
                verdict = product(*series, design)
                said = any(each.code is Why.SCATTERS for each in verdict.reasons)
                theirs = CODES[verdict.decision], verdict.launches, said
                own = tally.decisions[at], tally.pairs[at], tally.said[at]
                assert theirs == own, f"{noise}: the product gives {theirs}, the simulation {own}"
                checked += 1
    return checked


def covered(noise: Noise, at_most: int, rng: np.random.Generator) -> float:
    """How often the interval of a verdict on unchanged code holds no change, where it has one."""
    design = Design.of(noise.metric)
    verdicts = (product(*each, design) for each in zip(*noise.draw(rng, (COVERED, at_most)), strict=True))
    changes = [(each.ratio or each.points, 0.0 if each.ratio is None else 1.0) for each in verdicts]
    held = [each.low <= none <= each.high for each, none in changes if each is not None and each.level]
    return sum(held) / len(held)


# -- noise -------------------------------------------------------------------------------------------------------------


def stated() -> Iterator[Noise]:
    """Noise as it is stated, of which the iterations of a launch show nothing; and larger noise."""
    wall, uss, tail, start = Metric.WALL, Metric.USS, Metric.TAIL, Metric.START
    for deviation in (0.045, 0.07, 0.10, 0.15, 0.20, 0.30):
        yield _logs(wall, f"normal {deviation:.1%}", _normal(deviation))
    yield _logs(wall, "heavy tails: t2.5 of 4 %", lambda rng, shape: 0.04 / math.sqrt(10) * rng.standard_t(2.5, shape))
    yield _logs(wall, "heavy tails: t3 of 4.5 %", lambda rng, shape: 0.045 / math.sqrt(6) * rng.standard_t(3, shape))
    for apart in (0.10, 0.20, 0.50):
        yield _logs(wall, f"two modes {apart:.0%} apart", _modes(apart, 0.5), 0.01)
    yield _logs(wall, "one launch in five 30 % slower", _modes(0.30, 0.2), 0.01)
    yield _logs(wall, "one launch in twenty 3x slower", _rare(0.05, math.log(3)), 0.03)
    for deviation in (0.20, 0.40):
        yield _logs(wall, f"hash seed: {deviation:.0%} a launch", _normal(deviation * math.sqrt(2)), 0.01)
    yield _logs(wall, "cores 15 % apart", _sticky(0.15, 0.5), 0.02)
    yield _logs(wall, "a core 15 % slower that sticks to a side", _sticky(0.15, 0.9), 0.02)
    yield _pairs(wall, "the same where sides take turns to start", _exchanged(0.15, 0.9))
    for by, deviation in ((0.3, 0.045), (0.6, 0.045), (0.6, 0.08)):
        yield _pairs(wall, f"neighbours alike by {by:g}, {deviation:.1%}", _correlated(by, deviation))
    yield _logs(tail, "normal 12 %", _normal(0.12), within=0.1)
    yield _logs(tail, "normal 43 %", _normal(0.43), within=0.1)
    yield _logs(tail, "two modes 50 % apart", _modes(0.4, 0.5), 0.08, within=0.1)
    yield _logs(start, "normal 15 %", _normal(0.15), unit=1e8)
    yield _logs(start, "two modes 50 % apart", _modes(0.4, 0.5), 0.08, unit=1e8)
    yield _logs(uss, "normal 1 %", _normal(0.014), unit=12 * MIB, within=0.002)
    yield _logs(uss, "normal 8 %", _normal(0.11), unit=20 * MIB, within=0.002)
    yield _logs(uss, "normal 15 %", _normal(0.21), unit=20 * MIB, within=0.002)
    yield _sides(uss, "12 MiB, 1 more in half", _steps(12 * MIB, MIB, 0.5), 0.002)
    yield _sides(uss, "20 MiB, 4 more in half", _steps(20 * MIB, 4 * MIB, 0.5), 0.002)
    yield _sides(uss, "20 MiB, twice that in a tenth", _steps(20 * MIB, 20 * MIB, 0.1), 0.002)
    yield _sides("growth", "none, or 16 KiB in a fifth", _steps(2048.0, 16384.0, 0.2))
    yield _sides("lock_wait", "10 % of the time, SD 3 points", lambda rng, shape: rng.beta(10, 90, shape))
    yield _sides("lock_wait", "convoys or none: 1 % or 20 %", _shares(0.5, 0.01, 0.20))
    yield _sides("lock_wait", "none, or 5 % in a fifth", _shares(0.2, 0.0, 0.05))
    yield _sides(
        "lock_wait", "5 %, SD 60 % of it", lambda rng, shape: np.minimum(0.9, 0.05 * np.exp(_z(rng, shape, 0.6)))
    )


def resampled(metric: str, kind: str, pairs: Sequence[Sequence[float]]) -> Noise:
    """The pairs of real launches: (new, reference, error) each."""
    values = np.asarray(pairs, dtype=np.float64)

    def draw(rng: np.random.Generator, shape: Shape) -> Drawn:
        starts = rng.integers(0, len(values), (shape[0], -(-shape[1] // BLOCK), 1))
        found = values[((starts + np.arange(BLOCK)) % len(values)).reshape(shape[0], -1)[:, : shape[1]]]
        exchanged = rng.random(shape) < 0.5
        first, second, errors = np.moveaxis(found, -1, 0)
        return np.where(exchanged, second, first), np.where(exchanged, first, second), errors

    return Noise(metric, f"{kind}: {len(values)} real pairs", draw, real=True)


def _sides(metric: str, name: str, side: Draw, within: float = 0.0) -> Noise:
    return Noise(metric, name, lambda rng, shape: (side(rng, shape), side(rng, shape), np.full(shape, within)))


def _logs(metric: str, name: str, side: Draw, between: float = 0.0, *, unit: float = 1e7, within: float = 0.0) -> Noise:
    """Sides whose logs are drawn; `between` is what a pair has beside."""
    return _sides(
        metric,
        name,
        lambda rng, shape: unit * np.exp(side(rng, shape) + _z(rng, shape, between / math.sqrt(2))),
        within,
    )


def _pairs(metric: str, name: str, logs: Draw) -> Noise:
    """Pairs whose log-ratio is drawn."""
    return Noise(
        metric, name, lambda rng, shape: (1e7 * np.exp(logs(rng, shape)), np.full(shape, 1e7), np.zeros(shape))
    )


def _z(rng: np.random.Generator, shape: Shape, deviation: float) -> Floats:
    return rng.normal(0, deviation, shape)


def _normal(of_a_pair: float) -> Draw:
    return lambda rng, shape: _z(rng, shape, of_a_pair / math.sqrt(2))


def _modes(apart: float, share: float) -> Draw:
    """Drawn anew for each launch, as a hash seed or a layout of memory gives them."""
    return lambda rng, shape: apart * (rng.random(shape) < share)


def _rare(share: float, size: float) -> Draw:
    return lambda rng, shape: (rng.random(shape) < share) * rng.exponential(size, shape)


def _states(rng: np.random.Generator, shape: Shape, stays: float) -> Floats:
    """0 or 1, as the launch before with the probability `stays`."""
    moves = rng.random(shape) >= stays
    moves[:, 0] = rng.random(shape[0]) < 0.5
    return np.asarray(moves.cumsum(axis=1) % 2, dtype=np.float64)


def _sticky(apart: float, stays: float) -> Draw:
    return lambda rng, shape: apart * _states(rng, shape, stays)


def _exchanged(apart: float, stays: float) -> Draw:
    """One of two cores is slow for several launches, and the side that starts first has the other one in each pair."""

    def logs(rng: np.random.Generator, shape: Shape) -> Floats:
        turns = np.where(np.arange(shape[1]) % 2, 1.0, -1.0)
        return apart * (_states(rng, shape, stays) - _states(rng, shape, stays)) * turns + _z(rng, shape, 0.02)

    return logs


def _correlated(by: float, deviation: float) -> Draw:
    def logs(rng: np.random.Generator, shape: Shape) -> Floats:
        values = _z(rng, shape, deviation)
        for place in range(1, shape[1]):
            values[:, place] = by * values[:, place - 1] + math.sqrt(1 - by**2) * values[:, place]
        return values

    return logs


def _steps(least: float, more: float, share: float) -> Draw:
    return lambda rng, shape: np.maximum(0.0, least + more * (rng.random(shape) < share) + _z(rng, shape, least / 400))


def _shares(share: float, few: float, many: float) -> Draw:
    return lambda rng, shape: np.where(rng.random(shape) < share, many, few) * np.exp(_z(rng, shape, 0.1))


# -- the table ---------------------------------------------------------------------------------------------------------


def simulated(noise: Noise, tests: int, at_most: int, rng: np.random.Generator, by: float) -> Tally:
    """The results of so many series."""
    design = Design.of(noise.metric)
    parts = []
    for done in range(0, tests, CHUNK):
        drawn = noise.draw(rng, (min(CHUNK, tests - done), at_most))
        parts.append(judge(design.moved(drawn, by), design))
    joined = (np.concatenate([getattr(part, name) for part in parts]) for name in ("decisions", "pairs", "said"))
    return Tally(*joined)


def rows(found: Sequence[Noise], tests: int, at_most: int, rng: np.random.Generator) -> Iterator[list[str]]:
    """The table."""
    for noise in found:
        same = simulated(noise, tests, at_most, rng, 0.0)
        failed = same.share(REGRESSED, SUSPECT)
        if noise.real and not failed and same.share(PASSED, IMPROVED) >= CLEAR:
            continue
        bound = rates.at_most(round(failed * tests), tests)
        cells = [noise.metric, noise.name, f"{failed:.2%} ({bound:.2%})", f"{1 - (1 - failed) ** HYPOTHESES:.1%}"]
        cells += [f"{same.share(PASSED, IMPROVED):.1%}; {np.median(same.pairs):.0f}", f"{same.said.mean():.1%}"]
        cells.append(f"{covered(noise, at_most, rng):.0%}")
        for by in WORSE:
            worse = simulated(noise, tests // 5, at_most, rng, by)
            missed, unsaid = (worse.share(PASSED, IMPROVED, unsaid=each) for each in (False, True))
            shown = f"{worse.share(REGRESSED, SUSPECT):.1%} / {missed:.1%} ({unsaid:.1%})"
            cells.append(f"{shown}; {np.median(worse.pairs):.0f}")
        double = simulated(noise, tests // 5, at_most, rng, 1 / Design.of(noise.metric).limits.effect)
        failing = np.where(double.decisions == REGRESSED, double.pairs, at_most + 1)
        cells.append(f"{np.quantile(failing, 0.95):.0f}")
        yield cells


def real(path: Path) -> Iterator[Noise]:
    """The pairs of each kind and metric of a file of `kinds.py --save`; those that do not differ are left out."""
    kinds = msgspec.json.decode(path.read_bytes(), type=Mapping[str, Mapping[str, Sequence[Sequence[float]]]])
    for kind, by_metric in kinds.items():
        for metric, pairs in by_metric.items():
            if any(new != reference for new, reference, _ in pairs):
                yield resampled(metric, kind, pairs)


def main() -> None:
    """Print the check, then the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pairs", type=Path, nargs="?")
    parser.add_argument(
        "--tests", type=int, default=20_000, help="series of unchanged code a row; of worse code a fifth"
    )
    parser.add_argument("--at-most", type=int, default=40, help="pairs (default: 40)")
    parser.add_argument("--only", action="extend", nargs="+", default=[], metavar="GLOB", help="names of noises")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    every = [*stated(), *(real(options.pairs) if options.pairs else ())]
    found = [each for each in every if any(fnmatchcase(each.name, glob) for glob in options.only or ["*"])]
    print(f"{sum(each.real for each in found)} rows are of real pairs that differ")
    rng = np.random.default_rng(options.seed)
    checked = check_equal(found, options.at_most, rng)
    print(f"the product's own judge decides the same on {checked} of {checked} series")
    page.show(__file__, COLUMNS, rows(found, options.tests, options.at_most, rng))


if __name__ == "__main__":
    main()
