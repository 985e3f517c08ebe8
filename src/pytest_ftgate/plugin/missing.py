"""A module that `packages=` installs for the targets, and that is missing where pytest itself runs."""

from __future__ import annotations

import ast
import shlex
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name


def hint(file: Path, error: BaseException | None) -> str:
    """What to install or to change after an error while `file` was imported; empty if `packages=` is not the cause."""
    if not isinstance(error, ModuleNotFoundError) or not error.name:
        return ""
    module = error.name.partition(".")[0]
    try:
        required = list(dict.fromkeys(_required(ast.parse(file.read_bytes()))))
    except (OSError, SyntaxError, ValueError):
        return ""
    # A module need not have the name of what brings it.
    meant = [word for word in required if _name(word) == canonicalize_name(module)] or required
    if not meant:
        return ""
    installer = (
        ["pip", "install"] if find_spec("pip") is not None else ["uv", "pip", "install", "--python", sys.executable]
    )
    return (
        f"packages= installs {', '.join(meant)} for the targets alone. To collect the tests, pytest itself imports the "
        f"file, in an environment that has no {module}. Install it there too,\n"
        f"    {shlex.join([sys.executable, '-m', *installer, *meant])}\n"
        f"or import {module} where the measured code runs: in the body, or in @test.shared."
    )


def _required(tree: ast.Module) -> Iterator[str]:
    """The words of every `packages=`, also through a name that the module assigns."""
    assigned: dict[str, ast.expr] = {}
    for statement in tree.body:
        if isinstance(statement, ast.Assign):
            assigned.update({each.id: statement.value for each in statement.targets if isinstance(each, ast.Name)})
    for node in ast.walk(tree):
        if isinstance(node, ast.keyword) and node.arg == "packages":
            value = assigned.get(node.value.id) if isinstance(node.value, ast.Name) else node.value
            words = value.elts if isinstance(value, (ast.List, ast.Tuple)) else []
            yield from (word.value for word in words if isinstance(word, ast.Constant) and isinstance(word.value, str))


def _name(word: str) -> str:
    try:
        return canonicalize_name(Requirement(word).name)
    except InvalidRequirement:
        return ""
