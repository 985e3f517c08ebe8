"""Sums of what a watch saw of threads."""

from __future__ import annotations

from pytest_ftgate.model.sample import Waits


def fraction(seen: Waits, *parts: str) -> float:
    """The share of all threads' time that these states took."""
    return sum(float(getattr(seen, f"{part}_s")) for part in parts) / seen.span_s


def parts_of(seen: Waits) -> float:
    """The time of all states, in s."""
    return seen.running_s + seen.runnable_s + seen.gil_s + seen.futex_s + seen.process_s + seen.asleep_s
