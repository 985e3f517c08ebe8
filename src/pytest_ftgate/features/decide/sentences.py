"""The advice of a report in sentences, each with its figures: the same in every printed form. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from typing import NamedTuple, TypeAlias

import msgspec

from ...judge import metrics
from ...kit import units
from ...kit.text import listed, percent, plain, plural
from ...kit.values import Interval, Metric, to_builtins
from ...model.report import Report
from ...report import json
from ...report.details import Style, entry, plain_units, wrapped
from . import rank
from .rank import Advice, Choice, Contention, MemoryUse, Ranking, ScalingAdvice, StartTax

NAMED = 4
"""Candidates of a ranking that are named one by one; of the others the range is given."""
LEAST_SHARE = 0.05
"""Waits for less than this share of the time are not worth a sentence of their own."""
ERASED = 0.2
"""A lock that workers wait for longer than this is named as what takes their gain."""
CORES_APART = 0.2
"""Candidates whose busy cores differ by this much have a sentence on it."""
WEIGH = "to choose, say in the ini what counts, such as ftgate_weights = time=1 memory=0.5"
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
Prefix: TypeAlias = Callable[[Choice | Contention | MemoryUse | StartTax], str]
"""The place that a fact is of, before its sentence: `8 workers, 0.5-10: `; empty where a test has one place."""


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


def of_report(report: Report, weights: rank.Weights = ()) -> tuple[Advised, ...]:
    """What follows from a report, test by test."""
    return tuple(said(advice) for advice in rank.of_report(report, weights))


def said(advice: Advice) -> Advised:
    words = {choice.workers for choice in advice.choices}
    same = words.pop() if len(words) == 1 else ""

    def at(place: Choice | Contention | MemoryUse | StartTax) -> str:
        workers = "" if place.workers == same else _workers(place.workers)
        text = ", ".join(filter(None, (workers, place.setting)))
        return f"{text}: " if text else ""

    by_topic = {
        "advice": _advice(advice, at),
        "time": _times(advice.choices, at),
        "own figures": _own_figures(advice.choices, at),
        "builds": _builds(advice),
        "start-up": _starts(advice.starts, at),
        "memory": _memory(advice.memory, at),
        "contention": _contention(advice, at),
        "scaling": _scaling(advice.scaling),
        "hazard": [
            f"{HAZARDS[each.kind]} in {len(each.cells)} of {each.of} cells: {each.text} "
            f"({', '.join(each.cells[:MOST_NAMED])}{' ...' if len(each.cells) > MOST_NAMED else ''})"
            for each in advice.hazards
        ],
    }
    found = [Sentence(topic, text) for topic, texts in by_topic.items() for text in texts]
    one_count = re.fullmatch(r"w\d+|wcores", same)  # and no roles
    unknown = [topic for topic in advice.unknown if topic != "scaling" or not one_count]
    if unknown:
        found.append(Sentence("not known", f"{listed(unknown, 'and')}: nothing was measured"))
    if len(unknown) < len(advice.unknown):
        found.append(Sentence("not known", "scaling: one worker count alone was measured"))
    found += [Sentence("not known", f"{_names(cells)}: {reason}") for reason, cells in advice.unsupported.items()]
    texts = tuple(Sentence(topic, "\n".join(map(plain, text.split("\n")))) for topic, text in found)
    return Advised(plain(advice.test), plain(advice.source), texts, _workers(same) if one_count else "")


def as_json(found: Iterable[Advice]) -> str:
    """The figures behind the sentences: a list of Advice, keys sorted."""
    builtins = json.writable([to_builtins(each) for each in found])
    return msgspec.json.format(msgspec.json.encode(builtins, order="sorted"), indent=2).decode()


def render(advised: Iterable[Advised], width: int = 80, *, unicode: bool = True) -> str:
    """The sentences as lines of at most `width` columns, a paragraph each, the topic in a column of its own."""
    style = Style(max(width, 40), unicode=unicode)
    blocks = []
    for each in advised:
        title = f"{each.test} ({each.place})" if each.place else each.test
        lines = [title, *entry("from", each.source, style, indent=2, column=12)]
        for topic, texts in groupby(each.sentences, key=lambda sentence: sentence.topic):
            for number, sentence in enumerate(texts):
                text = sentence.text if unicode else plain_units(sentence.text)
                head, *below = text.split("\n")
                lines += entry("" if number else topic, head, style, indent=2, column=12)
                for line in below:
                    lines += wrapped(line, style, indent=14, hanging=20 if line[:1] == " " else None)
        blocks.append("\n".join(lines) + "\n")
    return "\n".join(blocks).encode("utf-8" if unicode else "ascii", "backslashreplace").decode()


# ---- the choice, and the time


def _advice(advice: Advice, at: Prefix) -> list[str]:
    """The answer of each setting; settings with the same one share a sentence, with the figures of the first.

    An answer of several candidates has a line for each, with its time and memory.
    """
    groups: dict[tuple[object, ...], list[Choice]] = {}
    for choice in advice.choices:
        names = choice.advised or choice.pareto
        answer = (bool(choice.advised), len(names) == len(choice.time.ranked), frozenset(names))
        groups.setdefault(answer, []).append(choice)
    by = "by " + " ".join(f"{name}={weight:g}" for name, weight in advice.weights) if advice.weights else ""
    texts = []
    for same in groups.values():
        first, *others = same
        names, every = first.advised or first.pareto, len(first.time.ranked)
        times = {each.name: _time(each.value, first.windows) for each in first.time.ranked}
        memory = {each.name: units.size(each.value.value) for each in (first.memory.ranked if first.memory else ())}
        figures = [(name, f"{times[name]}, {memory.get(name, 'memory not known')}") for name in names]
        lines = _lines(figures)
        if len(names) == 1:
            best = f"best {by}" if by else "no other is clearly faster or smaller"
            why = "no other candidate was measured" if every == 1 else best
            text, lines = f"{': '.join(figures[0])}; {why}", ""
        elif not first.advised:
            text = "nothing wins in both time and memory; one of these, each beaten by none"
            lines += f"\n{WEIGH}"
        elif len(names) == every:
            text = f"it does not matter: these are not told apart {by or 'in time or memory'}"
        else:
            text = f"one of these; which of them does not matter {by or 'in time or memory'}, the others are beaten"
        settings = f"; the same {_with_settings(others, at)}" if others else ""
        texts.append(f"{at(first)}{text}{settings}{lines}{_told_apart_by(same)}")
    return texts


def _told_apart_by(choices: Iterable[Choice]) -> str:
    """What tells the candidates apart where time does not: the timer or latency in which they differ most."""
    rankings = [each for choice in _ties(choices) for each in choice.own if metrics.row(each.metric).unit == "time"]
    widest = max(rankings, key=_difference, default=None)
    if widest is None or _difference(widest) == 1:
        return ""
    best = [f"{each.name} ({_time(each.value)})" for each in widest.ranked if each.name in widest.tied]
    most = units.ratio(_difference(widest))
    return f"\nbut {widest.metric} is least with {_names(best)}, and up to {most} that with others"


def _times(choices: Sequence[Choice], at: Prefix) -> list[str]:
    """The ranking by time of each place, and the cores kept busy where candidates differ."""
    ties, texts = _ties(choices), []
    if len(ties) > 1:
        most = max(each.times.value for choice in ties for each in choice.time.ranked if each.times)
        texts.append(f"{_with_settings(ties, at)} none is told apart from the fastest: up to {units.ratio(most)}")
    for choice in choices:
        if choice not in ties or len(ties) == 1:
            texts.append(f"{at(choice)}{_ranking(choice.time, windows=choice.windows)}")
        for limit in choice.limits:
            over = f", {_ratio(limit.times)} the fastest's" if limit.times else ""
            takes = _time(limit.value, choice.windows)
            texts.append(f"{at(choice)}{limit.name}, a program, takes {takes}{over}")
        busy = sorted(choice.cores.items(), key=lambda pair: -pair[1])
        if busy and busy[0][1] - busy[-1][1] >= CORES_APART:
            named = [f"{name} {units.cores(cores)}" for name, cores in busy]
            shown = ", ".join(named) if len(busy) <= NAMED else f"{', '.join(named[:2])} ... {named[-1]}"
            texts.append(f"{at(choice)}cores kept busy: {shown}")
    return texts


def _ties(choices: Iterable[Choice]) -> list[Choice]:
    """Those of which no candidate is told apart from the fastest."""
    return [choice for choice in choices if len(choice.time.tied) == len(choice.time.ranked) > 1]


def _with_settings(choices: Iterable[Choice], at: Prefix) -> str:
    return "with " + listed([at(choice).removesuffix(": ") for choice in choices], "and")


def _own_figures(choices: Iterable[Choice], at: Prefix) -> list[str]:
    """The rankings by metrics of the workload or of its load; of settings the one where candidates differ most."""
    found: dict[str, tuple[float, Choice, Ranking]] = {}
    for choice in choices:
        for ranking in choice.own:
            if (difference := _difference(ranking)) > found.get(ranking.metric, (1.0,))[0]:
                found[ranking.metric] = difference, choice, ranking
    return [f"{at(choice)}{metric}: {_ranking(ranking)}" for metric, (_, choice, ranking) in found.items()]


def _difference(ranking: Ranking) -> float:
    """How many times the best one's value the others have at most; 1 where none is told apart from the best."""
    return max((each.times.value for each in ranking.ranked if each.times and each.name not in ranking.tied), default=1)


def _ranking(ranking: Ranking, *, windows: bool = False) -> str:
    """`A takes 26.5 ms`, then a line for each other: `B  1.27x [1.13, 1.42]`; of many those nearest to it."""
    unit, more = metrics.row(ranking.metric).unit, metrics.is_gain(ranking.metric)
    first, *rest = ranking.ranked
    if unit == "time":
        value = _time(first.value, windows)
    elif ranking.metric.startswith("counter."):
        value = units.rate(first.value.value)
    else:
        value = units.of(unit, first.value.value, unicode=True)
    head = f"{first.name} {'has the most' if more else 'has the least'}, {value}"
    if ranking.metric == Metric.WALL:
        head = f"{first.name} takes {value}"
    if more and rest:
        head += "; others less by these factors"
    pairs = []
    for each in rest[:NAMED]:
        tied = "not told apart" if each.name in ranking.tied else ""
        pairs.append((each.name, ", ".join(filter(None, (_ratio(each.times), tied)))))
    if far := [each.times.value for each in rest[NAMED:] if each.times]:
        ends = dict.fromkeys(map(units.ratio, (far[0], far[-1])))
        pairs.append((f"{len(rest) - NAMED} more", " to ".join(ends)))
    missing = f"\n{_names(ranking.missing)}: not known" if ranking.missing else ""
    return f"{head}{_lines(pairs)}{missing}"


def _builds(advice: Advice) -> list[str]:
    """A comparison that mixes executor and interpreter, with its parts; none that is not told apart."""
    if not advice.builds:
        return []
    mixed, *parts = advice.builds
    if mixed.ratio.low <= 1 <= mixed.ratio.high:
        return []
    lines = _lines([(f"{each.name} against {each.other}", _ratio(each.ratio)) for each in parts])
    head = f"{mixed.name} takes {_ratio(mixed.ratio)} the time of {mixed.other}"
    return [f"{head}, which mixes the build into the difference; one at a time:{lines}"]


# ---- start-up and memory


def _starts(starts: Sequence[StartTax], at: Prefix) -> list[str]:
    """The tax with the most workers, and the tasks in which it does not matter, in the setting where it is most."""
    if not starts:
        return []
    most = max(starts, key=lambda each: each.tax_ns.value)
    last = [each for each in starts if each.setting == most.setting][-1]
    shown = [each for each in starts if (each.setting, each.workers) == (last.setting, last.workers)]
    texts = []
    if once := [(each.name, _span(each.tax_ns)) for each in shown if each.paid_once]:
        texts.append(f"{at(last)}the workers are kept, so the start is paid once:{_lines(once)}")
    taxes = [(each.name, f"{_span(each.tax_ns)}, {_span(each.task_ns)}") for each in shown if not each.paid_once]
    if taxes:
        rule = f"and the task below which it matters, as it is more than {percent(rank.TAX)}"
        texts.append(f"{at(last)}each start and join of the workers, {rule}:{_lines(taxes)}")
    for each in shown:
        if each.overtakes_ns is not None:
            tasks = f"tasks that take the latter more than {_span(each.overtakes_ns)}"
            texts.append(f"{at(last)}{each.name} is faster than {each.overtaken} in {tasks}")
    return texts


def _memory(uses: Sequence[MemoryUse], at: Prefix) -> list[str]:
    """Memory with the most workers, and of each further one; of settings the one where it is most."""
    if not uses:
        return []
    most = max(uses, key=lambda use: use.total.value)
    shown = [use for use in uses if (use.setting, use.workers) == (most.setting, most.workers)]
    pairs = []
    for use in sorted(shown, key=lambda use: use.total.value):
        more = ""
        if (further := use.further) is not None:
            size = _with_ends(further, units.size, units.size_ends)
            if further.level and further.low <= 0:  # the noise of two totals
                size = f"{units.size(further.high)} at most" if further.high > 0 else "0"
            more = f", {'a worker process ' if use.further_of == 'processes' else ''}{size}"
        pairs.append((use.name, units.size(use.total.value) + more))
    whys = [f"a further worker's is not known where none is given: {use.why}" for use in shown if use.why]
    if len(whys) == len(shown):
        whys = [f"that of a further worker is not known: {shown[0].why}"]
    each = ", and of each further worker" if any(use.further_of == "counts" for use in shown) else ""
    return ["\n".join([f"{at(most)}{most.figure} of all processes{each}:{_lines(pairs)}", *whys[:1]])]


# ---- contention and scaling


def _contention(advice: Advice, at: Prefix) -> list[str]:
    """Where workers wait, and what would be won without it at most; short waits in one sentence."""
    waiting = [each for each in advice.contention if (each.by_waits or 1) >= 1 / (1 - LEAST_SHARE)]
    texts = []
    for each in waiting[:NAMED]:
        shares = [(kind, share) for kind in KINDS if (share := getattr(each, kind)) is not None]
        waits = ", ".join(f"{KINDS[kind]} {units.share(share)}" for kind, share in shares)
        site = f", longest at {each.site}" if each.site and each.lock else ""
        by_waits, by_cores = each.by_waits or 1, each.by_cores or math.inf
        idle = ", for want of idle cores" if by_cores < by_waits else ""
        won = f"; without that at most {units.ratio(min(by_waits, by_cores))} as fast{idle}"
        for same in advice.scaling:
            no_gain = same.measured and same.enough == same.base and (each.lock or 0) >= ERASED
            if no_gain and (same.name, same.setting) == (each.name, each.setting):
                won += f"; the lock takes what more workers bring: {_points(same)}"
        texts.append(f"{at(each)}{each.name}: {waits} of the workers' time{site}{won}")
    if others := waiting[NAMED:]:
        gains = [each.by_waits or 1 for each in others]
        ends = f"{units.ratio(min(gains))} to {units.ratio(max(gains))}"
        texts.append(f"{_names(_of_all(others))} wait, too: without that at most {ends} as fast")
    if quiet := [each for each in advice.contention if each not in waiting]:
        known = [words for kind, words in KINDS.items() if any(getattr(each, kind) is not None for each in quiet)]
        who = "all candidates" if len(quiet) == len(advice.contention) > 1 else _names(_of_all(quiet))
        texts.append(f"{who}: {listed(known, 'and')} take less than {percent(LEAST_SHARE)} of the workers' time")
    unknown = [words for kind, words in KINDS.items() if all(getattr(each, kind) is None for each in advice.contention)]
    if unknown and advice.contention:
        texts.append(f"{listed(unknown, 'and')}: not known, not measured in {len(advice.contention)} cells")
    return texts


def _of_all(found: Iterable[Contention]) -> list[str]:
    return list(dict.fromkeys(each.name for each in found))


def _scaling(found: Sequence[ScalingAdvice]) -> list[str]:
    """How far more workers pay: in full for the fastest candidates."""
    texts = []
    for each in found[:NAMED]:
        serial = ""
        if each.serial:
            ends = f"[{units.number(each.serial.low)}, {units.number(each.serial.high)}]"
            serial = f"; serial fraction {units.number(each.serial.value)} {ends}"
        enough = UNKNOWN_COUNT
        if each.enough is not None:
            by = "as measured" if each.measured else "by Amdahl's law, given the cores"
            workers = "1 worker does" if each.enough == 1 else f"{each.enough} workers do"
            enough = f"more than {workers} not pay, {by}"
        setting = f"{each.setting}: " if each.setting else ""
        texts.append(f"{setting}{each.name}: {enough}\n{INDENT}{_points(each)}{serial}")
    by_count: dict[int, list[ScalingAdvice]] = {}
    for each in found[NAMED:]:
        by_count.setdefault(each.enough or 0, []).append(each)
    for count, others in sorted(by_count.items()):
        last = [each.points[-1].times.value for each in others]
        most = f"more than {count} do not pay" if count else UNKNOWN_COUNT
        names = _names([each.name for each in others])
        texts.append(f"{names}: {most}: {units.ratio(min(last))} to {units.ratio(max(last))} with the most workers")
    return texts


def _points(each: ScalingAdvice) -> str:
    points = ", ".join(f"{point.workers} workers {_ratio(point.times)}" for point in each.points)
    return f"{points} the throughput of {each.base}"


# ---- words


def _lines(pairs: Sequence[tuple[str, str]]) -> str:
    """A line for each name and its figures, the figures in a column."""
    width = max((len(name) for name, _ in pairs), default=0)
    return "".join(f"\n{INDENT}{name.ljust(width)}  {text}".rstrip() for name, text in pairs)


def _names(names: Sequence[str]) -> str:
    """The names; of many the first ones and the number of the others."""
    if len(names) > MOST_NAMED:
        names = (*names[: MOST_NAMED - 1], f"{len(names) - MOST_NAMED + 1} others")
    return listed(names, "and") if names else ""


def _workers(word: str) -> str:
    """`8 workers` of w8; roles as they are written."""
    count = re.fullmatch(r"w(\d+)", word)
    return plural(int(count[1]), "worker") if count else word


def _time(value: Interval, windows: bool = False) -> str:
    return units.time(value.value) + (" an operation" if windows else "")


def _span(interval: Interval) -> str:
    if math.isinf(interval.high):
        return f"{units.time(interval.value)} (at least {units.time(interval.low)})"
    return _with_ends(interval, units.time, units.time_ends)


def _ratio(interval: Interval | None) -> str:
    return "" if interval is None else _with_ends(interval, units.ratio, units.ratio_ends)


def _with_ends(interval: Interval, written: Callable[[float], str], ends: Callable[[Interval], str]) -> str:
    """A value with its interval, if one is known."""
    return f"{written(interval.value)} {ends(interval)}" if interval.level else written(interval.value)
