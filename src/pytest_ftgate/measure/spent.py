"""Where the seconds of a run go: one clock that is always on one kind of work, or on none."""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Callable, Iterator


class Spent:
    """The seconds of this process by kind: no second counts twice, and what is in no kind is not in here."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self._clock = clock
        self._running = False

    @contextlib.contextmanager
    def on(self, kind: str) -> Iterator[None]:
        """Count the time in here as this kind, unless it is in another that has begun before."""
        if self._running:
            yield
            return
        self._running, began_s = True, self._clock()
        try:
            yield
        finally:
            self._running = False
            self.seconds[kind] += self._clock() - began_s
