"""Find the interpreter of a target: a path, PATH, our own cache folder, then uv."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from ..errors import FtgateError
from ..model import Interpreter, Target
from ..model.targets import OLDEST, is_path, parse_version, series
from .describe import Facts, InterpreterBroken, collect, describe
from .uv_tool import UvMissing, run_uv, user_cache


class InterpreterNotFound(FtgateError):
    """No interpreter matches a target; the message has the rejected ones and a fix."""


def cache_folder() -> Path:
    """The plugin's folder in the user's cache: `$XDG_CACHE_HOME/pytest-ftgate`, else under `~/.cache`.

    Raises FtgateError without a home.
    """
    cache = user_cache()
    if cache is None:
        raise FtgateError(
            f"there is no folder to keep interpreters in: HOME is not set, and user {os.getuid()} is unknown to this "
            "system; set HOME or XDG_CACHE_HOME to a folder that can be written"
        )
    return cache / "pytest-ftgate"


def known_cache() -> Path | None:
    """As `cache_folder`, to look for what is in it; None without a home."""
    return None if user_cache() is None else cache_folder()


def kept_folder(cache: Path) -> Path:
    """Where uv installs interpreters for us; any other that is put there is found, too."""
    return cache / "pythons"


def find_interpreter(target: Target, *, cache: Path | None = None) -> Interpreter:
    """The interpreter that matches `target`, described with the target's settings.

    `cache` is the plugin's cache folder (default: `cache_folder()`, none without a home). Candidates that do not run,
    or have another version or build, are skipped. Raises InterpreterNotFound, with the rejected ones and a fix.
    """
    if is_path(target.request):
        return _at_path(target)
    version, threaded = parse_version(target.request)
    rejected: list[str] = []
    for executable, found in _candidates(version, threaded, cache or known_cache()):
        try:
            facts = collect(executable)
        except InterpreterBroken as error:
            rejected.append(str(error))
            continue
        if not _matches(facts, version, threaded):
            rejected.append(f"{executable} is {facts.version}{'t' if facts.free_threaded else ''}")
            continue
        # A shim or a virtual environment starts another executable: measure that one.
        real = facts.base_executable if os.path.isfile(facts.base_executable) else executable
        return describe(real, found=found, settings=target.settings)
    raise InterpreterNotFound(_not_found(target, rejected))


def _at_path(target: Target) -> Interpreter:
    path = os.path.abspath(os.path.expanduser(target.request))
    if not os.path.isfile(path):
        raise InterpreterNotFound(f"target {target.spec!r}: no such file: {path}; give the path of an executable")
    try:
        interpreter = describe(path, found="path", settings=target.settings)
    except InterpreterBroken as error:
        raise InterpreterNotFound(f"target {target.spec!r}: {error}; give the path of a working Python") from error
    if interpreter.implementation != "cpython" or _numbers(interpreter.version) < OLDEST:
        raise InterpreterNotFound(
            f"target {target.spec!r} is {interpreter.implementation} {interpreter.version}: "
            f"targets are CPython {OLDEST[0]}.{OLDEST[1]} and newer"
        )
    return interpreter


def _candidates(version: str, threaded: bool, cache: Path | None) -> Iterator[tuple[str, str]]:
    names = _names(version, threaded)
    seen: set[str] = set()
    for executable, found in _all_candidates(names, version, threaded, cache):
        if executable not in seen:
            seen.add(executable)
            yield executable, found


def _all_candidates(names: list[str], version: str, threaded: bool, cache: Path | None) -> Iterator[tuple[str, str]]:
    for executable in _on_path(names):
        yield executable, "PATH"
    for executable in _in_prefixes(kept_folder(cache), names) if cache is not None else ():
        yield executable, "cache"
    by_uv = _by_uv(version, threaded)
    if by_uv is not None:
        yield by_uv, "uv"


def _names(version: str, threaded: bool) -> list[str]:
    plain = f"python{series(version)}"
    names = [f"{plain}t", plain] if threaded else [plain]
    return [f"{name}.exe" for name in (*names, "python")] if sys.platform == "win32" else names


def _on_path(names: list[str]) -> Iterator[str]:
    folders = [folder for folder in os.environ.get("PATH", "").split(os.pathsep) if os.path.isabs(folder)]
    for name in names:
        for folder in folders:
            path = os.path.join(folder, name)
            if os.path.isfile(path) and os.access(path, os.X_OK):
                yield path


def _in_prefixes(folder: Path, names: list[str]) -> Iterator[str]:
    # Names that start with a dot are unfinished work, of uv or of the plugin.
    prefixes = sorted((path for path in folder.glob("[!.]*") if path.is_dir()), key=_natural, reverse=True)
    for prefix in prefixes:
        for name in names:
            path = prefix / name if sys.platform == "win32" else prefix / "bin" / name
            if path.is_file():
                yield str(path)


def _natural(path: Path) -> tuple[list[int], str]:
    return [int(number) for number in re.findall(r"\d+", path.name)], path.name


def _by_uv(version: str, threaded: bool) -> str | None:
    request = f"cpython-{version}{'t' if threaded else ''}"
    try:
        done = run_uv(["python", "find", "--no-python-downloads", "--no-project", "--no-config", "--system", request])
    except UvMissing:
        return None
    path = done.stdout.strip()
    return path if done.returncode == 0 and os.path.isfile(path) else None


def _matches(facts: Facts, version: str, threaded: bool) -> bool:
    same = facts.version == version or facts.version.startswith(f"{version}.")
    return facts.implementation == "cpython" and same and facts.free_threaded == threaded


def _numbers(version: str) -> tuple[int, int]:
    major, minor = series(version).split(".")
    return int(major), int(minor)


def _not_found(target: Target, rejected: list[str]) -> str:
    lines = [f"no interpreter found for the target {target.spec!r}: not on PATH, not in the cache, not known to uv"]
    lines += [f"  skipped: {reason}" for reason in rejected]
    lines.append(
        f"  fix: run `ftgate pythons --target {target.request}` or `uv python install {target.request}`, "
        f"or give a path as the target"
    )
    return "\n".join(lines)
