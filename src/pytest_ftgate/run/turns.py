"""The turn to measure, among the processes of pytest-xdist: while one test is measured, no other test of the run runs.

Each process locks a file of its own while it runs a test. Before that it passes a second lock, the turn, which a
measurement keeps to itself: so no other test begins, and the measurement waits for those that have begun. The system
releases the locks of a process that dies; a child does not inherit them.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from ..kit.processes import cpu_s
from ..kit.text import plural

POLL_S: Final = 0.05
SAID_AFTER_S: Final = 1.0
IDLE_S, IDLE_SHARE = 60.0, 0.01
"""A test that took less of a core for so long waits for something: perhaps for what the measuring process holds."""
Say = Callable[[str], object]


class MeasuringTurn:
    """The turn of one process of the run, `name`, by locks in the run's `folder`; `open` comes first.

    Unless `exclusive`, a measurement waits for nobody and counts the tests that run meanwhile.
    """

    def __init__(self, folder: Path, name: str, *, exclusive: bool) -> None:
        self.folder = folder
        self.name = name
        self.exclusive = exclusive
        self._begun = 0
        self._before: dict[Path, int] = {}
        self._idle: list[str] = []
        self._running = ""

    def open(self) -> None:
        """Make the files. Raises OSError."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self._turn = _opened(self.folder / "turn.lock")
        self._own = _opened(self._file)

    @contextlib.contextmanager
    def running(self, test: str) -> Iterator[None]:
        """This process runs a test: wait while another process measures one."""
        self._begun += 1
        self._running = test
        self._begin()
        try:
            yield
        finally:
            self._end()
            self._running = ""

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """In a running test: this process measures, or waits until it may."""
        if self._running:
            self._end()
        try:
            yield
        finally:
            if self._running:
                self._begin()

    @contextlib.contextmanager
    def excluded(self, say: Say) -> Iterator[None]:
        """Wait until no other process runs a test, and let none begin one; `say` gets what is waited for."""
        self._idle = []
        if not self.exclusive:
            self._before = {path: count - busy for path, (count, busy) in self._counts().items()}
            yield
            return
        fcntl.lockf(self._turn, fcntl.LOCK_EX)
        try:
            for path in self._files():
                self._wait_for(path, say)
            yield
        finally:
            fcntl.lockf(self._turn, fcntl.LOCK_UN)

    @property
    def note(self) -> str:
        """Which other tests have run since the measurement began; empty if none has."""
        if self.exclusive:
            return "; ".join(self._idle)
        counts = self._counts()
        others = sum(count - self._before.get(path, 0) for path, (count, _) in counts.items())
        if not others:
            return ""
        return f"{plural(others, 'other test')} ran meanwhile (ftgate_exclusive = no)"

    # -- the files ---------------------------------------------------------------------------------------------

    @property
    def _file(self) -> Path:
        return self.folder / f"running-{self.name}.lock"

    def _files(self) -> list[Path]:
        return [path for path in sorted(self.folder.glob("running-*.lock")) if path != self._file]

    def _begin(self) -> None:
        if self.exclusive:
            fcntl.lockf(self._turn, fcntl.LOCK_SH)
        fcntl.lockf(self._own, fcntl.LOCK_EX)
        if self.exclusive:
            fcntl.lockf(self._turn, fcntl.LOCK_UN)
        text = f"{os.getpid()} {self._begun} {self._running}".encode()
        os.pwrite(self._own, text, 0)
        os.ftruncate(self._own, len(text))

    def _end(self) -> None:
        fcntl.lockf(self._own, fcntl.LOCK_UN)

    def _counts(self) -> dict[Path, tuple[int, bool]]:
        """By file: how many tests its process has begun, and whether it runs one."""
        return {path: (int(_read(path)[1]), not _is_free(path)) for path in self._files()}

    def _wait_for(self, path: Path, say: Say) -> None:
        """Until that process runs no test, or one that is idle for long."""
        began_s = marked_s = said_s = time.monotonic()
        used_s: float | None = None
        while not _is_free(path):
            time.sleep(POLL_S)
            now_s = time.monotonic()
            if now_s - said_s < SAID_AFTER_S:
                continue
            said_s = now_s
            pid, _, test = _read(path)
            say(f"{test} in {path.stem.removeprefix('running-')}, for {now_s - began_s:.0f} s")
            now_used_s = cpu_s(int(pid))
            if used_s is None or now_used_s - used_s > IDLE_SHARE * IDLE_S:
                marked_s, used_s = now_s, now_used_s
            elif now_s - marked_s >= IDLE_S:
                self._idle.append(f"{test} was not waited for: it had not used the CPU for {IDLE_S:.0f} s")
                return


def _opened(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def _is_free(path: Path) -> bool:
    """Whether no process holds the lock of this file; never asked of a process's own, whose locks it would release."""
    file = _opened(path)
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        return False
    finally:
        os.close(file)
    return True


def _read(path: Path) -> tuple[str, str, str]:
    """The process id, the number of tests begun, and the last of them."""
    pid, _, rest = path.read_text(encoding="utf-8", errors="replace").partition(" ")
    count, _, test = rest.partition(" ")
    return pid or "0", count or "0", test
