"""How long this process waits for others: for a lock that another holds, and for git, uv and what they start."""

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

from ..errors import FtgateError
from ..text import plain

OWN_S: Final = 1800.0
"""How long a command may take where the run has no time of its own."""
LEAST_S: Final = 10.0
"""What a command may take at least, also when the time of the run is over: baselines are stored then."""
SAID_AFTER_S: Final = 2.0
"""How long a lock is waited for in silence."""


class TooLong(FtgateError):
    """A command that did not end in its time; the text names it and the time."""


class _Patience:
    """Of the run in this process: its id, when its time is over, and whom it tells that it waits."""

    run = ""
    ends_s = math.inf

    @staticmethod
    def warn(text: str) -> object:
        """Nobody listens."""


_patience = _Patience()


def begin(run: str, budget_s: float | None, warn: Callable[[str], object]) -> None:
    """A run begins in this process: nothing is waited for once its `budget_s` is over."""
    _patience.run, _patience.warn = run, warn  # type: ignore[method-assign, assignment]
    _patience.ends_s = math.inf if budget_s is None else time.monotonic() + budget_s


# ---- commands


def run_within(
    words: Sequence[str],
    *,
    environment: Mapping[str, str],
    cwd: Path | None = None,
    given: str | None = None,
    stderr: int = subprocess.PIPE,
    errors: str = "replace",
    named: str = "",
    own_s: float = OWN_S,
    on_wait: Callable[[], object] = lambda: None,
) -> subprocess.CompletedProcess[str]:
    """Run a program to its end; its output is text. `given` is its input, `on_wait` is called every second.

    An error has the words, or what they are `named`.

    Raises TooLong once `own_s` or the time of the run is over; then it is killed with all that it started. Raises
    OSError if it cannot be started.
    """
    left_s = max(LEAST_S, _patience.ends_s - time.monotonic())
    limit_s = min(own_s, left_s)
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
                    why = "--ftgate-time was over" if left_s < own_s else "that is the limit of such a command"
                    raise TooLong(f"`{plain(named or shlex.join(words))}` did not end within {limit_s:.3g} s: {why}")
        except BaseException:
            _kill(process)
            raise


def _kill(process: subprocess.Popen[str]) -> None:
    """Kill it and all below it, which would else go on, and keep its output open."""
    import psutil

    with contextlib.suppress(psutil.Error):
        for each in psutil.Process(process.pid).children(recursive=True):
            with contextlib.suppress(psutil.Error):
                each.kill()
    process.kill()


# ---- locks


class Holder(msgspec.Struct):
    """Who holds a lock, as it says itself: its process, its run, and the time since when."""

    pid: int
    run: str
    since: str


@contextlib.contextmanager
def held(path: Path) -> Iterator[None]:
    """Hold a lock file; while another process holds it, say after a moment who that is.

    Another process of the same run is waited for in silence, as it measures for both. The lock of a process that has
    died is free: the kernel sees to it. Raises FtgateError once the time of the run is over, and OSError.
    """
    note = path.with_suffix(".holder")
    lock = filelock.FileLock(path)
    _acquire(lock, path, note)
    try:
        with contextlib.suppress(OSError):  # it is a courtesy
            now = datetime.now().astimezone().isoformat(timespec="seconds")
            note.write_bytes(msgspec.json.encode(Holder(os.getpid(), _patience.run, now)))
        yield
    finally:
        with contextlib.suppress(OSError):
            note.unlink()
        lock.release()


def _acquire(lock: filelock.BaseFileLock, path: Path, note: Path) -> None:
    began_s, said = time.monotonic(), False
    while True:
        with contextlib.suppress(filelock.Timeout):
            lock.acquire(timeout=min(1.0, SAID_AFTER_S))
            return
        holder = _holder(note)
        if time.monotonic() - began_s < SAID_AFTER_S or (holder and _patience.run and holder.run == _patience.run):
            continue
        if time.monotonic() > _patience.ends_s:
            raise FtgateError(f"--ftgate-time was over while {_named(holder)} held {path}; run again when it has ended")
        if not said:
            said = True
            _patience.warn(f"waiting for {_named(holder)} to release {path}")


def _holder(note: Path) -> Holder | None:
    try:
        return msgspec.json.decode(note.read_bytes(), type=Holder)
    except (OSError, msgspec.DecodeError):
        return None


def _named(holder: Holder | None) -> str:
    if holder is None:
        return "another process"
    return plain(f"process {holder.pid}{f' of run {holder.run}' if holder.run else ''} (since {holder.since})")
