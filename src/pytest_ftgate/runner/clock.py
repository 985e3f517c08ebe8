"""The clock of a launch and its real resolution."""

from __future__ import annotations

from time import perf_counter_ns as now_ns

__all__ = ["now_ns", "resolution_ns"]


def resolution_ns(rounds: int = 50) -> int:
    """The smallest difference between two unequal readings, in ns."""
    best = 1_000_000_000
    for _ in range(rounds):
        first = now_ns()
        second = now_ns()
        while second == first:
            second = now_ns()
        best = min(best, second - first)
    return best
