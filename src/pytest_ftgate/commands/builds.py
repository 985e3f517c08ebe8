"""The steps that build a project from what git has of it."""

from __future__ import annotations

import re
import shlex
import sys

import msgspec

from .. import pythons
from ..model.targets import parse_target
from ..pythons import InterpreterNotFound, Steps, is_command
from ..run import trial
from ..run.git import AgainstError, Repository
from .project import Project


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
    made = _made_by_cython(repository, why)
    if not made:
        return project, said
    steps = (*(("$", shlex.join(command)) for command in made), *project.install)
    if still := _failure(project, steps):
        return project, f"{said}\nwith {steps[0][1]} before it: {still}"
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


def _made_by_cython(repository: Repository, why: str) -> list[list[str]]:
    """Commands that make the C and C++ files which git lacks beside its `.pyx` files."""
    there = set(repository.git("ls-files", "-z").split("\0"))
    plain, plus = list[str](), list[str]()
    for name in sorted(name for name in there if name.endswith(".pyx")):
        c, cpp = name.removesuffix("pyx") + "c", name.removesuffix("pyx") + "cpp"
        if not {c, cpp} & there:
            (plus if (repository.root / cpp).exists() or cpp in why else plain).append(name)
    commands = ((["uvx", "cython"], plain), (["uvx", "cython", "--cplus"], plus))
    return [[*words, *names] for words, names in commands if names]
