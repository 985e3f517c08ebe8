"""`ftgate init`: a first workload, the ini lines and a CI workflow, made for the project that it finds."""

from __future__ import annotations

import argparse
import difflib
import json
import os
import re
import shlex
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, TextIO

from ..errors import FtgateError
from ..model import Struct
from ..model.targets import is_path, parse_target
from ..pythons import InterpreterNotFound, default_pair, find_interpreter
from . import inifile
from .project import REQUIREMENTS, Project, ci_of, has_workload, look, name_for
from .templates import fill

if TYPE_CHECKING:
    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]

CI: Final = ("github", "gitlab", "none")
WORKLOAD: Final = "test_concurrency.py"
GITHUB: Final = Path(".github") / "workflows" / "ftgate.yml"
GITLAB: Final = Path(".gitlab-ci.yml")
GITLAB_PART: Final = Path(".gitlab") / "ftgate.yml"


class Change(Struct, frozen=True, kw_only=True):
    """A file to write; `before` is None for a new one, `what` says what is added to an existing one."""

    path: Path
    after: str
    before: str | None = None
    what: str = ""


class Steps(Struct, frozen=True, kw_only=True):
    """What init does: the files that it writes, those that it leaves with the reason, and notes."""

    changes: tuple[Change, ...]
    left: tuple[tuple[Path, str], ...]
    notes: tuple[str, ...] = ()


def register(subparsers: Subparsers) -> None:
    """Add `ftgate init` to the command line."""
    parser = subparsers.add_parser(
        "init",
        help="write a first workload, the ini lines and a CI workflow",
        description="Look at the project, then write a first workload file, the lines of its pytest configuration and "
        "a CI workflow. Existing files stay as they are; the configuration only gets new lines.",
    )
    parser.add_argument("path", nargs="?", type=Path, default=Path(), metavar="PATH", help="the project (default: .)")
    parser.add_argument("--ci", choices=CI, help="which workflow to write (default: what the repository uses)")
    parser.add_argument("--dry-run", action="store_true", help="show what would be written, as a diff")
    parser.add_argument("--yes", action="store_true", help="do not ask")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Write what is missing and say what was left; 0 also if everything exists. Raises FtgateError."""
    folder = args.path.resolve()
    if not folder.is_dir():
        raise FtgateError(f"{args.path}: no such folder; give the folder of the project")
    project = look(folder)
    ci = args.ci or ci_of(project.git) or _asked_ci(project, ask=not args.yes and sys.stdin.isatty())
    steps = plan(project, ci)
    if args.dry_run:
        print("".join(diff(change, project.root) for change in steps.changes), end="", flush=True)
        _print_rest(steps, sys.stderr)  # what is printed is a patch
        return 0
    missing = _print_facts(project)
    for change in steps.changes:
        write(change)
        print(f"{'wrote' if change.before is None else 'changed':<9} {_shown(change.path)}{change.what}")
    _print_rest(steps, sys.stdout)
    print("\nnext:\n" + "\n".join(f"  {line}" for line in next_commands(project, missing)))
    return 0


# -- what is to be written -----------------------------------------------------------------------------------------


def plan(project: Project, ci: str) -> Steps:
    """Everything that will be written or left; nothing is written yet. Raises FtgateError."""
    changes: list[Change] = []
    left: list[tuple[Path, str]] = []
    notes: list[str] = []
    _plan_workload(project, changes, left)
    _plan_ini(project, changes, left)
    if ci == "github":
        _plan_github(project, changes, left)
    elif ci == "gitlab":
        _plan_gitlab(project, changes, left, notes)
    else:
        why = "this is not a git repository" if project.git is None else "none was asked for"
        notes.append(f"no CI workflow: {why} (--ci github or --ci gitlab writes one)")
    if not project.declares_us:
        how = "uv add --dev pytest-ftgate" if project.locked else "add it next to pytest"
        notes.append(f"pytest-ftgate is not among the dependencies of the tests: {how}")
    return Steps(changes=tuple(changes), left=tuple(left), notes=tuple(notes))


def workload_path(project: Project) -> Path:
    """The existing workload, else the path of the first one."""
    return has_workload(project) or project.tests / name_for(project.files, WORKLOAD, prefixes=False)


def ini_keys(project: Project) -> inifile.Keys:
    """The ini keys that this project needs and does not have."""
    keys: dict[str, str | tuple[str, ...]] = {"ftgate_python": project.targets}
    if project.install is not None:
        step = shlex.join(project.install)  # a line of its own, which TOML has in a list
        keys["ftgate_install"] = step if project.ini.path.suffix != ".toml" else (step,) if step else ()
    if project.baselines:
        keys["ftgate_baselines"] = project.baselines
    return {key: value for key, value in keys.items() if key not in project.ini.values}


def _plan_workload(project: Project, changes: list[Change], left: list[tuple[Path, str]]) -> None:
    path = workload_path(project)
    if path.exists():
        left.append((path, "it already exists"))
        return
    text = fill(
        "workload.txt",
        project=project.name or project.root.name,
        package=project.name.replace("-", "_").replace(".", "_").lower() or "my_module",
        function=name_for(project.functions, "test_checksum", prefixes=True),
    )
    changes.append(Change(path=path, after=text))


def _plan_ini(project: Project, changes: list[Change], left: list[tuple[Path, str]]) -> None:
    keys, ini = ini_keys(project), project.ini
    if not keys:
        left.append((ini.path, "the ini keys already exist"))
        return
    before = ini.text if ini.path.is_file() else None
    what = f" [{ini.section}]: {', '.join(keys)}"
    changes.append(Change(path=ini.path, after=inifile.with_keys(ini, keys), before=before, what=what))


def _plan_github(project: Project, changes: list[Change], left: list[tuple[Path, str]]) -> None:
    path = _top(project) / GITHUB
    names = [path, *(sorted(path.parent.glob("*.y*ml")) if path.parent.is_dir() else [])]
    there = next((name for name in names if name.is_file() and _measures(name, always=name == path)), None)
    if there is not None:
        left.append((there, "it already exists"))
        return
    below, (install, run) = _below(project), ci_commands(project)
    folder = f"    defaults:\n      run:\n        working-directory: {below}\n" if below else ""
    text = fill(
        "github.txt",
        branch=json.dumps("main" if project.git is None else project.git.branch),
        folder=folder,
        pythons=" ".join(_versions(project)),
        install="".join(f"      - run: {line}\n" for line in install),
        run=run,
    )
    changes.append(Change(path=path, after=text))


def _plan_gitlab(project: Project, changes: list[Change], left: list[tuple[Path, str]], notes: list[str]) -> None:
    """If a file for GitLab exists, the job goes into its own file, which the first must include."""
    path, part = _top(project) / GITLAB, _top(project) / GITLAB_PART
    if path.is_file() and _measures(path):
        left.append((path, "it already exists"))
        return
    there = path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
    if path.is_file() and part.name not in there:
        include = f"  include:\n    - local: {GITLAB_PART.as_posix()}"
        notes.append(f"put this into {_shown(path)}, which was left:\n{include}")
        if re.search(r"^stages:", there, re.MULTILINE):
            notes.append(f"{_shown(path)} names its own stages: give the job in {_shown(part)} one of them")
    target = part if path.is_file() else path
    if target.is_file():
        left.append((target, "it already exists"))
        return
    below, (install, run) = _below(project), ci_commands(project)
    text = fill(
        "gitlab.txt",
        python=_host(project),
        folder=f"    - cd {below}\n" if below else "",
        pythons=" ".join(_versions(project)),
        install="".join(f"    - {line}\n" for line in install),
        run=run,
    )
    changes.append(Change(path=target, after=text))


def ci_commands(project: Project) -> tuple[tuple[str, ...], str]:
    """(commands that install, command that pytest follows): from the lock file where there is one.

    Without one none is made: a new file would make the tree differ from the commit that is judged.
    """
    python = _host(project)
    if project.locked:
        words = ["uv run --frozen --python", python]
        words += [] if project.declares_us else ["--with pytest-ftgate"]
        words += [f"--extra {name}" for name in project.extras]
        words += [f"--group {name}" for name in project.groups if name != "dev"]
        return (), " ".join(words)
    wanted = ["pytest-ftgate"]
    if project.packaged:
        extras = f"[{','.join(project.extras)}]" if project.extras else ""
        wanted.append(f'-e ".{extras}"')
    elif project.install:
        wanted.append(shlex.join(project.install))
    elif (project.root / REQUIREMENTS).is_file():
        wanted.append(f"-r {REQUIREMENTS}")
    wanted += [f"--group {name}" for name in project.groups]
    return (f"uv venv --python {python}", f"uv pip install {' '.join(wanted)}"), "uv run --no-sync"


def _versions(project: Project) -> list[str]:
    """The versions of the targets, without settings and paths: a path is valid on this machine only."""
    requests = [parse_target(spec).request for spec in project.targets]
    named = dict.fromkeys(request for request in requests if not is_path(request))
    return list(named) or [*default_pair(project.requires_python).targets]


def _host(project: Project) -> str:
    """The version that runs pytest: the first target's, in the usual build."""
    return _versions(project)[0].removesuffix("t")


def _measures(path: Path, always: bool = False) -> bool:
    return always or "--ftgate" in path.read_text(encoding="utf-8", errors="replace")


def _top(project: Project) -> Path:
    return project.root if project.git is None else project.git.top


def _below(project: Project) -> str:
    """The project's folder below the repository's top; "" at the top."""
    below = project.root.relative_to(_top(project)).as_posix()
    return "" if below == "." else below


# -- asking, writing, saying ---------------------------------------------------------------------------------------


def _asked_ci(project: Project, *, ask: bool) -> str:
    """The CI system, where neither files nor the remote tell. A repository without a remote most often goes to one."""
    if project.git is None:
        return "none"
    usual = "none" if project.git.url else "github"
    while ask:
        try:
            answer = input(f"CI system, {', '.join(CI)} [{usual}]: ").strip().lower() or usual
        except EOFError:
            break
        if answer in CI:
            return answer
    return usual


def diff(change: Change, root: Path) -> str:
    """A unified diff of one file, as git would show it."""
    name = Path(os.path.relpath(change.path, root)).as_posix()
    before = (change.before or "").splitlines(keepends=True)
    old = "/dev/null" if change.before is None else f"a/{name}"
    lines = difflib.unified_diff(before, change.after.splitlines(keepends=True), old, f"b/{name}")
    ended = (line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)
    return "".join(ended)


def write(change: Change) -> None:
    """Write one file whole or not at all; a file that appeared meanwhile is not replaced. Raises FtgateError."""
    path = change.path.resolve()
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with unfinished.open("xb") as file:
                file.write(change.after.encode())
            if change.before is not None:
                shutil.copymode(path, unfinished)
            elif path.exists():
                raise FtgateError(f"{change.path} was written by another process meanwhile; run ftgate init again")
            unfinished.replace(path)
        finally:
            unfinished.unlink(missing_ok=True)
    except OSError as error:
        raise FtgateError(f"{change.path}: cannot be written: {error.strerror or error}") from error


def _print_facts(project: Project) -> list[str]:
    """Print the facts about the project; returns the targets without an interpreter here."""
    missing, found = [], []
    for spec in project.targets:
        try:
            found.append(f"{spec} ({find_interpreter(parse_target(spec)).name})")
        except InterpreterNotFound:
            missing.append(spec)
            found.append(f"{spec} (not installed)")
    installed = "installed for each as -e ." if project.packaged else "not a package: nothing of it is installed"
    if project.install is not None:
        installed = f"installed for each: {shlex.join(project.install) or 'nothing'}"
    asked = f", requires-python {project.requires_python}" if project.requires_python else ""
    print(f"{'project':<9} {project.name or project.root.name} in {project.root}{asked}; {installed}")
    if project.packaged and project.install == ():
        print(f"{'':<9} requires-python rules out every version that can be measured: it cannot be installed")
    print(f"{'measured':<9} {', '.join(found)}{f': {project.why}' if project.why else ''}")
    if project.git is not None:
        print(f"{'git':<9} changes go to {project.git.branch}")
    return missing


def _print_rest(steps: Steps, stream: TextIO) -> None:
    for path, reason in steps.left:
        print(f"{'left':<9} {_shown(path)}: {reason}", file=stream)
    for note in steps.notes:
        print(f"\n{note}", file=stream)


def next_commands(project: Project, missing: Sequence[str]) -> list[str]:
    """The two commands to run next, from the current folder."""
    prefix = "uv run " if project.locked and project.declares_us else ""
    path = shlex.quote(_shown(workload_path(project)))
    measure = f"{prefix}pytest --ftgate {path}"
    if missing:
        pythons = "".join(f" --target {spec}" for spec in missing)
        return [f"{prefix}ftgate pythons{pythons}", measure]
    return [measure, f"{prefix}pytest --ftgate --ftgate-update=new {path}"]


def _shown(path: Path) -> str:
    """A path from the current folder."""
    return os.path.relpath(path)
