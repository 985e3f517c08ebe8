"""Held iterations of a launch: its workers are kept at work while memory and waits are sampled from outside."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING

from ...model import MemoryPoint, Waits
from ...runner.protocol import HOLD
from ..launch import Held
from ..watch.memory import hold_needed_s, point_of_all
from ..watch.processes import tree
from ..watch.sampling import SAMPLED, sample_tree

if TYPE_CHECKING:
    from .workload import WorkloadHandle

HELD_CALLS = 1.25
"""Calls of a body that a hold is long enough for at least, so that every part of one can be sampled."""
MOST_HELD_CALLS = 8
"""Calls of a hold where each has a setup of its own, which may be long."""
SHORT_CALL_NS = 50_000_000
SHORT_CALLS = "each call of the body has a setup of its own, and is too short to be sampled"
TOGETHER = 0
"""The loops of an iteration whose workers stop together, once its window has passed."""


def measure_held(handle: WorkloadHandle, window_ns: int, sampled: bool, one_ns: float) -> Held:
    """One held iteration; of a long body one call, without its first and its last tenth."""
    needed_s = max(window_ns / 1e9, hold_needed_s(handle.sample_cost_s) / SAMPLED)
    if handle.request.spec.one_call:
        return _held_calls(handle, needed_s, sampled, one_ns)
    seconds = max(needed_s, HELD_CALLS * one_ns / 1e9)
    one_call = one_ns >= needed_s * 1e9  # else one sample of it would be of a moment, such as an import
    loops = 1 if one_call or not one_ns else TOGETHER
    after_s = 0.0 if loops == TOGETHER else seconds * (1 - SAMPLED) / 2  # workers that have only just begun
    timeout_s = max(handle.timeout_s, 2 * one_ns / 1e9) + seconds
    window_ns = 0 if one_call else round(seconds * 1e9)
    return _held(handle, loops, window_ns, (after_s, seconds * SAMPLED) if sampled else None, timeout_s)


def _held_calls(handle: WorkloadHandle, needed_s: float, sampled: bool, one_ns: float) -> Held:
    """Calls that have setups and teardowns of their own, of which nothing is sampled: enough to last `needed_s`."""
    count = max(1, min(MOST_HELD_CALLS, math.ceil(needed_s * 1e9 / max(1.0, one_ns))))
    seconds = max(needed_s, HELD_CALLS * one_ns / 1e9) if one_ns >= SHORT_CALL_NS else 0.0
    timeout_s = max(handle.timeout_s, 2 * one_ns / 1e9)
    calls = [_held(handle, 1, 0, (0.0, seconds) if sampled else None, timeout_s) for _ in range(count)]
    return Held(
        iteration=sorted((call.iteration for call in calls), key=lambda each: each.rate)[count // 2],
        memory=tuple(point for call in calls for point in call.memory),
        dropped=sum(call.dropped for call in calls),
        waits=max((call.waits for call in calls if call.waits), key=lambda each: each.span_s, default=None),
    )


def _held(
    handle: WorkloadHandle, loops: int, window_ns: int, sampled: tuple[float, float] | None, timeout_s: float
) -> Held:
    """One iteration, `sampled` after so many seconds for so many; if that gives no sample of memory, at its end.

    No worker ends before that, so every sample has all of them.
    """
    handle.channel.send({"do": "iteration", "kind": HOLD, "loops": loops, "window_ns": window_ns})
    released = handle.awaited("released", handle.timeout_s, "starting its workers, their setups and first calls")
    memory: tuple[MemoryPoint, ...] = ()
    dropped, waits = 0, Waits(unavailable=SHORT_CALLS) if sampled else None
    processes = handle.process_map(released)
    if sampled and sampled[1]:
        time.sleep(sampled[0])
        refused = handle.request.waits_unavailable
        memory, dropped, waits = sample_tree(processes, sampled[1], refused=refused, over=handle.channel.waiting)
    handle.awaited("done", timeout_s, "a held iteration")
    if sampled and not memory:
        point = point_of_all(tree(processes.main), processes)
        memory, dropped = (() if point is None else (point,)), dropped + (point is None)
    handle.channel.send({"do": "go on"})
    iteration = handle.awaited_iteration(handle.timeout_s, "ending its workers")
    return Held(iteration=iteration, memory=memory, dropped=dropped, waits=waits)
