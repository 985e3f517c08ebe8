"""Runs a cell once in this interpreter, as a plain functional test: nothing is measured."""

from __future__ import annotations

import atexit
import contextlib
import faulthandler
import gc
import os
import shutil
import signal
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from ..kit.proc import FORKSERVER, TRACKER, children, command, on_linux
from ..kit.text import plural
from ..measure import stacks
from ..measure.launch import LEFT_FIX, THREADS_FIX, CellUnsupported, LaunchFailed, setup_of
from ..model.spec import Cell, Spec
from ..runner import loading, state
from ..runner.executors.base import Observer, living_children, make_workers
from ..runner.gil import watch
from ..runner.primitives import Context, context_of
from ..runner.protocol import Failure, Unsupported
from ..runner.stacks import TASKS, THREADS_S
from ..runner.worker import CHECKING, VALUES, Order

# ---- the time that a cell may take, and what stays of one that hangs
#
# It runs in pytest's own process, where no thread can be killed. So the main thread is interrupted by a signal; threads
# that go on are left behind as daemons, see `left_behind`; processes are killed.

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
        # The main thread and those that the cell has started, and all of its processes.
        main, own = threading.main_thread(), os.getpid()
        started = (each for each in threading.enumerate() if each not in (*self._before, self._thread, main))
        names = {each.native_id: "" if each is main else each.name for each in (main, *started) if each.native_id}
        self.found = stacks.at_work(stacks.asked([own, *stacks.below(own)], self.folder, self.setup, names))
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


# ---- what a cell leaves running: it fails the cell, and never keeps pytest from ending
#
# A thread that is no daemon, or a process of multiprocessing, would be waited for at the end of pytest, without a word.

_MADE_DAEMON: Final = 1
"""In place of True: a thread inherits it from one that was made a daemon here, and does not from a daemon's True."""
_ENDED_AT_EXIT: Final = ("Manager", "Loky")
"""In the names of processes of multiprocessing that end with the interpreter."""
_LOOK_S: Final = 0.01


@contextlib.contextmanager
def leaving_nothing() -> Iterator[None]:
    """Raise Failure where a thread or a child process that was started in here goes on `THREADS_S` later.

    An idle thread of a pool may stay. After another error nothing is waited for, and that error is the one to report.
    """
    before = {*_children(), *(child.pid for child in living_children())}
    exit_handlers = atexit._ncallbacks()
    with _threads_as_daemons() as started:
        try:
            yield
        except BaseException:
            _leave(_busy(started), _awaited(before))
            raise
    ends = time.monotonic() + THREADS_S
    while True:
        # An exit handler that the cell has registered may end the processes that it has started.
        others = _children() if atexit._ncallbacks() == exit_handlers else {}
        known = {*before, *(child.pid for child in living_children())}
        left = {pid: f"{pid}: {words}" for pid, words in others.items() if pid not in known}
        threads, processes = _busy(started), _awaited(before) | left
        if not threads and not processes:
            return
        if time.monotonic() > ends:
            break
        time.sleep(_LOOK_S)
    frames = sys._current_frames()
    where = [stacks.of_frame(f"thread {each.name}", frames.get(each.ident or 0)) for each in threads]
    _leave(threads, processes)
    reasons, details = [], []
    if threads:
        reasons.append(f"a thread of the workload still runs ({stacks.lines(where)})")
        places = stacks.counted(started[thread] for thread in threads)
        details += [stacks.shown(where), f"started at {places}", THREADS_FIX]
    if processes:
        reasons.append(f"left {plural(len(processes), 'process', 'processes')} behind")
        details += [*processes.values(), LEFT_FIX]
    raise Failure("; ".join(reasons), "\n".join(details))


@contextlib.contextmanager
def _threads_as_daemons() -> Iterator[dict[threading.Thread, str]]:
    """Make daemons of all threads that are started in here; those that were none, each with where it was started."""
    started: dict[threading.Thread, str] = {}
    here, original = os.getpid(), threading.Thread.start

    def start(thread: threading.Thread) -> None:
        if thread.daemon is not True and thread.ident is None and os.getpid() == here:
            caller = sys._getframe(1)
            started[thread] = f"{caller.f_code.co_filename}:{caller.f_lineno} in {caller.f_code.co_qualname}"
            thread.daemon = _MADE_DAEMON  # type: ignore[assignment]
        original(thread)

    threading.Thread.start = start  # type: ignore[method-assign, assignment]
    try:
        yield started
    finally:
        threading.Thread.start = original  # type: ignore[method-assign]


def _busy(threads: dict[threading.Thread, str]) -> list[threading.Thread]:
    """Those that run, except a pool's that wait for work: they are told to end at the interpreter's end."""
    frames, idle = sys._current_frames(), _idle_pools()
    running = [each for each in threads if each.is_alive() and each.ident in frames and each not in idle]
    codes = {thread: frames[thread.ident or 0].f_code for thread in running}
    pool = os.path.join("futures", "thread.py")
    return [each for each, code in codes.items() if code.co_name != "_worker" or not code.co_filename.endswith(pool)]


def _idle_pools() -> dict[Any, set[int]]:
    """The thread of each ProcessPoolExecutor that has no work, with its processes."""
    pools: Any = sys.modules.get("concurrent.futures.process")
    threads = [] if pools is None else list(pools._threads_wakeups)
    return {thread: set(thread.processes or ()) for thread in threads if not thread.pending_work_items}


def _awaited(before: set[int]) -> dict[int, str]:
    """The processes of multiprocessing that the interpreter would wait for at its end, by their pids."""
    pooled = before.union(*_idle_pools().values())
    return {
        child.pid: f"{child.pid}: {child.name} of multiprocessing"
        for child in living_children(pooled)
        if not child.daemon and not any(name in child.name for name in _ENDED_AT_EXIT)
    }


def _children() -> dict[int, str]:
    """The command line of each child process, except the servers of multiprocessing, which end by themselves.

    Only on Linux.
    """
    found = {pid: command(pid) for pid in (children(os.getpid()) if on_linux() else ())}
    servers = {pid for pid, words in found.items() for word in words if TRACKER in word or FORKSERVER in word}
    return {pid: " ".join(words) for pid, words in found.items() if words and pid not in servers}  # no zombie


def _leave(threads: list[threading.Thread], processes: Mapping[int, str]) -> None:
    """Let nothing wait for these threads at the interpreter's end, and end these processes."""
    for module, awaited in (("thread", "_threads_queues"), ("process", "_threads_wakeups")):
        pools = getattr(sys.modules.get(f"concurrent.futures.{module}"), awaited, {})
        for thread in threads:
            pools.pop(thread, None)
    for pid in processes:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


# ---- a cell once

WINDOW_S = 0.2
"""How long a program runs that takes a duration."""
READY_S = 60.0
"""How long a server may take to get ready if its test sets no timeout."""


def run_here(cell: Cell, spec: Spec, stderr: int = 2) -> None:
    """One iteration of the cell's workload here. Raises Failure, Unsupported, and what @shared or @check raise.

    It is a Failure as well where that takes longer than the test's timeout, or leaves a thread or process running.

    The target's settings are left out: a switch interval would hold for all tests that follow.
    """
    __tracebackhide__ = True
    if cell.executor.kind == "interpreters" and sys.version_info < (3, 14):
        raise Unsupported(f"sub-interpreters need CPython 3.14 or newer, this is {sys.version.split()[0]}")
    setup = {**setup_of(cell, spec), "switch_s": None}
    check_fork(setup)
    with warnings.catch_warnings():
        # The time limit's thread, and pytest-xdist's own, are alive while a cell forks here.
        warnings.filterwarnings("ignore", message=".*multi-threaded, use of fork", category=DeprecationWarning)
        with leaving_nothing(), _own_garbage_alone(), time_limit(spec.timeout_s, setup, stderr):
            _run(cell, setup)


@contextlib.contextmanager
def _own_garbage_alone() -> Iterator[None]:
    """An iteration collects garbage first: all that a large suite has would take a second a cell."""
    if gc.get_freeze_count():  # by whoever thaws it
        yield
        return
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def _run(cell: Cell, setup: dict[str, Any]) -> None:
    __tracebackhide__ = True
    loading.forget()
    declared, owner = loading.declaration(setup)
    context = context_of(cell.executor.kind, cell.executor.method)
    objects = Context(setup, context)
    with contextlib.ExitStack() as stack:
        stack.enter_context(_ended_by(objects.close))
        shared = None if declared.shared is None else loading.owned(declared.shared, owner)(objects)
        # One iteration; workers and setups end with the stack.
        watch.install()  # once, before several threads would
        executor = make_workers(setup, shared, True, context)
        setups = loading.body(setup).setups
        if setups is not None:
            from ..runner.setups import LaunchSetups

            launch = LaunchSetups(setups, shared, getattr(executor, "runner", None))
            stack.enter_context(_ended_by(launch.end))
            launch.begin()
        stack.enter_context(_ended_by(executor.close, executor.abandon))
        flags = CHECKING | (VALUES if declared.check is not None else 0)
        _, reports, _ = executor.iteration(Order(1, 0, flags), Observer())
        if declared.check is not None:
            values = [report["value"] for report in reports]
            loading.owned(declared.check, owner)(values[0] if setup["shape"] == "executor" else values)


def once(cell: Cell, spec: Spec, stderr: int = 2) -> None:
    """A cell once: its body, its program or its server. Raises Failure, Unsupported, and what the test raises.

    Where nothing ends it, that is said to the descriptor `stderr`, which nobody captures, and this process ends.
    A server is started in this interpreter's environment, checked and ended; it needs no load generator.
    """
    __tracebackhide__ = True
    try:
        # Launchers bring psutil and more, which a run of other cells does without.
        if cell.body == "server":
            from ..measure.launchers.server import check_here

            check_here(cell, spec, spec.timeout_s or READY_S)
        elif cell.executor.kind == "command":
            from ..measure.launchers.command import run_here as run_program

            run_program(cell, spec, sys.executable, WINDOW_S)
        else:
            run_here(cell, spec, stderr)
    except CellUnsupported as reason:
        raise Unsupported(str(reason)) from None
    except LaunchFailed as failure:
        raise Failure(failure.error.reason, failure.error.detail) from None


@contextlib.contextmanager
def _ended_by(end: Callable[[], None], abandon: Callable[[], None] | None = None) -> Iterator[None]:
    """Call `end` at the end; of several errors the first is the one to report."""
    try:
        yield
    except Exception:
        with contextlib.suppress(Exception):
            end()
        raise
    except BaseException:
        (abandon or end)()  # the time is up, or Ctrl-C: nothing is awaited any more
        raise
    end()
