"""Observers of features: what looks at the workload from inside its processes, in the observed launches alone.

An observer is a file of the standard library and the runner, with a function `observe(executor)`: it begins, and
returns what ends it. That takes when the workers' work began and ended, in ns on the clock of `now_ns`, and returns its
figures as a worker reports its own: `counters`, `timers` and `peaks`, by name. `executor` is that of workers in this
process, None in a worker's own process or interpreter.
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


def observe(paths: Sequence[str], executor: Any) -> Callable[[Sequence[dict[str, Any]]], Figures]:
    """Begin all observers; what ends them takes the reports of the workers that they were beside."""
    ends = [_module(path).observe(executor) for path in paths]

    def end(reports: Sequence[dict[str, Any]]) -> Figures:
        span = min(each["begin_ns"] for each in reports), max(each["end_ns"] for each in reports)
        found: Figures = {"counters": {}, "timers": {}, "peaks": {}}
        for each in ends:
            for kind, figures in each(*span).items():
                found[kind].update(figures)
        return found

    return end


def _module(path: str) -> Any:
    """The module of an observer's file, loaded once in each process and interpreter."""
    name = f"ftgate_observer_{os.path.basename(os.path.dirname(path))}"
    return sys.modules.get(name) or execute(name, path)
