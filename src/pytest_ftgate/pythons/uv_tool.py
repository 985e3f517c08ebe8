"""Find uv and run it."""

from __future__ import annotations

import math
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from ..errors import FtgateError


class UvMissing(FtgateError):
    """uv is neither installed next to the plugin nor on PATH."""


def find_uv() -> str:
    """The path of uv: the one installed with the plugin, else the one on PATH. Raises UvMissing."""
    try:
        from uv import find_uv_bin

        return str(find_uv_bin())
    except (ImportError, FileNotFoundError):
        pass
    on_path = shutil.which("uv")
    if on_path is None:
        raise UvMissing("uv was not found: install it next to the plugin (pip install uv) or put it on PATH")
    return on_path


def run_uv(
    arguments: Sequence[str],
    *,
    cwd: Path | None = None,
    environment: Mapping[str, str] | None = None,
    timeout_s: float | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run uv and capture its output as text; the caller checks the exit code.

    `environment` is added to this process's. Raises UvMissing, and subprocess.TimeoutExpired past `timeout_s`.
    """
    return subprocess.run(
        [find_uv(), *arguments],
        cwd=cwd,
        env=uv_environment(environment),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=timeout_s,
    )


def run_watched(
    words: Sequence[str],
    *,
    environment: Mapping[str, str],
    on_wait: Callable[[], None],
    cwd: Path | None = None,
    stderr: int = subprocess.STDOUT,
    timeout_s: float = math.inf,
) -> subprocess.CompletedProcess[str]:
    """Run a program that may take minutes; `on_wait` is called as it begins and every second.

    With STDOUT as `stderr` its two outputs are one. It is killed past `timeout_s`. Raises OSError if it cannot be
    started.
    """
    ends_s = time.monotonic() + timeout_s
    with subprocess.Popen(
        words,
        cwd=cwd,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=stderr,
        text=True,
        errors="replace",
    ) as process:
        try:
            while True:
                on_wait()
                try:
                    output, errors = process.communicate(timeout=1.0)
                    return subprocess.CompletedProcess(process.args, process.returncode, output, errors)
                except subprocess.TimeoutExpired:
                    if time.monotonic() > ends_s:
                        process.kill()
        except BaseException:
            process.kill()
            raise


def uv_environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """This process's environment without the variables by which uv would prefer another environment or Python.

    uv keeps no cache where it could not write one; without a home it would make one in the working directory.
    """
    ignored = {"VIRTUAL_ENV", "CONDA_PREFIX", "UV_PYTHON", "PYTHONHOME", "PYTHONPATH"}
    kept = {name: value for name, value in os.environ.items() if name not in ignored}
    if "UV_CACHE_DIR" not in kept and not _can_be_written(user_cache()):
        kept["UV_NO_CACHE"] = "1"
    return kept | dict(extra or {})


def user_home() -> Path | None:
    """The user's home; None where HOME is not set and the system does not know the user, as in a container."""
    home = os.path.expanduser("~")
    return Path(home) if os.path.isabs(home) else None


def user_cache() -> Path | None:
    """The folder of the user's caches: `$XDG_CACHE_HOME`, else `~/.cache`; None without a home."""
    given, home = os.environ.get("XDG_CACHE_HOME", ""), user_home()
    if os.path.isabs(given):
        return Path(given)
    return None if home is None else home / ".cache"


def _can_be_written(folder: Path | None) -> bool:
    """Whether a folder is there and can be written, or can be made."""
    if folder is None:
        return False
    there = next(each for each in (folder, *folder.parents) if each.exists())
    return there.is_dir() and os.access(there, os.W_OK | os.X_OK)
