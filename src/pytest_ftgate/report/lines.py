"""Lines of a terminal: what the stream can show, and text that is wrapped and indented to it. Pure."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ..text import plain

SGR = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33"}
GAP = "  "
TIED = "\u00a0"
"""Stands for a space at which no line is broken, until the lines are made."""

UNBROKEN = re.compile(r"(?<=\d) (?=(?:[nµum]?s|k?/s|[KMG]iB|%)(?![\w/]))|(?<=[\d.],) (?=[\d.]+\])")


class Style(NamedTuple):
    """What the stream can show: its width in columns, colour, and characters beyond ASCII; how much is asked for."""

    width: int
    color: bool
    unicode: bool
    verbosity: int

    def paint(self, text: str, *names: str) -> str:
        """The text in the named colours, or as it is."""
        if not (self.color and names and text):
            return text
        return f"\x1b[{';'.join(SGR[name] for name in names)}m{text}\x1b[0m"

    @property
    def separator(self) -> str:
        """What stands between the parts of a line."""
        return " · " if self.unicode else ", "

    @property
    def cut(self) -> str:
        """What stands for the part of a text that was left out."""
        return "…" if self.unicode else "..."


def entry(name: str, text: str, style: Style, indent: int, column: int) -> list[str]:
    """A dim name and its text, wrapped in a column of its own; a name as long as the column moves it."""
    column = max(column, len(name) + 1)
    first, *rest = wrapped(plain(text), style, indent=indent + column) or [" " * (indent + column)]
    return [" " * indent + style.paint(name, "dim") + first[indent + len(name) :], *rest]


def phrases(name: str, parts: Iterable[str], style: Style, indent: int, column: int) -> list[str]:
    """An entry of parts joined by commas, but after one that ends in a semicolon; lines are broken between parts alone.

    A part that is longer than a line is broken at its spaces.
    """
    room = style.width - indent - column - 1  # and the comma
    tied = [tie(plain(part), room) for part in parts]
    text = ", ".join(tied).replace(";, ", "; ")
    return entry(name, text, style, indent, column)


def tie(text: str, room: int) -> str:
    """The text with no space to break it at, where it fits in `room` columns."""
    return text if len(text) > room else text.replace(" ", TIED)


def grouped(*groups: Sequence[str]) -> list[str]:
    """The parts of all groups for `phrases`, with a semicolon between one group and the next."""
    known = [group for group in groups if group]
    parts = [part for group in known[:-1] for part in (*group[:-1], f"{group[-1]};")]
    return [*parts, *known[-1]] if known else []


def wrapped(text: str, style: Style, indent: int, hanging: int | None = None) -> list[str]:
    """The text in lines of the stream's width, broken at spaces, but not between a number and its unit or in `[1, 2]`.

    The lines after the first stand at `hanging`.
    """
    lines = textwrap.wrap(
        UNBROKEN.sub(TIED, text),
        style.width,
        initial_indent=" " * indent,
        subsequent_indent=" " * (indent if hanging is None else hanging),
        break_long_words=False,
        break_on_hyphens=False,
    )
    return [line.replace(TIED, " ") for line in lines]


def shortened(path: str, room: int, style: Style) -> str:
    """A path within `room` columns: directories give way from the left, then the beginning of its name."""
    if len(path) <= room:
        return path
    tail = path[max(0, len(path) - room + len(style.cut)) :]
    directory, slash, rest = tail.partition("/")
    return style.cut + (slash + rest if slash and rest else directory)


def printable(text: str, style: Style) -> str:
    """All of a report as the stream can show it: whatever a name holds, no control but our own colours is left."""
    ours = "|".join(("0", *SGR.values()))
    parts = re.split(rf"(\x1b\[(?:(?:{ours})(?:;(?:{ours}))*)m)", text)
    kept = (part if number % 2 and style.color else plain(part) for number, part in enumerate(parts))
    return "".join(kept).encode("utf-8" if style.unicode else "ascii", "backslashreplace").decode()
