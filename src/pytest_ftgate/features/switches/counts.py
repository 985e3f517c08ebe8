"""Counts the voluntary context switches of all threads of a process."""

from __future__ import annotations

import resource

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


def observe(_executor: Any) -> Callable[[], dict[str, dict[str, float]]]:
    """Begin; see `runner/observing.py`."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_nvcsw
    return lambda: {"counters": {"switches": resource.getrusage(resource.RUSAGE_SELF).ru_nvcsw - before}}
