"""The steps that build a project from what git has of it."""

from __future__ import annotations

import re
import shlex
import sys
from typing import Final

import msgspec

from .. import pythons
from ..model.targets import parse_target
from ..pythons import InterpreterNotFound, Steps, is_command
from ..run import trial
from ..run.git import AgainstError, Repository
from .project import Project

CYTHON: Final = {".c": ("uvx", "cython"), ".cpp": ("uvx", "cython", "--cplus")}
"""What makes sources of each kind."""


def tried(project: Project) -> tuple[Project, str]:
    """The project with the steps that install a clean checkout of HEAD, and what to say of them; "" if its own do.

    Sources that Cython makes, and that git ignores, are made first.
    """
    if not any(is_command(step) or any(re.match(r"\.(\[|/?$)", word) for word in step) for step in project.install):
        return project, ""
    try:
        repository = Repository(project.root)
        why = _failure(project, project.install)
    except AgainstError:  # no git, or nothing is committed yet
        return project, ""
    if not why:
        return project, ""
    said = f"what git has of this project cannot be installed: {why}"
    steps, made = project.install, set[str]()
    while why:
        missing = _made_by_cython(repository, why)
        if missing <= made:
            return project, said if not made else f"{said}\nwith {steps[0][1]} before it: {why}"
        made |= missing
        kinds = [(words, sorted(name for name in made if name.endswith(kind))) for kind, words in CYTHON.items()]
        commands = [[*words, *(f"{name.rpartition('.')[0]}.pyx" for name in names)] for words, names in kinds if names]
        steps = (*(("$", shlex.join(command)) for command in commands), *project.install)
        why = _failure(project, steps)
    lines = [pythons.spelled(step) for step in steps]
    options = (*project.options, *(f"--ftgate-install={shlex.quote(line)}" for line in lines))
    told = "these steps install it (the workflow has them, your ini needs them):\nftgate_install =\n    "
    said = f"{said.splitlines()[0]}\n{told}" + "\n    ".join(lines)
    return msgspec.structs.replace(project, install=steps, options=options), said


def _failure(project: Project, steps: Steps) -> str:
    """Why these steps do not install it for the first target that is here; "" if they do, or none is."""
    for spec in project.targets:
        try:
            interpreter = pythons.find_interpreter(parse_target(spec))
        except InterpreterNotFound:
            continue
        lines = "; ".join(map(pythons.spelled, steps))
        print(f"{'trying':<9} {lines} for {interpreter.name} in a clean checkout of HEAD", file=sys.stderr, flush=True)
        return trial.failure(project.root, interpreter, steps)
    return ""


def _made_by_cython(repository: Repository, why: str) -> set[str]:
    """The C and C++ files that git lacks beside its `.pyx` files, and that are here or in an error's text.

    Not of each `.pyx`: one may include others.
    """
    there = set(repository.git("ls-files", "-z").split("\0"))
    sources = {name.removesuffix("pyx") + kind[1:] for name in there if name.endswith(".pyx") for kind in CYTHON}
    return {name for name in sources - there if name in why or (repository.root / name).is_file()}
