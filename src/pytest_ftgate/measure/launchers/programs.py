"""Where the programs of a test are, the words of their command lines, and the environment variables of a cell."""

from __future__ import annotations

import ast
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from ...kit.text import expanded
from ...model.spec import Cell, Spec
from ...runner.loading import is_named
from ..launch import CellUnsupported, Request


def values_of(cell: Cell, spec: Spec, python: str, **more: object) -> dict[str, str]:
    """The values of the placeholders of a cell's program; `more` are those of one launch."""
    params = {
        param.name: param.literal if is_named(param.literal) else ast.literal_eval(param.literal)
        for param in cell.params
    }
    known = {"python": python, "folder": folder_of(spec), "workers": cell.workers}
    return {name: str(value) for name, value in (params | known | more).items()}


def variables_of(cell: Cell, values: Mapping[str, str]) -> dict[str, str]:
    """The environment variables of a cell with these values of placeholders; a program's own come last."""
    program = cell.executor.program
    own = dict(cell.environment.variables) | dict(program.environment if program else ())
    return dict(zip(own, expanded(own.values(), values), strict=True))


def workload_variables(cell: Cell, spec: Spec, python: str) -> dict[str, str]:
    if not cell.environment.variables:
        return {}
    return variables_of(cell, values_of(cell, spec, python, seconds=decimal(spec.window_ns / 1e9)))


def decimal(seconds: float) -> str:
    """`0.2` or `2`: never an exponent, which not every program reads."""
    return f"{seconds:.6f}".rstrip("0").rstrip(".")


def folder_of(spec: Spec) -> str:
    """The test file's folder, in which its programs are started; a reference has its own worktree."""
    return str(Path(spec.source.path).absolute().parent)


def which(program: str, python: str, folder: str = "") -> str | None:
    """The path of a program: in the folder of `python` first, then on PATH; None where there is none.

    A name with a slash is a path, a relative one below `folder`. `python` may be empty: then on PATH alone.
    """
    if os.sep in program:
        return shutil.which(os.path.join(folder, program))
    return shutil.which(program, path=path_with(python))


def path_with(python: str) -> str:
    """PATH with the folder of `python` first, as in an activated environment."""
    searched = os.environ.get("PATH", os.defpath)
    return os.pathsep.join((os.path.dirname(python), searched)) if python else searched


def required(request: Request, program: str) -> str:
    """The path of a program. Raises CellUnsupported where it, or another one that the test needs, is missing."""
    reason = missing(request.spec.programs, request.python)
    path = which(program, request.python, folder_of(request.spec))
    if reason or path is None:
        raise CellUnsupported(reason or reason_without(program, request.spec.programs))
    return path


def missing(needs: Sequence[tuple[str, str]], python: str = "") -> str:
    """The needed programs that are missing, with the command that installs each; empty where none is."""
    absent = [_fix(program, command) for program, command in needs if which(program, python) is None]
    return f"needs {', and '.join(absent)}" if absent else ""


def reason_without(program: str, needs: Sequence[tuple[str, str]]) -> str:
    """The reason of a cell that cannot run without a program, in the words of `missing`."""
    return f"needs {_fix(program, dict(needs).get(program, ''))}"


def _fix(program: str, command: str) -> str:
    if command:
        return f"{program}: install it with `{command}`"
    return f"{program}, which is not there" if os.sep in program else f"{program}, which is not on PATH"
