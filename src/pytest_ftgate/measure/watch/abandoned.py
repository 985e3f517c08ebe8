"""What killed processes leave in the file system: named semaphores, shared memory, folders of multiprocessing."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Final, NamedTuple

import psutil

_SHARED: Final = re.compile(rb" (/dev/shm/(?:psm_|sem\.)\S+)$", re.MULTILINE)
FOLDER: Final = "pymp-"
"""What the names of multiprocessing's temporary folders begin with."""


def temporary_folder(mark: str) -> str:
    """The one that a launch's multiprocessing has, if its workload imports that with its module."""
    return os.path.join(tempfile.gettempdir(), f"{FOLDER}{mark}")


class Held(NamedTuple):
    """What processes had in use shortly before they were killed; `since` is when the first of them began."""

    shared: frozenset[Path]
    folders: frozenset[Path]
    since: float

    def remove(self) -> None:
        """Remove what is still there, was made since the first of them began, and is in no other process's use."""
        shared = {path for path in self.shared if self._ours(path)}
        if shared:
            shared -= {path for pid in psutil.pids() for path in _mapped(pid)}
        for path in shared:
            with contextlib.suppress(OSError):
                path.unlink()
        for folder in self.folders:
            if self._ours(folder):
                shutil.rmtree(folder, ignore_errors=True)

    def _ours(self, path: Path) -> bool:
        with contextlib.suppress(OSError):
            found = path.lstat()
            return found.st_uid == os.getuid() and found.st_ctime >= self.since - 1
        return False


def held(processes: Iterable[psutil.Process]) -> Held:
    """What these processes have in use now."""
    shared, folders, began = set[Path](), set[Path](), [float("inf")]
    for process in processes:
        with contextlib.suppress(psutil.Error, OSError):
            began.append(process.create_time())
            shared |= _mapped(process.pid)
            sockets = (Path(str(each.laddr)) for each in process.net_connections("unix") if each.laddr)
            folders |= {path.parent for path in sockets if path.parent.name.startswith(FOLDER)}
    return Held(frozenset(shared), frozenset(folders), min(began))


def _mapped(pid: int) -> set[Path]:
    """The named semaphores and shared memory that a process has mapped; only on Linux."""
    with contextlib.suppress(OSError), open(f"/proc/{pid}/maps", "rb") as file:
        return {Path(os.fsdecode(name)) for name in _SHARED.findall(file.read())}
    return set()
