"""Find uv and run it."""

from __future__ import annotations

import contextlib
import math
import os
import shutil
import signal
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
        start_new_session=True,
    ) as process:
        try:
            while True:
                on_wait()
                try:
                    output, errors = process.communicate(timeout=1.0)
                    return subprocess.CompletedProcess(process.args, process.returncode, output, errors)
                except subprocess.TimeoutExpired:
                    if time.monotonic() > ends_s:
                        _kill_group(process)
        except BaseException:
            _kill_group(process)
            raise


def _kill_group(process: subprocess.Popen[str]) -> None:
    """Kill a program that leads a session with what it has started there: a compiler would go on, and keep its pipe."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)


def uv_environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """This process's environment without the variables by which uv would prefer another environment or Python."""
    ignored = {"VIRTUAL_ENV", "CONDA_PREFIX", "UV_PYTHON", "PYTHONHOME", "PYTHONPATH"}
    return {name: value for name, value in os.environ.items() if name not in ignored} | dict(extra or {})
