"""Detects that the GIL is enabled again, and by which module."""

from __future__ import annotations

import sys
from time import sleep

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

LOOKS, LOOK_S = 100, 0.01
_BEFORE = "global interpreter lock (GIL) has been enabled to load module '"


def gil_enabled() -> bool:
    """Whether this interpreter runs with the GIL now."""
    probe = getattr(sys, "_is_gil_enabled", None)
    return True if probe is None else bool(probe())


class GilWatch:
    """Whether the GIL is on again, and the name of the module in the interpreter's own warning of it."""

    def __init__(self) -> None:
        self.module = ""
        self.was_off = False

    def install(self) -> None:
        """Listen to warnings from now on. Call it before the workload is imported.

        Several threads may, also where something wraps what we had installed: each time calls only what it found.
        """
        if gil_enabled():
            return
        self.was_off = True
        import warnings

        show: Any = warnings.showwarning
        if getattr(show, "of", None) is self:
            return

        def listen(message: Warning | str, *args: Any, **kwargs: Any) -> None:
            after = str(message).partition(_BEFORE)[2]
            if after:
                self.module = self.module or after.partition("'")[0]
            show(message, *args, **kwargs)

        listen.of = self  # type: ignore[attr-defined]
        warnings.showwarning = listen

    def stays_on(self) -> bool:
        """Whether the GIL is on; where it was off, for longer than an import, which this waits for.

        CPython turns it on while any thread loads an extension module, and off again once that has said that it can do
        without.
        """
        for _ in range(LOOKS if self.was_off else 0):
            if not gil_enabled():
                return False
            sleep(LOOK_S)
        return gil_enabled()


gil_watch = GilWatch()
