"""Leftovers of launches in the file system: named semaphores, shared memory, folders of multiprocessing."""

from __future__ import annotations

import contextlib
import math
import os
import re
import shutil
import socket
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

import psutil

_SHARED: Final = re.compile(rb" (/dev/shm/(?:psm_|sem\.)\S+)$", re.MULTILINE)
SCRATCH: Final = "ftgate-"
"""The prefix of scratch folders."""
FOLDER: Final = "pymp-"
"""The prefix of multiprocessing's temporary folders."""
_SEMAPHORES: Final = Path("/dev/shm/sem.mp-")
"""Linux keeps named semaphores here; those of multiprocessing have this prefix."""


def temporary_folder(mark: str) -> str:
    """The folder of a launch's multiprocessing, if the workload's module imports that."""
    return os.path.join(tempfile.gettempdir(), f"{FOLDER}{mark}")


def semaphore_prefix(mark: str) -> str:
    """The prefix of the semaphores that multiprocessing makes in a launch; empty where names must be shorter."""
    return f"/mp-{mark}" if sys.platform == "linux" else ""


def leftovers_in(folders: Iterable[Path]) -> Iterator[tuple[str, Path]]:
    """Leftovers of launches and runs in these folders, and elsewhere under the names above, each with its mark."""
    for folder in folders:
        yield from ((path.name, path) for path in folder.glob("*"))
    for begin in (Path(tempfile.gettempdir(), SCRATCH), Path(tempfile.gettempdir(), FOLDER), _SEMAPHORES):
        yield from ((path.name.removeprefix(begin.name), path) for path in begin.parent.glob(f"{begin.name}*"))


@contextlib.contextmanager
def cleaned_after(processes: Iterable[psutil.Process]) -> Iterator[None]:
    """At the end, remove the files and folders that these processes use now; they are killed in here.

    Only what was made since the first of them began is removed, and nothing that another process uses.
    """
    shared, folders, began_s = set[Path](), set[Path](), math.inf
    for process in processes:
        with contextlib.suppress(psutil.Error, OSError):
            began_s = min(began_s, process.create_time())
            shared |= _mapped(process.pid)
            unix = process.net_connections("unix") if hasattr(socket, "AF_UNIX") else ()
            sockets = (Path(str(each.laddr)) for each in unix if each.laddr)
            folders |= {path.parent for path in sockets if path.parent.name.startswith(FOLDER)}
    yield

    def ours(path: Path) -> bool:
        with contextlib.suppress(OSError):
            status = path.lstat()
            return status.st_uid == os.getuid() and status.st_ctime >= began_s - 1
        return False

    left = set(filter(ours, shared))
    if left:
        left -= {path for pid in psutil.pids() for path in _mapped(pid)}
    for path in left:
        with contextlib.suppress(OSError):
            path.unlink()
    for folder in filter(ours, folders):
        shutil.rmtree(folder, ignore_errors=True)


def _mapped(pid: int) -> set[Path]:
    """The named semaphores and shared memory that a process has mapped; only on Linux."""
    with contextlib.suppress(OSError), open(f"/proc/{pid}/maps", "rb") as file:
        return {Path(os.fsdecode(name)) for name in _SHARED.findall(file.read())}
    return set()
