"""Whether what git has of a project can be installed, as it is in CI and on both sides of a comparison."""

from __future__ import annotations

import re
import shlex
import sys

import msgspec

from .. import pythons
from ..errors import FtgateError
from ..model.targets import parse_target
from ..pythons import InterpreterNotFound, Steps, is_command
from ..run import installs, mending, worktrees
from ..run.git import AgainstError, Checkout, Repository
from .project import Project


def tried(project: Project) -> tuple[Project, str]:
    """The project with the steps that install a clean checkout of HEAD, and what to say of them; "" if its own do.

    Sources that Cython makes, and that git ignores, are made first.
    """
    if not _builds(project.install) or project.git is None:
        return project, ""
    repository, folder = Repository(project.root), project.root / ".ftgate"
    try:
        checkout = worktrees.head(project.root, folder)
    except AgainstError:  # nothing is committed yet
        return project, ""
    why = _failure(project, checkout, project.install)
    if not why:
        return project, ""
    said = f"what git has of this project cannot be installed: {why}"
    made = _made_by_cython(repository, why)
    if not made:
        return project, said
    steps = (*(("$", shlex.join(each)) for each in made), *project.install)
    if still := _failure(project, checkout, steps):
        return project, f"{said}\nwith {steps[0][1]} before it: {still}"
    options = [f"--ftgate-install={shlex.quote(pythons.spelled(step))}" for step in steps]
    lines = "".join(f"\n    {pythons.spelled(step)}" for step in steps)
    said = f"{said.partition(chr(10))[0]}\nthese steps install it (the workflow has them, your ini needs them):\n"
    said += f"ftgate_install ={lines}"
    return msgspec.structs.replace(project, install=steps, options=(*project.options, *options)), said


def _builds(steps: Steps) -> bool:
    return any(is_command(step) or any(re.match(r"\.(\[|/?$)", word) for word in step) for step in steps)


def _failure(project: Project, checkout: Checkout, steps: Steps) -> str:
    """Why these steps do not install a checkout for the first target that is here; "" if they do, or none is."""
    for spec in project.targets:
        try:
            interpreter = pythons.find_interpreter(parse_target(spec))
        except InterpreterNotFound:
            continue
        doing = f"{'trying':<9} {'; '.join(map(pythons.spelled, steps))} for {interpreter.name} in a clean checkout"
        print(f"{doing} of {checkout.label}", file=sys.stderr, flush=True)
        try:
            pythons.ensure_environment(
                interpreter,
                root=project.root / ".ftgate" / "envs",
                project=checkout.project,
                install=installs.steps_of(steps, project.root, checkout),
                variables=pythons.pretended(checkout.project, "0"),
            )
        except FtgateError as error:
            reason = str(error).partition("\n")[0]
            return "\n".join(filter(None, (reason, worktrees.ignored_hint(str(error), checkout, project.root))))
        mending.note_built(project.root, checkout)
        return ""
    return ""


def _made_by_cython(repository: Repository, why: str) -> list[list[str]]:
    """Commands that make the C and C++ files which git lacks beside its `.pyx` files."""
    there = set(repository.git("ls-files", "-z").split("\0"))
    commands: dict[str, list[str]] = {}
    for name in sorted(there):
        base, dot, _ = name.rpartition(".pyx")
        if dot and name.endswith(".pyx") and not {f"{base}.c", f"{base}.cpp"} & there:
            plus = (repository.root / f"{base}.cpp").exists() or f"{base}.cpp" in why
            commands.setdefault("cpp" if plus else "c", []).append(name)
    return [["uvx", "cython", *(["--cplus"] if kind == "cpp" else []), *names] for kind, names in commands.items()]
