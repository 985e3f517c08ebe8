"""Messages between the controller and a launch; the runner's side of it is in `runner/main.py`."""

from __future__ import annotations

import contextlib
import marshal
import os
import sys
from multiprocessing import Pipe
from typing import Any, Final

from ...runner.protocol import LENGTH_BYTES, MARSHAL

LONGEST: Final = 16 << 20
"""The bytes of a message at most; ours name the processes of a launch and no more."""
CHUNK: Final = 65536
WIDTHS: Final = {**dict.fromkeys(b"NTF0{", 0), ord("i"): 4, ord("g"): 8}
"""The bytes after the first of what marshal writes of a value without a length."""
UNITS: Final = {ord("["): 0, ord("("): 0, ord("u"): 1, ord("s"): 1, ord("l"): 2}
"""The bytes of one unit of a length: the items of a container follow as values of their own."""


class BrokenMessage(Exception):
    """What a launch has sent is no message: the workload can write to the pipe, too."""


class ControlChannel:
    """Our ends of the two control pipes of a launch, and the launch's until it has them."""

    def __init__(self) -> None:
        self.reader, self._their_writer = Pipe(duplex=False)
        self._their_reader, self.writer = Pipe(duplex=False)
        os.set_blocking(self.reader.fileno(), False)  # half a message must not keep us waiting
        self._received = bytearray()

    @property
    def theirs(self) -> tuple[int, int]:
        """The descriptors that the launch gets: the one it reads from and the one it writes to."""
        return self._their_reader.fileno(), self._their_writer.fileno()

    def handed_over(self) -> None:
        """Close their ends here."""
        self._their_reader.close()
        self._their_writer.close()

    def send(self, message: dict[str, Any]) -> None:
        """One message. A launch that has ended is noticed at the next `receive`."""
        with contextlib.suppress(BrokenPipeError):
            self.writer.send_bytes(marshal.dumps(message, MARSHAL))

    def waiting(self) -> bool:
        """Whether the launch has sent something that nobody has received yet, or has ended."""
        return bool(self._received) or self.reader.poll()

    def receive(self) -> dict[str, Any] | None:
        """The next message; None while there is none, or only its beginning. Raises BrokenMessage."""
        message = self._next()
        if message is None and self._take():
            message = self._next()
        return message

    def close(self) -> None:
        """Close both ends; a runner that still waits for a message ends then."""
        self.reader.close()
        self.writer.close()

    def _take(self) -> bool:
        """Take what is there, one chunk of it; whether something was."""
        try:
            chunk = os.read(self.reader.fileno(), CHUNK)
        except BlockingIOError:
            return False
        self._received += chunk
        return bool(chunk)

    def _next(self) -> dict[str, Any] | None:
        if len(self._received) < LENGTH_BYTES:
            return None
        size = int.from_bytes(self._received[:LENGTH_BYTES], "big")
        if size > LONGEST:
            raise BrokenMessage(f"a message of {size:,} bytes")
        if len(self._received) < (end := LENGTH_BYTES + size):
            return None
        content = bytes(self._received[LENGTH_BYTES:end])
        del self._received[:end]
        message = unmarshalled(content)
        if not (isinstance(message, dict) and isinstance(message.get("event"), str)):
            raise BrokenMessage(f"{repr(message)[:80]} in place of a message")
        return message


def unmarshalled(content: bytes) -> Any:
    """Plain values of a launch. Raises BrokenMessage for anything else."""
    try:
        _check_lengths(content)
        if sys.version_info >= (3, 13):
            return marshal.loads(content, allow_code=False)
        return marshal.loads(content)
    except Exception as error:  # of bytes that are nothing, also MemoryError
        raise BrokenMessage(f"{len(content):,} bytes that cannot be read: {type(error).__name__}: {error}") from error


def _check_lengths(content: bytes) -> None:
    """Raise ValueError for lengths that exceed the content: marshal allocates what a container claims to hold."""
    at = items = 0
    while at < len(content):
        kind, at = content[at], at + 1
        width = WIDTHS.get(kind)
        if width is None:
            if kind not in UNITS:
                raise ValueError(f"a value of kind {kind:#x}")
            length = int.from_bytes(content[at : at + LENGTH_BYTES], "little", signed=True)
            width = LENGTH_BYTES + UNITS[kind] * abs(length)
            items += 0 if UNITS[kind] else max(0, length)
        at += width
        if max(at, items) > len(content):
            raise ValueError("a length that exceeds them")
