"""Runs a cell once in this interpreter, as a plain functional test: nothing is measured."""

from __future__ import annotations

import contextlib
import faulthandler
import os
import shutil
import signal
import sys
import tempfile
import threading
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from ..measure import stacks
from ..measure.launch import CellUnsupported, LaunchFailed, setup_of
from ..model.spec import Cell, Spec
from ..runner import loading, state
from ..runner.executors.base import Observer, living_children
from ..runner.executors.making import make_workers
from ..runner.gil import gil_watch
from ..runner.orders import CHECKING, VALUES, Order
from ..runner.primitives import Context, multiprocessing_context, start_method
from ..runner.protocol import Failure, Unsupported
from ..runner.stacks import TASKS

# ---- the time that a cell may take
#
# It runs in pytest's own process, where no thread can be killed. So the main thread is interrupted by a signal; threads
# that hang are daemons, which do not keep pytest from ending; processes are killed. Code in C that no signal interrupts
# is left to pytest-timeout.

_INTERRUPT: Final = stacks.SIGNAL - 2 if hasattr(signal, "SIGRTMAX") else int(getattr(signal, "SIGEMT", 0))


class TimeIsUp(KeyboardInterrupt):
    """Raised in the main thread; like Ctrl-C, it passes through event loops and `except Exception`."""


_left: list[str] = []
"""Sub-interpreters that hang, each by what it ran for."""


def check_fork(setup: dict[str, Any]) -> None:
    """Raise Failure where this process cannot be forked: CPython crashes beside a sub-interpreter that is at work."""
    if _left and setup["kind"] == "processes" and start_method(setup["method"]) == "fork":
        raise Failure(
            f"this process cannot fork since a sub-interpreter of {_left[0]} hangs in it: run this test alone"
        )


@contextlib.contextmanager
def time_limit(seconds: float | None, setup: dict[str, Any]) -> Iterator[None]:
    """Raise Failure with the stacks of all threads of the cell once it has taken `seconds`.

    Only in the main thread of a POSIX system. A crash of a worker process gets its Python line as well.
    """
    if seconds is None or not _INTERRUPT or threading.current_thread() is not threading.main_thread():
        yield
        return
    folder = Path(tempfile.mkdtemp(prefix="ftgate-"))
    setup["stacks"] = [str(folder), stacks.SIGNAL]
    watch = _Watch(seconds, setup, folder)
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
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if watch.expired:
        if setup["kind"] == "interpreters":
            _left.append(setup["qualname"])
        raise Failure(f"did not end within {seconds:g} s{stacks.where(watch.found)}", stacks.shown(watch.found))


class _Watch:
    """A thread that waits for the time to be up, takes the stacks and interrupts the main thread."""

    def __init__(self, seconds: float, setup: dict[str, Any], folder: Path) -> None:
        self.seconds = seconds
        self.setup = setup
        self.folder = folder
        self.found: list[stacks.Stack] = []
        self.expired = False
        self._over = threading.Event()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._watch, name="ftgate time limit", daemon=True)

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
        faulthandler.unregister(stacks.SIGNAL)
        os.close(self._file)
        for number, handler in self._handlers.items():
            signal.signal(number, handler)

    def _interrupt(self, *_: object) -> None:
        if not self._over.is_set():
            raise TimeIsUp

    def _watch(self) -> None:
        while not self._over.wait(self.seconds):
            if not stacks.debugged():
                break
        else:
            return
        # The main thread and those that the cell has started, and all of its processes.
        main, own = threading.main_thread(), os.getpid()
        started = (each for each in threading.enumerate() if each not in (*self._before, self._thread, main))
        names = {each.native_id: "" if each is main else each.name for each in (main, *started) if each.native_id}
        self.found = stacks.at_work(stacks.asked([own, *stacks.below(own)], self.folder, self.setup, names))
        with self._lock:
            if not self._over.is_set():
                self.expired = True
                signal.pthread_kill(main.ident or 0, _INTERRUPT)


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


@contextlib.contextmanager
def _threads_as_daemons() -> Iterator[None]:
    """Make daemons of all threads that are started in here, and let no pool wait for its threads after an error."""
    started: list[threading.Thread] = []
    here, original = os.getpid(), threading.Thread.start

    def start(thread: threading.Thread) -> None:
        if thread.ident is None and os.getpid() == here:
            thread.daemon = True
            started.append(thread)
        original(thread)

    threading.Thread.start = start  # type: ignore[method-assign, assignment]
    try:
        yield
    except BaseException:
        for module, awaited in (("thread", "_threads_queues"), ("process", "_threads_wakeups")):
            pools = getattr(sys.modules.get(f"concurrent.futures.{module}"), awaited, {})
            for thread in started:
                pools.pop(thread, None)
        raise
    finally:
        threading.Thread.start = original  # type: ignore[method-assign]


# ---- a cell once

WINDOW_S = 0.2
"""How long a program runs that takes a duration."""
READY_S = 60.0
"""How long a server may take to get ready if its test sets no timeout."""


def run_here(cell: Cell, spec: Spec) -> None:
    """One iteration of the cell's workload here. Raises Failure, Unsupported, and what @shared or @check raise.

    It is a Failure as well where that takes longer than the test's timeout.

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
        with _threads_as_daemons(), time_limit(spec.timeout_s, setup):
            _run(cell, setup)


def _run(cell: Cell, setup: dict[str, Any]) -> None:
    __tracebackhide__ = True
    loading.forget()
    declared, owner = loading.declaration(setup)
    context = multiprocessing_context(cell.executor.kind, cell.executor.method)
    objects = Context(setup, context)
    with contextlib.ExitStack() as stack:
        stack.enter_context(_ended_by(objects.close))
        shared = None if declared.shared is None else loading.owned(declared.shared, owner)(objects)
        # One iteration; workers and setups end with the stack.
        gil_watch.install()  # once, before several threads would
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


def once(cell: Cell, spec: Spec) -> None:
    """A cell once: its body, its program or its server. Raises Failure, Unsupported, and what the test raises.

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
            run_here(cell, spec)
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
