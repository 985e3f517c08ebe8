"""Where the programs of a test stand, and the words that they are started with."""

from __future__ import annotations

import ast
import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from ...model import Cell, Spec


def values_of(cell: Cell, spec: Spec, python: str, **more: object) -> dict[str, str]:
    """What the placeholders of a cell's program stand for, without those that a launch has of its own: `more`."""
    params = {param.name: ast.literal_eval(param.literal) for param in cell.params}
    known = {"python": python, "folder": folder_of(spec), "workers": cell.workers}
    return {name: str(value) for name, value in (params | known | more).items()}


def folder_of(spec: Spec) -> str:
    """The test file's folder, in which its programs are started: of a reference that of its own tree."""
    return str(Path(spec.source.path).absolute().parent)


def found(program: str, python: str, folder: str = "") -> str | None:
    """The path of a program: in the folder of `python` first, then on PATH; None where it is nowhere.

    A name with a slash is a path, a relative one below `folder`. `python` may be empty: then on PATH alone.
    """
    if os.sep in program:
        return shutil.which(os.path.join(folder, program))
    return shutil.which(program, path=path_with(python))


def path_with(python: str) -> str:
    """PATH with the folder of `python` before the others, as in an environment that was activated."""
    searched = os.environ.get("PATH", os.defpath)
    return os.pathsep.join((os.path.dirname(python), searched)) if python else searched


def missing(needs: Sequence[tuple[str, str]], python: str = "") -> str:
    """Which of the needed programs are not there, and the command that installs each; empty where all are."""
    absent = [_mend(program, command) for program, command in needs if found(program, python) is None]
    return f"needs {', and '.join(absent)}" if absent else ""


def absent(program: str, needs: Sequence[tuple[str, str]]) -> str:
    """Why a program that was not found keeps a cell from being run, in the words of `missing`."""
    return f"needs {_mend(program, dict(needs).get(program, ''))}"


def _mend(program: str, command: str) -> str:
    if command:
        return f"{program}: install it with `{command}`"
    return f"{program}, which is not there" if os.sep in program else f"{program}, which is not on PATH"
