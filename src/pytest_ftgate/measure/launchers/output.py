"""What a process printed, and how it ended, in words."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from pathlib import Path

from ...model import WorkloadError
from ..watch.processes import leftovers

C_CALL = '  Binary file "'
FLOOD_BYTES = 4 << 20
TAIL_BYTES = 16 << 10


class PipeOutput:
    """What a process prints into a pipe, drained while it is waited for; the last `kept_bytes` are kept."""

    def __init__(self, kept_bytes: int = TAIL_BYTES, shown_lines: int = 20) -> None:
        self.kept_bytes = kept_bytes
        self.shown_lines = shown_lines
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

    @property
    def text(self) -> str:
        """The last of what was printed."""
        return self.kept.decode("utf-8", "replace")


class FileOutput:
    """What a process prints into a file. A pipe would stop a server that prints while nobody drains it."""

    shown_lines = 20
    flooded = False

    def __init__(self, path: Path) -> None:
        self.path = path
        self.before = ""

    @property
    def text(self) -> str:
        """The last of what was printed."""
        try:
            with self.path.open("rb") as file:
                file.seek(max(0, os.fstat(file.fileno()).st_size - TAIL_BYTES))
                return self.before + file.read().decode("utf-8", "replace")
        except OSError:
            return self.before

    def trim(self) -> None:
        """Empty a long file, so that a line per request does not fill the disk; the last of it is kept."""
        try:
            if self.path.stat().st_size > FLOOD_BYTES:
                kept = self.text[-TAIL_BYTES:]
                os.truncate(self.path, 0)
                self.before = kept
        except OSError:
            pass  # it has been removed


def tail_of(outputs: Sequence[PipeOutput | FileOutput]) -> str:
    """The last lines of outputs under a heading; empty where nothing was printed."""
    tails = ("\n".join(_lines(output.text)[-output.shown_lines :]) for output in outputs)
    printed = "\n".join(filter(None, tails))
    return f"the last lines it printed:\n{printed}" if printed else ""


def _lines(text: str) -> list[str]:
    """The lines without the C stack of a Python that crashed, which is longer than what is shown."""
    return [line for line in text.splitlines() if not line.startswith(C_CALL)]


def exit_text(code: int) -> str:
    """How a process ended, for people; a negative code is a signal."""
    if code >= 0:
        return f"exited with code {code}"
    names = {int(each): each.name for each in signal.Signals}
    return f"was killed by {names.get(-code, f'signal {-code}')}"


def left_behind(mark: str, fix: str) -> WorkloadError | None:
    """The error of a launch that has exited and left processes behind; `fix` says what to do about it."""
    left = leftovers(mark)
    return left_error(left, fix) if left else None


def left_error(left: Sequence[str], fix: str = "") -> WorkloadError:
    """The error of a launch that left these processes behind."""
    reason = f"left {len(left)} process{'es' if len(left) > 1 else ''} behind"
    alike: dict[str, list[str]] = {}
    for each in left:
        pid, _, words = each.partition(": ")
        alike.setdefault(words, []).append(pid)
    shown = [f"{pids[0]}{f' and {len(pids) - 1} more' * (len(pids) > 1)}: {words}" for words, pids in alike.items()]
    return WorkloadError(reason=reason, detail="\n".join(filter(None, (*shown, fix))))


def shortly(error: BaseException) -> str:
    """`AssertionError: it said no`, on one line."""
    text = str(error).strip().partition("\n")[0]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
