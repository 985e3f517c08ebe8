"""Threads that wait for the GIL for lengths that a test drew, as looks from outside see them."""

from __future__ import annotations

import random
from bisect import bisect_right
from collections.abc import Callable
from typing import NamedTuple

from pytest_ftgate.kit.proc import Slices

Draw = Callable[[random.Random], float]
ARM_S = 20e-6
"""CPU time of a wake-up in which a waiter asks again."""


class Span(NamedTuple):
    """What a thread does from `at_s` on: `gil`, `running` or `asleep`; its account up to then."""

    at_s: float
    state: str
    cpu_s: float
    times: int


class Line:
    """The life of one thread: it waits for the GIL, runs, sleeps perhaps, and waits again. `waits` are in s."""

    def __init__(
        self, rnd: random.Random, wait: Draw, run: Draw, seconds: float, interval_s: float, sleep: Draw | None = None
    ) -> None:
        self.waits: list[float] = []
        self.spans: list[Span] = []
        self.cpu_s, self.count = 0.0, 0
        now = -wait(rnd)
        while now < seconds:
            self.waits.append(wait(rnd))
            now = self._wait(now, now + self.waits[-1], interval_s)
            now = self._run(now, run(rnd))
            if sleep is not None:
                self._enter(now, "asleep")
                now += sleep(rnd)
                self.count += 1
        self._keys = [span.at_s for span in self.spans]

    def _enter(self, at_s: float, state: str) -> None:
        self.spans.append(Span(at_s, state, self.cpu_s, self.count))

    def _wait(self, now: float, ends: float, interval_s: float) -> float:
        while now < ends:
            self._enter(now, "gil")
            if now + interval_s >= ends:
                break
            self.count += 1
            now = self._run(now + interval_s, min(ARM_S, ends - now - interval_s))
        self.count += 1
        return ends

    def _run(self, now: float, seconds: float) -> float:
        self._enter(now, "running")
        self.cpu_s += seconds
        return now + seconds

    def at(self, now: float) -> tuple[str, Slices]:
        """What it does then, and its account if it does not run."""
        span = self.spans[max(0, bisect_right(self._keys, now) - 1)]
        return span.state, Slices(int(span.cpu_s * 1e9), span.times)


def constant(seconds: float) -> Draw:
    return lambda rnd: seconds


def exponential(mean_s: float) -> Draw:
    return lambda rnd: rnd.expovariate(1 / mean_s)


def lognormal(median_s: float, sigma: float) -> Draw:
    return lambda rnd: median_s * rnd.lognormvariate(0.0, sigma)
