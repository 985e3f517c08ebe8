"""The history of a metric as text: a line for each recording, with its interval drawn beside it. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from ...kit import units
from ...kit.text import plain, plural
from ...report import said
from ...report.details import GAP, Style, entry
from ...stats.change_points import LEAST_SEGMENT
from .series import History, HistoryPoint, LevelChange

LEAST_PLOT = 12
RANGE = "range"
"""Stands behind the line of a recording with too few launches for an interval."""
MARKS = (("├", "─", "┤", "●"), ("|", "-", "|", "o"))
"""The ends, the line and the centre of an interval, with and without Unicode."""


def label(history: History) -> str:
    """The metric, such as `wall at one speed`."""
    return f"{history.metric} at one speed" if history.at_one_speed else history.metric


def value(history: History, number: float, *, unicode: bool = True) -> str:
    """A value of a history with its unit."""
    return units.of(history.unit, number, unicode=unicode)


def change(history: History, changed: LevelChange) -> str:
    """`+12.0 % between a1b2c3d4e5 (2026-05-01) and d4e5f6a7b8 (2026-05-08)`."""
    before, after = (
        f"{plain(said.commit(point.commit)) or 'an unknown commit'} ({plain(point.recorded_at[:10])})"
        for point in (history.points[changed.index - 1], history.points[changed.index])
    )
    if changed.ratio is not None:
        by = units.change(changed.ratio)
    else:
        difference = changed.difference or 0.0
        sign = "+" if difference > 0 else ""
        by = units.points(difference) if history.unit == "share" else sign + value(history, difference)
    return f"{by} between {before} and {after}"


def render(nodeid: str, history: History, *, width: int, unicode: bool, color: bool = False, last: int = 0) -> str:
    """A history as lines of `width` columns; of the `last` recordings (0: of all), and every change among them."""
    style = Style(max(width, 40), color, unicode, 0)
    shown = history.points[-last:] if last else history.points
    left_out = len(history.points) - len(shown)
    place = ", ".join(filter(None, (shown[-1].fingerprint, history.build)))
    about = f"{label(history)}: {plural(len(history.points), 'recording')}"
    about += f", the last {len(shown)} shown" if left_out else ""
    lines = [style.paint(plain(nodeid), "bold")]
    for text in filter(None, (about, place)):
        lines += entry("", text, style, indent=0, column=2)
    lines += _plot(history, shown, left_out, style)
    changes = [change(history, each) for each in history.changes]
    if not changes:
        few = len(history.points) < 2 * LEAST_SEGMENT
        nothing = "too few recordings to tell a change of level" if few else "no change of level"
        lines += entry("", nothing, style, indent=0, column=2)
    for text in changes:
        lines += entry("changed", text, style, indent=2, column=9)
    text = "\n".join(line.rstrip() for line in lines) + "\n"
    return text.encode("utf-8" if unicode else "ascii", "backslashreplace").decode()


def _plot(history: History, shown: tuple[HistoryPoint, ...], left_out: int, style: Style) -> Iterator[str]:
    """A line for each recording, and a rule where a level begins."""
    texts = [value(history, point.value.value, unicode=style.unicode) for point in shown]
    heads = [f"{plain(point.recorded_at[:10]):10}{GAP}{plain(said.commit(point.commit)):11}" for point in shown]
    column = max(map(len, texts))
    beside = len(GAP + RANGE) if any(point.value.level <= 0 for point in shown) else 0
    room = max(style.width - len(GAP) - len(heads[0]) - column - 2 * len(GAP) - beside, LEAST_PLOT)

    # From the least to the largest end, but of an interval that is far wider than all values lie apart not to it.
    centres = [point.value.value for point in shown]
    span = max(max(centres) - min(centres), 0.1 * abs(max(centres)), 1e-12)
    first = max(min(point.value.low for point in shown), min(centres) - span)
    last = min(max(point.value.high for point in shown), max(centres) + span)
    last = last if last > first else first + span

    def at(value: float) -> int:
        """The column of a value, that of the nearest edge for one beyond it."""
        return min(max(round((value - first) / (last - first) * (room - 1)), 0), room - 1)

    left, line, right, centre = MARKS[0 if style.unicode else 1]
    begins = {changed.index - left_out for changed in history.changes}
    for number, (head, text, point) in enumerate(zip(heads, texts, shown, strict=True)):
        if number in begins:
            yield GAP + style.paint(("─" if style.unicode else "-") * (style.width - len(GAP)), "yellow")
        interval, columns = point.value, [" "] * room
        if interval.low < interval.high:  # an end that goes beyond the columns is left out
            low, high = at(interval.low), at(interval.high)
            columns[low : high + 1] = line * (high + 1 - low)
            columns[low] = line if interval.low < first else left
            columns[high] = line if interval.high > last else right
        columns[at(interval.value)] = centre
        aside = f"{GAP}{RANGE}" if interval.level <= 0 and interval.low < interval.high else ""
        yield f"{GAP}{head}{GAP}{text:>{column}}{GAP}{''.join(columns).rstrip()}{aside}"
