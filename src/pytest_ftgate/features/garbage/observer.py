"""Notes each run of the cyclic garbage collector: when it began, how long it took, and how many objects it freed."""

from __future__ import annotations

import gc

from pytest_ftgate.runner.clock import now_ns

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


def observe(_executor: Any) -> Callable[[int, int], dict[str, dict[str, float]]]:
    """Begin; see `runner/observing.py`. Its notes are no garbage: the collector does not track numbers."""
    begun: list[int] = []
    lasted: list[int] = []
    freed: list[int] = []

    def note(phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            begun.append(now_ns())
        elif len(begun) > len(lasted):  # else it had begun before
            lasted.append(now_ns() - begun[-1])
            freed.append(info["collected"])

    gc.callbacks.append(note)

    def end(began_ns: int, ended_ns: int) -> dict[str, dict[str, float]]:
        gc.callbacks.remove(note)
        # Not the runner's own collections, which come before the work and after it.
        within = [each for each, at in enumerate(begun[: len(lasted)]) if began_ns <= at < ended_ns]
        pauses = [lasted[each] for each in within]
        counters: dict[str, float] = {
            "gc collections": len(within),
            "gc objects": sum(freed[each] for each in within),
            "gc pauses": sum(pauses),
            "gc span": ended_ns - began_ns,
        }
        return {"counters": counters, "peaks": {"gc pause": float(max(pauses, default=0))}}

    return end
