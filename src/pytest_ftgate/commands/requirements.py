"""What a project's tests need beside the project itself: extras, groups, requirements files, plugins of pytest."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from ..kit.values import Struct
from . import inifile

NAMES: Final = ("test", "tests", "testing", "pytest", "ci", "dev")
"""Names of an extra, a group or a requirements file of the tests, the preferred one first."""
REQUIREMENT_FILES: Final = (
    "*.txt",
    "requirements/*.txt",
    "dependencies/*.txt",
    "dependencies/*.in",
    "tests/*.txt",
    "test/*.txt",
)
PLUGINS: Final = {
    "asyncio": "pytest-asyncio",
    "benchmark": "pytest-benchmark",
    "codspeed": "pytest-codspeed",
    "cov": "pytest-cov",
    "no-cov": "pytest-cov",
    "dist": "pytest-xdist",
    "n": "pytest-xdist",
    "numprocesses": "pytest-xdist",
    "xdist": "pytest-xdist",
    "ds": "pytest-django",
    "django": "pytest-django",
    "doctest-plus": "pytest-doctestplus",
    "forked": "pytest-forked",
    "html": "pytest-html",
    "hypothesis": "hypothesis",
    "mpl": "pytest-mpl",
    "mypy": "pytest-mypy",
    "parallel-threads": "pytest-run-parallel",
    "random-order": "pytest-random-order",
    "randomly": "pytest-randomly",
    "remote-data": "pytest-remotedata",
    "reruns": "pytest-rerunfailures",
    "rerunfailures": "pytest-rerunfailures",
    "ruff": "pytest-ruff",
    "disable-socket": "pytest-socket",
    "snapshot": "syrupy",
    "timeout": "pytest-timeout",
}
"""What an option, an ini key or a module of a plugin begins with, and its distribution. No name is ever guessed."""


class Needs(Struct, frozen=True, kw_only=True):
    """What to install for the tests: extras and groups of the project, arguments of `uv pip install`, and plugins.

    `place` is the option of `uv add` for the group or extra that lists pytest, "" if none does.
    `plugins` are the distributions that pytest's configuration needs and nothing else here names; `declares_us` is
    whether pytest-ftgate is among the rest.
    """

    extras: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    arguments: tuple[str, ...] = ()
    plugins: tuple[str, ...] = ()
    place: tuple[str, ...] = ()
    declares_us: bool = False


def needs_of(root: Path, tables: Mapping[str, Any], older: Mapping[str, Any], ini: Mapping[str, Any]) -> Needs:
    """What the tests of the project in `root` need, by its pyproject.toml, setup.cfg and pytest's ini keys.

    Extras and groups are its own word; without them tox's dependencies are taken, else a requirements file.
    """
    project = tables.get("project", {})
    sections = older.get("options.extras_require", {})
    extras = {**sections, **project.get("optional-dependencies", {})}
    groups = tables.get("dependency-groups", {})
    chosen = {kind: tuple(name for name in NAMES if name in held) for kind, held in (("e", extras), ("g", groups))}
    arguments = () if chosen["e"] or chosen["g"] else _of_tox(root, tables) or _of_files(root)
    known = _names([*project.get("dependencies", []), *arguments])
    known.update(*(_names(extras[name]) for name in chosen["e"]), *(_names(groups[name]) for name in chosen["g"]))
    known |= {name for file in _files_of(arguments) for name in _listed(root / file)}
    return Needs(
        extras=chosen["e"],
        groups=chosen["g"],
        arguments=arguments,
        plugins=tuple(name for name in dict.fromkeys(_plugins(ini)) if _normal(name) not in known),
        place=_place(extras, groups),
        declares_us="pytest-ftgate" in known,
    )


def _place(extras: Mapping[str, Any], groups: Mapping[str, Any]) -> tuple[str, ...]:
    """The option of `uv add` for the group or extra of any name that lists pytest itself, else for one by its name."""
    held = {("--group", name): words for name, words in groups.items()}
    held |= {("--optional", name): words for name, words in extras.items()}

    def rank(place: tuple[str, str]) -> tuple[bool, int]:
        return "pytest" not in _names(held[place]), NAMES.index(place[1]) if place[1] in NAMES else len(NAMES)

    return min((each for each in held if each[1] in NAMES or not rank(each)[0]), key=rank, default=())


def _names(words: Any) -> set[str]:
    """The distributions that a list of requirements, or lines of setup.cfg, names."""
    listed = words.splitlines() if isinstance(words, str) else [word for word in words if isinstance(word, str)]
    return {match[0] for each in listed for match in [re.match(r"[a-z0-9-]+", _normal(each))] if match}


def _of_tox(root: Path, tables: Mapping[str, Any]) -> tuple[str, ...]:
    """The dependencies of tox's usual environment, without those of single factors; none of what it would fill in."""
    told = inifile.parse(root / "tox.ini").get("testenv", {}).get("deps", "")
    native = tables.get("tool", {}).get("tox", {}).get("env_run_base", {}).get("deps", [])
    words: list[str] = []
    for line in (*inifile.lines(told), *(each for each in native if isinstance(each, str))):
        dependency = re.sub(r"\{(toxinidir|tox_root)\}\{?/\}?", "", line.partition(" #")[0].strip()).replace("{/}", "/")
        if not dependency or "{" in dependency or re.match(r"[\w.,!-]+:\s", dependency):
            continue
        option = re.match(r"(-r|-c|--requirement|--constraint)[\s=]*(.+)", dependency)
        words += [option[1], option[2]] if option else [dependency]
    return tuple(words) if all((root / file).is_file() for file in _files_of(tuple(words))) else ()


def _of_files(root: Path) -> tuple[str, ...]:
    """The best requirements file of the tests."""
    found = {path.relative_to(root).as_posix() for pattern in REQUIREMENT_FILES for path in root.glob(pattern)}
    ranks = {name: rank for name in sorted(found) if (rank := _rank(name)) is not None}
    return ("-r", min(ranks, key=lambda name: ranks[name])) if ranks else ()


def _rank(name: str) -> int | None:
    """The place in NAMES of `requirements/test.txt`, `dev-requirements.txt`, `tests/requirements.txt` and such."""
    words = re.split(r"[/_.-]", name.lower())[:-1]
    rest = [word for word in words if word not in ("requirements", "requirement", "reqs", "dependencies")]
    return NAMES.index(rest[0]) if len(rest) == 1 and len(words) > 1 and rest[0] in NAMES else None


def _files_of(arguments: tuple[str, ...]) -> list[str]:
    return [value for option, value in pairwise(arguments) if option in ("-r", "--requirement")]


def _listed(path: Path, seen: frozenset[Path] = frozenset()) -> Iterator[str]:
    """The names that a requirements file lists, and those of the files that it includes."""
    if path in seen or not path.is_file():
        return
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        included = re.match(r"\s*(?:-r|--requirement)[\s=]*(\S+)", line)
        if included:
            yield from _listed(path.parent / included[1], seen | {path})
        elif name := re.match(r"\s*([A-Za-z0-9][\w.-]*)", line):
            yield _normal(name[1])


def _plugins(ini: Mapping[str, Any]) -> Iterator[str]:
    """The distributions that pytest's configuration needs: `required_plugins`, `-p`, options and keys of plugins."""
    for name in inifile.words(ini.get("required_plugins")):
        yield re.split(r"[\s<>=!~\[;]", name)[0]
    options = inifile.words(ini.get("addopts"))
    modules = [option[2:] or value for option, value in pairwise([*options, ""]) if option.startswith("-p")]
    named = [re.sub(r"^pytest_|\.plugin$", "", module) for module in modules]
    named += ["n" for option in options if re.fullmatch(r"-n(\d+|auto|logical)?", option)]
    named += [option[2:] for option in options if option.startswith("--")]
    for name in (*named, *ini):
        word = _normal(name.partition("=")[0])
        yield from (PLUGINS[start] for start in PLUGINS if word == start or word.startswith(f"{start}-"))


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).strip().lower()
