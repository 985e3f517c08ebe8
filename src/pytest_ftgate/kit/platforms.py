"""Where measuring is possible. Tests without --ftgate run wherever pytest does."""

from __future__ import annotations

import importlib
import os
import sys
from typing import Final

NEEDED: Final = ("msgspec", "numpy", "psutil", "scipy")
"""Compiled, so not on every platform; without this check a run would miss SciPy only at its first verdict."""


def unsupported() -> str:
    """Why nothing can be measured from this process, with what is needed; empty where it can."""
    why = ""
    if sys.platform not in ("linux", "darwin"):
        why = f"this platform is {sys.platform}"
    elif sys.implementation.name != "cpython":
        why = f"this interpreter is {sys.implementation.name}"
    elif sys.platform == "linux" and not os.path.exists("/proc/self/stat"):
        why = "/proc is not mounted"
    if why:
        return f"{why}; measuring needs CPython on Linux (with /proc) or on macOS"
    for name in NEEDED:
        try:
            importlib.import_module(name)
        except ImportError as error:
            return f"{name} cannot be imported ({error}): install it again"
    return ""
