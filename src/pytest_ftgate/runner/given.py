"""Converts values for counters, timers and peaks that are no plain numbers. It is imported for the first one."""

from __future__ import annotations

import os
import sys

from .explain import is_ours
from .protocol import LONGEST_NAME

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType
    from typing import Any, NoReturn


def finite(method: str, name: str, value: Any) -> float:
    """The value of `worker.METHOD(name, value)` as an exact int or float.

    Raises TypeError for what is no number, ValueError for one that is not finite, with the line that gave it.
    """
    number: float = 0
    for read, kind in (("__index__", int), ("__float__", float)):
        try:
            number = kind(getattr(value, read)())
            break
        except Exception:
            continue
    else:
        _refuse(TypeError, method, name, f"takes a number, not a {type_of(value)}")
    if not -sys.float_info.max <= number <= sys.float_info.max:
        shown = "one beyond 1e308" if isinstance(number, int) else repr(number)
        _refuse(ValueError, method, name, f"takes finite numbers, not {shown} (a {type_of(value)})")
    return number


def exact(method: str, name: Any) -> str:
    """The name of a counter, timer or peak as exact text. Raises TypeError or ValueError, with the line."""
    if not isinstance(name, str):
        _refuse(TypeError, method, name, f"takes a name first, not a {type_of(name)}")
    if len(name) > LONGEST_NAME:
        _refuse(ValueError, method, f"{name[:20]}...", f"takes names of up to {LONGEST_NAME} characters")
    return str.__str__(name)


def type_of(value: Any) -> str:
    """The name of a value's type, with its module but for builtins."""
    kind = type(value)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def _refuse(kind: type[Exception], method: str, name: Any, why: str) -> NoReturn:
    """Raise an error about `worker.METHOD(name, ...)` that names the line of the workload that called it."""
    call = f"worker.timed({name!r}).add" if method == "add" else f"worker.{method}({name!r})"
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and is_ours(frame.f_code):
        frame = frame.f_back
    line = "" if frame is None else f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno}: "
    raise kind(f"{line}{call} {why}")
