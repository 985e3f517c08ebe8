"""The advice of a report in sentences, each with its figures: the same in every printed form. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from typing import NamedTuple

from ..judge import advice as judged
from ..judge import metrics
from ..model import (
    Advice,
    Choice,
    Contention,
    Hazard,
    Interval,
    MemoryUse,
    Metric,
    Ranked,
    Ranking,
    Report,
    ScalingAdvice,
    StartTax,
)
from ..text import listed, percent, plain
from . import units

NAMED = 4
"""Candidates of a ranking that are named one by one; of the others the range is given."""
LEAST_SHARE = 0.05
"""Waits for less than this share of the time are not worth a sentence of their own."""
ERASED = 0.2
"""A lock that workers wait for longer than this is named as what takes their gain."""
CORES_APART = 0.2
KINDS = {"lock": "waits for locks", "gil": "waits for the GIL", "unattributed": "unattributed waits"}
MOST_NAMED = 6
HAZARDS = {
    "gil": "an import turned the GIL back on",
    "fork": "fork ran beside threads, which is unsafe",
    "results": "results differ",
    "failure": "not measured",
}


class Sentence(NamedTuple):
    """A topic (`advice`, `time`, `start-up`, ...) and what is said of it."""

    topic: str
    text: str


class Advised(NamedTuple):
    """The sentences of one test; the first one is the advice itself."""

    test: str
    source: str
    sentences: tuple[Sentence, ...]


def sentences(report: Report, weights: judged.Weights = (), *, unicode: bool = True) -> tuple[Advised, ...]:
    """What follows from a report, test by test."""
    return tuple(said(advice, unicode=unicode) for advice in judged.of_report(report, weights))


def said(advice: Advice, *, unicode: bool = True) -> Advised:
    """The sentences of one Advice."""
    speaker = _Speaker(unicode)
    found = [
        *(Sentence("advice", text) for text in speaker.choices(advice)),
        *(Sentence("time", text) for text in speaker.times(advice.choices)),
        *(Sentence("measured", text) for text in speaker.own(advice.choices)),
        *(Sentence("builds", text) for text in speaker.builds(advice)),
        *(Sentence("start-up", text) for text in speaker.starts(advice.starts)),
        *(Sentence("memory", text) for text in speaker.memory(advice.memory)),
        *(Sentence("contention", text) for text in speaker.contention(advice)),
        *(Sentence("scaling", text) for text in speaker.scaling(advice.scaling)),
        *(Sentence("hazard", text) for text in map(speaker.hazard, advice.hazards)),
    ]
    if advice.unknown:
        found.append(Sentence("not known", f"{listed(advice.unknown, 'and')}: nothing was measured"))
    found += [Sentence("not known", f"{_listed(cells)}: {reason}") for reason, cells in advice.unsupported.items()]
    texts = tuple(Sentence(topic, plain(text)) for topic, text in found)
    return Advised(plain(advice.test), plain(advice.source), texts)


def render(advised: Iterable[Advised], width: int = 80) -> str:
    """The sentences as lines of at most `width` columns, a paragraph each, the topic in a column of its own."""
    from .lines import Style, entry

    style = Style(max(width, 40), False, True, 0)
    blocks = []
    for each in advised:
        lines = [each.test, *entry("from", each.source, style, indent=2, column=12)]
        for topic, texts in groupby(each.sentences, key=lambda sentence: sentence.topic):
            for number, sentence in enumerate(texts):
                lines += entry("" if number else topic, sentence.text, style, indent=2, column=12)
        blocks.append("\n".join(lines) + "\n")
    return "\n".join(blocks)


class _Speaker(NamedTuple):
    """Makes sentences, in Unicode or ASCII."""

    unicode: bool

    # ---- the advice

    def choices(self, advice: Advice) -> list[str]:
        """The choice of each setting; settings with the same one share a sentence."""
        weights = " ".join(f"{name}={weight:g}" for name, weight in advice.weights)
        verdicts = [(choice, self._verdict(choice, weights)) for choice in advice.choices]
        texts = []
        for words in dict.fromkeys(words for _, words in verdicts):
            same = [choice for choice, each in verdicts if each == words]
            figures = [self._figures(choice) for choice in same[:1]]
            others = f"; the same {_place_of(same[1:])}" if len(same) > 1 else ""
            texts.append(f"{_at(same[0])}{words}: {figures[0]}{others}")
        return texts

    def _verdict(self, choice: Choice, weights: str) -> str:
        """The choice in words without figures."""
        by = f" by {weights}" if weights else ""
        measured = [each.name for each in choice.time.ranked]
        if len(measured) == 1:
            return f"{measured[0]} alone was measured"
        chosen = _listed(choice.advised)
        if len(choice.advised) == len(measured):
            return f"it does not matter{by or ' by time or memory'} which of {chosen}"
        if len(choice.advised) == 1:
            return f"{chosen}{by or ', than which none is better in time or memory'}"
        if choice.advised:
            return f"one of {chosen}{by}; which of them does not matter"
        return f"nothing wins in both time and memory; none is better in both than {_listed(choice.pareto, 'or')}"

    def _figures(self, choice: Choice) -> str:
        """Time and memory of what was chosen, or of the Pareto set."""
        names = choice.advised or choice.pareto
        times = {each.name: self._time(each.value, choice.windows) for each in choice.time.ranked}
        memory = {each.name: units.size(each.value.value) for each in (choice.memory.ranked if choice.memory else ())}
        parts = [f"{name} {times[name]}, {memory.get(name, 'memory not known')}" for name in names[:MOST_NAMED]]
        if len(names) > MOST_NAMED:
            parts.append(f"and {len(names) - MOST_NAMED} more")
        return "; ".join(parts)

    def _time(self, value: Interval, windows: bool) -> str:
        return units.time(value.value, unicode=self.unicode) + (" an operation" if windows else "")

    # ---- time, and what the workload measures itself

    def times(self, choices: Sequence[Choice]) -> list[str]:
        """The ranking by time of each place, and the cores kept busy where candidates differ."""
        texts = []
        for choice in choices:
            texts.append(f"{_at(choice)}{self._ranking(choice.time, windows=choice.windows)}")
            for limit in choice.limits:
                over = f", {self._times(limit.times)} the fastest's" if limit.times else ""
                takes = f"{limit.name}, a program, takes {self._time(limit.value, choice.windows)}"
                texts.append(f"{_at(choice)}{takes}{over}")
            busy = sorted(choice.cores.items(), key=lambda pair: -pair[1])
            if busy and busy[0][1] - busy[-1][1] >= CORES_APART:
                ends = [f"{name} {units.cores(cores)}" for name, cores in (busy if len(busy) <= NAMED else busy[:2])]
                last = f" ... {busy[-1][0]} {units.cores(busy[-1][1])}" if len(busy) > NAMED else ""
                texts.append(f"{_at(choice)}cores kept busy: {', '.join(ends)}{last}")
        return texts

    def own(self, choices: Sequence[Choice]) -> list[str]:
        """The rankings by metrics of the workload or of its load."""
        return [
            f"{_at(choice)}{metrics.row(ranking.metric).label}: {self._ranking(ranking)}"
            for choice in choices
            for ranking in choice.own
            if len(ranking.tied) < len(ranking.ranked)
        ]

    def _ranking(self, ranking: Ranking, *, windows: bool = False) -> str:
        """`A 26.5 ms; B 1.27x (1.13 to 1.42), C 2.4x (...)`; those that are not told apart are said to be so."""
        unit = metrics.row(ranking.metric).unit
        first, *rest = ranking.ranked
        more = metrics.is_gain(ranking.metric)
        value = self._time(first.value, windows) if unit == "time" else units.of(unit, first.value.value, unicode=True)
        head = f"{first.name} {'has the most' if more else 'has the least'}, {value}"
        if ranking.metric == Metric.WALL:
            head = f"{first.name} takes {value}"
        tied = [each for each in rest if each.name in ranking.tied]
        worse = [each for each in rest if each.name not in ranking.tied]
        parts = [head]
        if tied:
            parts.append(f"{self._each(tied)}: not told apart from it")
        if worse:
            parts.append(("it is beaten by the best so many times: " if more else "") + self._each(worse))
        if ranking.missing:
            parts.append(f"{_listed(ranking.missing)}: not known")
        return "; ".join(parts)

    def _each(self, ranked: Sequence[Ranked]) -> str:
        texts = [f"{each.name} {self._times(each.times)}" if each.times else each.name for each in ranked[:NAMED]]
        rest = [each.times for each in ranked[NAMED:] if each.times]
        if rest:
            ends = dict.fromkeys(map(units.ratio, (rest[0].value, rest[-1].value)))
            texts.append(f"{len(rest)} more {' to '.join(ends)}")
        return ", ".join(texts)

    def _times(self, interval: Interval | None) -> str:
        return "" if interval is None else _with_ends(interval, units.ratio, units.ratio_ends)

    # ---- builds

    def builds(self, advice: Advice) -> list[str]:
        """The fastest of each interpreter, and a comparison that mixes the builds with its parts."""
        if not advice.builds:
            return []
        mixed, *pure = advice.builds
        parts = "; ".join(f"{each.name} against {each.other} {self._times(each.ratio)}" for each in pure)
        head = f"{mixed.name} against {mixed.other} takes {self._times(mixed.ratio)} the time"
        return [f"{head}, which mixes the build into the difference; one at a time: {parts}"]

    # ---- start-up

    def starts(self, starts: Sequence[StartTax]) -> list[str]:
        """The tax with the most workers, with the task at which it stops to matter."""
        texts = []
        for setting, group in groupby(starts, key=lambda each: each.setting):
            taxes = list(group)
            largest = taxes[-1].workers
            shown = [each for each in taxes if each.workers == largest]
            place = _where(largest, setting)
            once = [f"{tax.name} {self._span(tax.tax_ns)}" for tax in shown if tax.paid_once]
            each = [
                f"{tax.name} {self._span(tax.tax_ns)}, tasks of {self._span(tax.task_ns)}"
                for tax in shown
                if not tax.paid_once
            ]
            if once:
                texts.append(f"{place}the workers are kept, so the start is paid once: {'; '.join(once)}")
            if each:
                head = "starting and joining the workers, and the tasks from which on that is less than"
                texts.append(f"{place}{head} {percent(judged.TAX)}: {'; '.join(each)}")
            for tax in shown:
                if tax.overtakes_ns is not None:
                    text = f"{tax.name} is faster than {tax.overtaken} in tasks above {self._span(tax.overtakes_ns)}"
                    texts.append(place + text)
        return texts

    def _span(self, interval: Interval) -> str:
        value = units.time(interval.value, unicode=self.unicode)
        if math.isinf(interval.high):
            return f"{value} (at least {units.time(interval.low, unicode=self.unicode)})"
        return _with_ends(interval, lambda _: value, units.time_ends)

    # ---- memory

    def memory(self, uses: Sequence[MemoryUse]) -> list[str]:
        """Memory with the most workers, and of each further one."""
        texts = []
        for (workers, setting, figure), group in _grouped(uses, lambda use: (use.workers, use.setting, use.figure)):
            parts = []
            whys = set()
            for use in sorted(group, key=lambda use: use.total.value):
                further = ""
                if use.further is not None:
                    of = " a worker process" if use.further_of == "processes" else " for each further one"
                    further = f", {_with_ends(use.further, units.size, units.size_ends)}{of}"
                else:
                    whys.add(use.why)
                parts.append(f"{use.name} {units.size(use.total.value)}{further}")
            unknown = [f"each further one is not known where none is given: {why}" for why in sorted(whys)]
            texts.append(f"{_where(workers, setting)}{figure}: {'; '.join([*parts, *unknown])}")
        return texts

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
            texts.append(f"{_names(quiet)}: {_kinds(known)} take less than {least} of the workers' time")
        unknown = [kind for kind in KINDS if all(getattr(each, kind) is None for each in advice.contention)]
        if unknown and advice.contention:
            texts.append(f"{_kinds(unknown)}: not known, not measured in {len(advice.contention)} cells")
        return texts

    def _waits(self, each: Contention, scaling: Sequence[ScalingAdvice]) -> str:
        shares = [(kind, share) for kind in KINDS if (share := getattr(each, kind)) is not None]
        parts = listed([f"{units.share(share)} in {KINDS[kind]}" for kind, share in shares], "and")
        site = f", longest at {each.site}" if each.site else ""
        cores = f", and {units.ratio(each.by_cores)} by the cores that are idle" if each.by_cores else ""
        won = f"; without that at most {units.ratio(each.by_waits or 1)} as fast by the waits{cores}"
        same = [one for one in scaling if (one.name, one.setting) == (each.name, each.setting)]
        erased = [one for one in same if one.measured and one.enough == one.base and (each.lock or 0) >= ERASED]
        lost = "".join(f"; the lock takes what more workers bring: {self._points(one)}" for one in erased)
        return f"{_where(each.workers, each.setting)}{each.name}: {parts} of the workers' time{site}{won}{lost}"

    def scaling(self, found: Sequence[ScalingAdvice]) -> list[str]:
        """How far more workers pay."""
        return [self._scaling(each) for each in found]

    def _points(self, each: ScalingAdvice) -> str:
        points = ", ".join(f"{point.workers} workers {self._times(point.times)}" for point in each.points)
        return f"{points} the throughput of {each.base}"

    def _scaling(self, each: ScalingAdvice) -> str:
        setting = f"{each.setting}: " if each.setting else ""
        ends = f" [{units.number(each.serial.low)}, {units.number(each.serial.high)}]" if each.serial else ""
        serial = f"; serial fraction {units.number(each.serial.value)}{ends}" if each.serial else ""
        enough = "; beyond which count more do not pay is not known"
        if each.enough is not None:
            by = "measured" if each.measured else "by Amdahl's law"
            enough = f"; more than {each.enough} do not pay, {by} on {each.cores} cores"
        return f"{setting}{each.name}: {self._points(each)}{serial}{enough}"

    def hazard(self, hazard: Hazard) -> str:
        """What went wrong, in which cells."""
        cells = ", ".join(hazard.cells[:MOST_NAMED]) + (" ..." if len(hazard.cells) > MOST_NAMED else "")
        return f"{HAZARDS[hazard.kind]} in {len(hazard.cells)} of {hazard.of} cells: {hazard.text} ({cells})"


# ---- words


def _listed(names: Sequence[str], last: str = "and") -> str:
    """The names; of many the first ones and the number of the others."""
    if len(names) > MOST_NAMED:
        names = (*names[: MOST_NAMED - 1], f"{len(names) - MOST_NAMED + 1} others")
    return listed(names, last) if names else ""


def _at(choice: Choice) -> str:
    return _where(choice.workers, choice.setting)


def _where(workers: str, setting: str) -> str:
    """`w8, 0.5-10: `; empty where a test has one place."""
    place = ", ".join(filter(None, (_workers(workers), setting)))
    return f"{place}: " if place else ""


def _workers(word: str) -> str:
    """`8 workers` of w8; roles as they are written."""
    count = re.fullmatch(r"w(\d+)", word)
    if count is None:
        return word
    return f"{count[1]} worker{'' if count[1] == '1' else 's'}"


def _place_of(choices: Iterable[Choice]) -> str:
    return "with " + listed([_at(choice).removesuffix(": ") for choice in choices], "and")


def _grouped(
    uses: Sequence[MemoryUse], key: Callable[[MemoryUse], tuple[str, str, str]]
) -> list[tuple[tuple[str, str, str], list[MemoryUse]]]:
    return [(place, list(group)) for place, group in groupby(sorted(uses, key=key), key=key)]


def _names(found: Sequence[Contention]) -> str:
    return _listed(tuple(dict.fromkeys(each.name for each in found)))


def _kinds(kinds: Sequence[str]) -> str:
    return listed([KINDS[kind] for kind in kinds], "and")


def _with_ends(interval: Interval, written: Callable[[float], str], ends: Callable[[Interval], str]) -> str:
    """A value with its interval, if one is known."""
    return f"{written(interval.value)} {ends(interval)}" if interval.level else written(interval.value)
