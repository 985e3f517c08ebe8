"""Files that are whole or not there, what is left in them, and folders that git does not see."""

from __future__ import annotations

import contextlib
import os
import shutil
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import TypeVar

import msgspec

T = TypeVar("T")


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


def found_in(path: Path, kind: type[T]) -> T | None:
    """The value that a JSON file of ours holds; None if it is not there, or holds anything else."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except (OSError, ValueError, RecursionError):
        return None


def remove(path: Path) -> None:
    """Remove a file, a link or a folder with all that is in it, if it is there."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
