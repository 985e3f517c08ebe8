"""Runs a cell once in this interpreter, as a plain functional test: nothing is measured."""

from __future__ import annotations

import contextlib
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any

from ..measure.launch import CellUnsupported, LaunchFailed, setup_of
from ..model import Cell, Spec
from ..runner import loading
from ..runner.executors.base import Observer
from ..runner.executors.factory import make_workers
from ..runner.gil import watch
from ..runner.primitives import context_of, make_shared_objects
from ..runner.protocol import Failure, Unsupported
from ..runner.worker import CHECKING, VALUES, Order
from .left_behind import leaving_nothing
from .time_limit import check_fork, time_limit

__all__ = ["Failure", "Unsupported", "once", "run_here"]
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
        with leaving_nothing(), time_limit(spec.timeout_s, setup, stderr):
            _run(cell, setup)


def _run(cell: Cell, setup: dict[str, Any]) -> None:
    __tracebackhide__ = True
    loading.forget()
    declared, owner = loading.declaration(setup)
    context = context_of(cell.executor.kind, cell.executor.method)
    objects = make_shared_objects(setup, context)
    with contextlib.ExitStack() as stack:
        stack.enter_context(_ended_by(objects.close))
        shared = None if declared.shared is None else loading.owned(declared.shared, owner)(objects)
        outcome = _iteration(setup, shared, context, VALUES if declared.check is not None else 0, stack)
        if declared.check is not None:
            values = [report["value"] for report in outcome.reports]
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
            from ..measure.launchers import server

            server.check_here(cell, spec, spec.timeout_s or READY_S)
        elif cell.executor.kind == "command":
            from ..measure.launchers import command

            command.run_here(cell, spec, sys.executable, WINDOW_S)
        else:
            run_here(cell, spec, stderr)
    except CellUnsupported as reason:
        raise Unsupported(str(reason)) from None
    except LaunchFailed as failure:
        raise Failure(failure.error.reason, failure.error.detail) from None


def _iteration(setup: dict[str, Any], shared: Any, context: Any, flags: int, stack: contextlib.ExitStack) -> Any:
    """One iteration; workers and setups end with `stack`."""
    watch.install()  # once, before several threads would
    executor = make_workers(setup, shared, True, context)
    setups = loading.body(setup).setups
    if setups is not None:
        from ..runner.setups import LaunchSetups

        launch = LaunchSetups(setups, shared, getattr(executor, "runner", None))
        stack.enter_context(_ended_by(launch.end))
        launch.begin()
    stack.enter_context(_ended_by(executor.close, executor.abandon))
    return executor.iteration(Order(1, 0, CHECKING | flags), Observer())


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
