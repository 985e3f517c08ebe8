"""Memory and imports of a launch: a thread in each of its processes writes them to files while workers are held.

The start hook installs it where the environment says so: before anything of the workload is imported. Memory is known
by the line that allocated it, as tracemalloc knows it; imports by what they take, as `-X importtime` does. Of both only
one is known in a launch, as tracing takes time. tracemalloc's own module is not imported, as it imports pickle.
"""

from __future__ import annotations

import marshal
import os
import sys
import time

from .beside import Beside
from .clock import now_ns
from .explain import HERE
from .protocol import MARSHAL

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    Line = tuple[str, int]

LOADS = "FTGATE_LOADS"
"""The environment variable with what is known, `lines` or `imports`, a colon, and the folder for the files."""
HOLDS = "holds"
"""The file in that folder that is there while workers are held: then the thread writes."""
LEFT = "left"
"""The prefix of files that are written at a barrier, between two calls of the body."""
FRAMES = 8
"""Calls that are kept of an allocation: an import takes seven, and each slows the workload."""
LEAST_BYTES = 256
"""Lines that hold less are left out."""
PAUSE_S = 0.02
PAUSES = 4
"""The thread waits so many times as long as writing took it."""
STANDARD = os.path.dirname(os.path.abspath(os.__file__)) + os.sep

_lines = False
_folder = ""
_left = 0
_imports: dict[str, list[Any]] = {}
"""Module -> its time without what it imports, its whole time in ns, the module that imported it first."""


def install(setting: str) -> None:
    """Trace or time from now on. A second call does nothing, nor does one in a sub-interpreter."""
    global _folder, _lines
    if _folder:
        return
    known, _, _folder = setting.partition(":")
    _lines = known == "lines"
    if _lines:
        import _tracemalloc

        _tracemalloc.start(FRAMES)
    else:
        _time_imports()
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=_forked)
    Beside("ftgate loads", _write_held).begin()


def _forked() -> None:
    """Forget the parent's memory and imports, because a child shares them until it writes."""
    global _left
    _left = 0
    _imports.clear()
    if _lines:
        import _tracemalloc

        _tracemalloc.clear_traces()


def _write_held(busy: Any) -> None:
    """Write again and again while workers are held."""
    holds = os.path.join(_folder, HOLDS)
    while True:
        took_s = 0.0
        if os.path.exists(holds):
            began_s = time.monotonic()
            with busy:
                _write(f"held.{now_ns()}")
            took_s = time.monotonic() - began_s
        time.sleep(max(PAUSE_S, PAUSES * took_s))


def at_barrier() -> None:
    """Write what is left of a call of the body, where lines are known."""
    global _left
    if _lines:
        _left += 1
        _write(f"{LEFT}.{_left}")


def _write(name: str) -> None:
    works = "pytest_ftgate.runner.worker" in sys.modules
    content = (works, _held() if _lines else [], sorted(sys.modules), dict(_imports))
    path = os.path.join(_folder, f"{name}.{os.getpid()}")
    try:
        with open(path + ".part", "wb") as file:
            marshal.dump(content, file, MARSHAL)
        os.replace(path + ".part", path)
    except OSError:  # the launch is being ended
        pass


# ---- memory, by line


def _held() -> list[tuple[str, int, int]]:
    """File, line and bytes of what is held."""
    import _tracemalloc

    sizes: dict[Line, int] = {}
    lines: dict[int, Line | None] = {}  # by identity: the traces of a call share their frames
    traces = _tracemalloc._get_traces()
    for _, size, frames, *_ in traces:
        try:
            line = lines[id(frames)]
        except KeyError:
            line = lines[id(frames)] = line_of(frames)
        if line is not None:
            sizes[line] = sizes.get(line, 0) + size
    return [(*line, size) for line, size in sizes.items() if size >= LEAST_BYTES]


def line_of(frames: Sequence[Line]) -> Line | None:
    """The line that an allocation is of, of its calls, the innermost first: of the standard library only if all are.

    None of what is the runner's own.
    """
    for file, line in frames:
        if not file.startswith((STANDARD, HERE, "<")) or file.startswith(_SITES):
            return file, line
    return frames[0] if not any(file.startswith(HERE) for file, _ in frames) else None


_SITES = tuple(STANDARD + each + os.sep for each in ("site-packages", "dist-packages"))


# ---- imports, by module


def _time_imports() -> None:
    """Time what the import system does for each module that is not loaded yet; each thread has its own stack."""
    from _thread import _local

    system: Any = sys.modules["_frozen_importlib"]
    found, under_way = system._find_and_load, _local()

    def timed(name: str, import_: Any) -> Any:
        stack = under_way.__dict__.setdefault("stack", [])
        entry: list[Any] = [name, 0]
        stack.append(entry)
        began_ns = now_ns()
        try:
            return found(name, import_)
        finally:
            took_ns = now_ns() - began_ns
            stack.pop()
            if stack:
                stack[-1][1] += took_ns
            if name not in _imports:
                _imports[name] = [took_ns - entry[1], took_ns, stack[-1][0] if stack else ""]

    system._find_and_load = timed
