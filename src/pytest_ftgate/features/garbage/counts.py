"""Counts the runs of the cyclic garbage collector and what they freed, by the interpreter's own statistics."""

from __future__ import annotations

import gc

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


def observe(_executor: Any) -> Callable[[], dict[str, dict[str, float]]]:
    """Begin; see `runner/observing.py`."""
    before = gc.get_stats()

    def end() -> dict[str, dict[str, float]]:
        after = gc.get_stats()
        names = {"gc collections": "collections", "gc objects": "collected"}
        return {
            "counters": {
                name: sum(each[field] for each in after) - sum(each[field] for each in before)
                for name, field in names.items()
            }
        }

    return end
