"""Provide the interpreter of a target: find it, else install it with uv."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from ..kit import units
from ..kit.errors import FtgateError
from ..kit.processes import run_within
from ..model.spec import Interpreter, Target, is_path
from .describe import FOUND, describe
from .environments import find_uv, uv_environment
from .find import InterpreterNotFound, cache_folder, find_interpreter, kept_folder

UV_TIMEOUT_S: Final = 900.0


def provide(
    target: Target, *, cache: Path | None = None, progress: Callable[[str], None] = lambda _: None
) -> tuple[Interpreter | None, str, list[str]]:
    """The interpreter of `target` or None, how it was provided, and why it was not.

    `progress` gets a line about the current step, several times a second.
    """
    started = time.monotonic()
    try:
        found = find_interpreter(target, cache=cache)
        return found, FOUND[found.found], []
    except InterpreterNotFound as error:
        notes = [str(error).partition("\n  fix: run")[0]]  # what it advises to run is this
    if not is_path(target.request):
        try:
            # Into our own folder.
            folder = kept_folder(cache or cache_folder())
            folder.mkdir(parents=True, exist_ok=True)
            variables = {"UV_PYTHON_INSTALL_DIR": str(folder)}
            _run_uv(["python", "install", "--no-bin", "--no-config", target.request], variables, progress)
            words = ["python", "find", "--managed-python", "--no-python-downloads", "--no-project", "--no-config"]
            executable = _run_uv([*words, "--system", target.request], variables, progress).strip()
            interpreter = describe(executable, found="cache", settings=target.settings)
            took_s = time.monotonic() - started
            return interpreter, "installed by uv" + (f" in {units.span(took_s)}" if took_s >= 1 else ""), []
        except FtgateError as error:
            notes.append(str(error))
        except OSError as error:
            fix = "set HOME or XDG_CACHE_HOME to a folder that can be written"
            notes.append(f"{error.filename}: {error.strerror}; {fix}")
    return None, "missing", notes


def _run_uv(arguments: list[str], variables: dict[str, str], progress: Callable[[str], None]) -> str:
    """What uv printed. Raises FtgateError with its message."""
    done = run_within(
        [find_uv(), *arguments],
        environment=uv_environment(variables),
        on_wait=lambda: progress("uv is downloading"),
        own_s=UV_TIMEOUT_S,
    )
    if done.returncode:
        lines = [line.strip().removeprefix("error: ") for line in done.stderr.splitlines() if line.strip()]
        said = f"{lines[0]} ({lines[-1]})" if len(lines) > 1 else "".join(lines) or "it printed nothing"
        raise FtgateError(f"uv {' '.join(arguments[:2])} failed: {said}")
    return done.stdout
