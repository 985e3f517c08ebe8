"""Times the runs of the cyclic garbage collector."""

from __future__ import annotations

import gc

from pytest_ftgate.runner.clock import now_ns

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


def observe(_executor: Any) -> Callable[[], dict[str, dict[str, float]]]:
    """Begin; see `runner/observing.py`. Its notes are no garbage: the collector does not track numbers."""
    begun: list[int] = []
    pauses: list[int] = []
    since_ns = now_ns()

    def note(phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            begun.append(now_ns())
        elif begun:  # else it had begun before
            pauses.append(now_ns() - begun[-1])

    gc.callbacks.append(note)

    def end() -> dict[str, dict[str, float]]:
        gc.callbacks.remove(note)
        counters: dict[str, float] = {"gc pauses": sum(pauses), "gc span": now_ns() - since_ns}
        return {"counters": counters, "peaks": {"gc pause": float(max(pauses, default=0))}}

    return end
