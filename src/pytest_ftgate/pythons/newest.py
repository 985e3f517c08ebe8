"""The targets where none is named: both builds of the newest version that the project and this machine have."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

from packaging.specifiers import InvalidSpecifier, SpecifierSet

from ..model import Struct
from ..model.targets import OLDEST, parse_target
from .find import InterpreterNotFound, find_interpreter, kept_folder, known_cache
from .uv_tool import user_home

USUAL: Final = ("3.14", "3.15", "3.13")
"""Versions to install where the project allows none that is here, the preferred one first."""
_NAME: Final = re.compile(r"python(3\.\d+)(t?)")


class DefaultPair(Struct, frozen=True, kw_only=True):
    """Both builds of one version, and why it is that one; `allowed` is whether the project can be installed for it."""

    targets: tuple[str, str]
    why: str
    allowed: bool = True


class _Here(NamedTuple):
    """What is here of a version: whether all of it is released, and the versions of its builds."""

    released: bool
    builds: tuple[str, ...]
    series: str


def default_pair(requires_python: str = "", *, cache: Path | None = None) -> DefaultPair:
    """The newest version that `requires_python` allows and of which both builds are here, as uv would choose it.

    A pre-release is taken only if nothing else is allowed, and a version of which one build is here only if there is no
    other. Where a single version has an executable of its name, no interpreter is started; where none has, it is the
    usual one.
    """
    allows, said = _rule(requires_python), f" that requires-python {requires_python} allows" if requires_python else ""
    named = sorted(filter(allows, _named(cache or known_cache())), key=_number, reverse=True)
    if not named:
        usual = next(filter(allows, USUAL), None)
        why = f"no version{said} is here" if usual else f"no version{said} can be measured"
        return _pair(usual or USUAL[0], why, allowed=usual is not None)
    if len(named) == 1:
        return _pair(named[0], f"the only version here{said}")
    seen: list[_Here] = []
    for series in named:
        seen.append(_here(series, cache))
        if seen[-1].released and len(seen[-1].builds) > 1:
            break
    best = max(seen, key=lambda each: (each.released, len(each.builds), _number(each.series)))
    passed_over = [_refusal(each) for each in seen if _number(each.series) > _number(best.series)]
    return _pair(best.series, "; ".join([f"the newest version here{said}", *passed_over]))


def _pair(series: str, why: str, *, allowed: bool = True) -> DefaultPair:
    return DefaultPair(targets=(series, f"{series}t"), why=why, allowed=allowed)


def _rule(requires_python: str) -> Callable[[str], bool]:
    """Whether a project allows any release of a version: `<3.14.2` and `>=3.14.1` both leave some of 3.14."""
    try:
        allowed = SpecifierSet(requires_python)
    except InvalidSpecifier:
        return lambda _series: True  # the installation will say what is wrong with it
    return lambda series: any(allowed.contains(f"{series}.{patch}") for patch in range(30))


def _named(cache: Path | None) -> set[str]:
    """The versions that have an executable of their name on PATH, in our cache, or among uv's interpreters."""
    on_path = (Path(folder) for folder in os.environ.get("PATH", "").split(os.pathsep) if os.path.isabs(folder))
    in_prefixes = (path for folder in _prefixes(cache) for path in folder.glob("[!.]*/bin"))
    names = {name for folder in (*on_path, *in_prefixes) for name in _files(folder)}
    versions = {match[1] for match in map(_NAME.fullmatch, names) if match}
    return {version for version in versions if _number(version) >= OLDEST}


def _prefixes(cache: Path | None) -> Iterator[Path]:
    """None that depends on a home where there is none."""
    if cache is not None:
        yield kept_folder(cache)
    home, given = user_home(), os.environ.get("UV_PYTHON_INSTALL_DIR", "")
    data = os.environ.get("XDG_DATA_HOME") or (home and home / ".local/share")
    if given or data:
        yield Path(given or Path(data or "", "uv/python"))


def _files(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


def _here(series: str, cache: Path | None) -> _Here:
    found = []
    for target in _pair(series, "").targets:
        with contextlib.suppress(InterpreterNotFound):
            found.append(find_interpreter(parse_target(target), cache=cache).name)
    return _Here(bool(found) and not any(map(_is_early, found)), tuple(found), series)


def _is_early(version: str) -> bool:
    return re.search(r"\d(a|b|rc)\d", version) is not None


def _refusal(seen: _Here) -> str:
    early = [version for version in seen.builds if _is_early(version)]
    if early:
        return f"{early[0]} is a pre-release, which has to be named"
    if not seen.builds:
        return f"{seen.series} does not run"
    return f"of {seen.series} only {seen.builds[0]} is here"


def _number(series: str) -> tuple[int, int]:
    major, minor = series.split(".")
    return int(major), int(minor)
