"""What changed beneath a regression: what its launches show, and what takes what was added. Pure."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from statistics import fmean, median, stdev
from typing import Final, Literal, NamedTuple, TypeAlias

import msgspec

from ..kit.values import Metric
from ..model.report import Cause, CauseOf, Explanation, Moved, MovedSite, Part, SiteFigures
from ..model.sample import (
    Function,
    Held,
    Iteration,
    Launch,
    Loads,
    MemoryPoint,
    Profile,
    Sample,
    StackSamples,
    iteration_value,
)
from ..model.verdict import Decision, Verdict
from ..store.schema import StoredCell
from . import comparisons, contract_grammar, metrics, readers
from .readers import memory_values, site_figures, waits_of
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
LEAST_OWN: Final = 0.03
"""Unless it changed, and is itself what runs in so many more of the samples: one worker, for which many others wait."""
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


# ---- of which kind the cause of a metric is

Kind: TypeAlias = CauseOf | Literal["waits"]
"""Waits have no cause of their own: the lock sites and states say where threads wait, and who holds a lock."""
WORSE: Final = (Decision.REGRESSED, Decision.SUSPECT, Decision.BROKEN, Decision.ACCEPTED)
"""What is explained, of a cell and of a metric. What is accepted says what its launches show, and costs none."""


def kind_of(metric: str) -> Kind | None:
    """What explains a metric; None where nothing does, as of a workload's own counter."""
    row = metrics.row(metric)
    if row.cause:
        return row.cause
    if metric in (Metric.GROWTH, Metric.START):
        return "growth" if metric == Metric.GROWTH else "start"
    if row.unit == "size":
        return "memory"
    if row.need != "time":
        return "waits"
    return "time" if row.unit == "time" or row.column or row.explains else None


def kinds_of(verdict: Verdict) -> list[Kind]:
    """What explains the metrics of a cell that are worse, or of a cell that only breaks contracts, these."""
    found: list[str] = []
    for each in verdict.metrics:
        if each.decision in WORSE and bool(each.contract) == (verdict.decision is Decision.BROKEN):
            names = contract_grammar.all_names(contract_grammar.parse(each.contract)) if each.contract else ()
            found += [name.metric for name in names if name.metric != "gil"] if each.contract else [each.metric]
    return list(dict.fromkeys(kind for kind in map(kind_of, found) if kind is not None))


def of_kinds(moved: Explanation, kinds: Iterable[Kind]) -> Explanation:
    """Of what moved what explains such metrics: more memory is not explained by what threads do."""
    if "time" in kinds:
        return moved
    return Explanation(sites=moved.sites, shares=moved.shares) if "waits" in kinds else Explanation()


# ---- what the launches show


def moved(sample: Sample, before: Sample | StoredCell | None) -> Explanation:
    """What moved from the reference to the change: all that both hold. A recording holds no lock sites.

    A quantity moved if its medians differ by more than LEAST_MOVE and twice the standard error of its launches.
    """
    if before is None:
        return Explanation()
    states, least = dict[str, tuple[list[float], list[float]]](), dict[str, tuple[float, float]]()
    if isinstance(before, Sample):
        waits_at = sites(sample, before)
        waits = _waits(before), _waits(sample)
        for name in dict.fromkeys(name for side in waits for _, each in side for name in each):
            old, new = ([(looks, each.get(name, 0.0)) for looks, each in side] for side in waits)
            states[name] = [share for _, share in old], [share for _, share in new]
            if name not in SCHEDULED:
                least[name] = _sampling_deviation(old), _sampling_deviation(new)
    else:
        waits_at = ()
        states = {name: (_values(before, each), _values(sample, each)) for name, each in STORED_STATES.items()}
    started_once = any(launch.start_ns is not None for launch in sample.launches)
    phases = () if started_once else PHASES  # start and join are then no part of an iteration
    busy = _values(before, "cores"), _values(sample, "cores")
    cores = _moves({"cores": busy}, median(busy[0] or [0.0]))
    return Explanation(
        sites=waits_at,
        shares=_moves(states, 1.0, least),
        cores=cores[0] if cores else None,
        phases=_moves(
            {name: (_values(before, name), _values(sample, name)) for name in phases},
            median(_values(before, "wall") or [0.0]),
        ),
    )


def sites(sample: Sample, before: Sample | None) -> tuple[MovedSite, ...]:
    """The lock sites that wait more than before, or at all, with their place after the change and the lock's holder."""
    then, now = _site_shares(before) if before else {}, _site_shares(sample)
    held, holders = dict[str, tuple[list[float], list[float]]](), dict[str, str]()
    launches = len(before.of("locks")) if before else 1
    for key, (site, after) in now.items() if launches else ():
        place = f"{site.file}:{site.line} {site.kind}" + (f" ({site.name})" if site.name else "")
        held[place] = (then[key][1] if key in then else [0.0] * launches, after)
        holders[place] = next((f"{each.file}:{each.line} in {each.function}" for each in site.holders), "")
    return tuple(
        MovedSite(name=each.name, before=each.before, after=each.after, holder=holders[each.name])
        for each in _moves(held, 1.0)
        if each.after > each.before
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


def added(sample: Sample, before: Sample | StoredCell | None, metric: str) -> float:
    """How much more a metric is, by the median over the launches of each side; all of it without another side."""
    was, now = (median(_values(each, metric) or [0.0]) if each else 0.0 for each in (before, sample))
    return now - was


def unshared(sample: Sample, before: Sample | StoredCell | None, added: float) -> tuple[Part, ...]:
    """Pages that forked processes and their parents share no longer, if they take a fifth of `added` bytes of memory.

    `before` and `after` are what the processes have made their own. What is left to the parents alone is added as well,
    as far as they are seen to have grown: at most as much as a worker has made its own.
    """
    was, now = (_values(each, Metric.UNSHARED) if each else [] for each in (before, sample))
    parents = [memory_values(each.of("memory"), _of_parents) for each in (before, sample) if isinstance(each, Sample)]
    left = median(parents[-1].values() or [0.0]) - median(parents[0].values() or [0.0]) if parents[1:] else 0.0
    for move in _moves({Metric.UNSHARED: (was or [0.0], now)}, median(_values(sample, Metric.USS) or [0.0])):
        grew = move.after - move.before
        takes = grew + max(0.0, min(left, grew / sample.cell.workers))
        if takes >= LEAST_PART * added > 0:
            part = Part(file="", line=0, name=move.name, before=move.before, after=move.after, added=takes)
            return (part,)
    return ()


def _of_parents(point: MemoryPoint) -> int:
    return sum(part.steadiest_bytes or 0 for name, part in point.roles.items() if name in ("main", "servers"))


def added_time(sample: Sample, reference: Sample) -> AddedTime | None:
    """How the time of the work has changed, as wall times of pairs are compared; None without rounds of both.

    Of windows it is the time of an operation.
    """

    def bare(each: Iteration) -> Iteration:
        # Without start and join: in which, though, the bodies of roles end that do so after the leader.
        return msgspec.structs.replace(each, wall_ns=each.work_ns + (each.join_ns if sample.cell.roles else 0))

    def work(launch: Launch) -> list[float]:
        # Of each iteration, in ns.
        return [iteration_value(bare(each), launch.loops, launch.window_ns > 0) for each in launch.iterations]

    own, other = ({launch.order: work(launch) for launch in side.launches} for side in (sample, reference))
    pairs = [comparisons.neighbour_pair(*sides) for sides in of_rounds(own, other).values()]
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


def _innermost(profile: Profile) -> Profile:
    """The same without the callers of what runs."""
    inner = (msgspec.structs.replace(each, functions=each.functions[-1:]) for each in profile.samples)
    return msgspec.structs.replace(profile, samples=tuple(inner))


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
) -> Cause:
    """The functions that take the added time, each time once: the changed ones first, then most first.

    It is that of a function that is `changed`, by file and qualified name, also where those that it calls take it, else
    of the deepest function that takes it.

    A function's time is its share of the samples times that of the work; its growth is tested by Student's t, with
    as many degrees of freedom as the side with fewer blocks has, at ALPHA over all functions (Bonferroni).
    """
    then, now = _Shares(before), _Shares(after)
    cause = Cause(of="time", added=time.after_ns - time.before_ns)
    fewest = min(then.count, now.count)
    if fewest < LEAST_SAMPLES or min(len(then.whole), len(now.whole)) < LEAST_BLOCKS:
        why = f"only {fewest} samples of the workers' stacks were taken, and {LEAST_SAMPLES} are needed"
        return msgspec.structs.replace(cause, unknown=why)
    every = then.on_stack.keys() | now.on_stack.keys()
    edited = {name for name in every if _has_changed(name, changed)}
    was_running, running = (_Shares(_innermost(each)) for each in (before, after))
    grown = [
        name
        for name in every
        if _grew(name, then, now, time, len(every))
        or (name in edited and _runs_more(name, was_running, running, len(every)))
    ]
    own = edited.intersection(grown)

    def covered(name: Name, called: Iterable[Name]) -> bool:
        """Whether those that it calls take its added time. One that others call as well does not tell which call."""
        theirs = [each for each in called if now.share_below(name, [each]) >= COVERED * now.share(each)]
        below = _added(then.share_below(name, theirs), now.share_below(name, theirs), time)
        return below >= COVERED * _added(then.share(name), now.share(name), time)

    named: list[Name] = []
    for name in sorted(grown, key=lambda each: (-now.depth.get(each, 0.0), each)):
        if not covered(name, [each for each in named if name not in own or each in own]):
            named.append(name)
    # What a changed function calls takes its time, not that of its own.
    named = [
        name
        for name in named
        if name in own or not any(now.share_below(each, [name]) >= COVERED * now.share(name) for each in own)
    ]
    if not named:
        why = f"no function grew beyond the noise of {then.count + now.count} samples"
        return msgspec.structs.replace(cause, unknown=why)
    lines = {(each.file, each.name): each.line for profile in (before, after) for each in profile.functions}
    found = [
        Part(
            file=name[0],
            line=lines[name],
            name=name[1],
            before=then.share(name),
            after=now.share(name),
            added=_added(then.share(name), now.share(name), time),
            changed=name in own,
        )
        for name in named
    ]
    return msgspec.structs.replace(cause, parts=_most(found))


def _most(parts: Iterable[Part]) -> tuple[Part, ...]:
    """Those that are named: what changed by itself first, then most first."""
    return tuple(sorted(parts, key=lambda each: (not each.changed, -each.added))[:MOST_NAMED])


def _has_changed(name: Name, changed: AbstractSet[tuple[str, str]]) -> bool:
    """A file is named below the project's root in one place, and below the repository's in the other."""
    file, function = name
    return any(
        function == other.replace(".<locals>", "") and f"/{path}".endswith(f"/{file}") for path, other in changed
    )


def _added(before: float, after: float, time: AddedTime) -> float:
    return after * time.after_ns - before * time.before_ns


def _grew(name: Name, then: _Shares, now: _Shares, time: AddedTime, functions: int) -> bool:
    """Whether a function takes enough of the added time, beyond what samples and launches vary by."""
    added = _added(then.share(name), now.share(name), time)
    variance = now.variance(name) * time.after_ns**2 + then.variance(name) * time.before_ns**2
    variance += (now.share(name) * time.after_ns * time.error) ** 2
    enough = added >= LEAST_PART * (time.after_ns - time.before_ns)
    return enough and _is_beyond(added, variance, then, now, functions)


def _runs_more(name: Name, then: _Shares, now: _Shares, functions: int) -> bool:
    """Whether a function runs in more of the samples: where all became slower alike, it does not."""
    more = now.share(name) - then.share(name)
    return more >= LEAST_OWN and _is_beyond(more, now.variance(name) + then.variance(name), then, now, functions)


def _is_beyond(grew: float, variance: float, then: _Shares, now: _Shares, functions: int) -> bool:
    from scipy.special import stdtr  # half a second: only what explains needs it

    freedom = min(len(then.whole), len(now.whole)) - 1
    return float(stdtr(freedom, -grew / math.sqrt(variance))) < ALPHA / functions


# ---- the lines that hold the added memory, and what is imported

ERRORS: Final = 3.0
"""A line holds more if it does by so many standard errors of its samples."""
IMPORT_GREW: Final = 0.25
"""A module that both sides import takes longer if its time grew by this part at least: one launch of each times it."""


def held_lines(before: Loads, after: Loads, of: Literal["memory", "growth"], added: float) -> Cause:
    """The lines whose held bytes grew, or of which each call leaves more behind; of `added` bytes in all.

    A line is the same where its file and its text are: it may have moved.
    """
    then, now = (_by_text(side.lines, of) for side in (before, after))
    modules = tuple(sorted(set(after.modules) - set(before.modules))) if of == "memory" else ()
    cause = Cause(of=of, added=added, modules=modules)
    if of == "growth" and not all(each.left is not None for side in (before, after) for each in side.lines):
        return msgspec.structs.replace(cause, unknown="growth was not traced by line")
    found = []
    for key, (line, held, variance) in now.items():
        _, earlier, other = then.get(key, (line, 0.0, 0.0))
        grew = held - earlier
        if grew >= LEAST_PART * added > 0 and grew > ERRORS * math.sqrt(variance + other):
            found.append(Part(file=line.file, line=line.line, name=line.text, before=earlier, after=held, added=grew))
    if found:
        return msgspec.structs.replace(cause, parts=_most(found))
    verb = "leaves" if of == "growth" else "holds"
    why = f"no line of Python {verb} a fifth of it, and memory that C code allocates by itself is not traced"
    return msgspec.structs.replace(cause, unknown=why)


def _by_text(
    lines: Iterable[Held], of: Literal["memory", "growth"]
) -> dict[tuple[str, str], tuple[Held, float, float]]:
    """By file and text: the line that has most of it, the bytes, their variance."""
    found: dict[tuple[str, str], tuple[Held, float, float]] = {}
    for each in sorted(lines, key=lambda each: -each.bytes):
        key = each.file, each.text or str(each.line)
        first, size, variance = found.get(key, (each, 0.0, 0.0))
        more, error = (each.left or 0.0, 0.0) if of == "growth" else (each.bytes, each.error)
        found[key] = first, size + more, variance + error**2
    return found


def slower_imports(before: Loads, after: Loads, added_ns: float) -> Cause:
    """The modules whose import takes the added start: those that came, with all that they import, and those that take
    longer by themselves.
    """
    then, now = ({each.name: each for each in side.imports} for side in (before, after))
    came = now.keys() - then.keys()
    cause = Cause(of="start", added=added_ns, modules=tuple(sorted(came)))
    found = []
    for name, each in now.items():
        was_ns = 0 if name in came else then[name].own_ns
        now_ns = each.all_ns if name in came else each.own_ns
        inner = name in came and each.importer in came
        if not inner and now_ns - was_ns > max(IMPORT_GREW * was_ns, LEAST_PART * added_ns):
            found.append(
                Part(file=each.importer, line=0, name=name, before=was_ns, after=now_ns, added=now_ns - was_ns)
            )
    if found:
        return msgspec.structs.replace(cause, parts=_most(found))
    return msgspec.structs.replace(cause, unknown="no import takes a fifth of it")


# ---- what a pool carries, and on which way it is slower


def carried(sample: Sample, before: Sample | None) -> Cause:
    """The arguments and results of which a pool pickles more, in bytes a task; all of them without another side."""
    then, now = (_bytes_by_place(side.of("observed") if side else ()) for side in (before, sample))
    more, found = added(sample, before, "payload"), []
    for place, sizes in now.items():
        was = then.get(place, {})
        old, new = sum(was.values()), sum(sizes.values())
        if new - old >= LEAST_PART * more > 0:
            named = [max(side, key=lambda each: side[each]) for side in (was, sizes) if side]
            types = dict.fromkeys(each.rpartition(": ")[2] for each in named)
            name = f"{named[-1].rpartition(': ')[0]}, {' -> '.join(types)}"
            found.append(Part(file="", line=0, name=name, before=old, after=new, added=new - old))
    return Cause(
        of="payload", added=more, parts=_most(found), unknown="" if found else "no argument grew by a fifth of it"
    )


def _bytes_by_place(launches: Iterable[Launch]) -> dict[str, dict[str, int]]:
    """`argument 1` -> `argument 1 of count: int` -> the bytes a task of the latest launch."""
    found: dict[str, dict[str, int]] = {}
    for launch in launches:
        found = {}
        for name in launch.counters:
            if name.startswith("payload ") and ": " in name:
                part = name.removeprefix("payload ")
                found.setdefault(part.partition(" of ")[0], {})[part] = round(
                    launch.ratio(name, "payload tasks") or 0.0
                )
    return found


def slower_legs(sample: Sample, before: Sample | None) -> Cause:
    """The ways, to the worker and back, that take longer for a task, in ns."""

    def of(side: Sample | None, leg: str) -> list[float]:
        return [*readers.timer_values(side.of("observed"), leg).values()] if side else [0.0]

    legs = {leg: (of(before, leg), of(sample, leg)) for leg in ("dispatch to", "dispatch back")}
    moves = _moves(legs, sum(median(now or [0.0]) for _, now in legs.values()))
    found = [
        Part(file="", line=0, name=each.name, before=each.before, after=each.after, added=each.after - each.before)
        for each in moves
        if each.after > each.before
    ]
    unknown = "" if found else "neither the way to the worker nor the way back takes longer beyond the noise"
    return Cause(of="dispatch", added=sum(each.added for each in found), parts=_most(found), unknown=unknown)
