"""`ftgate init`: a first workload and a CI workflow, made for the project that it finds."""

from __future__ import annotations

import argparse
import contextlib
import difflib
import json
import os
import re
import shlex
import sys
from importlib import metadata
from pathlib import Path
from typing import Final

import msgspec
from packaging.specifiers import InvalidSpecifier, SpecifierSet

from ...hookspec import Subparsers, hookimpl
from ...kit.errors import FtgateError
from ...kit.files import write_whole
from ...kit.git import AgainstError
from ...kit.values import Struct
from ...model.spec import is_path, parse_target
from ...run.sides import references
from ...targets.environments import Step, is_command, spelled
from ...targets.find import InterpreterNotFound, default_pair, find_interpreter
from ..pythons import install_progress
from .project import Project, ci_of, content, look, name_for, workload_path

TRIGGERS: Final = ("push", "label")
OLDEST_HOST: Final = (3, 11)
"""The oldest Python that this plugin can be installed for."""
GITHUB: Final = Path(".github") / "workflows" / "ftgate.yml"
GITLAB: Final = Path(".gitlab-ci.yml")
GITLAB_PART: Final = Path(".gitlab") / "ftgate.yml"
GATE: Final = "--ftgate"
"""What a workflow that measures has in it."""
UNNAMED: Final = (
    "pytest-ftgate was installed from a folder, which CI does not have; until an index has it, name another place: "
    "ftgate init --requirement git+https://HOST/NAME/pytest-ftgate"
)


class Outline(Struct, frozen=True, kw_only=True):
    """What init does."""

    files: dict[Path, str] = msgspec.field(default_factory=dict)
    """Those that it writes, with their text."""
    left: list[tuple[Path, str]] = msgspec.field(default_factory=list)
    """Those that it leaves, with the reason."""
    notes: list[str] = msgspec.field(default_factory=list)
    """What the user has to do or to know."""

    @property
    def remarks(self) -> list[str]:
        """What is left and noted, as it is printed."""
        left = [f"{'left':<9} {os.path.relpath(path)}: {reason}" for path, reason in self.left]
        return [*left, *(f"\n{note}" for note in self.notes)]

    def add(self, path: Path, template: str, **values: object) -> None:
        """Write what a template gives to a path, or leave the file that is there."""
        if path.exists():
            self.left.append((path, "it already exists"))
            return
        from jinja2 import Environment, PackageLoader, StrictUndefined  # late: no other command has use for it

        # Values have a mark of our own: `{{ }}` is that of GitHub.
        environment = Environment(
            loader=PackageLoader(__name__, "templates"),
            variable_start_string="{=",
            variable_end_string="=}",
            trim_blocks=True,
            lstrip_blocks=True,
            undefined=StrictUndefined,
            keep_trailing_newline=True,
            autoescape=False,  # YAML and Python, not HTML
        )
        self.files[path] = environment.get_template(template).render(values)


@hookimpl
def ftgate_commands(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser(
        "init",
        help="write a first workload and a CI workflow",
        description="Look at the project, then write a first workload file and a CI workflow. Existing files stay as "
        "they are.",
        exits=(),
    )
    parser.add_argument("path", nargs="?", type=Path, default=Path(), metavar="PATH", help="the project (default: .)")
    parser.add_argument(
        "--ci",
        choices=("github", "gitlab", "none"),
        help="which workflow to write (default: what the repository uses)",
    )
    parser.add_argument(
        "--trigger",
        choices=TRIGGERS,
        default=TRIGGERS[0],
        help="when the workflow runs: for each push (the default), or for pull requests with the label ftgate",
    )
    parser.add_argument(
        "--requirement",
        metavar="REQ",
        help="what is installed for this plugin, such as git+https://HOST/NAME/pytest-ftgate or a wheel in the "
        "repository (default: the address that it was installed from, else pytest-ftgate from an index)",
    )
    parser.add_argument("--dry-run", action="store_true", help="show what would be written, as a diff")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Write what is missing and say what was left; 0 also if everything exists. Raises FtgateError."""
    folder = args.path.resolve()
    if not folder.is_dir():
        raise FtgateError(f"{args.path}: no such folder; give the folder of the project")
    # What it is, what installs a clean checkout of it, where this plugin comes from, and which CI it has.
    project = look(folder)
    trouble = failure(project)
    origin = json.loads(metadata.distribution("pytest-ftgate").read_text("direct_url.json") or "{}")
    vcs = origin.get("vcs_info")
    ours = f"{vcs['vcs']}+{origin['url']}@{vcs['commit_id']}" if vcs else "pytest-ftgate"
    asked = args.requirement or ours
    ours = f"pytest-ftgate @ {asked}" if "://" in asked and " @ " not in asked else asked
    project = msgspec.structs.replace(project, ours=ours)
    ci = args.ci or ci_of(project.git)
    # What to do about it, and what to say.
    outline = plan(project, ci, args.trigger)
    if trouble:
        outline.notes.append(f"what git has of this project cannot be installed: {trouble}")
    if origin and not vcs and not args.requirement and outline.files and ci != "none":
        outline.notes.append(UNNAMED)
    if args.dry_run:
        for path, text in outline.files.items():  # each as git would show it
            name = Path(os.path.relpath(path, project.root)).as_posix()
            lines = text.splitlines(keepends=True)
            print("".join(difflib.unified_diff([], lines, "/dev/null", f"b/{name}")), end="", flush=True)
        for line in outline.remarks:  # what is printed is a patch
            print(line, file=sys.stderr)
        return 0

    # The facts, what was written and left, and what to run next.
    missing, found = [], []
    for spec in project.targets:
        try:
            found.append(f"{spec} ({find_interpreter(parse_target(spec)).name})")
        except InterpreterNotFound:
            missing.append(spec)
            found.append(f"{spec} (not installed)")
    installed = f"installed for each: {'; '.join(map(spelled, project.install)) or 'nothing'}"
    wanted = f", requires-python {project.requires_python}" if project.requires_python else ""
    print(f"{'project':<9} {project.name or project.root.name} in {project.root}{wanted}; {installed}")
    print(f"{'measured':<9} {', '.join(found)}{f': {project.why}' if project.why else ''}")
    if project.git is not None:
        print(f"{'git':<9} changes go to {project.git.branch}")
    for path, text in outline.files.items():
        write(path, text)
        print(f"{'wrote':<9} {os.path.relpath(path)}")
    for line in outline.remarks:
        print(line)
    prefix = "uv run " if project.locked and project.needs.declares_us else ""
    workload = workload_path(project)
    test, pytest = shlex.quote(os.path.relpath(workload)), " ".join([f"{prefix}pytest", *project.options])
    print("\nnext:")
    if missing:
        print(f"  {prefix}ftgate pythons{''.join(f' --python {spec}' for spec in missing)}")
    if project.git is None:  # there is no other commit to compare with
        print(f"  {pytest} --ftgate-update=new {test}\n  {pytest} --ftgate {test}")
    elif workload not in outline.files:
        print(f"  {pytest} --ftgate-against=merge-base {test}")
    else:
        written = shlex.join(map(os.path.relpath, outline.files))
        print(f"  git add {written} && git commit -m 'Gate what threads and processes cost'")
        print(f"  # then a change: 20_000 becomes 40_000 in {test}\n  {pytest} --ftgate-against=HEAD {test}")
    return 0


# -- what is to be written -----------------------------------------------------------------------------------------


def plan(project: Project, ci: str, trigger: str = TRIGGERS[0]) -> Outline:
    """Everything that will be written or left; nothing is written yet."""
    outline = Outline()
    outline.add(
        workload_path(project),
        "workload.txt",
        project=project.name or project.root.name,
        package=project.name.replace("-", "_").replace(".", "_").lower() or "my_module",
        function=name_for(project.functions, "test_checksum", prefixes=True),
        pythons="" if "ftgate_python" in project.ini else f", pythons={json.dumps(project.targets)}",
    )
    # What the workflows of both have. Paths of artifacts and caches are from the top of the repository.
    top = project.root if project.git is None else project.git.top
    branch = "main" if project.git is None else project.git.branch
    install, command = ci_commands(project)
    job = {
        "trigger": trigger,
        "folder": (below := project.root.relative_to(top).as_posix().removeprefix(".")),
        "below": f"{below}/" if below else "",
        "pythons": _versions(project),
        # Quoted where YAML would read something else.
        "install": [json.dumps(line) if re.search(r": |:$| #", line) else line for line in install],
        "run": command,
        "options": "".join(f" {option}" for option in project.options),
    }
    if ci == "github":
        # One of our name, whatever it does, else any that runs the gate.
        path = top / GITHUB
        others = (each for each in sorted(path.parent.glob("*.y*ml")) if GATE in content(each))
        there = path if path.is_file() else next(others, path)
        outline.add(there, "github.yml", **job, branch=json.dumps(branch))
    elif ci == "gitlab" and GATE in content(top / GITLAB):
        outline.left.append((top / GITLAB, "it already exists"))
    elif ci == "gitlab":
        # If a file exists, the job goes into one of its own, which the first must include.
        path, part = top / GITLAB, top / GITLAB_PART
        if path.is_file() and part.name not in (text := content(path)):
            include = f"  include:\n    - local: {GITLAB_PART.as_posix()}"
            outline.notes.append(f"put this into {os.path.relpath(path)}, which was left:\n{include}")
            if re.search(r"^stages:", text, re.MULTILINE):
                outline.notes.append(
                    f"{os.path.relpath(path)} names its own stages: give the job in {os.path.relpath(part)} one of them"
                )
        outline.add(part if path.is_file() else path, "gitlab.yml", **job, python=_controller(project))
    else:
        why = "this is not a git repository" if project.git is None else "none was asked for"
        outline.notes.append(f"no CI workflow: {why} (--ci github or --ci gitlab writes one)")
    # Our requirement, with a marker where some of the project's jobs cannot install it.
    markers, asked = [], project.requires_python
    with contextlib.suppress(InvalidSpecifier):
        allowed = SpecifierSet(asked)
        if asked and any(allowed.contains(f"3.{minor}.30") for minor in range(OLDEST_HOST[1])):
            markers.append(f'python_version >= "{".".join(map(str, OLDEST_HOST))}"')
    if project.pypy:
        markers.append('platform_python_implementation == "CPython"')
    mark = " ; " if "://" in project.ours else "; "  # a `;` may be part of an address
    wanted = mark.join([project.ours, *([" and ".join(markers)] if markers else [])])
    if not project.needs.declares_us:
        option, name = project.needs.place or ("--dev", "")
        where = {"--group": f"to the group {name}", "--optional": f"to the extra {name}"}.get(option, "next to pytest")
        uv = f"uv add {shlex.join(filter(None, (option, name, wanted)))}"
        how = uv if project.locked else f"add it {where}: {wanted}"
        outline.notes.append(f"pytest-ftgate is not among the dependencies of the tests: {how}")
    if ";" in wanted:
        outline.notes.append("where pytest-ftgate cannot be installed (Python below 3.11, PyPy), its tests are skipped")
    if not project.allowed:
        outline.notes.append(
            f"requires-python {project.requires_python} rules out every version that can be measured: the project "
            "cannot be installed for them"
        )
    return outline


def ci_commands(project: Project) -> tuple[tuple[str, ...], str]:
    """(commands that install, command that pytest follows): from the lock file where there is one.

    Without one none is made: a new file would make the tree differ from the commit that is judged.
    """
    python, needs = _controller(project), project.needs
    ours = () if needs.declares_us else (project.ours,)
    if project.locked:
        words = ["uv run --frozen --python", python]
        words += ["--no-editable"] if (".",) in project.install else []
        words += [f"--with {shlex.quote(name)}" for name in (*ours, *needs.plugins)]
        words += [f"--extra {name}" for name in needs.extras]
        words += [f"--group {name}" for name in needs.groups if name != "dev"]
        # Other commands need the environment, which `uv run` makes.
        return tuple(step[1] for step in project.install if step[1:2] and step[1].startswith("uvx ")), " ".join(words)
    extras = f"[{','.join(needs.extras)}]" if needs.extras else ""
    steps = [*project.install]
    last = steps.pop() if steps and not is_command(steps[-1]) else ()
    groups = [word for name in needs.groups for word in ("--group", name)]
    lines = [
        f"uv venv --python {python}",
        *(_step(step, extras) for step in steps),
        _step((*ours, *last, *needs.arguments, *needs.plugins, *groups), extras),
    ]
    return tuple(lines), "uv run --no-sync"


def _step(step: Step, extras: str) -> str:
    """The command line of a step of `ftgate_install`, with the project's extras."""
    if is_command(step):
        return f"uv run --no-sync sh -c {shlex.quote(step[1])}"
    words = (f"{word}{extras}" if word == "." else word for word in step)
    return " ".join(["uv pip install", *(w if re.fullmatch(r"[\w./=*-]+", w) else json.dumps(w) for w in words)])


def _versions(project: Project) -> list[str]:
    """The versions of the targets, without settings and paths: a path is valid on this machine only."""
    requests = [parse_target(spec).request for spec in project.targets]
    named = dict.fromkeys(request for request in requests if not is_path(request))
    return list(named) or [*default_pair(project.requires_python).targets]


def _controller(project: Project) -> str:
    """The version that runs pytest: the first target's, in the usual build."""
    return _versions(project)[0].removesuffix("t")


# -- trying, writing, saying ---------------------------------------------------------------------------------------


def failure(project: Project) -> str:
    """Why a clean checkout of HEAD cannot be installed for the first target that is here; "" if it can."""
    steps = project.install
    if not any(is_command(step) or any(re.match(r"\.(\[|/?$)", word) for word in step) for step in steps):
        return ""  # nothing of it is installed
    for spec in project.targets:
        try:
            interpreter = find_interpreter(parse_target(spec))
        except InterpreterNotFound:
            continue
        lines = "; ".join(map(spelled, steps))
        print(f"{'trying':<9} {lines} for {interpreter.name} in a clean checkout of HEAD", file=sys.stderr, flush=True)
        try:
            with install_progress("trying", sys.stderr) as progress:
                return references.failure(project.root, interpreter, steps, progress)
        except AgainstError:  # no git, or nothing is committed yet
            break
    return ""


def write(path: Path, text: str) -> None:
    """Write one file whole or not at all; a file that appeared meanwhile is not replaced. Raises FtgateError."""
    if path.exists():
        raise FtgateError(f"{path} was written by another process meanwhile; run ftgate init again")
    try:
        target = path.resolve()  # a link may name a file that is not there yet
        target.parent.mkdir(parents=True, exist_ok=True)
        write_whole(target, [text.encode()])
    except OSError as error:
        raise FtgateError(f"{path}: cannot be written: {error.strerror or error}") from error
