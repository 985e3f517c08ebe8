"""Makes the nth system call that writes below a folder fail, in this process: an error number, once or from then on."""

from __future__ import annotations

import builtins
import errno
import io
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import pytest

ONCE = (errno.EACCES,)
"""Of one file; a full disk or a read-only one remains so."""


class FailingWrites:
    """Counts calls that make a folder, open a file to write, write, flush or rename it below `folder`.

    The one of index `at`, or the first that this pattern matches, fails with the error `number`. A write that fails has
    written half of it. `calls` are what was asked for, and `torn` the files of which a half was written.
    """

    def __init__(
        self, folder: Path, patch: pytest.MonkeyPatch, at: int | str | None = None, number: int = errno.ENOSPC
    ) -> None:
        self.failed = False
        self.folder = str(folder.resolve())
        self.at = at
        self.number = number
        self.calls: list[str] = []
        self.torn: set[str] = set()
        self._open = io.open
        for name in ("mkdir", "replace", "rename"):
            patch.setattr(os, name, self._failing(name, getattr(os, name)))
        patch.setattr(os, "fsync", self._failing("fsync", os.fsync))
        patch.setattr(os, "open", self._opened(os.open))
        patch.setattr(io, "open", self._file)
        patch.setattr(builtins, "open", self._file)

    def call(self, what: str, path: str) -> None:
        """Count a call; raise OSError if it is to fail."""
        said = f"{what} {os.path.relpath(path, self.folder)}"
        asked = bool(re.match(self.at, said)) if isinstance(self.at, str) else len(self.calls) == self.at
        self.calls.append(said)
        if (asked and not self.failed) or (self.failed and self.number not in ONCE):
            self.failed = True
            raise OSError(self.number, os.strerror(self.number), path)

    def _below(self, path: Any, dir_fd: int | None = None) -> str:
        """The path if it is below the folder, else ""."""
        if isinstance(path, int):  # of fsync
            path = os.readlink(f"/proc/self/fd/{path}")
        if dir_fd is not None or not isinstance(path, str | os.PathLike):
            return ""
        found = os.path.abspath(os.fspath(path))
        return found if found.startswith(self.folder + os.sep) else ""

    def _failing(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(path: Any, *args: Any, **options: Any) -> Any:
            found = self._below(args[0] if name in ("replace", "rename") else path, options.get("dir_fd"))
            if found and not (name == "mkdir" and os.path.exists(found)):  # as the kernel: that it exists is said first
                self.call(name, found)
            return real(path, *args, **options)

        return call

    def _opened(self, real: Callable[..., int]) -> Callable[..., int]:
        def call(path: Any, flags: int, *args: Any, **options: Any) -> int:
            found = self._below(path, options.get("dir_fd"))
            if found and flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
                self.call("open", found)
            return real(path, flags, *args, **options)

        return call

    def _file(self, file: Any, mode: str = "r", *args: Any, **options: Any) -> IO[Any]:
        found = self._below(file) if set(mode) & set("wax+") and not isinstance(file, int) else ""
        if not found:
            return self._open(file, mode, *args, **options)
        self.call("open", found)
        binary = io.BufferedWriter(_Raw(self, found, mode.replace("b", "").replace("t", "")))
        if "b" in mode:
            return binary
        given = dict(zip(("buffering", "encoding", "errors", "newline"), args, strict=False)) | options
        return io.TextIOWrapper(binary, given.get("encoding"), given.get("errors"), given.get("newline"))


class _Raw(io.FileIO):
    """A file whose writes are counted."""

    def __init__(self, writes: FailingWrites, path: str, mode: str) -> None:
        self.writes = writes
        self.path = path
        super().__init__(path, mode)

    def write(self, content: Any) -> int:
        """All of it, or half of it and an error."""
        try:
            self.writes.call("write", self.path)
        except OSError:
            super().write(bytes(content)[: len(content) // 2])
            self.writes.torn.add(self.path)
            raise
        return super().write(content)
