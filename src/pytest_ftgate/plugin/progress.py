"""Live progress of a run: one line that is rewritten in a terminal, a plain line every 15 s elsewhere."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Sequence
from shutil import get_terminal_size
from typing import Literal, TextIO

from ..kit import units
from ..kit.hiding import without_secrets
from ..kit.text import plain, plural

REDRAW_S = 0.2
PLAIN_EVERY_S = 15.0
OVER_EVERY_S = 1.0
"""In a terminal once the time is over: nothing is measured any more, and what is under way ends."""
GROWTH, LEAST_GROWTH_S = 0.1, 2.0
"""An estimate that ends later by this share of all the time, and by so many seconds, has grown."""
LEAST_TITLE = 8
"""Columns of a test's name below which none of it is shown."""
Mode = Literal["terminal", "plain", "quiet"]


def mode_of(stream: TextIO, *, quiet: bool) -> Mode:
    """How to show progress on this stream: not at all if quiet, in place on a terminal, else as plain lines."""
    if quiet:
        return "quiet"
    return "terminal" if stream.isatty() else "plain"


class Progress:
    """Shows what a run is doing: receives events and writes to one text stream.

    Call `start` once, `begin` for each group, `advance` before each step, `clear` after what was begun, and `end` at
    the end, also after an error. `erase` removes the line so that something else can be printed. Until `clear` a thread
    writes the line again after 15 s without an event, or after 1 s once the time is over. If the estimate of the end
    grows, the line says why. A stream that cannot be written ends the display and never fails the run.
    """

    def __init__(
        self,
        stream: TextIO,
        mode: Mode,
        *,
        clock: Callable[[], float] = time.monotonic,
        columns: Callable[[], int] = lambda: get_terminal_size().columns,
        new_line: Callable[[], object] = lambda: None,
    ) -> None:
        """`clock` gives seconds that never decrease; `columns` gives the width of the terminal at each redraw.

        `new_line` is called before something is written where others may have left an unfinished line.
        """
        self._new_line = new_line
        self._stream = stream
        self._mode = mode
        self._clock = clock
        self._columns = columns
        self._shown = 0
        self._from_others = self._measured = False
        self._phase = ""
        self._lock = threading.RLock()
        self._beats: tuple[threading.Thread, threading.Event] | None = None
        self._doing = self._step = ""
        self._left_s: float | None = None
        self.start(0)
        self._told = self._since = self._started

    def start(self, total_groups: int, budget_s: float | None = None) -> None:
        """The run begins and will measure so many groups, in `budget_s` from now on if they share a time."""
        self._total = total_groups
        self._budget_s = budget_s
        self._numbers: dict[str, int] = {}
        self._number = 0
        self._spent: list[float] = []
        self._title = ""
        self._started = self._began = self._last = self._clock()
        self._end_s: float | None = None
        self._why = self._reason = ""

    def begin(self, title: str, cells: Sequence[str]) -> None:
        """The next group begins with these cells, or an interrupted one continues."""
        self._close_group()
        self._number = self._numbers.setdefault(title, len(self._numbers) + 1)
        self._title = title
        self._began = self._clock()
        self._measured = False
        self._step, self._since = "", self._began
        doing = f"{plural(len(cells), 'cell')}, starting"
        self._show(doing, self._left(0.0, None), now=self._mode == "terminal")

    def advance(self, label: str, phase: str, done: int, wanted: int, left_s: float | None = None) -> None:
        """What is done now: a phrase that the label of a cell, a target or a commit ends.

        `done` of `wanted` rounds of the group have ended; with 0 it is not measured. `left_s` is what the group may
        still take in s.
        """
        of = f" of about {wanted}" if done else ""  # known once a round has shown what one takes
        doing = without_secrets(f"{phase} {label}".rstrip()) + (f", round {done + 1}{of}" if wanted > 0 else "")
        self._measured = done > 0
        if self._step != doing:
            self._step, self._since = doing, self._clock()
        # What has no rounds may take minutes without another event.
        now = wanted <= 0 and (self._mode == "terminal" or phase != self._phase)
        self._phase = phase
        self._show(doing, self._left(done / wanted if wanted > 0 else 0.0, left_s), now=now)

    def expect_more(self, why: str) -> None:
        """The estimate grows for this reason."""
        self._reason = why

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
                self._write("\r" + " " * self._shown + "\r")
                self._shown = 0

    def clear(self) -> None:
        """What was under way has ended: remove the line, until the next event."""
        if self._beats is not None:
            (thread, ended), self._beats = self._beats, None
            ended.set()
            thread.join()  # a process with one thread may fork
        self.erase()

    def end(self) -> None:
        """The run has ended; removes the line. A second call does nothing."""
        self._close_group()
        self.clear()

    def _close_group(self) -> None:
        if self._title:
            self._spent.append(self._clock() - self._began)
        self._title = ""

    def _left(self, fraction: float, left_s: float | None) -> float | None:
        """Estimated seconds left in the run: this group by launches and budget, later groups like those before.

        None while there is no data for an estimate.
        """
        spent = self._clock() - self._began
        whole = spent / fraction if fraction > 0 else (sum(self._spent) / len(self._spent) if self._spent else None)
        here = None if whole is None else max(0.0, whole - spent)
        if left_s is not None:
            here = max(0.0, left_s) if here is None else min(here, max(0.0, left_s))
        if here is None:
            return None
        lasting = [*self._spent, spent + here]
        return here + max(0, self._total - self._number) * sum(lasting) / len(lasting)

    def _show(self, doing: str, left_s: float | None, *, now: bool) -> None:
        """Write the line if it is due, or `now`, and again until `clear`."""
        if self._mode == "quiet":
            return
        with self._lock:
            self._doing, self._left_s, self._told = doing, left_s, self._clock()
            if now or self._told - self._last >= (PLAIN_EVERY_S if self._mode == "plain" else REDRAW_S):
                self._draw(doing, left_s, self._told)
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
            left_s = None if self._left_s is None else max(0.0, self._left_s - (at - self._told))
            self._draw(self._doing + ("" if self._measured else f" ({_whole(at - self._since)})"), left_s, at)

    def _draw(self, doing: str, left_s: float | None, at: float) -> None:
        self._last = at
        if not self._shown:
            self._new_line()
        where = f"ftgate {self._number}/{max(self._total, self._number)} " if self._title else "ftgate: "
        left = "" if left_s is None else f", about {_whole(left_s)} left{self._grown(at + left_s)}"
        if self._budget_s is not None:  # the groups take turns: what one of them takes tells nothing of the run
            over_s = at - self._started - self._budget_s
            left = f", at most {_whole(-over_s)} left" if over_s < 0 else ", the time is over"
        elapsed = f"{_whole(at - self._started)}{left}"
        doing, title = (" ".join(plain(text).split()) for text in (doing, self._title))
        if self._mode == "plain":
            self._write(f"{where}{title}{': ' if title else ''}{_first(doing)}; {elapsed}\n")
        else:
            if self._columns() - 1 < len(where) + min(len(title), LEAST_TITLE) + len(doing) + len(elapsed) + 4:
                elapsed = elapsed.partition(" (")[0]  # the test and the time matter more than why the estimate grew
            # The title loses its beginning, because the ends of node ids differ; the last column stays free.
            tail = f"{'  ' if title else ''}{_first(doing)}  {elapsed}"
            columns = max(1, self._columns() - 1)
            room = columns - len(where) - len(tail)
            if len(title) > room:
                title = "..." + title[len(title) - room + 3 :] if room >= LEAST_TITLE else ""
            text = (where + title + tail)[:columns]
            self._write("\r" + text.ljust(min(columns, self._shown)))
            self._shown = len(text)

    def _grown(self, end_s: float) -> str:
        """Why it ends later than it was said to, in brackets."""
        said = self._end_s
        if said is not None and end_s - said > max(LEAST_GROWTH_S, GROWTH * (said - self._started)):
            unsaid = "it takes longer than other tests" if self._from_others else "rounds take longer than before"
            self._why = self._reason or unsaid
            self._reason = ""
        elif said is not None and end_s >= said:
            return f" ({self._why})" if self._why else ""
        self._end_s, self._from_others = end_s, not self._measured
        return f" ({self._why})" if self._why else ""

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
