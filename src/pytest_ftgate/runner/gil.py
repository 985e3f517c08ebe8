"""Detects that the GIL is enabled again, and by which module."""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

_BEFORE = "global interpreter lock (GIL) has been enabled to load module '"


def gil_enabled() -> bool:
    """Whether this interpreter runs with the GIL now."""
    probe = getattr(sys, "_is_gil_enabled", None)
    return True if probe is None else bool(probe())


class GilWatch:
    """Keeps the name of the module in the interpreter's own warning that the GIL has been enabled."""

    def __init__(self) -> None:
        self.module = ""
        self._show: Callable[..., None] | None = None

    def install(self) -> None:
        """Listen to warnings from now on. Call it before the workload is imported."""
        if gil_enabled():
            return
        import warnings

        if warnings.showwarning != self._listen:
            self._show = warnings.showwarning
            warnings.showwarning = self._listen

    def _listen(self, message: Warning | str, *args: Any, **kwargs: Any) -> None:
        after = str(message).partition(_BEFORE)[2]
        if after:
            self.module = self.module or after.partition("'")[0]
        if self._show is not None:
            self._show(message, *args, **kwargs)


watch = GilWatch()
