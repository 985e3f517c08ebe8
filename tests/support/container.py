"""Runs a command as in a container: in mounts of its own, as a user that nobody knows, within limits."""

from __future__ import annotations

import os
import secrets
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import pytest

FORGOTTEN = ("HOME", "USER", "LOGNAME", "XDG_CACHE_HOME", "XDG_DATA_HOME", "UV_CACHE_DIR")


@cache
def refusal() -> str:
    """Why there can be no container here; empty if there can."""
    if sys.platform != "linux" or os.geteuid() != 0:
        return "needs root on Linux"
    if missing := [name for name in ("unshare", "setpriv", "prlimit", "mount") if shutil.which(name) is None]:
        return f"needs {', '.join(missing)} (Debian: util-linux)"
    done = subprocess.run(
        ["unshare", "--mount", "mount", "-t", "tmpfs", "none", "/mnt"], capture_output=True, text=True
    )
    return f"mounts are not permitted here: {done.stderr.strip()}" if done.returncode else ""


class Container:
    """A folder `project` of the unknown user, and commands in it."""

    def __init__(self, folder: Path, python: str) -> None:
        self.folder = folder
        self.uid = secrets.randbelow(10**6) + 10**6  # a limit of processes counts all of a user
        self.project = folder / "project"
        self.python = python
        self.project.mkdir()
        self.tmp = folder / "tmp"
        self.tmp.mkdir()
        self.give(self.tmp)

    def give(self, path: Path, uid: int | None = None) -> None:
        """Let everything in a folder be this user's, the unknown one's for None."""
        uid = self.uid if uid is None else uid
        subprocess.run(["chown", "-R", f"{uid}:{uid}", str(path)], check=True)

    def run(
        self, *words: str, mounts: Sequence[str] = (), limits: Sequence[str] = (), **variables: str
    ) -> subprocess.CompletedProcess[str]:
        """Run it in the project without a home. `mounts` are commands of a shell, `limits` options of prlimit."""
        forgotten = [word for name in FORGOTTEN for word in ("-u", name)]
        given = {"PATH": f"{Path(self.python).parent}:{os.environ['PATH']}", "TMPDIR": str(self.tmp), "COLUMNS": "200"}
        named = [f"{name}={value}" for name, value in (given | variables).items()]
        user = ["setpriv", f"--reuid={self.uid}", f"--regid={self.uid}", "--clear-groups"]
        inner = ["prlimit", *limits, *user, "env", *forgotten, *named, *words]
        script = "; ".join(["set -e", *self._opened(), *mounts, f"cd {self.project}", shlex.join(inner)])
        return subprocess.run(
            ["unshare", "--mount", "--propagation", "private", "sh", "-c", script],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=300,
        )

    def _opened(self) -> Iterator[str]:
        """Commands that let another user pass the folders of the interpreters, such as root's home."""
        used = [Path(path).resolve() for path in (sys.executable, self.python)] + [Path(sys.prefix)]
        closed = {
            folder
            for path in used
            for folder in [next((each for each in reversed(path.parents) if not each.stat().st_mode & 0o001), None)]
            if folder is not None
        }
        for folder in sorted(closed):
            shadow = self.folder / f"shadow-{folder.name}"
            yield f"mkdir -p {shadow}"
            for child in sorted(
                {folder / path.relative_to(folder).parts[0] for path in used if path.is_relative_to(folder)}
            ):
                yield f"mkdir -p {shadow / child.name}"
                yield f"mount --rbind {child} {shadow / child.name}"
            yield f"mount --rbind {shadow} {folder}"


@contextmanager
def container(python: str) -> Iterator[Container]:
    """One in a folder that others may enter; removed at the end. Skips the test where there can be none."""
    if why := refusal():
        pytest.skip(f"no container can be made: {why}")
    folder = Path(tempfile.mkdtemp(prefix="ftgate-container-"))
    folder.chmod(0o755)
    try:
        yield Container(folder, python)
    finally:
        shutil.rmtree(folder)
