"""Tasks of a pool whose submits are watched: when each began and ended in its worker, and whether it was pickled."""

from __future__ import annotations

import mmap
import os
import struct
from functools import lru_cache
from threading import get_native_id
from time import sleep

from .clock import now_ns

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

STAMP = struct.Struct("qqq")
"""When a task began and ended in ns, on the clock of `now_ns`, which all processes share, and its thread."""
MOST = 1 << 20
"""Tasks of a launch that are stamped: the file of the stamps is sparse."""
WAIT_NS = 5_000_000_000
"""How long results are waited for that the body has left: futures are done before their callbacks have run."""


class Task:
    """A function that a pool calls in its place; with a file, it stamps the place there when it has ended."""

    def __init__(self, function: Callable[..., Any], file: str = "", place: int = 0) -> None:
        self.function, self.file, self.place = function, file, place
        self.pickled = self.resulted = False
        self.submit_ns = self.done_ns = 0

    def __call__(self, /, *args: Any, **options: Any) -> Any:
        if not self.file:
            return self.function(*args, **options)
        stamps = mapped(self.file)
        begin_ns = now_ns()
        try:
            return self.function(*args, **options)
        finally:
            STAMP.pack_into(stamps, STAMP.size * self.place, begin_ns, now_ns(), get_native_id())

    def __reduce__(self) -> tuple[Any, ...]:
        self.pickled = True
        return Task, (self.function, self.file, self.place)


@lru_cache(maxsize=1)
def mapped(file: str) -> mmap.mmap:
    """The stamps, which all processes and interpreters of a launch share."""
    descriptor = os.open(file, os.O_RDWR)
    try:
        return mmap.mmap(descriptor, 0)
    finally:
        os.close(descriptor)


def pool_of(executor: Any) -> Any:
    """The pool that a body drives, if its `submit` can be replaced; else None: workers of another kind are no pool."""
    pool = getattr(executor, "pool", None)
    return pool if hasattr(pool, "submit") and hasattr(pool, "__dict__") else None


class Watch:
    """Stands in for `submit` of a pool until its end; `map` calls that, too.

    `task_of` makes a task of a function, its arguments and keywords. `resulted` gets it with its result before the body
    does, which may change it: `map` takes the results out of their list. What is no future with `add_done_callback` is
    not watched.
    """

    def __init__(
        self, pool: Any, task_of: Callable[[Any, Any, Any], Task], resulted: Callable[[Task, Any], None] | None = None
    ) -> None:
        self.pool, self.task_of, self.resulted = pool, task_of, resulted
        self.had = "submit" in vars(pool)
        self.submit = pool.submit
        self.begun: list[Task] = []
        self.done: list[Task] = []
        pool.submit = self._submit

    def _submit(self, function: Any, /, *args: Any, **options: Any) -> Any:
        if not callable(function):
            return self.submit(function, *args, **options)
        task = self.task_of(function, args, options)
        future = self.submit(task, *args, **options)
        if hasattr(future, "add_done_callback"):
            self.begun.append(task)
            if self.resulted is not None and hasattr(future, "set_result") and hasattr(future, "__dict__"):
                give = future.set_result

                def set_result(result: Any) -> None:
                    self._note_result(task, result)
                    give(result)

                future.set_result = set_result
            future.add_done_callback(lambda future: self._note(task, future))
        return future

    def _note_result(self, task: Task, result: Any) -> None:
        if self.resulted is not None and not task.resulted:
            task.resulted = True
            self.resulted(task, result)

    def _note(self, task: Task, future: Any) -> None:
        task.done_ns = now_ns()
        if not future.cancelled() and future.exception() is None:
            self._note_result(task, future.result())  # it came before `set_result` was replaced
        self.done.append(task)

    def end(self) -> list[Task]:
        """Let the pool submit by itself again; the tasks that are done, soon at the latest."""
        if self.had:
            self.pool.submit = self.submit
        else:
            del self.pool.submit
        limit_ns = now_ns() + WAIT_NS
        while len(self.done) < len(self.begun) and now_ns() < limit_ns:
            sleep(0.001)
        return list(self.done)
