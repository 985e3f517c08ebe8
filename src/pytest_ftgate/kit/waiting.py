"""Limits how long this process waits for git, uv and their children, and for a lock that another process holds."""

from __future__ import annotations

import contextlib
import math
import os
import shlex
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Final

import filelock
import msgspec

from .errors import FtgateError
from .files import read_json
from .killing import kill_tree
from .text import plain

OWN_S: Final = 1800.0
"""How long a command may take where the run has no time of its own."""
LEAST_S: Final = 10.0
"""A command may take this long even when the time of the run is over, because baselines are stored then."""
SAID_AFTER_S: Final = 2.0
"""How long a lock is waited for in silence."""


class TooLong(FtgateError):
    """A command that did not end in its time; the text names it and the time."""


class _Patience:
    """The run in this process: its id, when its time is over, and whom to tell that it waits."""

    run = ""
    ends_s = math.inf
    limit = ""
    """The option that sets the time, for people."""

    @staticmethod
    def warn(text: str) -> object:
        """Nobody listens."""


_patience = _Patience()


def begin(run: str, budget_s: float | None, limit: str, warn: Callable[[str], object]) -> None:
    """A run begins in this process: nothing is waited for once its `budget_s`, which `limit` sets, is over."""
    _patience.run, _patience.limit, _patience.warn = run, limit, warn  # type: ignore[method-assign, assignment]
    _patience.ends_s = math.inf if budget_s is None else time.monotonic() + budget_s


def left_s() -> float:
    """Seconds that the run has left for a command; OWN_S at most."""
    return min(OWN_S, max(LEAST_S, _patience.ends_s - time.monotonic()))


def run_within(
    words: Sequence[str],
    *,
    environment: Mapping[str, str],
    cwd: Path | None = None,
    given: str | None = None,
    stderr: int = subprocess.PIPE,
    errors: str = "replace",
    named: str = "",
    on_wait: Callable[[], object] = lambda: None,
) -> subprocess.CompletedProcess[str]:
    """Run a program to its end; its output is text. `given` is its input, `on_wait` is called every second.

    An error has the words, or what they are `named`.

    Raises TooLong once OWN_S or the time of the run is over; then it is killed with all that it started. Raises OSError
    if it cannot be started.
    """
    limit_s = left_s()
    ends_s = time.monotonic() + limit_s
    with subprocess.Popen(
        words,
        cwd=cwd,
        env=environment,
        stdin=subprocess.DEVNULL if given is None else subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=stderr,
        encoding="utf-8",
        errors=errors,
        start_new_session=True,  # Ctrl-C is ours to pass on
    ) as process:
        try:
            while True:
                on_wait()
                try:
                    output, told = process.communicate(given, timeout=min(1.0, max(0.0, ends_s - time.monotonic())))
                    return subprocess.CompletedProcess(process.args, process.returncode, output, told)
                except subprocess.TimeoutExpired:
                    given = None  # it has been sent
                if time.monotonic() > ends_s:
                    why = f"{_patience.limit} was over" if limit_s < OWN_S else "that is the limit of such a command"
                    raise TooLong(f"`{plain(named or shlex.join(words))}` did not end within {limit_s:.3g} s: {why}")
        except BaseException:
            kill_tree(process.pid)  # it would else go on; and what is below it keeps its output open
            raise


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold a lock file; while another process holds it, say after a moment who that is.

    Another thread of the same run is waited for in silence, as it works for both. The lock of a process that has
    died is free: the kernel sees to it. Raises FtgateError once the time of the run is over, and OSError.
    """
    # The holder's own note: its process, its run, and the time since when.
    note, lock = path.with_suffix(".holder"), filelock.FileLock(path)
    began_s, said = time.monotonic(), False
    while not lock.is_locked:
        try:
            lock.acquire(timeout=min(1.0, SAID_AFTER_S))
        except filelock.Timeout:
            holder = "another process"
            if (known := read_json(note, tuple[int, str, str])) is not None:
                pid, run, since = known
                if run and run == _patience.run:
                    continue
                holder = plain(f"process {pid}{run and f' of run {run}'} (since {since})")
            if time.monotonic() - began_s < SAID_AFTER_S:
                continue
            if time.monotonic() > _patience.ends_s:
                text = f"{_patience.limit} was over while {holder} held {path}; run again when it has ended"
                raise FtgateError(text) from None
            if not said:
                said = True
                _patience.warn(f"waiting for {holder} to release {path}")
    try:
        with contextlib.suppress(OSError):  # it is a courtesy
            now = datetime.now().astimezone().isoformat(timespec="seconds")
            note.write_bytes(msgspec.json.encode((os.getpid(), _patience.run, now)))
        yield
    finally:
        with contextlib.suppress(OSError):
            note.unlink()
        lock.release()
