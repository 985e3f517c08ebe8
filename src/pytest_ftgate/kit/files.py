"""Files that are whole or not there."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterable
from pathlib import Path


def write_whole(path: Path, content: Iterable[bytes]) -> None:
    """Write a file, piece by piece, so that a reader, or a run that is killed meanwhile, never leaves half of it.

    Several threads and processes may write the same file: the last one's content stays. Raises OSError, of a full disk
    or a directory of that name; what was there stays.
    """
    unfinished = path.with_name(f"{path.name}.{os.getpid()}-{threading.get_ident()}.part")
    try:
        with unfinished.open("wb") as file:
            file.writelines(content)
        unfinished.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            unfinished.unlink()
        raise
