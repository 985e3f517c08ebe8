"""The steps that build a project from what git has of it."""

from __future__ import annotations

import json
import re
import shlex
import sys
import time
from typing import Final

import msgspec

from ...kit.git import AgainstError, Repository
from ...model.spec import parse_target
from ...run.sides import references
from ...targets import environments, find
from ...targets.environments import Steps, is_command
from ...targets.find import InterpreterNotFound
from .. import inifile
from .project import Project

CYTHON: Final = {".c": ("uvx", "cython"), ".cpp": ("uvx", "cython", "--cplus")}
"""What makes sources of each kind."""
TOLD_EACH_S: Final = 10.0


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

    # The C and C++ files that git lacks beside its `.pyx` files, and that are here or in an error's text: not of each
    # `.pyx`, since one may include others. An error tells of some of them, and the next one of more.
    there = set(repository.git("ls-files", "-z").split("\0"))
    sources = {name.removesuffix("pyx") + kind[1:] for name in there if name.endswith(".pyx") for kind in CYTHON}
    steps, made = project.install, set[str]()
    while why:
        missing = {name for name in sources - there if name in why or (repository.root / name).is_file()}
        if missing <= made:
            return project, said if not made else f"{said}\nwith {steps[0][1]} before it: {why}"
        made |= missing
        kinds = [(words, sorted(name for name in made if name.endswith(kind))) for kind, words in CYTHON.items()]
        commands = [[*words, *(f"{name.rpartition('.')[0]}.pyx" for name in names)] for words, names in kinds if names]
        steps = (*(("$", shlex.join(command)) for command in commands), *project.install)
        why = _failure(project, steps)

    # The workflow gets these steps as options; the file that pytest reads should have them.
    lines = [environments.spelled(step) for step in steps]
    found = inifile.find(project.root, project.root)
    path = found.path if found else project.root / "pyproject.toml"
    if path.suffix == ".toml":
        table = "" if found else "\n[tool.pytest.ini_options]"
        setting = f"{table}\nftgate_install = {json.dumps(lines, ensure_ascii=False)}"
    else:
        setting = "\nftgate_install =\n    " + "\n    ".join(lines)
    said = f"{said.splitlines()[0]}\nthese steps install it (the workflow has them, {path.name} needs them):{setting}"
    options = (*project.options, *(f"--ftgate-install={shlex.quote(line)}" for line in lines))
    return msgspec.structs.replace(project, install=steps, options=options), said


def _failure(project: Project, steps: Steps) -> str:
    """Why these steps do not install it for the first target that is here; "" if they do, or none is."""
    began = told = time.monotonic()

    def on_step(doing: str) -> None:
        nonlocal told
        now = time.monotonic()
        if now - told >= TOLD_EACH_S:
            told = now
            print(f"{'':<9} {doing}, {now - began:.0f} s", file=sys.stderr, flush=True)

    for spec in project.targets:
        try:
            interpreter = find.find_interpreter(parse_target(spec))
        except InterpreterNotFound:
            continue
        lines = "; ".join(map(environments.spelled, steps))
        print(f"{'trying':<9} {lines} for {interpreter.name} in a clean checkout of HEAD", file=sys.stderr, flush=True)
        return references.failure(project.root, interpreter, steps, on_step)
    return ""
