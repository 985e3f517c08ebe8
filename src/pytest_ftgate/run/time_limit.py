"""The time that a cell may take in a plain test run, and what stays of one that hangs.

It runs in pytest's own process, where no thread can be killed. So the main thread is interrupted by a signal; threads
that go on are left behind as daemons, see `left_behind`; processes are killed.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from ..measure import stacks
from ..measure.launch import THREADS_FIX
from ..runner import state
from ..runner.executors.base import living_children
from ..runner.protocol import Failure
from ..runner.stacks import TASKS

AGAIN_S: Final = 1.0
"""Until the main thread is interrupted again: code that catches everything may have gone on."""
INTERRUPTS: Final = 10
"""How often it is interrupted, before the whole process is ended: it may wait in C code, which no signal ends."""
WITHOUT_GIL_S: Final = 30.0
"""After the time is up: when a process is ended in which no thread of ours runs, as C code keeps the GIL."""
CTRL_C_S: Final = 2.0
"""How long a second Ctrl-C is waited for to end a cell."""
SAME_CTRL_C_S: Final = 0.3
_INTERRUPT: Final = stacks.SIGNAL - 2 if hasattr(signal, "SIGRTMAX") else int(getattr(signal, "SIGEMT", 0))


class TimeIsUp(KeyboardInterrupt):
    """Raised in the main thread; like Ctrl-C, it passes through event loops and `except Exception`."""


_left: list[str] = []
"""Sub-interpreters that hang, each by what it ran for."""


def check_fork(setup: dict[str, Any]) -> None:
    """Raise Failure where this process cannot be forked: CPython crashes beside a sub-interpreter that is at work."""
    if setup["method"] == "fork" and _left:
        raise Failure(
            f"this process cannot fork since a sub-interpreter of {_left[0]} hangs in it: run this test alone"
        )


@contextlib.contextmanager
def time_limit(seconds: float | None, setup: dict[str, Any], stderr: int = 2) -> Iterator[None]:
    """Raise Failure with the stacks of all threads of the cell once it has taken `seconds`.

    Only in the main thread of a POSIX system. A crash of a worker process gets its Python line as well. Where the main
    thread cannot be interrupted, the stacks go to the descriptor `stderr` and this process ends; so it does after a
    second Ctrl-C.
    """
    if not _INTERRUPT or threading.current_thread() is not threading.main_thread():
        yield
        return
    with _ended_by_ctrl_c(stderr):
        if seconds is None:
            yield
            return
        with _limited(seconds, setup, stderr):
            yield


@contextlib.contextmanager
def _limited(seconds: float, setup: dict[str, Any], stderr: int) -> Iterator[None]:
    with _folder() as folder:
        setup["stacks"] = [str(folder), stacks.SIGNAL]
        watch = _Watch(seconds, setup, folder, stderr)
        try:
            with watch, _ending_processes():
                yield
        except BaseException as error:
            if not watch.expired:
                fatal, found = stacks.crashed(folder)
                if fatal and isinstance(error, Failure):
                    detail = "\n".join(filter(None, (error.detail, fatal, stacks.shown(found))))
                    raise Failure(error.reason + stacks.at_line(found), detail) from None
                raise
        if watch.expired:
            if setup["kind"] == "interpreters":
                _left.append(setup["qualname"])
            awaited = any(frame.function == stacks.SHUTDOWN for stack in watch.found for frame in stack.frames)
            fix = f"A thread of a sub-interpreter still runs. {THREADS_FIX}" if awaited else ""
            detail = "\n".join(filter(None, (stacks.shown(watch.found), fix)))
            raise Failure(f"did not end within {seconds:g} s{stacks.where(watch.found)}", detail)


@contextlib.contextmanager
def _folder() -> Iterator[Path]:
    """A temporary folder, without the exit handler of `tempfile`, which `left_behind` would take for the cell's."""
    folder = tempfile.mkdtemp(prefix="ftgate-")
    try:
        yield Path(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class _Watch:
    """A thread that waits for the time to be up, takes the stacks and interrupts the main thread until that is out."""

    def __init__(self, seconds: float, setup: dict[str, Any], folder: Path, stderr: int) -> None:
        self.seconds = seconds
        self.stderr = stderr
        self.setup = setup
        self.folder = folder
        self.found: list[stacks.Stack] = []
        self.expired = False
        self._over = threading.Event()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._watch, name="ftgate time limit", daemon=True)
        self._before: set[threading.Thread] = set()

    def __enter__(self) -> None:
        self._before = set(threading.enumerate())
        self._handlers = {_INTERRUPT: signal.signal(_INTERRUPT, self._interrupt)}
        self._handlers[stacks.SIGNAL + TASKS] = signal.getsignal(stacks.SIGNAL + TASKS)
        self._file = os.open(self.folder / "main", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        faulthandler.register(stacks.SIGNAL, self._file, all_threads=sys.platform != "linux")
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        while not self._over.is_set():
            with contextlib.suppress(TimeIsUp), self._lock:
                self._over.set()
        self._thread.join()
        faulthandler.cancel_dump_traceback_later()
        faulthandler.unregister(stacks.SIGNAL)
        os.close(self._file)
        for number, handler in self._handlers.items():
            signal.signal(number, handler)

    def _interrupt(self, *_: object) -> None:
        if not self._over.is_set():
            raise TimeIsUp

    def _watch(self) -> None:
        while True:
            faulthandler.dump_traceback_later(self.seconds + WITHOUT_GIL_S, exit=True, file=self.stderr)
            if self._over.wait(self.seconds):
                return
            if not stacks.debugged():
                break
        self.found = stacks.at_work(self._asked())
        for _ in range(INTERRUPTS):
            with self._lock:
                if self._over.is_set():
                    return
                self.expired = True
                signal.pthread_kill(threading.main_thread().ident or 0, _INTERRUPT)
            self._over.wait(AGAIN_S)
        if not self._over.is_set():
            reason = f"did not end within {self.seconds:g} s{stacks.where(self.found)}, and cannot be interrupted"
            _end_process(self.stderr, f"{self.setup['qualname']} {reason}", stacks.shown(self.found))

    def _asked(self) -> list[stacks.Stack]:
        main = threading.main_thread()
        asked = [
            main,
            *(each for each in threading.enumerate() if each not in self._before and each is not self._thread),
        ]
        names = {thread.native_id: thread.name if thread is not main else "" for thread in asked if thread.native_id}
        return stacks.asked([os.getpid(), *stacks.below(os.getpid())], self.folder, self.setup, names)


@contextlib.contextmanager
def _ended_by_ctrl_c(stderr: int) -> Iterator[None]:
    """End this process after a second Ctrl-C that the cell ignores: C code in the main thread never hears of one."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    over = threading.Event()

    def watch() -> None:
        heard, latest_s = 0, 0.0
        while heard < 2 and not over.is_set():
            numbers = os.read(reader, 64)
            # Each forked worker has the pipe too, and hears the same Ctrl-C.
            if signal.SIGINT in numbers and time.monotonic() - latest_s > SAME_CTRL_C_S:
                heard, latest_s = heard + 1, time.monotonic()
        if heard >= 2 and not over.wait(CTRL_C_S):
            main = stacks.of_frame("main thread", sys._current_frames().get(threading.main_thread().ident or 0))
            reason = f"Ctrl-C cannot interrupt the cell{stacks.where([main])}"
            _end_process(stderr, reason, stacks.shown([main]), int(signal.SIGINT) + 128)

    thread = threading.Thread(target=watch, name="ftgate Ctrl-C", daemon=True)
    before = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    thread.start()
    try:
        yield
    finally:
        over.set()
        signal.set_wakeup_fd(before)
        os.write(writer, b"\0")  # a process that is left behind may keep it open
        thread.join()
        os.close(writer)
        os.close(reader)


def _end_process(stderr: int, reason: str, text: str, code: int = 1) -> None:
    """End this process and those of multiprocessing that it has started; nothing else can be done with it."""
    for child in living_children():
        child.kill()
    os.write(stderr, f"\nftgate: {reason}: pytest is ended\n{text}\n".encode(errors="replace"))
    os._exit(code)


@contextlib.contextmanager
def _ending_processes() -> Iterator[None]:
    """Let what ends the cell through a body in the main thread, and end the processes that the cell has started."""
    children = set(living_children())
    state.passed = (KeyboardInterrupt,)
    try:
        yield
    except BaseException as error:
        if not isinstance(error, Exception):
            for child in set(living_children()) - children:
                child.kill()
                child.join(1)
        raise
    finally:
        state.passed = ()
