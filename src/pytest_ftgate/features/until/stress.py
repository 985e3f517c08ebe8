"""An observer that stops the world: a thread that collects garbage at random moments, threads that switch at once.

A collection on a free-threaded build waits until every thread has stopped. It finds native code that waits for a lock
without letting go of its thread state, where the thread that holds the lock stops first.
"""

from __future__ import annotations

import gc
import os
import sys
import threading
from _random import Random  # without what the module imports: the workload's own imports may be what races
from time import sleep

from pytest_ftgate.runner.clock import now_ns

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

SWITCH_S = 1e-6
SHORTEST_S, LONGEST_S = 50e-6, 5e-3
"""Bounds of the longest wait before a collection: that is the time of the last iteration."""
moments = Random(int(os.environ["PYTHONHASHSEED"]))
longest_s = [SHORTEST_S]


def observe(executor: Any) -> Callable[[], dict[str, dict[str, float]]]:
    """Begin; see `runner/observing.py`."""
    stop: list[bool] = []
    switch_s, began_ns = sys.getswitchinterval(), now_ns()
    sys.setswitchinterval(SWITCH_S)
    # One that hangs must not keep the process; sub-interpreters allow no daemon.
    thread = threading.Thread(target=_collect, args=(stop,), name="ftgate collects", daemon=executor is not None)
    thread.start()

    def end() -> dict[str, dict[str, float]]:
        longest_s[0] = min(LONGEST_S, max(SHORTEST_S, (now_ns() - began_ns) / 1e9))
        stop.append(True)
        thread.join()
        sys.setswitchinterval(switch_s)
        return {}

    return end


def _collect(stop: list[bool]) -> None:
    while True:
        sleep(moments.random() * longest_s[0])
        if stop:
            break
        gc.collect()
