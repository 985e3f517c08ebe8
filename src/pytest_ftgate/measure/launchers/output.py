"""A launch's output and what it left behind, in words."""

from __future__ import annotations

import os
from collections.abc import Sequence

from ...model import WorkloadError
from ..watch.processes import leftovers

FLOOD_BYTES = 4 << 20
TAIL_BYTES = 16 << 10


class Output:
    """What a launch prints: drained while it is waited for; of a flood the tail is kept."""

    def __init__(self, kept_bytes: int = TAIL_BYTES) -> None:
        self.kept_bytes = kept_bytes
        self.printed = 0
        self.kept = bytearray()

    def drain(self, descriptor: int) -> bool:
        """Take what is there, at most 64 KiB, without waiting; whether more may come."""
        try:
            chunk = os.read(descriptor, 65536)
        except BlockingIOError:
            return True
        self.printed += len(chunk)
        self.kept += chunk
        del self.kept[: -self.kept_bytes]
        return bool(chunk)

    @property
    def flooded(self) -> bool:
        """Whether so much was printed that something is wrong."""
        return self.printed > FLOOD_BYTES

    def tail(self, lines: int = 20) -> str:
        """The last lines."""
        return "\n".join(self.kept.decode("utf-8", "replace").splitlines()[-lines:])


def left_behind(pid: int, mark: str) -> WorkloadError | None:
    """The error of a launch that processes have outlived; `pid` is its own, which may still be there."""
    left = leftovers(pid, mark)
    return left_error(left) if left else None


def left_error(left: Sequence[str]) -> WorkloadError:
    """The error of a launch that these processes have outlived."""
    reason = f"left {len(left)} process{'es' if len(left) > 1 else ''} behind"
    return WorkloadError(reason=reason, detail="\n".join(left))


def shortly(error: BaseException) -> str:
    """`AssertionError: it said no`, on one line."""
    text = str(error).strip().partition("\n")[0]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
