"""Find uv and run it."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from ..errors import FtgateError
from .waiting import run_within


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
    arguments: Sequence[str], *, cwd: Path | None = None, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run uv and capture its output as text; the caller checks the exit code.

    `environment` is added to this process's. Raises UvMissing, and TooLong.
    """
    return run_within([find_uv(), *arguments], cwd=cwd, environment=uv_environment(environment))


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
