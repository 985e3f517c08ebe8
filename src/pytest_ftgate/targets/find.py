"""Find the interpreter of a target: a path, or its name in the folders of PATH and of uv.

By names, as `uv python list` starts all that is called python: with pyenv's shims each collection takes seconds.
"""

from __future__ import annotations

import contextlib
import os
import re
from pathlib import Path
from typing import Final

from packaging.specifiers import InvalidSpecifier, SpecifierSet

from ..kit.errors import FtgateError
from ..kit.values import Struct
from ..model.spec import OLDEST, Interpreter, Target, is_path, parse_target, parse_version, series
from .describe import InterpreterBroken, collect, describe
from .environments import user_cache, user_home


class InterpreterNotFound(FtgateError):
    """No interpreter matches a target; the message has the rejected ones and a fix."""


def find_interpreter(target: Target) -> Interpreter:
    """The interpreter that matches `target`, described with the target's settings.

    Candidates that do not run, or have another version or build, are skipped. Raises InterpreterNotFound, with the
    rejected ones and a fix.
    """
    if is_path(target.request):
        return _at_path(target)
    version, threaded = parse_version(target.request)
    plain, rejected = f"python{series(version)}", list[str]()
    names = (f"{plain}t", plain) if threaded else (plain,)
    for executable in (os.path.join(folder, name) for name in names for folder in _folders()):
        if not os.access(executable, os.X_OK):
            continue
        try:
            facts = collect(executable)
        except InterpreterBroken as error:
            rejected.append(str(error))
            continue
        same = facts.version == version or facts.version.startswith(f"{version}.")
        if facts.implementation != "cpython" or not same or facts.free_threaded != threaded:
            rejected.append(f"{executable} is {facts.version}{'t' if facts.free_threaded else ''}")
            continue
        # A shim or a virtual environment starts another executable: measure that one.
        real = facts.base_executable if os.path.isfile(facts.base_executable) else executable
        return describe(real, found="by name", settings=target.settings)
    lines = [f"no interpreter found for the target {target.spec!r}: not on PATH, and uv has installed none"]
    lines += [f"  skipped: {reason}" for reason in rejected]
    lines.append(f"  fix: run `uv python install {target.request}`, or give a path as the target")
    raise InterpreterNotFound("\n".join(lines))


def _at_path(target: Target) -> Interpreter:
    path = os.path.abspath(os.path.expanduser(target.request))
    if not os.path.isfile(path):
        raise InterpreterNotFound(f"target {target.spec!r}: no such file: {path}; give the path of an executable")
    try:
        interpreter = describe(path, found="path", settings=target.settings)
    except InterpreterBroken as error:
        raise InterpreterNotFound(f"target {target.spec!r}: {error}; give the path of a working Python") from error
    if interpreter.implementation != "cpython" or _number(series(interpreter.version)) < OLDEST:
        raise InterpreterNotFound(
            f"target {target.spec!r} is {interpreter.implementation} {interpreter.version}: "
            f"targets are CPython {OLDEST[0]}.{OLDEST[1]} and newer"
        )
    return interpreter


def _folders() -> list[str]:
    """The folders of PATH, then those of what uv has installed and of what our Makefile has, the newest first."""
    home, cache = user_home(), user_cache()
    data = os.environ.get("XDG_DATA_HOME") or (home and home / ".local/share")
    own = os.environ.get("UV_PYTHON_INSTALL_DIR") or (data and Path(data, "uv/python"))
    kept = cache and cache / "pytest-ftgate/pythons"
    # Names that start with a dot are unfinished work.
    found = [path for folder in (own, kept) if folder for path in Path(folder).glob("[!.]*/bin")]
    found.sort(key=lambda path: [int(number) for number in re.findall(r"\d+", path.parent.name)], reverse=True)
    on_path = [folder for folder in os.environ.get("PATH", "").split(os.pathsep) if os.path.isabs(folder)]
    return [*dict.fromkeys(on_path), *map(str, found)]


# ---- the targets where none is named: both builds of the newest version that the project and this machine have

USUAL: Final = ("3.14", "3.15", "3.13")
"""Versions to install where the project allows none that is here, the preferred one first."""
_NAME: Final = re.compile(r"python(3\.\d+)(t?)")


class DefaultPair(Struct, frozen=True, kw_only=True):
    """Both builds of one version, and why it is that one."""

    targets: tuple[str, str]
    why: str


def default_pair(requires_python: str = "") -> DefaultPair:
    """The newest version that `requires_python` allows and of which both builds are here.

    A pre-release is taken only if nothing else is allowed, and a version of which one build is here only if there is no
    other. Where a single version has an executable of its name, no interpreter is started; where none has, it is the
    usual one.
    """
    said = f" that requires-python {requires_python} allows" if requires_python else ""
    try:
        allowed = SpecifierSet(requires_python)
    except InvalidSpecifier:  # the installation will say what is wrong with it
        allowed = SpecifierSet()

    def allows(series: str) -> bool:
        """Whether a release of the version is allowed: `<3.14.2` and `>=3.14.1` both leave some of 3.14."""
        return any(allowed.contains(f"{series}.{patch}") for patch in range(30))

    named = sorted(filter(allows, _named()), key=_number, reverse=True)
    if not named:
        usual = next(filter(allows, USUAL), "")
        return _pair(usual or USUAL[0], f"no version{said} {'is here' if usual else 'can be measured'}")
    if len(named) == 1:
        return _pair(named[0], f"the only version here{said}")
    # The versions of both builds, from the newest on, until both are here and released.
    builds: dict[str, list[str]] = {}
    for each in named:
        builds[each] = []
        for target in _pair(each, "").targets:
            with contextlib.suppress(InterpreterNotFound):
                builds[each].append(find_interpreter(parse_target(target)).name)
        if len(builds[each]) > 1 and not any(map(_is_early, builds[each])):
            break

    def rank(series: str) -> tuple[bool, int, tuple[int, int]]:
        here = builds[series]
        return bool(here) and not any(map(_is_early, here)), len(here), _number(series)

    best = max(builds, key=rank)
    passed_over = []
    for each in (each for each in builds if _number(each) > _number(best)):
        if early := next(filter(_is_early, builds[each]), ""):
            passed_over.append(f"{early} is a pre-release, which has to be named")
        elif builds[each]:
            passed_over.append(f"of {each} only {builds[each][0]} is here")
        else:
            passed_over.append(f"{each} does not run")
    return _pair(best, "; ".join([f"the newest version here{said}", *passed_over]))


def _pair(series: str, why: str) -> DefaultPair:
    return DefaultPair(targets=(series, f"{series}t"), why=why)


def _named() -> set[str]:
    """The versions that have an executable of their name."""
    versions = set[str]()
    for folder in _folders():
        with contextlib.suppress(OSError):
            versions.update(match[1] for match in map(_NAME.fullmatch, os.listdir(folder)) if match)
    return {version for version in versions if _number(version) >= OLDEST}


def _is_early(version: str) -> bool:
    return re.search(r"\d(a|b|rc)\d", version) is not None


def _number(series: str) -> tuple[int, int]:
    major, minor = series.split(".")
    return int(major), int(minor)
