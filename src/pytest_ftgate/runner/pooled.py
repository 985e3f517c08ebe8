"""Tasks of a pool whose submits are watched: when each began and ended in its worker, and whether it was pickled."""

from __future__ import annotations

import mmap
import os
import struct
from functools import lru_cache
from threading import get_native_id

from .clock import now_ns

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    Submit = Callable[..., Any]

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
        self.pickled = False

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
    """The pool that a body drives, if it has `submit`; else None: workers of another kind are no pool."""
    pool = getattr(executor, "pool", None)
    return pool if hasattr(pool, "submit") else None


def watch(pool: Any, watched: Callable[[Submit], Submit]) -> Callable[[], None]:
    """Let `watched` of a pool's own submit stand in its place; what puts that back. Its `map` submits, too."""
    had = "submit" in vars(pool)
    submit = pool.submit
    pool.submit = watched(submit)

    def restore() -> None:
        if had:
            pool.submit = submit
        else:
            del pool.submit

    return restore
