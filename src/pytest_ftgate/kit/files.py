"""Files that are whole or not there, and folders that git does not see."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterable
from pathlib import Path


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
