"""Orders of the main process to its workers: for each iteration, for setups and teardowns, and for the end."""

from __future__ import annotations

import struct

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .held import CallTally, TaskTally

ORDER = struct.Struct("<IIQ")
"""An order in a pipe: loops, flags, window."""
CHECKING = 1
VALUES = 2
STOP = 4
HOLDING = 8
AT_BARRIER = 16
"""Flags of an order: check the result; return it whole; end; memory and threads are sampled; wait at a barrier."""
STAYING = HOLDING | AT_BARRIER
"""With either, fresh workers stay when they have done their part, and wait for another order."""
SETUP = 32
TEARDOWN = 64
END = 128
"""Flags of an order for setups and teardowns, of a test that has some: before an iteration, after it, of the worker."""
OBSERVED = 256
"""Flag of an order: other tasks run after each call of a body, as they do in a window."""
COLLECTING = 512
"""Flag of an order: garbage is collected before it, so that its time pays for its own; at a barrier also after it."""


class Order:
    """An order: `loops` calls of the body, or calls until `window_ns` has passed.

    With 0 loops all workers stop after the same number of calls, once the window has passed: `tally` says when.
    """

    __slots__ = ("flags", "loops", "tally", "window_ns")

    def __init__(
        self, loops: int, window_ns: int = 0, flags: int = 0, tally: CallTally | TaskTally | None = None
    ) -> None:
        self.loops = loops
        self.window_ns = window_ns
        self.flags = flags
        self.tally = tally


def once(order: Order) -> Order:
    """The order for a role that does not lead: one call, whose result is checked unless there is a window."""
    return Order(1, 0, order.flags & ~(CHECKING | VALUES) if order.window_ns else order.flags)
