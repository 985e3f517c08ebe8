"""The file from which pytest takes a project's ini keys: found as pytest finds it, and extended by a few keys."""

from __future__ import annotations

import configparser
import copy
import json
import re
import shlex
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import msgspec

from ..errors import FtgateError
from ..model import Struct

Keys = Mapping[str, str | tuple[str, ...]]
"""Ini keys to add: a text, or several words."""

ALWAYS: Final = {"pytest.toml": "pytest", ".pytest.toml": "pytest", "pytest.ini": "pytest", ".pytest.ini": "pytest"}
"""Files that are pytest's own, with their section: pytest reads them even where they are empty."""
SHARED: Final = {"pyproject.toml": "tool.pytest.ini_options", "tox.ini": "pytest", "setup.cfg": "tool:pytest"}
"""Files that are pytest's where they have the section."""
NATIVE: Final = "tool.pytest"
"""The other table of pyproject.toml, which pytest 9 and newer reads."""
_COMMENT: Final = "# pytest-ftgate: what pytest --ftgate measures, and with which interpreters"


class IniError(FtgateError):
    """A configuration file that cannot be read or added to; names the file, the line if it is known, and a fix."""


class IniFile(Struct, frozen=True, kw_only=True):
    """A file, the section that is pytest's in it, and what that holds; `text` is empty for a file to be made."""

    path: Path
    section: str
    text: str = ""
    values: Mapping[str, Any] = msgspec.field(default_factory=dict)


def find(folder: Path, top: Path) -> IniFile | None:
    """The file that pytest reads in `folder` or above it, up to `top`; None where it finds none. Raises IniError."""
    for place in (folder, *folder.parents):
        for name in (*_own_files(), *SHARED):
            path = place / name
            found = load(path) if path.is_file() else None
            if found is not None:
                return found
        if place == top:
            break
    return None


def load(path: Path) -> IniFile | None:
    """A file by its name, as pytest reads it; None where it has nothing for pytest. Raises IniError."""
    text = read(path)
    tree = parse(path, text)
    section = ALWAYS.get(path.name) or SHARED[path.name]
    if path.name == "pyproject.toml" and _native():
        table = tree.get("tool", {}).get("pytest", {})
        section = NATIVE if any(key != "ini_options" for key in table) else section
    values = _at(tree, _keys(path, section))
    if values is None and path.name not in ALWAYS:
        return None
    return IniFile(path=path, section=section, text=text, values=values or {})


def to_make(root: Path) -> IniFile:
    """Where the keys go in a project without pytest configuration: pyproject.toml, else a pytest.ini."""
    path = root / "pyproject.toml"
    if path.is_file():
        return IniFile(path=path, section=SHARED[path.name], text=read(path))
    return IniFile(path=root / "pytest.ini", section="pytest")


def words(value: Any) -> list[str]:
    """An ini value of several words, as pytest splits it."""
    return shlex.split(value) if isinstance(value, str) else [str(item) for item in value or ()]


def with_keys(ini: IniFile, keys: Keys) -> str:
    """The file's text with the keys in its section; everything else stays, byte for byte.

    The new text is parsed and compared with the old one. Raises IniError with the lines to be put in by hand.
    """
    before = parse(ini.path, ini.text)
    wanted = copy.deepcopy(before)
    section = wanted
    for name in _keys(ini.path, ini.section):
        section = section.setdefault(name, {})
    section.update({key: _value(ini, value) for key, value in keys.items()})
    end = "\r\n" if "\r\n" in ini.text else "\n"
    lines = [_COMMENT, *(_line(ini, key, value) for key, value in keys.items())]
    for head, added, tail in _places(ini, lines):
        text = _joined(head, added, tail, end)
        try:
            if parse(ini.path, text) == wanted:
                return text
        except IniError:
            continue
    by_hand = "\n".join(f"  {line}" for line in lines)
    raise IniError(f"{ini.path}: found no place for these lines; add them to its [{ini.section}]:\n{by_hand}")


def read(path: Path) -> str:
    """A file's text with its line ends as they are. Raises IniError."""
    try:
        return path.read_bytes().decode()
    except (OSError, UnicodeDecodeError) as error:
        raise IniError(f"{path}: cannot be read as UTF-8 text: {error}") from error


def parse(path: Path, text: str) -> dict[str, Any]:
    """All tables, or all sections, of a file. Raises IniError with the line at fault."""
    try:
        if path.suffix == ".toml":
            return tomllib.loads(text)
        parser = configparser.RawConfigParser(default_section="", strict=False)
        parser.optionxform = str  # type: ignore[assignment,method-assign]
        parser.read_string(text.replace("\r\n", "\n"))
        return {name: dict(parser[name]) for name in parser.sections()}
    except tomllib.TOMLDecodeError as error:
        found = re.search(r"at line (\d+)", str(error))
        line = found[1] if found else str(text.count("\n") + 1)
        raise IniError(f"{path}:{line}: this is not TOML: {error}; fix it and run again") from error
    except configparser.Error as error:
        lines = [error.lineno] if isinstance(error, configparser.MissingSectionHeaderError) else []
        lines += [number for number, _ in getattr(error, "errors", ())]
        place = f"{path}:{lines[0]}" if lines else str(path)
        what = "; ".join(line.strip() for line in str(error).splitlines())
        raise IniError(f"{place}: this is not an ini file: {what}; fix it and run again") from error


def _own_files() -> Iterator[str]:
    return (name for name in ALWAYS if _native() or not name.endswith(".toml"))


def _native() -> bool:
    """Whether the installed pytest reads tables with TOML's own types."""
    return int(version("pytest").partition(".")[0]) >= 9


def _keys(path: Path, section: str) -> list[str]:
    return section.split(".") if path.suffix == ".toml" else [section]


def _at(tree: Mapping[str, Any], keys: Sequence[str]) -> dict[str, Any] | None:
    found: Any = tree
    for key in keys:
        found = found.get(key) if isinstance(found, dict) else None
    return found if isinstance(found, dict) else None


def _value(ini: IniFile, value: str | tuple[str, ...]) -> Any:
    if ini.path.suffix == ".toml":
        return value if isinstance(value, str) else list(value)
    return value if isinstance(value, str) else shlex.join(value)


def _line(ini: IniFile, key: str, value: str | tuple[str, ...]) -> str:
    written = _value(ini, value)
    if ini.path.suffix == ".toml":
        return f"{key} = {json.dumps(written, ensure_ascii=False)}"
    return f"{key} = {written}".rstrip()


def _places(ini: IniFile, lines: list[str]) -> Iterator[tuple[list[str], list[str], list[str]]]:
    """Where the lines may go, best first: at the end of the section, else with a header of their own at the file's.

    What looks like a header may stand in a text of several lines: the caller tries and compares.
    """
    old = ini.text.splitlines(keepends=True)
    dots = r"\s*\.\s*".join(rf"[\"']?{re.escape(key)}[\"']?" for key in _keys(ini.path, ini.section))
    toml = ini.path.suffix == ".toml"
    header = re.compile(rf"\s*\[\s*{dots}\s*\]\s*(#.*)?$" if toml else rf"\[{re.escape(ini.section)}\]")
    following = re.compile(r"\s*\[" if toml else r"\[")
    for start in (number for number, line in enumerate(old) if header.match(line.rstrip("\r\n"))):
        ends = [number for number in range(start + 1, len(old)) if following.match(old[number])]
        for end in (*ends, len(old)):
            place = _without_gap(old, start + 1, end)
            yield old[:place], lines, old[place:]
    yield old, [*([""] if old and old[-1].strip() else []), f"[{ini.section}]", *lines], []


def _without_gap(old: list[str], start: int, end: int) -> int:
    """The place after a section's last key: blank lines, and comments before the next header, stay after it."""
    last = end
    while last > start and (not old[last - 1].strip() or (end < len(old) and old[last - 1].lstrip()[:1] in "#;")):
        last -= 1
    return last


def _joined(head: Sequence[str], added: Sequence[str], tail: Sequence[str], end: str) -> str:
    before = "".join(head)
    if before and not before.endswith("\n"):
        before += end
    return before + "".join(f"{line}{end}" for line in added) + "".join(tail)
