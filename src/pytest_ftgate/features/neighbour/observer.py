"""A thread beside the workers that wakes up each millisecond, and a timer in the event loop of tasks.

Each notes when it came, and how long its thread, or one that may have held the GIL, has waited for a core since the
last. What is left of its delay, something in this process has kept it from running: the GIL, a stop-the-world, a call
that blocks the loop.
"""

from __future__ import annotations

import os
import sys
import threading
from time import sleep

from pytest_ftgate.runner.clock import now_ns

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

PERIOD_NS = 1_000_000
SLACK_NS = 100_000
"""How much later than asked for the system wakes a thread that nothing keeps from running."""


def observe(executor: Any) -> Callable[[], dict[str, dict[str, float]]]:
    """Begin; see `runner/observing.py`."""
    beats: list[int] = []
    stop: list[bool] = []
    begun = threading.Lock()
    begun.acquire()
    # One that is not ended, after an error, must not keep the process; sub-interpreters allow no daemon.
    thread = threading.Thread(
        target=_beat, args=(beats, begun, stop), name="ftgate neighbour", daemon=executor is not None
    )
    thread.start()
    begun.acquire()
    runner = getattr(executor, "runner", None)
    ticks = None if runner is None else Ticks(runner.get_loop())

    def end() -> dict[str, dict[str, float]]:
        if ticks is not None:
            ticks.end()
        stop.append(True)
        thread.join()
        found = gaps(beats)
        late_ns = sum(max(0, gap - PERIOD_NS - SLACK_NS) for gap in found)
        peaks = {"gap": float(max(found))}
        if ticks is not None:
            peaks["lag"] = float(max(0, max(gaps(ticks.beats)) - PERIOD_NS))
        return {"counters": {"neighbour late": late_ns, "neighbour time": sum(found)}, "peaks": peaks}

    return end


def gaps(beats: list[int]) -> list[int]:
    """The times between two beats without what was waited for a core, in ns.

    `beats` has the time of each, and what was waited for a core since the one before.
    """
    times, waited = beats[::2], beats[3::2]
    return [max(0, at - since - of) for since, at, of in zip(times, times[1:], waited, strict=False)]


def _beat(beats: list[int], begun: Any, stop: list[bool]) -> None:
    """The thread's loop; its last beat comes after it has been told to stop, so that no gap is left open."""
    queue = RunQueues()
    beats += now_ns(), queue.waited_ns()
    begun.release()
    while True:
        last = bool(stop)
        sleep(PERIOD_NS / 1e9)
        beats += now_ns(), queue.waited_ns()
        if last:
            break
    queue.close()


class Ticks:
    """A timer in an event loop that comes each millisecond."""

    def __init__(self, loop: Any) -> None:
        self.loop = loop
        self.queue = RunQueues()
        self.beats = [now_ns(), self.queue.waited_ns()]
        self.timer = loop.call_soon(self.tick)

    def tick(self) -> None:
        """Note when it came, and begin anew."""
        self.beats += now_ns(), self.queue.waited_ns()
        self.timer = self.loop.call_later(PERIOD_NS / 1e9, self.tick)

    def end(self) -> None:
        """The timer that is under way comes no more: it is as late as it is now."""
        self.timer.cancel()
        self.beats += now_ns(), self.queue.waited_ns()
        self.queue.close()


class RunQueues:
    """How long threads of this process wait for a core; never, where the system does not say it.

    The files are read without giving up the GIL, which would be one more wait for it.
    """

    def __init__(self) -> None:
        self.files: dict[int, int] = {}
        self.known_ns: dict[int, int] = {}
        self.own = threading.get_native_id()
        self.with_gil = getattr(sys, "_is_gil_enabled", lambda: True)()
        try:
            from ctypes import PyDLL, c_char_p, c_int, c_size_t, c_ssize_t, create_string_buffer

            self.libc = PyDLL(None)
            self.libc.pread.argtypes = (c_int, c_char_p, c_size_t, c_ssize_t)
            self.libc.pread.restype = c_ssize_t
            self.buffer = create_string_buffer(64)
            self.works = os.path.exists(f"/proc/self/task/{self.own}/schedstat")
        except (AttributeError, ImportError, OSError):
            self.works = False

    def waited_ns(self) -> int:
        """Since the last call: of the thread that waited longest, of this one and, with the GIL, all that take it.

        Not their sum: this one also waits for a core when it has waited for the GIL for 5 ms, and asks for it. Source:
        the second figure of schedstat.
        """
        if not self.works:
            return 0
        others = {each.native_id for each in list(vars(threading)["_active"].values())} if self.with_gil else set()
        waits = {thread: self._waited_ns(thread) for thread in {*others, self.own} if thread}
        for gone in self.files.keys() - waits.keys():
            os.close(self.files.pop(gone))
        return max(waits.values())

    def _waited_ns(self, thread: int) -> int:
        if thread not in self.files:
            path = f"/proc/self/task/{thread}/schedstat".encode()
            file = self.libc.open(path, os.O_RDONLY | os.O_CLOEXEC)
            if file < 0:  # it has ended
                return 0
            self.files[thread] = file
        size = self.libc.pread(self.files[thread], self.buffer, 64, 0)
        if size <= 0:
            return 0
        so_far = int(self.buffer.raw[:size].split()[1])
        before = self.known_ns.get(thread, so_far)
        self.known_ns[thread] = so_far
        return so_far - before

    def close(self) -> None:
        for file in self.files.values():
            os.close(file)
