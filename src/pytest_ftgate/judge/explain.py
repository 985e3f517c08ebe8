"""What changed beneath a regression: what its launches show, and the functions that take the added time. Pure."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from statistics import fmean, median, stdev
from typing import Final, NamedTuple, TypeAlias

import msgspec

from ..model.report import Explanation, FunctionTime, Moved, SiteFigures
from ..model.sample import Function, Launch, Profile, Sample, StackSamples, iteration_value
from ..store.schema import StoredCell
from . import compare
from .readers import site_figures, waits_of
from .values import Values, of_rounds

LEAST_MOVE: Final = 0.02
"""What moves less is not worth a line: a share of the workers' time, or of what it was before."""
LEAST_DEVIATION: Final = 0.02
"""Launches are taken to deviate by so much at least: few of them may agree by chance."""
STATES: Final = ("running", "runnable", "gil", "lock", "queue", "process", "unattributed", "asleep")
SCHEDULED: Final = ("running", "runnable")
"""Of these the scheduler keeps an account; the others are known from samples."""
STORED_STATES: Final = {"lock": "lock_wait", "queue": "queue_wait", "gil": "gil_wait"}
"""The states that recordings have: the metric of each."""
PHASES: Final = ("start", "join")

ALPHA: Final = 0.01
"""The chance that any function is named whose time has not grown."""
LEAST_PART: Final = 0.2
"""A function that takes less of the added time is not named."""
COVERED: Final = 0.8
"""Nor is one of whose part the functions that it calls, themselves named, take this much: those that run so often below
it and not elsewhere."""
MOST_NAMED: Final = 5
LEAST_SAMPLES: Final = 50
LEAST_BLOCKS: Final = 5
DEVIATION: Final = 0.03
"""The standard deviation of the log-ratio of a pair of launches, where there is only one."""

Name: TypeAlias = tuple[str, str]
"""File and qualified name: lines move from one side to the other."""


# ---- what the launches show


def moved(sample: Sample, before: Sample | StoredCell | None) -> Explanation:
    """What moved from the reference to the change: all that both hold. A recording holds no lock sites.

    A quantity moved if its medians differ by more than LEAST_MOVE and twice the standard error of its launches.
    """
    if before is None:
        return Explanation()
    states, least = dict[str, tuple[list[float], list[float]]](), dict[str, tuple[float, float]]()
    if isinstance(before, Sample):
        # The lock sites that wait more, with their place after the change.
        then, now, held = _site_shares(before), _site_shares(sample), {}
        launches = len(before.of("locks"))
        for key, (site, after) in now.items() if launches else ():
            place = f"{site.file}:{site.line} {site.kind}" + (f" ({site.name})" if site.name else "")
            held[place] = (then[key][1] if key in then else [0.0] * launches, after)
        sites = tuple(each for each in _moves(held, 1.0) if each.after > each.before)
        waits = _waits(before), _waits(sample)
        for name in dict.fromkeys(name for side in waits for _, each in side for name in each):
            old, new = ([(looks, each.get(name, 0.0)) for looks, each in side] for side in waits)
            states[name] = [share for _, share in old], [share for _, share in new]
            if name not in SCHEDULED:
                least[name] = _sampling_deviation(old), _sampling_deviation(new)
    else:
        sites = ()
        states = {name: (_values(before, each), _values(sample, each)) for name, each in STORED_STATES.items()}
    started_once = any(launch.start_ns is not None for launch in sample.launches)
    phases = () if started_once else PHASES  # start and join are then no part of an iteration
    busy = _values(before, "cores"), _values(sample, "cores")
    cores = _moves({"cores": busy}, median(busy[0] or [0.0]))
    return Explanation(
        sites=sites,
        shares=_moves(states, 1.0, least),
        cores=cores[0] if cores else None,
        phases=_moves(
            {name: (_values(before, name), _values(sample, name)) for name in phases},
            median(_values(before, "wall") or [0.0]),
        ),
    )


def _values(side: Sample | StoredCell, metric: str) -> list[float]:
    sides = [Values(side)] if isinstance(side, Sample) else side.recordings
    return [value for each in sides for value in each.by_order(metric).values()]


def _waits(sample: Sample) -> list[tuple[float, dict[str, float]]]:
    """Of each memory launch, how often a thread was sampled, and the shares of the workers' time by state, and by the
    native code that they wait in."""
    return [
        (
            launch.waits.looks,
            {state: getattr(each, state) for state in STATES}
            | {f"in {name}": part for name, part in each.native.items()},
        )
        for launch in sample.of("memory")
        if launch.waits and (each := waits_of(sample.with_launches("memory", [launch]), least_looks=0))
        if not each.unavailable
    ]


def _sampling_deviation(launches: Sequence[tuple[float, float]]) -> float:
    """That of a share in launches of which each thread was sampled so often: few samples may all see the same.

    One more of each kind is counted, as in `_Shares.variance`.
    """
    variances = [LEAST_DEVIATION**2]
    for looks, share in launches:
        seen = (share * looks + 1) / (looks + 2)
        variances.append(seen * (1 - seen) / max(1.0, looks))
    return math.sqrt(max(variances))


def _moves(
    values: Mapping[str, tuple[Sequence[float], Sequence[float]]],
    of: float,
    least: Mapping[str, tuple[float, float]] = {},
) -> tuple[Moved, ...]:
    """Those that moved, as parts of `of`, the largest movement first; each side deviates by `least` at least."""
    found = []
    for name, sides in values.items():
        if all(sides) and of > 0:
            before, after = map(median, sides)
            floors = least.get(name, (LEAST_DEVIATION * of, LEAST_DEVIATION * of))
            scatters = (stdev(side) if len(side) > 1 else 0.0 for side in sides)
            deviations = map(max, floors, scatters)
            error = math.sqrt(sum(each**2 / len(side) for each, side in zip(deviations, sides, strict=True)))
            if abs(after - before) > LEAST_MOVE * of + 2 * error:
                found.append(Moved(name=name, before=before, after=after))
    return tuple(sorted(found, key=lambda each: -abs(each.after - each.before)))


def _site_shares(sample: Sample) -> dict[tuple[str, str, str, int], tuple[SiteFigures, list[float]]]:
    """By file, kind, name and place among those: the site, and its share in each lock launch."""
    found: dict[tuple[str, str, str, int], list[float]] = {}
    sites: dict[tuple[str, str, str, int], SiteFigures] = {}
    numbers: dict[tuple[str, int, str, str], int] = {}
    among: Counter[tuple[str, str, str]] = Counter()
    for site in sorted(site_figures(sample), key=lambda each: each.line):
        kind = (site.file, site.kind, site.name)
        numbers[site.file, site.line, site.kind, site.name] = among[kind]
        sites[(*kind, among[kind])] = site
        found[(*kind, among[kind])] = []
        among[kind] += 1
    for launch in sample.of("locks"):
        shares = {
            (each.file, each.line, each.kind, each.name): each.share
            for each in site_figures(sample.with_launches("locks", [launch]))
        }
        for place, number in numbers.items():
            found[place[0], place[2], place[3], number].append(shares.get(place, 0.0))
    return {key: (sites[key], found[key]) for key in sites}


# ---- the functions that take the added time


class AddedTime(NamedTuple):
    """The time of an iteration's work before and after in ns, and the standard error of the log of their ratio."""

    before_ns: float
    after_ns: float
    error: float

    @property
    def grew(self) -> bool:
        """Whether it is longer beyond the noise of the launches."""
        return self.before_ns > 0 and self.after_ns > self.before_ns * math.exp(2 * self.error)


def added_time(sample: Sample) -> AddedTime | None:
    """How the time of the work of a paired sample has changed, as its wall time is compared; None without pairs.

    Of windows it is the time of an operation.
    """
    reference = sample.reference
    if reference is None:
        return None

    def work(launch: Launch) -> list[float]:
        # Of each iteration, without start and join, in ns.
        bare = (msgspec.structs.replace(each, wall_ns=each.work_ns) for each in launch.iterations)
        return [iteration_value(each, launch.loops, launch.window_ns > 0) for each in bare]

    own, other = ({launch.order: work(launch) for launch in side.launches} for side in (sample, reference))
    pairs = [compare.neighbour_pair(*sides) for sides in of_rounds(own, other).values()]
    if not pairs:
        return None
    logs = [math.log(pair.new / pair.reference) for pair in pairs]
    deviation = stdev(logs) if len(logs) > 1 else DEVIATION
    before_ns = median(pair.reference for pair in pairs)
    return AddedTime(before_ns, before_ns * math.exp(fmean(logs)), deviation / math.sqrt(len(logs)))


class _Shares:
    """How often functions are on the stacks of a profile, in each block."""

    def __init__(self, profile: Profile) -> None:
        names = [(each.file, each.name) for each in profile.functions]
        self.whole: Counter[int] = Counter()
        self.stacks: Counter[tuple[int, tuple[Name, ...]]] = Counter()
        for sample in profile.samples:
            self.whole[sample.block] += sample.count
            stack = tuple(names[index] for index in sample.functions)
            self.stacks[sample.block, stack] += sample.count
        self.on_stack: defaultdict[Name, Counter[int]] = defaultdict(Counter)
        depths: defaultdict[Name, list[int]] = defaultdict(list)
        for (block, stack), count in self.stacks.items():
            for depth, name in enumerate(dict.fromkeys(stack)):
                self.on_stack[name][block] += count
                depths[name].append(depth)
        self.depth = {name: fmean(each) for name, each in depths.items()}

    @property
    def count(self) -> int:
        """The number of samples."""
        return self.whole.total()

    def share(self, name: Name) -> float:
        """The share of samples in which a function is on the stack."""
        return self.on_stack[name].total() / self.count

    def variance(self, name: Name) -> float:
        """The variance of that share: by the scatter of the blocks, whose samples depend on each other.

        That of a ratio of sums over clusters, as Rao & Scott (1992) take it for clustered binary observations, and
        never less than that of independent samples, with one more of each kind.
        """
        found, share, blocks = self.on_stack[name], self.share(name), len(self.whole)
        rests = (found[block] - share * whole for block, whole in self.whole.items())
        clustered = blocks / (blocks - 1) * sum(rest * rest for rest in rests) / self.count**2
        smoothed = (found.total() + 1) / (self.count + 2)
        return max(clustered, smoothed * (1 - smoothed) / self.count)

    def share_below(self, name: Name, called: Iterable[Name]) -> float:
        """The share of samples in which one of the functions `called` runs below that one."""
        among = frozenset(called)
        below = sum(
            count
            for (_, stack), count in self.stacks.items()
            if name in stack and not among.isdisjoint(stack[stack.index(name) + 1 :])
        )
        return below / self.count


def joined(profiles: Sequence[Profile]) -> Profile:
    """The profiles of launches of one side as one, in which each has blocks of its own."""
    functions: list[Function] = []
    samples: list[StackSamples] = []
    for profile in profiles:
        first, block = len(functions), 1 + max((each.block for each in samples), default=-1)
        functions += profile.functions
        samples += [
            StackSamples(
                block=block + each.block, functions=tuple(first + at for at in each.functions), count=each.count
            )
            for each in profile.samples
        ]
    cut = any(profile.cut for profile in profiles)
    return Profile(functions=tuple(functions), samples=tuple(samples), cut=cut)


def slower_functions(
    before: Profile, after: Profile, time: AddedTime, changed: AbstractSet[tuple[str, str]] = frozenset()
) -> tuple[FunctionTime, ...] | str:
    """The deepest functions that take the added time, most first; or why the samples do not tell.

    Those that are `changed`, by file and qualified name, are first, and also named where others that they call take it.

    A function's time is its share of the samples times that of the work; its growth is tested by Student's t, with
    as many degrees of freedom as the side with fewer blocks has, at ALPHA over all functions (Bonferroni).
    """
    then, now = _Shares(before), _Shares(after)
    fewest = min(then.count, now.count)
    if fewest < LEAST_SAMPLES or min(len(then.whole), len(now.whole)) < LEAST_BLOCKS:
        return f"only {fewest} samples of the workers' stacks were taken, and {LEAST_SAMPLES} are needed"
    every = then.on_stack.keys() | now.on_stack.keys()
    grown = [name for name in every if _grew(name, then, now, time, len(every))]
    named: dict[Name, float] = {}
    for name in sorted(grown, key=lambda each: (-now.depth.get(each, 0.0), each)):
        added = _added(then.share(name), now.share(name), time)
        # One that others call as well does not tell which call takes the time.
        called = [each for each in named if now.share_below(name, [each]) >= COVERED * now.share(each)]
        covered = _added(then.share_below(name, called), now.share_below(name, called), time) >= COVERED * added
        if not covered or _is_among(name, changed):
            named[name] = added
    if not named:
        return (
            f"no function's time grew beyond the noise of {then.count} and {now.count} samples "
            f"(p < {ALPHA:g} over {len(every)} functions)"
        )
    lines = {(each.file, each.name): each.line for profile in (before, after) for each in profile.functions}
    found = [
        FunctionTime(
            file=name[0],
            line=lines[name],
            name=name[1],
            before=then.share(name),
            after=now.share(name),
            added_ns=added,
            changed=_is_among(name, changed),
        )
        for name, added in named.items()
    ]
    return tuple(sorted(found, key=lambda each: (not each.changed, -each.added_ns))[:MOST_NAMED])


def _is_among(name: Name, changed: AbstractSet[tuple[str, str]]) -> bool:
    """A file is named below the project's root in one place, and below the repository's in the other."""
    file, function = name
    return any(
        function == other.replace(".<locals>", "") and f"/{path}".endswith(f"/{file}") for path, other in changed
    )


def _added(before: float, after: float, time: AddedTime) -> float:
    return after * time.after_ns - before * time.before_ns


def _grew(name: Name, then: _Shares, now: _Shares, time: AddedTime, functions: int) -> bool:
    """Whether a function takes enough of the added time, beyond what samples and launches vary by."""
    from scipy.special import stdtr  # half a second: only what explains needs it

    added = _added(then.share(name), now.share(name), time)
    if added < LEAST_PART * (time.after_ns - time.before_ns):
        return False
    variance = now.variance(name) * time.after_ns**2 + then.variance(name) * time.before_ns**2
    variance += (now.share(name) * time.after_ns * time.error) ** 2
    freedom = min(len(then.whole), len(now.whole)) - 1
    return float(stdtr(freedom, -added / math.sqrt(variance))) < ALPHA / functions
