"""A call that must end in time, such as a test's check of its server."""

from __future__ import annotations

import contextvars
import sys
import threading
from collections.abc import Callable
from typing import TypeVar

from .. import stacks

T = TypeVar("T")


class Late(Exception):
    """A call did not end in time; `stack` is where it was by then."""

    def __init__(self, seconds: float, stack: stacks.Stack) -> None:
        super().__init__(f"did not end within {seconds:g} s{stacks.where([stack])}")
        self.stack = stack


def within(seconds: float, act: Callable[[], T], name: str) -> T:
    """What `act` returns or raises. Raises Late after `seconds`, unless somebody looks at it with a debugger.

    It runs in a thread of its own, in this context; one that is late is left behind as a daemon.
    """
    outcome: list[tuple[T | None, BaseException | None]] = []
    context = contextvars.copy_context()

    def run() -> None:
        try:
            outcome.append((context.run(act), None))
        except BaseException as error:  # noqa: BLE001 -- raised where it was called
            outcome.append((None, error))

    thread = threading.Thread(target=run, name=name, daemon=True)
    thread.start()
    thread.join(seconds)
    while not outcome and stacks.debugged(thread.ident or 0):
        thread.join(seconds)
    if not outcome:
        raise Late(seconds, stacks.of_frame(name, sys._current_frames().get(thread.ident or 0)))
    value, error = outcome[0]
    if error is not None:
        raise error
    return value  # type: ignore[return-value]
