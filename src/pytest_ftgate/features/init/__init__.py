"""`ftgate init`: a first workload and a CI workflow, made for the project that it finds."""

from __future__ import annotations

import argparse
import difflib
import json
import os
import re
import shlex
import sys
from collections.abc import Iterator, Sequence
from importlib import metadata
from pathlib import Path
from typing import Final, TextIO

import msgspec
from packaging.specifiers import InvalidSpecifier, SpecifierSet

from ...hookspec import Subparsers, hookimpl
from ...kit.errors import FtgateError
from ...kit.values import Struct
from ...model.spec import is_path, parse_target
from ...targets.environments import Step, is_command, spelled
from ...targets.find import InterpreterNotFound, default_pair, find_interpreter
from .builds import tried
from .project import Project, ci_of, has_workload, look, name_for
from .templates import fill

CI: Final = ("github", "gitlab", "none")
TRIGGERS: Final = ("push", "label")
OLDEST_HOST: Final = (3, 11)
"""The oldest Python that this plugin can be installed for."""
WORKLOAD: Final = "test_concurrency.py"
GITHUB: Final = Path(".github") / "workflows" / "ftgate.yml"
GITHUB_COMMENT: Final = GITHUB.with_name("ftgate-comment.yml")
GITLAB: Final = Path(".gitlab-ci.yml")
GITLAB_PART: Final = Path(".gitlab") / "ftgate.yml"
GITHUB_FOLDER: Final = "    defaults:\n      run:\n        working-directory: {}\n"
UNNAMED: Final = (
    "pytest-ftgate was installed from a folder, which CI does not have; until an index has it, name another place: "
    "ftgate init --requirement git+https://HOST/NAME/pytest-ftgate"
)
MATRIX: Final = range(2, 257)
"""The numbers of jobs that a matrix of GitHub may have."""
GITHUB_LABEL: Final = (
    "  pull_request:\n    types: [opened, reopened, synchronize, labeled]\n",
    (
        "    # For pull requests with the label ftgate: when it is added, and at each push from then on.\n"
        "    if: >-\n"
        "      github.event.label.name == 'ftgate'\n"
        "      || github.event.action != 'labeled' && contains(github.event.pull_request.labels.*.name, 'ftgate')\n"
    ),
)
"""The events of the workflow, and the condition of its job."""
GITLAB_PUSH: Final = (
    '    - if: $CI_PIPELINE_SOURCE == "merge_request_event"\n    - if: $CI_COMMIT_BRANCH == $CI_DEFAULT_BRANCH\n'
)
GITLAB_LABEL: Final = (
    "    # For merge requests with the label ftgate, at each push: GitLab starts nothing when a label is added.\n"
    '    - if: $CI_PIPELINE_SOURCE == "merge_request_event" && $CI_MERGE_REQUEST_LABELS =~ /(^|,)ftgate(,|$)/\n'
)


class Change(Struct, frozen=True, kw_only=True):
    """A file to write."""

    path: Path
    text: str


class Outline(Struct, frozen=True, kw_only=True):
    """What init does: the files that it writes, those that it leaves with the reason, and notes."""

    changes: tuple[Change, ...]
    left: tuple[tuple[Path, str], ...]
    notes: tuple[str, ...] = ()


@hookimpl
def ftgate_commands(subparsers: Subparsers) -> None:
    """Add `ftgate init` to the command line."""
    parser = subparsers.add_parser(
        "init",
        help="write a first workload and a CI workflow",
        description="Look at the project, then write a first workload file and a CI workflow. Existing files stay as "
        "they are.",
    )
    parser.add_argument("path", nargs="?", type=Path, default=Path(), metavar="PATH", help="the project (default: .)")
    parser.add_argument("--ci", choices=CI, help="which workflow to write (default: what the repository uses)")
    parser.add_argument(
        "--trigger",
        choices=TRIGGERS,
        default=TRIGGERS[0],
        help="when the workflow runs: for each push (the default), or for pull requests with the label ftgate",
    )
    parser.add_argument(
        "--comment",
        action="store_true",
        help="also write a workflow for GitHub that comments the report on pull requests, those from forks too",
    )
    parser.add_argument(
        "--shards",
        type=int,
        metavar="N",
        help="split the tests over N jobs of GitHub, and join their reports in one more",
    )
    parser.add_argument(
        "--requirement",
        metavar="REQ",
        help="what is installed for this plugin, such as git+https://HOST/NAME/pytest-ftgate or a wheel in the "
        "repository (default: the address that it was installed from, else pytest-ftgate from an index)",
    )
    parser.add_argument("--dry-run", action="store_true", help="show what would be written, as a diff")
    parser.add_argument("--yes", action="store_true", help="do not ask")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Write what is missing and say what was left; 0 also if everything exists. Raises FtgateError."""
    folder = args.path.resolve()
    if not folder.is_dir():
        raise FtgateError(f"{args.path}: no such folder; give the folder of the project")
    project, trouble = tried(look(folder))
    asked, unnamed = installed_from()
    asked = args.requirement or asked
    ours = f"pytest-ftgate @ {asked}" if "://" in asked and " @ " not in asked else asked
    project = msgspec.structs.replace(project, ours=ours)
    ci = args.ci or ci_of(project.git) or _asked_ci(project, ask=not args.yes and sys.stdin.isatty())
    outline = plan(project, ci, args.trigger, comment=args.comment, shards=args.shards)
    if unnamed and not args.requirement and outline.changes and ci != "none":
        trouble = "\n\n".join(filter(None, (trouble, UNNAMED)))
    if trouble:
        outline = msgspec.structs.replace(outline, notes=(*outline.notes, trouble))
    if args.dry_run:
        print("".join(diff(change, project.root) for change in outline.changes), end="", flush=True)
        _print_rest(outline, sys.stderr)  # what is printed is a patch
        return 0
    missing = _print_facts(project)
    for change in outline.changes:
        write(change)
        print(f"{'wrote':<9} {_shown(change.path)}")
    _print_rest(outline, sys.stdout)
    written = [change.path for change in outline.changes]
    print("\nnext:\n" + "\n".join(f"  {line}" for line in next_commands(project, missing, written)))
    return 0


# -- what is to be written -----------------------------------------------------------------------------------------


def plan(
    project: Project, ci: str, trigger: str = TRIGGERS[0], *, comment: bool = False, shards: int | None = None
) -> Outline:
    """Everything that will be written or left; nothing is written yet. Raises FtgateError."""
    changes: list[Change] = []
    left: list[tuple[Path, str]] = []
    notes: list[str] = []
    if comment and ci != "github":
        raise FtgateError(f"--comment writes a workflow for GitHub, and this project's CI is {ci}: add --ci github")
    if shards is not None and ci != "github":
        raise FtgateError(
            f"--shards writes jobs for GitHub, and this project's CI is {ci}: docs/ci.md has those of GitLab"
        )
    if shards is not None and shards not in MATRIX:
        raise FtgateError(f"--shards {shards}: takes a number of jobs from {MATRIX[0]} to {MATRIX[-1]}")
    _plan_workload(project, changes, left)
    if ci == "github":
        _plan_github(project, trigger, shards, changes, left)
        if comment:
            _plan_comment(project, changes, left, notes)
    elif ci == "gitlab":
        _plan_gitlab(project, trigger, changes, left, notes)
    else:
        why = "this is not a git repository" if project.git is None else "none was asked for"
        notes.append(f"no CI workflow: {why} (--ci github or --ci gitlab writes one)")
    notes += _notes(project)
    return Outline(changes=tuple(changes), left=tuple(left), notes=tuple(notes))


def _notes(project: Project) -> Iterator[str]:
    """What the user has to do or to know, of which nothing is written."""
    if not project.needs.declares_us:
        wanted = requirement(project)
        option, name = project.needs.place or ("--dev", "")
        where = {"--group": f"to the group {name}", "--optional": f"to the extra {name}"}.get(option, "next to pytest")
        uv = f"uv add {shlex.join(filter(None, (option, name, wanted)))}"
        how = uv if project.locked else f"add it {where}: {wanted}"
        yield f"pytest-ftgate is not among the dependencies of the tests: {how}"
    if ";" in requirement(project):
        yield "where pytest-ftgate cannot be installed (Python below 3.11, PyPy), its tests are skipped"
    if project.strict:
        yield (
            f"{project.strict}: an ini key of ours, such as ftgate_test_time, is an error in each run without the "
            "plugin; say the same by a decorator, an option or the environment (FTGATE_TEST_TIME)"
        )
    if not project.allowed:
        yield (
            f"requires-python {project.requires_python} rules out every version that can be measured: the project "
            "cannot be installed for them"
        )


def requirement(project: Project) -> str:
    """This plugin as a dependency of the project, with a marker where some of its jobs cannot install it."""
    markers = []
    version = ".".join(map(str, OLDEST_HOST))
    if _allows_older(project.requires_python):
        markers.append(f'python_version >= "{version}"')
    if project.pypy:
        markers.append('platform_python_implementation == "CPython"')
    mark = " ; " if "://" in project.ours else "; "  # a `;` may be part of an address
    return mark.join([project.ours, *([" and ".join(markers)] if markers else [])])


def installed_from() -> tuple[str, bool]:
    """This plugin as a requirement, by its name or the repository that it is from; whether it is from a folder."""
    origin = json.loads(metadata.distribution("pytest-ftgate").read_text("direct_url.json") or "{}")
    vcs = origin.get("vcs_info", {})
    return f"{vcs['vcs']}+{origin['url']}@{vcs['commit_id']}" if vcs else "pytest-ftgate", bool(origin and not vcs)


def _allows_older(requires_python: str) -> bool:
    try:
        allowed = SpecifierSet(requires_python)
    except InvalidSpecifier:
        return False
    return bool(requires_python) and any(allowed.contains(f"3.{minor}.30") for minor in range(OLDEST_HOST[1]))


def workload_path(project: Project) -> Path:
    """The existing workload, else the path of the first one."""
    return has_workload(project) or project.tests / name_for(project.files, WORKLOAD, prefixes=False)


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
        pythons="" if "ftgate_python" in project.ini else f", pythons={json.dumps(project.targets)}",
    )
    changes.append(Change(path=path, text=text))


def _plan_github(
    project: Project, trigger: str, shards: int | None, changes: list[Change], left: list[tuple[Path, str]]
) -> None:
    path = _top(project) / GITHUB
    if (there := _measuring(project)) is not None:
        left.append((there, "it already exists"))
        return
    branch = json.dumps("main" if project.git is None else project.git.branch)
    on, condition = f"  pull_request:\n  push:\n    branches: [{branch}]\n", ""
    if trigger == "label":
        on, condition = GITHUB_LABEL
    text = fill(
        "github.txt",
        on=on,
        condition=condition,
        **(job := _job(project, folder=GITHUB_FOLDER, step="      - run: {}\n")),
        **(_one_job(job) if shards is None else _shard_jobs(job, shards)),
    )
    changes.append(Change(path=path, text=text))


def _one_job(job: dict[str, str]) -> dict[str, str]:
    """The job that measures everything, and writes the reports."""
    names = ("ftgate.html", "ftgate.md", "ftgate.json")
    reports = " ".join(f"--ftgate-report={name.partition('.')[2]}:{name}" for name in names)
    files = "".join(f"            {job['below']}{name}\n" for name in names)
    return {
        "job": "ftgate",
        "matrix": "",
        "shard": "",
        "reports": reports,
        "artifact": "ftgate",
        "files": files,
        "merge": "",
    }


def _shard_jobs(job: dict[str, str], shards: int) -> dict[str, str]:
    """A job for each shard, and the one that joins what they found."""
    number = "${{ matrix.shard }}"
    listed = ", ".join(map(str, range(1, shards + 1)))
    matrix = (
        f"    strategy:\n      fail-fast: false # the others measure on\n      matrix:\n        shard: [{listed}]\n"
    )
    return {
        "job": "shard",
        "matrix": matrix,
        "shard": f" --ftgate-shard={number}/{shards}",
        "reports": f"--ftgate-report=json:ftgate-shard-{number}.json",
        "artifact": f"ftgate-shard-{number}",
        "files": f"            {job['below']}ftgate-shard-{number}.json\n",
        "merge": fill("github_merge.txt", **job),
    }


def _measuring(project: Project) -> Path | None:
    """The workflow that measures, where there is one: one of our name, else any that runs the gate."""
    path = _top(project) / GITHUB
    return path if path.is_file() else next(filter(_measures, sorted(path.parent.glob("*.y*ml"))), None)


def _plan_comment(project: Project, changes: list[Change], left: list[tuple[Path, str]], notes: list[str]) -> None:
    """The workflow that comments what the measuring one uploads, which it knows by its name."""
    path, there = _top(project) / GITHUB_COMMENT, _measuring(project)
    if path.exists():
        left.append((path, "it already exists"))
        return
    name = "ftgate"
    if there is not None:
        named = re.search(
            r"^name:[ ]*(.+?)[ ]*(?: #.*)?$", there.read_text(encoding="utf-8", errors="replace"), re.MULTILINE
        )
        name = named[1].strip("\"'") if named else there.relative_to(_top(project)).as_posix()
        notes.append(
            f"{_shown(path)} comments what {_shown(there)} uploads: an artifact named ftgate that holds ftgate.json"
        )
    changes.append(
        Change(path=path, text=fill("github_comment.txt", workflow=json.dumps(name), ours=shlex.quote(project.ours)))
    )
    notes.append(
        f"{_shown(path)} runs once it is on {'the default branch' if project.git is None else project.git.branch}"
    )


def _plan_gitlab(
    project: Project, trigger: str, changes: list[Change], left: list[tuple[Path, str]], notes: list[str]
) -> None:
    """If a file for GitLab exists, the job goes into its own file, which the first must include."""
    path, part = _top(project) / GITLAB, _top(project) / GITLAB_PART
    if _measures(path):
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
    text = fill(
        "gitlab.txt",
        python=_host(project),
        rules=GITLAB_LABEL if trigger == "label" else GITLAB_PUSH,
        **_job(project, folder="    - cd {}\n", step="    - {}\n"),
    )
    changes.append(Change(path=target, text=text))


def _job(project: Project, *, folder: str, step: str) -> dict[str, str]:
    """What both workflows have; `folder` and `step` are the lines that change to a folder and run a command."""
    below = "/".join(project.root.relative_to(_top(project)).parts)
    install, run = ci_commands(project)
    return {
        "key": "-".join(_versions(project)),
        "folder": folder.format(below) if below else "",
        "pythons": " ".join(_versions(project)),
        "install": "".join(step.format(_scalar(line)) for line in install),
        "run": run,
        "options": "".join(f" {option}" for option in project.options),
        "below": f"{below}/" if below else "",
    }


def ci_commands(project: Project) -> tuple[tuple[str, ...], str]:
    """(commands that install, command that pytest follows): from the lock file where there is one.

    Without one none is made: a new file would make the tree differ from the commit that is judged.
    """
    python, needs = _host(project), project.needs
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


def _scalar(line: str) -> str:
    """A command line as a scalar of YAML, quoted where it would be read as something else."""
    return json.dumps(line) if re.search(r": |:$| #", line) else line


def _versions(project: Project) -> list[str]:
    """The versions of the targets, without settings and paths: a path is valid on this machine only."""
    requests = [parse_target(spec).request for spec in project.targets]
    named = dict.fromkeys(request for request in requests if not is_path(request))
    return list(named) or [*default_pair(project.requires_python).targets]


def _host(project: Project) -> str:
    """The version that runs pytest: the first target's, in the usual build."""
    return _versions(project)[0].removesuffix("t")


def _measures(path: Path) -> bool:
    return path.is_file() and "--ftgate" in path.read_text(encoding="utf-8", errors="replace")


def _top(project: Project) -> Path:
    return project.root if project.git is None else project.git.top


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
    """A unified diff of a new file, as git would show it."""
    name = Path(os.path.relpath(change.path, root)).as_posix()
    lines = difflib.unified_diff([], change.text.splitlines(keepends=True), "/dev/null", f"b/{name}")
    return "".join(lines)


def write(change: Change) -> None:
    """Write one file whole or not at all; a file that appeared meanwhile is not replaced. Raises FtgateError."""
    path = change.path.resolve()
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with unfinished.open("xb") as file:
                file.write(change.text.encode())
            if path.exists():
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
    installed = f"installed for each: {'; '.join(map(spelled, project.install)) or 'nothing'}"
    asked = f", requires-python {project.requires_python}" if project.requires_python else ""
    print(f"{'project':<9} {project.name or project.root.name} in {project.root}{asked}; {installed}")
    print(f"{'measured':<9} {', '.join(found)}{f': {project.why}' if project.why else ''}")
    if project.git is not None:
        print(f"{'git':<9} changes go to {project.git.branch}")
    return missing


def _print_rest(outline: Outline, stream: TextIO) -> None:
    for path, reason in outline.left:
        print(f"{'left':<9} {_shown(path)}: {reason}", file=stream)
    for note in outline.notes:
        print(f"\n{note}", file=stream)


def next_commands(project: Project, missing: Sequence[str], written: Sequence[Path]) -> list[str]:
    """What to run next, from the current folder; the last ends in a verdict."""
    prefix = "uv run " if project.locked and project.needs.declares_us else ""
    workload = workload_path(project)
    path = shlex.quote(_shown(workload))
    measure = " ".join([f"{prefix}pytest", *project.options, "--ftgate"])
    lines = [f"{prefix}ftgate pythons{''.join(f' --target {spec}' for spec in missing)}"] if missing else []
    if project.git is None:  # there is no other commit to compare with
        return [*lines, f"{measure} --ftgate-update=new {path}", f"{measure} {path}"]
    if workload not in written:
        return [*lines, f"{measure} --ftgate-against=merge-base {path}"]
    files = shlex.join(map(_shown, written))
    return [
        *lines,
        f"git add {files} && git commit -m 'Gate what threads and processes cost'",
        f"# then a change: 20_000 becomes 40_000 in {path}",
        f"{measure} --ftgate-against=HEAD {path}",
    ]


def _shown(path: Path) -> str:
    """A path from the current folder."""
    return os.path.relpath(path)
