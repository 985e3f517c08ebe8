"""Watches which files below some folders any process opens or changes, through the kernel.

Linux alone (inotify). Questions that open nothing, such as `stat`, are not heard of.
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import os
import struct
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

_OPENED: Final = 0x20
_CHANGED: Final = 0x2 | 0x40 | 0x80 | 0x100 | 0x200  # modified, moved from, moved to, made, removed
_OVERFLOW: Final = 0x4000
_IS_FOLDER: Final = 0x40000000
_EVENT: Final = struct.Struct("iIII")
_CHUNK: Final = 1 << 16


class FileEvent(NamedTuple):
    """A file that was opened, or (`changed`) written, made, moved or removed."""

    path: str
    changed: bool


class OpenedFiles:
    """A watch on every folder below some; `events` are what happened since the last call."""

    def __init__(self, descriptor: int, folders: dict[int, str]) -> None:
        self._descriptor = descriptor
        self._folders = folders

    @classmethod
    @contextlib.contextmanager
    def watching(cls, roots: Iterable[Path]) -> Iterator[OpenedFiles | None]:
        """Watch all folders below `roots` but for bytecode's; None where the system cannot watch them all."""
        folders: dict[int, str] = {}
        with contextlib.ExitStack() as stack:
            try:
                libc = ctypes.CDLL(None, use_errno=True)
                descriptor: int = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
                if descriptor >= 0:
                    stack.callback(os.close, descriptor)
                for folder, names, _ in itertools.chain.from_iterable(map(os.walk, roots)):
                    names[:] = [name for name in names if name not in ("__pycache__", ".git")]
                    number: int = libc.inotify_add_watch(descriptor, os.fsencode(folder), _OPENED | _CHANGED)
                    if number < 0:
                        raise OSError(ctypes.get_errno(), "cannot be watched", folder)
                    folders[number] = folder
            except (OSError, AttributeError):
                yield None
                return
            yield cls(descriptor, folders)

    def events(self) -> list[FileEvent] | None:
        """Files that were opened and changed, in order; None if there were more than the kernel keeps."""
        found: list[FileEvent] = []
        while True:
            try:
                chunk, at = os.read(self._descriptor, _CHUNK), 0
            except BlockingIOError:
                return found
            while at < len(chunk):
                number, mask, _, length = _EVENT.unpack_from(chunk, at)
                name = os.fsdecode(chunk[at + _EVENT.size : at + _EVENT.size + length].rstrip(b"\0"))
                at += _EVENT.size + length
                if mask & _OVERFLOW:
                    return None
                if name and (mask & _CHANGED or not mask & _IS_FOLDER):
                    found.append(FileEvent(os.path.join(self._folders[number], name), bool(mask & _CHANGED)))
