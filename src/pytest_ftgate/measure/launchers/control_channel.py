"""Messages between the controller and a launch; the runner's side of it is in `runner/main.py`."""

from __future__ import annotations

import contextlib
import marshal
from multiprocessing import Pipe
from typing import Any

from ...runner.protocol import MARSHAL


class ControlChannel:
    """Our ends of the two control pipes of a launch, and the launch's until it has them."""

    def __init__(self) -> None:
        self.reader, self._their_writer = Pipe(duplex=False)
        self._their_reader, self.writer = Pipe(duplex=False)

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
        return self.reader.poll()

    def receive(self) -> dict[str, Any] | None:
        """The next message; None while there is none."""
        if not self.waiting():
            return None
        try:
            message: dict[str, Any] = marshal.loads(self.reader.recv_bytes())
        except EOFError:
            return None
        return message

    def close(self) -> None:
        """Close both ends; a runner that still waits for a message ends then."""
        self.reader.close()
        self.writer.close()
