"""The advice of a report in sentences, each with its figures: the same in every printed form. Pure.

A topic has a head for each place, and below it a line for each candidate.
"""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from typing import NamedTuple, TypeAlias

import msgspec

from ...judge import metrics
from ...kit import units
from ...kit.text import listed, percent, plain, plural
from ...kit.values import Interval, Metric
from ...model.report import Report
from ...report import json
from ...report.details import Style, entry, plain_units, wrapped
from ...report.said import allowing
from . import rank
from .rank import HAZARDS, Advice, Choice, Dispatch, MemoryUse, Placed, Ranked, Ranking, ScalingAdvice

NAMED = 4
"""Candidates of a topic that are named one by one; of the others the range is given."""
LEAST_SHARE = 0.05
"""Candidates that wait for less than this share of the time have one line together."""
ERASED = 0.2
"""A lock that workers wait for longer than this is named as what takes their gain."""
UNFAIR = 1.25
"""A candidate is named if the imbalance of its workers is at least this."""
FIRST = ("advice", "time", "dispatch", "hazard")
"""Topics that are shown without -v."""
TABLE = 7
"""Lines of the times that are shown by default."""
WEIGH = "to choose, set weights in the ini, such as ftgate_weights = time=1 memory=0.5"
KINDS = {"lock": "for locks", "gil": "for the GIL", "unattributed": "unattributed"}
MOST_NAMED = 6
INDENT = "  "
"""Begins a line that belongs to the one above it."""
Place: TypeAlias = Callable[[Placed], str]
"""The place that a fact is of, before its sentence: `8 workers, 0.5-10: `; empty where a test has one place."""


class Sentence(NamedTuple):
    """A topic (`advice`, `time`, `memory`, ...) and what is said of it: a line, and indented ones below it."""

    topic: str
    text: str


class Advised(NamedTuple):
    """The sentences of one test; the first one is the advice itself. `place` are the workers that all cells have."""

    test: str
    source: str
    sentences: tuple[Sentence, ...]
    place: str = ""


def of_report(report: Report) -> tuple[Advised, ...]:
    """The advice of a report, test by test."""
    return tuple(said(advice) for advice in rank.of_report(report, report.weights))


def said(advice: Advice) -> Advised:
    words = {choice.workers for choice in advice.choices}
    same = words.pop() if len(words) == 1 else ""

    def at(place: Placed) -> str:
        workers = "" if place.workers == same else _workers(place.workers)
        text = ", ".join(filter(None, (workers, place.setting)))
        return f"{text}: " if text else ""

    by_topic = {
        "advice": _advice(advice, at),
        "time": _times(advice.choices, at),
        "dispatch": _dispatch(advice.dispatch, at),
        "own figures": _own_figures(advice.choices, at),
        "memory": _memory(advice.memory, at),
        "contention": _contention(advice, at),
        "scaling": _scaling(advice.scaling, at),
        "hazard": [
            f"{HAZARDS[each.kind][1]} in {len(each.cells)} of {each.of} cells: {each.text} ({_names(each.cells)})"
            for each in advice.hazards
        ],
        "not known": [
            *([f"{listed(advice.unknown, 'and')}: not measured"] if advice.unknown else []),
            *(f"{_names(cells)}: {reason}" for reason, cells in advice.unsupported.items()),
        ],
    }
    sentences = [
        Sentence(topic, "\n".join(map(plain, text.split("\n")))) for topic, texts in by_topic.items() for text in texts
    ]
    return Advised(plain(advice.test), plain(advice.source), tuple(sentences), plain(_workers(same)))


def as_json(found: Iterable[Advice]) -> str:
    """The figures behind the sentences: a list of Advice, keys sorted."""
    builtins = json.writable([msgspec.to_builtins(each) for each in found])
    return msgspec.json.format(msgspec.json.encode(builtins, order="sorted"), indent=2).decode()


def render(advised: Iterable[Advised], width: int = 80, *, unicode: bool = True, verbose: bool = False) -> str:
    """The sentences as lines of at most `width` columns, a paragraph each, the topic in a column of its own.

    Unless `verbose` the topics are those of FIRST, with TABLE lines of times, and the others are named.
    """
    style = Style(max(width, 40), unicode=unicode)
    blocks = []
    for each in advised:
        title = f"{each.test} ({each.place})" if each.place else each.test
        lines = [title]
        shown = [sentence for sentence in each.sentences if verbose or sentence.topic in FIRST]
        left = dict.fromkeys(sentence.topic for sentence in each.sentences if sentence not in shown)
        left.pop("not known", None)
        shown.append(Sentence("from", each.source))
        if left:
            shown.append(Sentence("with -v", listed([*left], "and")))
        for topic, texts in groupby(shown, key=lambda sentence: sentence.topic):
            began = len(lines)
            for number, sentence in enumerate(texts):
                text = sentence.text if unicode else plain_units(sentence.text)
                head, *below = text.split("\n")
                lines += entry("" if number else topic, head, style, indent=2, column=12)
                for line in below:
                    lines += wrapped(line, style, indent=14, hanging=18 if line[:1] == " " else None)
            if topic == "time" and not verbose and len(lines) - began > TABLE:
                lines[began + TABLE - 1 :] = wrapped(f"{len(lines) - began - TABLE + 1} lines more with -v", style, 14)
        blocks.append("\n".join(lines) + "\n")
    return "\n".join(blocks).encode("utf-8" if unicode else "ascii", "backslashreplace").decode()


# ---- the choice, and the time


def _advice(advice: Advice, at: Place) -> list[str]:
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
        ranked, figure = (first.memory.ranked, first.memory.metric.upper()) if first.memory else ((), "")
        memory = {each.name: f"{units.size(each.value.value)} {figure}" for each in ranked}
        figures = [(name, f"{times[name]}, {memory.get(name, 'memory unknown')}") for name in names]
        lines = _lines(figures)
        if len(names) == 1:
            other = "no other that was measured" if advice.unmeasured else "no other"
            best = f"best {by}" if by else f"{other} is clearly faster or smaller"
            why = "no other candidate was measured" if every == 1 else best
            text, lines = f"{': '.join(figures[0])}; {why}", ""
        elif not first.advised:
            text = "no single best in time and memory; the trade-offs"
            lines += f"\n{WEIGH}"
        elif len(names) == every:
            text = f"any of these: no figure tells them apart {by or 'in time or memory'}"
        else:
            text = f"any of these: the others are worse, and no figure tells these apart {by or 'in time or memory'}"
        settings = f"; the same {_with_settings(others, at)}" if others else ""

        # What tells the candidates apart where time does not: the timer or latency in which they differ most.
        rankings = [each for choice in _ties(same) for each in choice.own if metrics.row(each.metric).unit == "time"]
        widest = max(rankings, key=_difference, default=None)
        if widest and (most := _difference(widest)) > 1:
            best = _names([f"{each.name} ({_time(each.value)})" for each in widest.ranked if each.name in widest.tied])
            lines += f"\nbut {widest.metric} is least with {best}; with others it is up to {units.ratio(most)} as much"
        texts.append(f"{at(first)}{text}{settings}{lines}")
    if advice.unmeasured:
        command = f"pytest --ftgate {shlex.quote(advice.test)}"
        texts.append(f"{_names(advice.unmeasured)}: not measured; to compare all, run {command}")
    return texts


def _times(choices: Sequence[Choice], at: Place) -> list[str]:
    """The ranking by time of each place; those where nothing is told apart share a sentence."""
    ties, texts = _ties(choices), []
    if len(ties) > 1:
        most = max(each.times.value for choice in ties for each in choice.time.ranked if each.times)
        texts.append(f"{_with_settings(ties, at)} no figure tells any from the fastest: up to {units.ratio(most)}")
    return texts + [
        f"{at(choice)}{_ranking(choice.time, choice)}"
        for choice in choices
        if choice not in ties or len(ties) == 1 or choice.limits
    ]


def _ties(choices: Iterable[Choice]) -> list[Choice]:
    """Choices in which no candidate is told apart from the fastest."""
    return [choice for choice in choices if len(choice.time.tied) == len(choice.time.ranked) > 1]


def _with_settings(choices: Iterable[Choice], at: Place) -> str:
    return "with " + listed([at(choice).removesuffix(": ") for choice in choices], "and")


def _own_figures(choices: Iterable[Choice], at: Place) -> list[str]:
    """The rankings by metrics of the workload or of its load; of settings the one where candidates differ most."""
    found: dict[str, tuple[float, Choice, Ranking]] = {}
    for choice in choices:
        for ranking in choice.own:
            if (difference := _difference(ranking)) > found.get(ranking.metric, (1.0,))[0]:
                found[ranking.metric] = difference, choice, ranking
    return [f"{at(choice)}{metric}: {_ranking(ranking)}" for metric, (_, choice, ranking) in found.items()]


def _difference(ranking: Ranking) -> float:
    """The largest ratio to the best one's value; 1 if none is told apart from the best."""
    return max((each.times.value for each in ranking.ranked if each.times and each.name not in ranking.tied), default=1)


def _ranking(ranking: Ranking, of: Choice | None = None) -> str:
    """`A takes 26.5 ms`, then a line for each other: `B  1.27x [1.13, 1.42]`; of many those nearest to it.

    That of the time has the cores that each kept busy, and the programs.
    """
    unit, more = metrics.row(ranking.metric).unit, metrics.is_gain(ranking.metric)
    cores = {name: f"{units.cores(busy)} cores" for name, busy in of.cores.items()} if of else {}
    first, *rest = ranking.ranked

    def value(each: Ranked) -> str:
        if unit == "time":
            return _time(each.value, of is not None and of.windows)
        if ranking.metric.startswith("counter."):
            return units.rate(each.value.value)
        return units.of(unit, each.value.value, unicode=True)

    verb = "takes " if ranking.metric == Metric.WALL else f"has the {'most' if more else 'least'}, "
    head = ", ".join(filter(None, (f"{first.name} {verb}{value(first)}", cores.get(first.name))))
    head += "; others less by these factors" if more and rest else ""
    pairs = []
    for each in rest[:NAMED]:
        tied = "not told apart" if each.name in ranking.tied else ""
        ratio = _ratio(each.times) + (f" in the rounds of both ({value(each)} in all)" if each.of_both else "")
        pairs.append((each.name, ", ".join(filter(None, (ratio, tied, cores.get(each.name))))))
    pairs += _more(rest[NAMED:], [each.times.value for each in rest[NAMED:] if each.times])
    pairs += [(f"{each.name}, a program", _ratio(each.times)) for each in (of.limits if of else ())]
    return head + _lines(pairs)


# ---- the tasks of a pool, memory, contention and scaling


def _dispatch(found: Sequence[Dispatch], at: Place) -> list[str]:
    """What pools cost a task: of each place the shortest time of a task, and a line for each pool."""
    texts = []
    for where, same in groupby(found, key=at):
        pools = list(same)
        pairs = []
        for each in pools[:NAMED]:
            text = _with_ends(each.cost, "time")
            text += f", {_with_ends(each.kib, 'time')} a KiB" if each.kib else ""
            text += f"; pays from {_with_ends(each.pays, 'time')} a task on" if each.pays else ""
            pairs.append((each.name, text))
        pairs += [(f"{len(pools) - NAMED} more", "")] if len(pools) > NAMED else []
        work = min((each.work for each in pools), key=lambda each: each.value)
        texts.append(f"{where}tasks of {_with_ends(work, 'time')}; the pool adds to each:{_lines(pairs)}")
    return texts


def _memory(uses: Sequence[MemoryUse], at: Place) -> list[str]:
    """Memory, and that of each further worker, in the place where it is most."""
    if not uses:
        return []
    most = max(uses, key=lambda use: use.total.value)
    shown = [use for use in uses if (use.setting, use.workers) == (most.setting, most.workers)]
    pairs = []
    for use in sorted(shown, key=lambda use: use.total.value):
        more = ""
        if (further := use.further) is not None:
            size = _with_ends(further, "size")
            if further.low <= 0:  # the noise of two totals
                size = f"{units.size(further.high)} at most" if further.high > 0 else "0"
            more = f", {'a worker process ' if use.further_of == 'processes' else ''}{size}"
        pairs.append((use.name, units.size(use.total.value) + more))
    each = ", and of each further worker" if any(use.further_of == "counts" for use in shown) else ""
    return [f"{at(shown[0])}{shown[0].figure} of all processes{each}:{_lines(pairs)}"]


def _contention(advice: Advice, at: Place) -> list[str]:
    """The waits of workers, and the largest speed-up without them."""
    waiting = [each for each in advice.contention if each.by_waits >= 1 / (1 - LEAST_SHARE)]
    gains = {(each.name, each.setting): each for each in advice.scaling}
    pairs = []
    for each in waiting[:NAMED]:
        known = ((words, getattr(each, kind)) for kind, words in KINDS.items())
        waits = ", ".join(f"{words} {units.share(share)}" for words, share in known if share is not None)
        by_cores = each.by_cores or math.inf
        text = f"{waits}: {units.ratio(min(each.by_waits, by_cores))}"
        text += ", for want of idle cores" if by_cores < each.by_waits else ""
        text += f"; longest at {each.site}" if each.site and each.lock else ""
        gain = gains.get((each.name, each.setting))
        if gain and gain.enough == gain.base and (each.lock or 0) >= ERASED:
            text += "; the lock cancels the gain of more workers"
        pairs.append((f"{at(each)}{each.name}", text))
    pairs += _more(waiting[NAMED:], [each.by_waits for each in waiting[NAMED:]])
    head = "shares of the workers' time spent waiting, and the largest speed-up without these waits:"
    texts = [head + _lines(pairs)] if pairs else []
    if quiet := [each for each in advice.contention if each not in waiting]:
        texts.append(f"{_names([each.name for each in quiet])} wait less than {percent(LEAST_SHARE)} of the time")
    unfair = [each for each in advice.contention if (each.imbalance or 0) >= UNFAIR]
    if unfair:
        pairs = [(f"{at(each)}{each.name}", units.ratio(each.imbalance or 0)) for each in unfair[:NAMED]]
        pairs += _more(unfair[NAMED:], [each.imbalance or 0 for each in unfair[NAMED:]])
        texts.append(f"time of the slowest worker, divided by that of the median one:{_lines(pairs)}")
    return texts


def _scaling(found: Sequence[ScalingAdvice], at: Place) -> list[str]:
    """The number of workers from which more do not pay."""
    pairs = []
    for each in found[:NAMED]:
        points = ", ".join(f"{workers} workers {_ratio(times)}" for workers, times in each.points)
        ceiling = math.inf if each.lock_ceiling is None else each.lock_ceiling
        enough = "more workers may pay" if each.enough is None else f"more than {each.enough} do not pay"
        if ceiling < (each.enough or math.inf):
            enough = f"more than {math.ceil(ceiling)} will not pay: {allowing(ceiling, each.lock)}"
        texts = [f"{points} that of {each.base}", enough]
        pairs.append((f"{at(each)}{each.name}", "; ".join(texts)))
    pairs += _more(found[NAMED:], [each.points[-1][1].value for each in found[NAMED:]])
    return [f"throughput, compared with fewer workers:{_lines(pairs)}"] if pairs else []


# ---- words


def _lines(pairs: Sequence[tuple[str, str]]) -> str:
    """A line for each name and its figures, the figures in a column."""
    width = max((len(name) for name, _ in pairs), default=0)
    return "".join(f"\n{INDENT}{name.ljust(width)}  {text}".rstrip() for name, text in pairs)


def _more(rest: Sequence[object], ratios: Sequence[float]) -> list[tuple[str, str]]:
    """The line of those that are not named: how many they are, and the range of their ratios."""
    ends = dict.fromkeys(map(units.ratio, (min(ratios), max(ratios)))) if ratios else ()
    return [(f"{len(rest)} more", " to ".join(ends))] if rest else []


def _names(names: Iterable[str]) -> str:
    """The names, each once; of many the first ones and the number of the others."""
    shown = list(dict.fromkeys(names))
    if len(shown) > MOST_NAMED:
        shown[MOST_NAMED - 1 :] = [f"{len(shown) - MOST_NAMED + 1} others"]
    return listed(shown, "and")


def _workers(word: str) -> str:
    """`8 workers` of w8; roles as they are written."""
    count = re.fullmatch(r"w(\d+)", word)
    return plural(int(count[1]), "worker") if count else word


def _time(value: Interval, windows: bool = False) -> str:
    return units.time(value.value) + (" an operation" if windows else "")


def _ratio(interval: Interval | None) -> str:
    return "" if interval is None else _with_ends(interval, "ratio")


def _with_ends(interval: Interval, unit: str) -> str:
    """A value with its interval, if one is known."""
    value = units.of(unit, interval.value)
    return f"{value} {units.ends(unit, interval)}" if interval.level else value
