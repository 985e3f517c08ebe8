"""Provide the interpreter of a target: find it, else install it with uv, else build it."""

from __future__ import annotations

import time
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Final

from ..errors import FtgateError
from ..model import Interpreter, Struct, Target
from ..model.targets import is_path, parse_version
from .build import APT_PACKAGES, build_from_source, missing_headers, missing_modules
from .describe import describe
from .find import InterpreterNotFound, cache_folder, find_interpreter, uv_folder
from .source_package import OnProgress
from .uv_tool import find_uv, uv_environment
from .waiting import run_within

UV_TIMEOUT_S: Final = 900.0


class InterpreterSource(StrEnum):
    """Where an interpreter may come from; `auto` tries the others in this order."""

    AUTO = "auto"
    PATH = "path"
    UV = "uv"
    BUILD = "build"


class Provided(Struct, frozen=True):
    """The interpreter of one target, or None; `did` tells how it was provided, `notes` what failed before."""

    target: Target
    interpreter: Interpreter | None
    did: str
    notes: tuple[str, ...] = ()
    took_s: float = 0.0


def _quiet(_line: str) -> None:
    """Show no progress."""


def provide(
    target: Target,
    *,
    source: InterpreterSource = InterpreterSource.AUTO,
    cache: Path | None = None,
    jobs: int = 1,
    pgo: bool = False,
    progress: OnProgress = _quiet,
) -> Provided:
    """Provide the interpreter of `target`; if it cannot be provided, `interpreter` is None and `notes` tell why."""
    started = time.monotonic()
    not_found = ""
    notes: list[str] = []
    try:
        if source is InterpreterSource.AUTO or source is InterpreterSource.PATH or is_path(target.request):
            found = find_interpreter(target, cache=cache)
            return Provided(target=target, interpreter=found, did=_did_find(found))
    except InterpreterNotFound as error:
        # What it advises to run is this, unless nothing more is tried.
        not_found = str(error) if source is InterpreterSource.PATH else str(error).partition("\n  fix: run")[0]
    ways: dict[InterpreterSource, Callable[[], str]] = {
        InterpreterSource.UV: lambda: _install_by_uv(target, cache or cache_folder(), progress),
        InterpreterSource.BUILD: lambda: _build(target, cache or cache_folder(), jobs, pgo, progress, notes),
    }
    for way, act in ways.items():
        if source not in (InterpreterSource.AUTO, way) or is_path(target.request):
            continue
        try:
            executable = act()
            did = "installed by uv" if way is InterpreterSource.UV else "built from source"
            interpreter = describe(executable, found=f"cache: {did}", settings=target.settings)
        except FtgateError as error:
            notes.append(str(error))
            continue
        except OSError as error:
            fix = "set HOME or XDG_CACHE_HOME to a folder that can be written"
            notes.append(f"{error.filename}: {error.strerror}; {fix}")
            continue
        took_s = time.monotonic() - started
        return Provided(target=target, interpreter=interpreter, did=did, notes=tuple(notes), took_s=took_s)
    return Provided(
        target=target, interpreter=None, did="missing", notes=tuple(dict.fromkeys(filter(None, [not_found, *notes])))
    )


def _did_find(interpreter: Interpreter) -> str:
    words = {"PATH": "found on PATH", "path": "found at its path", "uv": "found by uv"}
    return words.get(interpreter.found, f"found in the {interpreter.found}")


def _install_by_uv(target: Target, cache: Path, progress: OnProgress) -> str:
    """`uv python install` into our own folder; the executable's path. Raises FtgateError with uv's message."""
    folder = uv_folder(cache)
    folder.mkdir(parents=True, exist_ok=True)
    # Few and short attempts: without a network, the build from source comes next.
    variables = {"UV_PYTHON_INSTALL_DIR": str(folder), "UV_HTTP_TIMEOUT": "20", "UV_HTTP_RETRIES": "1"}
    _run_with_progress(["python", "install", "--no-bin", "--no-config", target.request], variables, progress)
    arguments = ["python", "find", "--managed-python", "--no-python-downloads", "--no-project", "--no-config"]
    return _run_with_progress([*arguments, "--system", target.request], variables, progress).strip()


def _run_with_progress(arguments: list[str], variables: dict[str, str], progress: OnProgress) -> str:
    done = run_within(
        [find_uv(), *arguments],
        environment=uv_environment(variables),
        on_wait=lambda: progress("uv is downloading"),
        own_s=UV_TIMEOUT_S,
    )
    if done.returncode:
        raise FtgateError(f"uv {' '.join(arguments[:2])} failed: {_first_and_last(done.stderr)}")
    return done.stdout


def _first_and_last(output: str) -> str:
    lines = [line.strip().removeprefix("error: ") for line in output.splitlines() if line.strip()]
    return f"{lines[0]} ({lines[-1]})" if len(lines) > 1 else "".join(lines) or "it printed nothing"


def _build(target: Target, cache: Path, jobs: int, pgo: bool, progress: OnProgress, notes: list[str]) -> str:
    version, threaded = parse_version(target.request)
    packages = missing_headers()
    built = build_from_source(version, free_threaded=threaded, cache=cache, jobs=jobs, pgo=pgo, progress=progress)
    prefix = built.parent.parent
    modules = missing_modules(prefix)
    if modules:
        fix = f"apt install {' '.join(packages) or APT_PACKAGES}, remove {prefix} and run again"
        notes.append(f"it was built without {', '.join(modules)}: {fix}")
    return str(built)
