"""Observers of features: what looks at the workload from inside its processes, in the observed launches alone.

An observer is a file of the standard library and the runner, with a function `observe(executor)`: it begins, and
returns what ends it and returns its figures as a worker reports its own: `counters`, `timers` and `peaks`, by name.
It begins before the workers are released, and ends when they have done their part. `executor` is that of workers in
this process, None in a worker's own process or interpreter.
"""

from __future__ import annotations

import os
import sys

from .loading import execute

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    Figures = dict[str, dict[str, Any]]


def observe(paths: Sequence[str], executor: Any) -> Callable[[], Figures]:
    """Begin all observers; what ends them."""
    ends = []
    for path in paths:  # loaded once in each process and interpreter
        name = "ftgate_observer_" + "_".join(path.removesuffix(".py").split(os.sep)[-2:])
        ends.append((sys.modules.get(name) or execute(name, path)).observe(executor))

    def end() -> Figures:
        merged: Figures = {"counters": {}, "timers": {}, "peaks": {}}
        for end_one in reversed(ends):
            for kind, figures in end_one().items():
                merged[kind].update(figures)
        return merged

    return end
