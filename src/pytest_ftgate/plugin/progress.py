"""Live progress of a run: one line that is rewritten in a terminal, a plain line every 20 s elsewhere."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Sequence
from shutil import get_terminal_size
from typing import Literal, TextIO

from ..kit import units
from ..kit.hiding import without_secrets
from ..kit.text import plain, plural

REDRAW_S = 0.2
PLAIN_EVERY_S = 20.0
OVER_EVERY_S = 1.0
"""In a terminal once the time is over: nothing is measured any more, and what is under way ends."""
LEAST_TITLE = 8
"""Columns of a test's name below which none of it is shown."""
Mode = Literal["terminal", "plain", "quiet"]


def mode_of(stream: TextIO, *, quiet: bool) -> Mode:
    """How to show progress on this stream: not at all if quiet, in place on a terminal, else as plain lines."""
    if quiet:
        return "quiet"
    return "terminal" if stream.isatty() and os.environ.get("TERM") != "dumb" else "plain"


class Progress:
    """Shows what a run is doing: receives events and writes to one text stream.

    Call `start` once, `begin` for each group, `advance` before each step, `clear` after what was begun, and `end` at
    the end, also after an error. `erase` removes the line so that something else can be printed. Until `clear` a thread
    writes the line again after 20 s without an event, or after 1 s once the time is over. The time left is the most
    that the run may take, since nobody knows when the verdicts are clear. A stream that cannot be written ends the
    display and never fails the run.
    """

    def __init__(
        self,
        stream: TextIO,
        mode: Mode,
        *,
        clock: Callable[[], float] = time.monotonic,
        columns: Callable[[], int] = lambda: get_terminal_size().columns,
        written: Callable[[], int] = lambda: 0,
        new_line: Callable[[], object] = lambda: None,
    ) -> None:
        """`clock` gives seconds that never decrease; `columns` gives the width of the terminal at each redraw.

        `written` gives how many columns of a line others have written and not ended: the cursor returns there.
        `new_line` ends it, before something is written that stays.
        """
        self._written = written
        self._new_line = new_line
        self._stream = stream
        self._mode = mode
        self._clock = clock
        self._columns = columns
        self._shown = self._return_to = 0
        self._measured = False
        self._lock = threading.RLock()
        self._beats: tuple[threading.Thread, threading.Event] | None = None
        self._doing = self._step = ""
        self._left_s: float | None = None
        self.start(0)
        self._told = self._since = self._started

    def start(self, total_groups: int, budget_s: float | None = None, group_s: float | None = None) -> None:
        """The run begins and will measure so many groups: in `budget_s` from now on if they share a time, else each in
        `group_s` at most.
        """
        self._total = total_groups
        self._budget_s = budget_s
        self._group_s = group_s
        self._numbers: dict[str, int] = {}
        self._number = 0
        self._title = ""
        self._started = self._last = self._clock()

    def begin(self, title: str, cells: Sequence[str]) -> None:
        """The next group begins with these cells, or an interrupted one continues."""
        self._number = self._numbers.setdefault(title, len(self._numbers) + 1)
        self._title = title
        self._measured = False
        self._step, self._since = "", self._clock()
        self._show(f"{plural(len(cells), 'cell')}, starting", None, now=True)

    def advance(self, label: str, phase: str, number: int, of: int, left_s: float | None = None) -> None:
        """What is done now: a phrase that the label of a cell, a target or a commit ends.

        It is in the round of this number, from 1 on, or in none (0), `of` so many if that is known (else 0). `left_s`
        is what the group may still take in s.
        """
        doing = f"{phase} {label}".rstrip()
        doing += (f", round {number}" if number else "") + (f" of {of}" if of else "")
        self._measured = number > 1
        if self._step != doing:
            self._step, self._since = doing, self._clock()
        self._show(doing, left_s, now=not number)  # what has no rounds may take minutes without another event

    def warn(self, text: str) -> None:
        with self._lock:
            self.erase()
            if self._mode != "quiet":
                self._new_line()
                self._write(f"ftgate: {plain(without_secrets(text))}\n")

    def erase(self) -> None:
        """Remove the line; the next event draws it again, or the time without one."""
        with self._lock:
            if self._shown:
                back = f"\x1b[A\x1b[{self._return_to}C" if self._return_to else ""
                self._write("\r" + " " * self._shown + "\r" + back)
                self._shown = self._return_to = 0

    def clear(self) -> None:
        """What was under way has ended: remove the line, until the next event."""
        if self._beats is not None:
            (thread, ended), self._beats = self._beats, None
            ended.set()
            thread.join()  # a process with one thread may fork
        self.erase()

    def end(self) -> None:
        """The run has ended; removes the line. A second call does nothing."""
        self._title = ""
        self.clear()

    def _show(self, doing: str, left_s: float | None, *, now: bool) -> None:
        """Write the line if it is due, or `now` in a terminal, and again until `clear`."""
        if self._mode == "quiet":
            return
        with self._lock:
            self._doing, self._left_s, self._told = doing, left_s, self._clock()
            every_s = PLAIN_EVERY_S if self._mode == "plain" else 0.0 if now else REDRAW_S
            if self._told - self._last >= every_s:
                self._draw(doing, self._told)
        if self._beats is None:
            ended = threading.Event()
            thread = threading.Thread(target=self._keep_on, args=(ended,), daemon=True)
            with contextlib.suppress(RuntimeError):  # no thread can be started here: events alone draw the line
                thread.start()
                self._beats = thread, ended

    def _keep_on(self, ended: threading.Event) -> None:
        while self._mode != "quiet" and not ended.wait(max(0.0, self._due_s() - self._clock())):
            self.beat()

    def _due_s(self) -> float:
        """When the line is written again without an event."""
        due_s = self._last + PLAIN_EVERY_S
        if self._mode == "terminal" and self._budget_s is not None:
            due_s = min(due_s, max(self._started + self._budget_s, self._last + OVER_EVERY_S))
        return due_s

    def beat(self) -> None:
        """Write the line if no event has for so long, with how long what has no rounds has taken."""
        with self._lock:
            at = self._clock()
            if at < self._due_s():
                return
            self._draw(self._doing + ("" if self._measured else f" ({_whole(at - self._since)})"), at)

    def _draw(self, doing: str, at: float) -> None:
        self._last = at
        where = f"ftgate {self._number}/{max(self._total, self._number)} " if self._title else "ftgate: "
        left_s = self._most_s(at)
        left = "" if left_s is None else f", at most {_whole(left_s)} left" if left_s > 0 else ", the time is over"
        elapsed = f"{_whole(at - self._started)}{left}"
        # Here, because most events are not drawn.
        doing, title = (" ".join(plain(text).split()) for text in (without_secrets(doing), self._title))
        if self._mode == "plain":
            self._new_line()
            self._write(f"{where}{title}{': ' if title else ''}{_first(doing)}; {elapsed}\n")
            return
        # The title loses its beginning, because the ends of node ids differ; the last column stays free.
        tail = f"{'  ' if title else ''}{_first(doing)}  {elapsed}"
        columns = max(1, self._columns() - 1)
        room = columns - len(where) - len(tail)
        if len(title) > room:
            title = "..." + title[len(title) - room + 3 :] if room >= LEAST_TITLE else ""
        text = (where + title + tail)[:columns]
        if not self._shown:
            self._leave_line()
        self._write("\r" + text.ljust(min(columns, self._shown)))
        self._shown = len(text)

    def _leave_line(self) -> None:
        """Go on to a line of its own, and note where the cursor returns to."""
        self._return_to = self._written() % max(1, self._columns())
        if self._return_to:
            self._write("\n")
        else:  # nothing to return to, or behind the last column, where no cursor can be put
            self._new_line()

    def _most_s(self, at: float) -> float | None:
        """The most seconds left in the run: what this group may take, as later ones may. None if nothing limits it."""
        if self._budget_s is not None:  # the groups take turns: what one of them takes tells nothing of the run
            return self._started + self._budget_s - at
        if not self._title or self._group_s is None:
            return None
        here_s = self._group_s if self._left_s is None else max(0.0, self._left_s - (at - self._told))
        return here_s + max(0, self._total - self._number) * self._group_s

    def _write(self, text: str) -> None:
        """Write, replacing what the stream cannot encode; after an error the stream is not written again."""
        encoding = getattr(self._stream, "encoding", None) or "utf-8"
        try:
            self._stream.write(text.encode(encoding, "replace").decode(encoding))
            self._stream.flush()
        except (OSError, ValueError):
            self._mode = "quiet"


def _whole(seconds: float) -> str:
    """A duration in whole seconds: the figure changes too often for more."""
    return f"{seconds:.0f} s" if seconds < 59.5 else units.span(seconds)


def _first(text: str, room: int = 100) -> str:
    """The beginning of a text in so many columns: a step of a build may be a whole script."""
    return text if len(text) <= room else text[: room - 3] + "..."
