"""The file from which pytest takes a project's ini keys, found and read as pytest does."""

from __future__ import annotations

import configparser
import os
import re
import shlex
import tomllib
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from ..declare.options import Options, read, table
from ..kit.errors import FtgateError

ALWAYS: Final = {"pytest.toml": "pytest", ".pytest.toml": "pytest", "pytest.ini": "pytest", ".pytest.ini": "pytest"}
"""Files that are pytest's own, with their section: pytest reads them even where they are empty."""
SHARED: Final = {"pyproject.toml": "tool.pytest.ini_options", "tox.ini": "pytest", "setup.cfg": "tool:pytest"}
"""Files that are pytest's where they have the section; pytest 9 also reads `tool.pytest` of pyproject.toml."""


def find(folder: Path, top: Path) -> tuple[Path, Mapping[str, Any]] | None:
    """The file that pytest reads in `folder` or above it, up to `top`, and its keys; None for none."""
    native = int(version("pytest").partition(".")[0]) >= 9  # it reads tables with TOML's own types
    for place in (folder, *folder.parents):
        for name in (*ALWAYS, *SHARED):
            path = place / name
            if not path.is_file() or (name in ALWAYS and path.suffix == ".toml" and not native):
                continue
            tree = parse(path)
            if name == "pyproject.toml":
                table = tree.get("tool", {}).get("pytest", {})
                own = native and any(key != "ini_options" for key in table)
                values = table if own else table.get("ini_options")
            else:
                values = tree.get(ALWAYS.get(name) or SHARED[name])
            if isinstance(values, dict) or name in ALWAYS:
                return path, values if isinstance(values, dict) else {}
        if place == top:
            break
    return None


def options_of(root: Path, *names: str, **given: Any) -> Options:
    """These options of a project as a command takes them: as `given`, else of the environment, else of its file.

    Raises FtgateError.
    """
    _, values = find(root, root) or (None, {})
    rows = [option for option in table() if option.name in names]
    split = {"args": words, "linelist": lines}
    ini = {option.name: split.get(option.ini, str)(values[option.dest]) for option in rows if option.dest in values}
    return read(given, os.environ, ini, rows)


def words(value: Any) -> list[str]:
    """An ini value of several words, as pytest splits it."""
    try:
        return shlex.split(value) if isinstance(value, str) else [str(item) for item in value or ()]
    except ValueError:  # a quote that is not closed: pytest says so
        return str(value).split()


def lines(value: Any) -> list[str]:
    """An ini value of one item a line, as pytest splits it."""
    return [line.strip() for line in (value.splitlines() if isinstance(value, str) else map(str, value or ()))]


def parse(path: Path) -> dict[str, Any]:
    """All tables, or all sections, of a file; empty for a missing one. Raises FtgateError with the line at fault."""
    try:
        text = path.read_bytes().decode() if path.is_file() else ""
        if path.suffix == ".toml":
            return tomllib.loads(text)
        parser = configparser.RawConfigParser(default_section="", strict=False)
        parser.optionxform = str  # type: ignore[assignment,method-assign]
        parser.read_string(text.replace("\r\n", "\n"))
        return {name: dict(parser[name]) for name in parser.sections()}
    except (OSError, UnicodeDecodeError) as error:
        raise FtgateError(f"{path}: cannot be read as UTF-8 text: {error}") from error
    except tomllib.TOMLDecodeError as error:
        found = re.search(r"at line (\d+)", str(error))
        line = found[1] if found else str(text.count("\n") + 1)
        raise FtgateError(f"{path}:{line}: this is not TOML: {error}; fix it and run again") from error
    except configparser.Error as error:
        numbers = [error.lineno] if isinstance(error, configparser.MissingSectionHeaderError) else []
        numbers += [number for number, _ in getattr(error, "errors", ())]
        place = f"{path}:{numbers[0]}" if numbers else str(path)
        what = "; ".join(line.strip() for line in str(error).splitlines())
        raise FtgateError(f"{place}: this is not an ini file: {what}; fix it and run again") from error
