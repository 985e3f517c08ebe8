"""One process that ends a run's launches, tools and servers where this process is killed before it could.

It reads from a pipe whose other end is this process's alone: the kernel closes it with us, however we end.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import psutil

from ...kit.files import remove
from ...kit.killing import end_run, kill, orphans
from ...kit.marks import MARK, Owner, marked_tools, run_mark, tagged
from ...kit.scratch import leftovers_in

GRACE_S: Final = 1.0
"""How long what a killed run leaves may take to end by itself, as a server does, before it is killed."""
# Until it is needed the guard imports nothing; no signal to a process group or a process tree ends it before.
_SCRIPT: Final = """
import signal, sys
for number in {"SIGINT", "SIGTERM", "SIGHUP"} & {*dir(signal)}:
    signal.signal(getattr(signal, number), signal.SIG_IGN)
folders = sys.stdin.read().splitlines()
sys.path[:0] = sys.argv[2:]
from pytest_ftgate.measure.launchers import guard
guard.end(sys.argv[1], folders)
"""
_guards: dict[int, subprocess.Popen[str]] = {}
"""That of this process, by our pid: a child that was forked has none."""


def ensure(folder: Path | None = None) -> None:
    """Have a guard, which also removes what launches of this run leave in `folder`. Without one a run goes on."""
    guard = _guards.get(os.getpid())
    with contextlib.suppress(OSError):
        if guard is None:
            guard = _guards[os.getpid()] = _started()
        if folder is not None and guard.stdin is not None:
            guard.stdin.write(f"{folder.absolute()}\n")
            guard.stdin.flush()


@contextlib.contextmanager
def guarded() -> Iterator[None]:
    """All that is started in here ends with this process, however that ends, or with an interruption."""
    ensure()
    try:
        with marked_tools():
            yield
    except BaseException as error:
        if not isinstance(error, Exception):  # Ctrl-C may come between a start and what would end it
            end_run(run_mark())
        raise


def dismiss() -> None:
    """End the guard, which is no longer needed. Killed before its pipe is closed, it does nothing."""
    guard = _guards.pop(os.getpid(), None)
    if guard is not None:
        guard.kill()
        guard.wait()
        _close(guard)


def end(mark: str, folders: list[str]) -> None:
    """What the guard does: end every process of a run, and remove what it leaves in these folders."""
    end_run(mark, GRACE_S)
    for name, path in leftovers_in(map(Path, folders)):
        if name.startswith(mark):
            with contextlib.suppress(OSError):
                remove(path)


def sweep(*folders: Path) -> int:
    """End what runs left whose process was killed together with its guard; how many processes there were.

    In these folders, all that is of a run that has ended is removed.
    """
    found = orphans()
    kill(found)
    for name, path in leftovers_in(folders):
        owner = Owner.of(name)
        with contextlib.suppress(OSError):
            if owner is not None and owner.gone and path.lstat().st_uid == os.getuid():
                remove(path)
    return len(found)


def _started() -> subprocess.Popen[str]:
    package = str(Path(__file__).parents[3])
    paths = [*(os.path.abspath(path) for path in sys.path if path), package, str(Path(psutil.__file__).parents[1])]
    # All that an interpreter needs to be found and loaded; but it is no part of a launch that we may be in.
    environment = {name: value for name, value in os.environ.items() if name != MARK}
    with tagged():
        return subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _SCRIPT, run_mark(), *dict.fromkeys(paths)],
            cwd="/",
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            encoding=sys.getfilesystemencoding(),  # for the names of folders
            errors=sys.getfilesystemencodeerrors(),
        )


def _close(guard: subprocess.Popen[str]) -> None:
    with contextlib.suppress(OSError):
        if guard.stdin is not None:
            guard.stdin.close()


def _in_child() -> None:
    """A child that is forked from us closes its end of the pipe, and leaves the guard alone."""
    while _guards:
        _, guard = _guards.popitem()
        guard.returncode = 0  # it is not our child: nobody waits for it here
        _close(guard)


atexit.register(dismiss)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)
