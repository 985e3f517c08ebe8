"""The advice of a report in sentences, each with its figures: the same in every printed form. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from typing import NamedTuple

import msgspec

from ...judge import metrics
from ...kit import units
from ...kit.text import listed, percent, plain, plural
from ...kit.values import Interval, Metric, to_builtins
from ...model.report import Report
from ...report import json
from ...report.details import Style, entry, wrapped
from . import rank
from .rank import Advice, Choice, Contention, Hazard, MemoryUse, Ranking, ScalingAdvice, StartTax

NAMED = 4
"""Candidates of a ranking that are named one by one; of the others the range is given."""
LEAST_SHARE = 0.05
"""Waits for less than this share of the time are not worth a sentence of their own."""
ERASED = 0.2
"""A lock that workers wait for longer than this is named as what takes their gain."""
CORES_APART = 0.2
"""Candidates whose busy cores differ by this much have a sentence on it."""
WEIGH = "to choose, say in the ini what counts, such as ftgate_decide = time=1 memory=0.5"
UNKNOWN_COUNT = "the count beyond which more do not pay is not known"
KINDS = {"lock": "waits for locks", "gil": "waits for the GIL", "unattributed": "unattributed waits"}
MOST_NAMED = 6
INDENT = "  "
"""Before a line that belongs to the one above it."""
HAZARDS = {
    "gil": "an import turned the GIL back on",
    "fork": "fork ran beside threads, which is unsafe",
    "results": "results differ",
    "failure": "not measured",
}


class Sentence(NamedTuple):
    """A topic (`advice`, `time`, `start-up`, ...) and what is said of it: a line, and indented ones below it."""

    topic: str
    text: str


class Advised(NamedTuple):
    """The sentences of one test; the first one is the advice itself. `place` are the workers that all cells have."""

    test: str
    source: str
    sentences: tuple[Sentence, ...]
    place: str = ""


def sentences(report: Report, weights: rank.Weights = (), *, unicode: bool = True) -> tuple[Advised, ...]:
    """What follows from a report, test by test."""
    return tuple(said(advice, unicode=unicode) for advice in rank.of_report(report, weights))


def said(advice: Advice, *, unicode: bool = True) -> Advised:
    """The sentences of one Advice."""
    words = {choice.workers for choice in advice.choices}
    same = words.pop() if len(words) == 1 else ""
    speaker = _Speaker(unicode, same)
    by_topic: dict[str, Iterable[str]] = {
        "advice": speaker.choices(advice),
        "time": speaker.times(advice.choices),
        "own figures": speaker.own(advice.choices),
        "builds": speaker.builds(advice),
        "start-up": speaker.starts(advice.starts),
        "memory": speaker.memory(advice.memory),
        "contention": speaker.contention(advice),
        "scaling": speaker.scaling(advice.scaling),
        "hazard": map(speaker.hazard, advice.hazards),
    }
    found = [Sentence(topic, text) for topic, texts in by_topic.items() for text in texts]
    unknown = [topic for topic in advice.unknown if topic != "scaling" or not _counts([same])]
    if unknown:
        found.append(Sentence("not known", f"{listed(unknown, 'and')}: nothing was measured"))
    if len(unknown) < len(advice.unknown):
        found.append(Sentence("not known", "scaling: one worker count alone was measured"))
    found += [Sentence("not known", f"{_listed(cells)}: {reason}") for reason, cells in advice.unsupported.items()]
    texts = tuple(Sentence(topic, "\n".join(map(plain, text.split("\n")))) for topic, text in found)
    return Advised(plain(advice.test), plain(advice.source), texts, _workers(same) if _counts([same]) else "")


def as_json(found: Iterable[Advice]) -> str:
    """The figures behind the sentences: a list of Advice, keys sorted."""
    builtins = json.writable([to_builtins(each) for each in found])
    return msgspec.json.format(msgspec.json.encode(builtins, order="sorted"), indent=2).decode()


def render(advised: Iterable[Advised], width: int = 80, *, unicode: bool = True) -> str:
    """The sentences as lines of at most `width` columns, a paragraph each, the topic in a column of its own."""
    style = Style(max(width, 40), False, unicode, 0)
    blocks = []
    for each in advised:
        title = f"{each.test} ({each.place})" if each.place else each.test
        lines = [title, *entry("from", each.source, style, indent=2, column=12)]
        for topic, texts in groupby(each.sentences, key=lambda sentence: sentence.topic):
            for number, sentence in enumerate(texts):
                head, *below = sentence.text.split("\n")
                lines += entry("" if number else topic, head, style, indent=2, column=12)
                for text in below:
                    lines += wrapped(text, style, indent=14, hanging=20 if text[:1] == " " else None)
        blocks.append("\n".join(lines) + "\n")
    return "\n".join(blocks).encode("utf-8" if unicode else "ascii", "backslashreplace").decode()


class _Speaker(NamedTuple):
    """Makes sentences, in Unicode or ASCII."""

    unicode: bool
    left_out: str = ""
    """The word of roles that all cells have."""

    def at(self, place: Choice | Contention | MemoryUse | StartTax) -> str:
        """`8 workers, 0.5-10: `; empty where a test has one place."""
        workers = "" if place.workers == self.left_out else _workers(place.workers)
        words = ", ".join(filter(None, (workers, place.setting)))
        return f"{words}: " if words else ""

    # ---- the advice

    def choices(self, advice: Advice) -> list[str]:
        """The choice of each setting; settings with the same one share a sentence, with the figures of the first."""
        groups: dict[tuple[object, ...], list[Choice]] = {}
        for choice in advice.choices:
            names = choice.advised or choice.pareto
            alike = len(names) == len(choice.time.ranked)
            groups.setdefault((bool(choice.advised), alike, frozenset(names)), []).append(choice)
        return [self._choice(same, advice.weights) for same in groups.values()]

    def _choice(self, same: Sequence[Choice], weights: rank.Weights) -> str:
        """The answer, and where it is several candidates a line for each with its time and memory."""
        first = same[0]
        names = first.advised or first.pareto
        times = {each.name: self._time(each.value, first.windows) for each in first.time.ranked}
        memory = {each.name: units.size(each.value.value) for each in (first.memory.ranked if first.memory else ())}
        figures = [(name, f"{times[name]}, {memory.get(name, 'memory not known')}") for name in names]
        by = "by " + " ".join(f"{name}={weight:g}" for name, weight in weights) if weights else ""
        lines = _lines(figures)
        if len(names) == 1:
            alone = "no other candidate was measured"
            best = f"best {by}" if by else "no other is clearly faster or smaller"
            name, text = figures[0]
            text, lines = f"{name}: {text}; {alone if len(first.time.ranked) == 1 else best}", ""
        elif not first.advised:
            text = "nothing wins in both time and memory; one of these, each beaten by none"
            lines += f"\n{WEIGH}"
        elif len(names) == len(first.time.ranked):
            text = f"it does not matter: these are not told apart {by or 'in time or memory'}"
        else:
            text = f"one of these; which of them does not matter {by or 'in time or memory'}, the others are beaten"
        others = f"; the same {self._places(same[1:])}" if len(same) > 1 else ""
        return f"{self.at(first)}{text}{others}{lines}{self._told_by_own(same)}"

    def _places(self, choices: Iterable[Choice]) -> str:
        return "with " + listed([self.at(choice).removesuffix(": ") for choice in choices], "and")

    def _time(self, value: Interval, windows: bool) -> str:
        return units.time(value.value, unicode=self.unicode) + (" an operation" if windows else "")

    def _told_by_own(self, same: Sequence[Choice]) -> str:
        """What tells the candidates apart where time does not: the time of its own in which they differ most."""
        alike = [choice for choice in same if len(choice.time.tied) == len(choice.time.ranked) > 1]
        times = [each for choice in alike for each in choice.own if metrics.row(each.metric).unit == "time"]
        widest = max(times, key=_apart, default=None)
        if widest is None or _apart(widest) == 1:
            return ""
        best = _listed(
            [f"{each.name} ({self._time(each.value, False)})" for each in widest.ranked if each.name in widest.tied]
        )
        label, most = metrics.row(widest.metric).label, units.ratio(_apart(widest))
        return f"\nbut {label} is least with {best}, and up to {most} that with others"

    # ---- time, and what the workload measures itself

    def times(self, choices: Sequence[Choice]) -> list[str]:
        """The ranking by time of each place, and the cores kept busy where candidates differ."""
        alike = [choice for choice in choices if len(choice.time.tied) == len(choice.time.ranked) > 1]
        texts = []
        if len(alike) > 1:
            most = max(each.times.value for choice in alike for each in choice.time.ranked if each.times)
            texts.append(f"{self._places(alike)} none is told apart from the fastest: up to {units.ratio(most)}")
        for choice in choices:
            if choice not in alike or len(alike) == 1:
                texts.append(f"{self.at(choice)}{self._ranking(choice.time, windows=choice.windows)}")
            for limit in choice.limits:
                over = f", {_times(limit.times)} the fastest's" if limit.times else ""
                takes = f"{limit.name}, a program, takes {self._time(limit.value, choice.windows)}"
                texts.append(f"{self.at(choice)}{takes}{over}")
            busy = sorted(choice.cores.items(), key=lambda pair: -pair[1])
            if busy and busy[0][1] - busy[-1][1] >= CORES_APART:
                ends = [f"{name} {units.cores(cores)}" for name, cores in (busy if len(busy) <= NAMED else busy[:2])]
                last = f" ... {busy[-1][0]} {units.cores(busy[-1][1])}" if len(busy) > NAMED else ""
                texts.append(f"{self.at(choice)}cores kept busy: {', '.join(ends)}{last}")
        return texts

    def own(self, choices: Sequence[Choice]) -> list[str]:
        """The rankings by metrics of the workload or of its load; of settings the one where candidates differ most."""
        found: dict[str, tuple[float, Choice, Ranking]] = {}
        for choice in choices:
            for ranking in choice.own:
                if (apart := _apart(ranking)) > found.get(ranking.metric, (1.0,))[0]:
                    found[ranking.metric] = apart, choice, ranking
        return [
            f"{self.at(choice)}{metrics.row(metric).label}: {self._ranking(ranking)}"
            for metric, (_, choice, ranking) in found.items()
        ]

    def _ranking(self, ranking: Ranking, *, windows: bool = False) -> str:
        """`A takes 26.5 ms`, then a line for each other: `B  1.27x [1.13, 1.42]`; of many those nearest to it."""
        unit = metrics.row(ranking.metric).unit
        first, *rest = ranking.ranked
        more = metrics.is_gain(ranking.metric)
        value = self._time(first.value, windows) if unit == "time" else units.of(unit, first.value.value, unicode=True)
        if ranking.metric.startswith("counter."):
            value = units.rate(first.value.value)
        head = f"{first.name} {'has the most' if more else 'has the least'}, {value}"
        if ranking.metric == Metric.WALL:
            head = f"{first.name} takes {value}"
        if more and rest:
            head += "; others less by these factors"
        pairs = []
        for each in rest[:NAMED]:
            alike = "not told apart" if each.name in ranking.tied else ""
            pairs.append((each.name, ", ".join(filter(None, (_times(each.times), alike)))))
        if far := [each.times.value for each in rest[NAMED:] if each.times]:
            ends = dict.fromkeys(map(units.ratio, (far[0], far[-1])))
            pairs.append((f"{len(rest) - NAMED} more", " to ".join(ends)))
        missing = f"\n{_listed(ranking.missing)}: not known" if ranking.missing else ""
        return f"{head}{_lines(pairs)}{missing}"

    # ---- builds

    def builds(self, advice: Advice) -> list[str]:
        """The fastest of each interpreter, and a comparison that mixes the builds with its parts."""
        if not advice.builds:
            return []
        mixed, *pure = advice.builds
        if mixed.ratio.low <= 1 <= mixed.ratio.high:
            return []
        head = f"{mixed.name} takes {_times(mixed.ratio)} the time of {mixed.other}"
        parts = [(f"{each.name} against {each.other}", _times(each.ratio)) for each in pure]
        return [f"{head}, which mixes the build into the difference; one at a time:{_lines(parts)}"]

    # ---- start-up

    def starts(self, starts: Sequence[StartTax]) -> list[str]:
        """The tax with the most workers, and the tasks in which it does not matter, in the setting where it is most."""
        if not starts:
            return []
        most = max(starts, key=lambda each: each.tax_ns.value)
        last = [each for each in starts if each.setting == most.setting][-1]
        shown = [each for each in starts if (each.setting, each.workers) == (last.setting, last.workers)]
        place = self.at(last)
        once = [(tax.name, self._span(tax.tax_ns)) for tax in shown if tax.paid_once]
        each_time = [
            (tax.name, f"{self._span(tax.tax_ns)}, {self._span(tax.task_ns)}") for tax in shown if not tax.paid_once
        ]
        texts = [f"{place}the workers are kept, so the start is paid once:{_lines(once)}"] if once else []
        if each_time:
            rule = f"and the task below which it matters, as it is more than {percent(rank.TAX)}"
            texts.append(f"{place}each start and join of the workers, {rule}:{_lines(each_time)}")
        return texts + [
            f"{place}{tax.name} is faster than {tax.overtaken} in tasks that take the latter more than "
            f"{self._span(tax.overtakes_ns)}"
            for tax in shown
            if tax.overtakes_ns is not None
        ]

    def _span(self, interval: Interval) -> str:
        value = units.time(interval.value, unicode=self.unicode)
        if math.isinf(interval.high):
            return f"{value} (at least {units.time(interval.low, unicode=self.unicode)})"
        return _with_ends(interval, lambda _: value, units.time_ends)

    # ---- memory

    def memory(self, uses: Sequence[MemoryUse]) -> list[str]:
        """Memory with the most workers, and of each further one; of settings the one where it is most."""
        if not uses:
            return []
        most = max(uses, key=lambda use: use.total.value)
        shown = [use for use in uses if (use.setting, use.workers) == (most.setting, most.workers)]
        parts = []
        for use in sorted(shown, key=lambda use: use.total.value):
            more = ""
            if (further := use.further) is not None:
                more = _with_ends(further, units.size, units.size_ends)
                if further.level and further.low <= 0:  # the noise of two totals
                    more = f"{units.size(further.high)} at most" if further.high > 0 else "0"
                more = f", {'a worker process ' if use.further_of == 'processes' else ''}{more}"
            parts.append((use.name, units.size(use.total.value) + more))
        whys = [f"a further worker's is not known where none is given: {use.why}" for use in shown if use.why]
        if len(whys) == len(shown):
            whys = [f"that of a further worker is not known: {shown[0].why}"]
        each = ", and of each further worker" if any(use.further_of == "counts" for use in shown) else ""
        return ["\n".join([f"{self.at(most)}{most.figure} of all processes{each}:{_lines(parts)}", *whys[:1]])]

    # ---- contention and scaling

    def contention(self, advice: Advice) -> list[str]:
        """Where workers wait, and what would be won without it at most; short waits in one sentence."""
        waiting = [each for each in advice.contention if (each.by_waits or 1) >= 1 / (1 - LEAST_SHARE)]
        quiet = [each for each in advice.contention if each not in waiting]
        texts = [self._waits(each, advice.scaling) for each in waiting[:NAMED]]
        if rest := waiting[NAMED:]:
            won = [each.by_waits or 1 for each in rest]
            ends = f"{units.ratio(min(won))} to {units.ratio(max(won))}"
            texts.append(f"{_names(rest)} wait, too: without that at most {ends} as fast")
        if quiet:
            known = [kind for kind in KINDS if any(getattr(each, kind) is not None for each in quiet)]
            least = percent(LEAST_SHARE)
            who = "all candidates" if len(quiet) == len(advice.contention) > 1 else _names(quiet)
            texts.append(f"{who}: {_kinds(known)} take less than {least} of the workers' time")
        unknown = [kind for kind in KINDS if all(getattr(each, kind) is None for each in advice.contention)]
        if unknown and advice.contention:
            texts.append(f"{_kinds(unknown)}: not known, not measured in {len(advice.contention)} cells")
        return texts

    def _waits(self, each: Contention, scaling: Sequence[ScalingAdvice]) -> str:
        shares = [(kind, share) for kind in KINDS if (share := getattr(each, kind)) is not None]
        waits = ", ".join(f"{KINDS[kind]} {units.share(share)}" for kind, share in shares)
        site = f", longest at {each.site}" if each.site and each.lock else ""
        by_waits, by_cores = each.by_waits or 1, each.by_cores or math.inf
        idle = ", for want of idle cores" if by_cores < by_waits else ""
        won = f"; without that at most {units.ratio(min(by_waits, by_cores))} as fast{idle}"
        same = [one for one in scaling if (one.name, one.setting) == (each.name, each.setting)]
        erased = [one for one in same if one.measured and one.enough == one.base and (each.lock or 0) >= ERASED]
        lost = "".join(f"; the lock takes what more workers bring: {self._points(one)}" for one in erased)
        return f"{self.at(each)}{each.name}: {waits} of the workers' time{site}{won}{lost}"

    def scaling(self, found: Sequence[ScalingAdvice]) -> list[str]:
        """How far more workers pay: in full for the fastest candidates."""
        texts = [self._scaling(each) for each in found[:NAMED]]
        by_count: dict[int, list[ScalingAdvice]] = {}
        for each in found[NAMED:]:
            by_count.setdefault(each.enough or 0, []).append(each)
        for enough, others in sorted(by_count.items()):
            last = [each.points[-1].times.value for each in others]
            most = f"more than {enough} do not pay" if enough else UNKNOWN_COUNT
            names = _listed([each.name for each in others])
            texts.append(f"{names}: {most}: {units.ratio(min(last))} to {units.ratio(max(last))} with the most workers")
        return texts

    def _points(self, each: ScalingAdvice) -> str:
        points = ", ".join(f"{point.workers} workers {_times(point.times)}" for point in each.points)
        return f"{points} the throughput of {each.base}"

    def _scaling(self, each: ScalingAdvice) -> str:
        setting = f"{each.setting}: " if each.setting else ""
        ends = f" [{units.number(each.serial.low)}, {units.number(each.serial.high)}]" if each.serial else ""
        serial = f"; serial fraction {units.number(each.serial.value)}{ends}" if each.serial else ""
        enough = UNKNOWN_COUNT
        if each.enough is not None:
            by = "as measured" if each.measured else "by Amdahl's law, given the cores"
            workers = "1 worker does" if each.enough == 1 else f"{each.enough} workers do"
            enough = f"more than {workers} not pay, {by}"
        return f"{setting}{each.name}: {enough}\n{INDENT}{self._points(each)}{serial}"

    def hazard(self, hazard: Hazard) -> str:
        """What went wrong, in which cells."""
        cells = ", ".join(hazard.cells[:MOST_NAMED]) + (" ..." if len(hazard.cells) > MOST_NAMED else "")
        return f"{HAZARDS[hazard.kind]} in {len(hazard.cells)} of {hazard.of} cells: {hazard.text} ({cells})"


# ---- words


def _lines(pairs: Sequence[tuple[str, str]]) -> str:
    """A line for each name and its figures, the figures in a column."""
    width = max((len(name) for name, _ in pairs), default=0)
    return "".join(f"\n{INDENT}{name.ljust(width)}  {text}".rstrip() for name, text in pairs)


def _listed(names: Sequence[str], last: str = "and") -> str:
    """The names; of many the first ones and the number of the others."""
    if len(names) > MOST_NAMED:
        names = (*names[: MOST_NAMED - 1], f"{len(names) - MOST_NAMED + 1} others")
    return listed(names, last) if names else ""


def _workers(word: str) -> str:
    """`8 workers` of w8; roles as they are written."""
    count = re.fullmatch(r"w(\d+)", word)
    return plural(int(count[1]), "worker") if count else word


def _counts(words: Iterable[str]) -> bool:
    """Whether these say a number of workers and no roles."""
    return all(re.fullmatch(r"w\d+|wcores", word) for word in words)


def _apart(ranking: Ranking) -> float:
    """How far the candidates are apart; 1 where none is told apart from the best."""
    beyond = [each.times.value for each in ranking.ranked if each.times and each.name not in ranking.tied]
    return max(beyond, default=1.0)


def _names(found: Sequence[Contention]) -> str:
    return _listed(tuple(dict.fromkeys(each.name for each in found)))


def _kinds(kinds: Sequence[str]) -> str:
    return listed([KINDS[kind] for kind in kinds], "and")


def _times(interval: Interval | None) -> str:
    return "" if interval is None else _with_ends(interval, units.ratio, units.ratio_ends)


def _with_ends(interval: Interval, written: Callable[[float], str], ends: Callable[[Interval], str]) -> str:
    """A value with its interval, if one is known."""
    return f"{written(interval.value)} {ends(interval)}" if interval.level else written(interval.value)
