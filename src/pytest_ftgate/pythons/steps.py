"""What is installed into an environment: steps, each of which is arguments of `uv pip install` or a shell command."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Final, TypeAlias

from packaging import tags
from packaging.utils import InvalidWheelFilename, parse_wheel_filename

from ..errors import FtgateError
from ..model import Interpreter
from .project import empty_submodules, project_name, pyproject
from .uv_tool import find_uv, uv_environment
from .waiting import run_within

Step: TypeAlias = tuple[str, ...]
"""The arguments of one `uv pip install`; of a shell command `("$", the command)`."""
Steps: TypeAlias = tuple[Step, ...]
OnStep: TypeAlias = Callable[[str], None]
COMMAND: Final = "$"
WHEEL: Final = ".whl"
SHOWN_LINES: Final = 24
"""Lines of a failed step's output that an error shows at most: its beginning, what it calls an error, its end."""
_ERROR: Final = re.compile(r"\berror(?:\[\w+\])?:|^\s*\w*(?:Error|Exception): |╰─▶", re.IGNORECASE)

_FATAL: Final = re.compile(r"\bfatal error: ")
_REPORTED: Final = re.compile(r"\berror(?:\[\w+\])?: ")
_RAISED: Final = re.compile(r"[\w.]*(?:Error|Exception|Exit)\b(?:: |$)")
_CONSEQUENCE: Final = re.compile(
    r"Failed to |subprocess-exited|command .* failed|exit (?:code|status)|returned an error"
)
"""Lines of tools that started the one that failed."""


class InstallError(FtgateError):
    """A step that failed: its side, what matters of its output, and a fix."""


# ---- what a step says


def is_command(step: Step) -> bool:
    """Whether a step is a shell command."""
    return step[:1] == (COMMAND,)


def spelled(step: Step) -> str:
    """A step as a line of `ftgate_install`."""
    return " ".join(step) if is_command(step) else shlex.join(step)


def arguments(words: Iterable[str]) -> Iterator[tuple[str, str]]:
    """(kind, value) of each argument that may name a file; kind is editable, requirements or plain."""
    options = {
        "-e": "editable",
        "--editable": "editable",
        **dict.fromkeys(("-r", "--requirement", "--requirements", "-c", "--constraint"), "requirements"),
        **dict.fromkeys(("--constraints", "--override", "--overrides", "--build-constraint"), "requirements"),
    }
    following = ""
    for argument in words:
        name, equals, value = argument.partition("=")
        if following:
            yield following, argument
            following = ""
        elif argument in options:
            following = options[argument]
        elif equals and name in options:
            yield options[name], value
        elif argument[:2] in options and not argument.startswith("--"):
            yield options[argument[:2]], argument[2:]
        elif not argument.startswith("-"):
            yield "plain", argument


def path_of(project: Path, value: str) -> Path:
    """The path that an argument may name, without its extras."""
    return project / os.path.expanduser(value.partition("[")[0])


def doing(step: Step, project: Path) -> str:
    """What a step does, in a few words."""
    if is_command(step):
        return f"running {step[1]}"
    if _builds(step, project):
        return "building the project"
    return f"installing {' '.join(word for word in step if not word.startswith('-'))}"


def _builds(step: Step, project: Path) -> bool:
    return any(path_of(project, value).is_dir() for kind, value in arguments(step) if kind != "requirements")


# ---- wheels


def distribution_of(project: Path, value: str) -> str:
    """The name of the distribution that a path installs, a wheel or a project's folder; "" for anything else."""
    path = path_of(project, value)
    if path.name.endswith(WHEEL):
        names = {_wheel_name(each) for each in _matching(path)}
        return names.pop() if len(names) == 1 else _wheel_name(path)
    return project_name(path) if path.is_dir() else ""


def with_wheels(steps: Steps, project: Path, interpreter: Interpreter) -> Steps:
    """The steps with each pattern of wheels, `dist/*.whl`, replaced by the one for this interpreter.

    Raises FtgateError where none, or wheels of several versions, fit.
    """
    return tuple(
        step if is_command(step) else tuple(_wheel(word, project, interpreter) for word in step) for step in steps
    )


def _wheel(word: str, project: Path, interpreter: Interpreter) -> str:
    path, extras = path_of(project, word), "".join(word.partition("[")[1:])
    if not path.name.endswith(WHEEL) or word.startswith("-"):
        return word
    there = _matching(path)
    if not there:
        raise FtgateError(f"there is no wheel {path}: build it, for example with `uv build --wheel`, or fix its path")
    fitting = [each for each in there if _fits(each, interpreter)] if "*" in path.name else there
    if len(fitting) != 1:
        found = ", ".join(each.name for each in fitting or there)
        what = "more than one wheel fits" if fitting else "no wheel fits"
        raise FtgateError(f"{what} {interpreter.name} of {word}: {found}; leave or build one for each target")
    return f"{fitting[0]}{extras}" if "*" in path.name else word


def _matching(path: Path) -> list[Path]:
    return sorted(path.parent.glob(path.name)) if "*" in path.name else [path] if path.is_file() else []


def _wheel_name(path: Path) -> str:
    try:
        return str(parse_wheel_filename(path.name)[0])
    except InvalidWheelFilename:
        return ""


def _fits(path: Path, interpreter: Interpreter) -> bool:
    version = tuple(int(number) for number in interpreter.version.split(".")[:2])
    abi = f"cp{version[0]}{version[1]}{'t' if interpreter.free_threaded else ''}"
    accepted = {*tags.cpython_tags(version, [abi]), *tags.compatible_tags(version, f"cp{version[0]}{version[1]}")}
    try:
        return not accepted.isdisjoint(parse_wheel_filename(path.name)[3])
    except InvalidWheelFilename:
        return False


# ---- running them


def run_steps(
    steps: Steps,
    python: Path,
    interpreter: Interpreter,
    project: Path,
    stale: Iterable[str],
    given: Mapping[str, str],
    on_step: OnStep,
) -> None:
    """Run each step in the project's folder. Raises InstallError for the first that fails.

    `stale` are distributions of local folders that uv has cached and that have to be built again. Commands, and steps
    that build, are `given` these variables. `on_step` is called with what a step does as it begins, and every second
    while it runs.
    """
    log = python.parent.parent.with_suffix(".log")
    for number, step in enumerate(steps, 1):
        place = f" (step {number} of {len(steps)})" if len(steps) > 1 else ""
        text = f"{doing(step, project)}{place}"
        words, variables = _command_line(step, python, stale)
        if is_command(step) or _builds(step, project):
            variables |= given
        done = run_within(
            words, cwd=project, environment=variables, stderr=subprocess.STDOUT, on_wait=partial(on_step, text)
        )
        if done.returncode:
            output = done.stdout.strip()
            log.write_text(output, encoding="utf-8", errors="replace")
            raise InstallError(_failure(step, place, done, project, interpreter, log))
    log.unlink(missing_ok=True)


def _command_line(step: Step, python: Path, stale: Iterable[str]) -> tuple[list[str], dict[str, str]]:
    """The words of a step's process, and its environment."""
    variables = uv_environment()
    if not is_command(step):
        # Modules are compiled here: a launch would otherwise measure their compilation.
        refresh = [word for name in stale for word in ("--refresh-package", name)]
        words = ["pip", "install", "--compile-bytecode", *refresh, "--python", str(python), *step]
        return [find_uv(), *words], variables
    path = os.pathsep.join([str(python.parent), variables.get("PATH", os.defpath), str(Path(find_uv()).parent)])
    return ["/bin/sh", "-c", step[1]], {**variables, "VIRTUAL_ENV": str(python.parent.parent), "PATH": path}


def _failure(
    step: Step,
    place: str,
    done: subprocess.CompletedProcess[str],
    project: Path,
    interpreter: Interpreter,
    log: Path,
) -> str:
    lines = [line.rstrip() for line in done.stdout.splitlines() if line.strip()]
    cause = cause_of(lines)
    shown = excerpt(lines)
    whole = f"\n(all {len(lines)} lines: {log})" if len(shown) < len(lines) else ""
    head = f"cannot install {spelled(step)}{place}: {cause or f'exit code {done.returncode}'}"
    output = "\n".join(shown) or f"exit code {done.returncode}, and no output"
    return f"{head}\nfor {interpreter.name} in {project}:\n{output}{whole}\nfix: {_fix(step, done, project)}"


def cause_of(lines: Sequence[str]) -> str:
    """Of a tool's output the line that says why: a compiler's before the build tool's, which say that it failed."""
    own = [line.strip() for line in lines if not _CONSEQUENCE.search(line)]
    fatal, error = (next(filter(each.search, own), "") for each in (_FATAL, _REPORTED))
    raised = next((line for line in reversed(own) if _RAISED.match(line)), "")
    return fatal or error or raised or next((line.strip() for line in lines if _ERROR.search(line)), "")


def excerpt(lines: list[str]) -> list[str]:
    """Of a long output its beginning, the lines that name an error, and its end, with `...` for what is left out."""
    if len(lines) <= SHOWN_LINES:
        return lines
    part = SHOWN_LINES // 4
    errors = [number for number, line in enumerate(lines) if _ERROR.search(line)][:part]
    around = {number + step for number in errors for step in (0, 1)}
    kept = sorted({*range(3), *around.intersection(range(len(lines))), *range(len(lines) - 2 * part, len(lines))})
    shown: list[str] = []
    for before, number in zip([-1, *kept], kept, strict=False):
        shown += (["..."] if number > before + 1 else []) + [lines[number]]
    return shown


def _fix(step: Step, done: subprocess.CompletedProcess[str], project: Path) -> str:
    output = done.stdout
    if empty := empty_submodules(project):
        return f"the submodule {empty[0]} is not checked out: git submodule update --init --recursive {empty[0]}"
    if is_command(step):
        if done.returncode == 127:
            return "install the program in a step before, a line of its own in ftgate_install"
        return "correct this command; it runs in that folder, with the environment's bin first in PATH"
    if "build_editable" in output and re.search(r"has no attribute|not support|missing|hook", output):
        return "its build backend makes no editable installs: ftgate_install = ."
    if "--no-build-isolation" in step and re.search(r"ModuleNotFoundError|not found|No module named", output):
        return (
            f"install what the build needs in a step before, in ftgate_install: {shlex.join(_build_requires(project))}"
        )
    return "set what to install with ftgate_install, or with requires= of the test"


def _build_requires(project: Path) -> str:
    return shlex.join(pyproject(project).get("build-system", {}).get("requires", ()))


def missing_hint(detail: str, target: str) -> str:
    """How to install what an error misses in the environment of a target and is there where pytest runs; else ""."""
    modules = re.findall(r"^ModuleNotFoundError: No module named '(\w+)'", detail, re.MULTILINE)
    name = metadata.packages_distributions().get(modules[-1], [""])[0] if modules else ""
    if not name:
        return ""
    return (
        f"{name} is installed where pytest runs, not in the environment of {target}: add requires=[{name!r}] to the "
        f"test's decorator, or install it for all tests, such as by `ftgate_install = -e . {name}` in the ini"
    )


def rebuild_hint(detail: str, project: Path) -> str:
    """What to do about an editable install that is built again when it is imported, and cannot be; "" otherwise."""
    if not re.search(r"re-?building the \"?[\w.-]+\"? .*editable .*failed", detail):
        return ""
    try:
        requires = _build_requires(project)
    except FtgateError:
        requires = "meson-python"
    return (
        "meson-python builds an editable install again when it is imported, and what the build needs is gone by then: "
        f"set ftgate_install = . or two steps, a line each: {requires}, and then --no-build-isolation -e ."
    )
