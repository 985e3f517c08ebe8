"""Files that are whole or missing, never half written, and folders that git does not see."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import stat
import threading
from collections.abc import Iterable, Iterator
from io import BufferedReader
from pathlib import Path
from typing import TypeVar

import msgspec

from .units import size

T = TypeVar("T")

MOST_BYTES = 1 << 30
"""A larger file is not read, unless its reader sets another limit."""


@contextlib.contextmanager
def open_regular(path: Path) -> Iterator[BufferedReader]:
    """A file, opened to be read. Raises OSError, also for a device or a pipe: a commit may hold a link to either.

    To open a pipe would wait for a writer, and what can be read from a device has no end.
    """
    with open(path, "rb", opener=lambda name, flags: os.open(name, flags | getattr(os, "O_NONBLOCK", 0))) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file", str(path))
        yield file


def content_of(path: Path, most_bytes: int = MOST_BYTES) -> bytes:
    """The content of a regular file of up to `most_bytes`. Raises OSError."""
    with open_regular(path) as file:
        content = file.read(most_bytes + 1)
    if len(content) > most_bytes:
        raise OSError(errno.EFBIG, f"it is larger than {size(most_bytes)}", str(path))
    return content


def write_whole(path: Path, content: Iterable[bytes], *, durable: bool = False) -> None:
    """Write a file, piece by piece, so that a reader, or a run that is killed meanwhile, never leaves half of it.

    Several threads and processes may write the same file: the last one's content stays. What is `durable` outlives a
    power cut. Raises OSError, of a full disk or a directory of that name; what was there stays.
    """
    unfinished = path.with_name(f"{path.name}.{os.getpid()}-{threading.get_ident()}.part")
    try:
        with unfinished.open("wb") as file:
            file.writelines(content)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        unfinished.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            unfinished.unlink()
        raise
    if durable and os.name == "posix":  # the new name as well; elsewhere no folder can be opened
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def hide_from_git(root: Path) -> None:
    """Make `root` and write the .gitignore that hides it: in the nearest `.ftgate` above, else in `root` itself."""
    root = root.absolute()
    root.mkdir(parents=True, exist_ok=True)
    top = next((folder for folder in (root, *root.parents) if folder.name == ".ftgate"), root)
    ignore = top / ".gitignore"
    if not ignore.exists():
        write_whole(ignore, [b"*\n"])  # one without its line would hide nothing for good


def read_json(path: Path, kind: type[T]) -> T | None:
    """The value that a JSON file of ours holds; None if it is not there, or holds anything else."""
    try:
        return msgspec.json.decode(content_of(path), type=kind)
    except (OSError, ValueError, RecursionError):
        return None


def remove(path: Path) -> None:
    """Remove a file, a link or a folder with all that is in it, if it is there."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
