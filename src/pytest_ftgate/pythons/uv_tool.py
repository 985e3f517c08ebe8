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
    """This process's environment without the variables by which uv would prefer another environment or Python."""
    ignored = {"VIRTUAL_ENV", "CONDA_PREFIX", "UV_PYTHON", "PYTHONHOME", "PYTHONPATH"}
    return {name: value for name, value in os.environ.items() if name not in ignored} | dict(extra or {})
