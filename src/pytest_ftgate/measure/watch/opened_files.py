"""Which files below some folders are opened or changed, as the kernel tells it: by whatever code, in any process.

Linux alone (inotify). Questions that open nothing, such as `stat`, are not heard of.
"""

from __future__ import annotations

import contextlib
import ctypes
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
        try:
            watch = cls._started(roots)
        except (OSError, AttributeError):
            yield None
            return
        try:
            yield watch
        finally:
            os.close(watch._descriptor)

    @classmethod
    def _started(cls, roots: Iterable[Path]) -> OpenedFiles:
        libc = ctypes.CDLL(None, use_errno=True)
        descriptor: int = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        folders: dict[int, str] = {}
        try:
            for folder in (folder for root in roots for folder in _folders(root)):
                number: int = libc.inotify_add_watch(descriptor, os.fsencode(folder), _OPENED | _CHANGED)
                if number < 0:
                    raise OSError(ctypes.get_errno(), "cannot be watched", folder)
                folders[number] = folder
        except BaseException:
            if descriptor >= 0:
                os.close(descriptor)
            raise
        return cls(descriptor, folders)

    def events(self) -> list[FileEvent] | None:
        """What was opened and changed, in order; None where there was more than the kernel keeps."""
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


def _folders(root: Path) -> Iterator[str]:
    for folder, names, _ in os.walk(root):
        names[:] = [name for name in names if name not in ("__pycache__", ".git")]
        yield folder
