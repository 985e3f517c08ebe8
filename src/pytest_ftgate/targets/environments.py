"""One virtual environment per target, made by uv, with the user's project installed."""

from __future__ import annotations

import configparser
import contextlib
import hashlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from importlib import metadata
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, TypeAlias

import filelock
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename

from ..kit.errors import FtgateError
from ..kit.files import content_of, hide_from_git, open_regular, read_json, write_whole
from ..kit.git import AgainstError, git
from ..kit.hiding import without_secrets
from ..kit.waiting import locked, run_within
from ..model.spec import Interpreter

# ---- uv


class UvMissing(FtgateError):
    """uv is neither installed next to the plugin nor on PATH."""


def find_uv() -> str:
    """The path of uv: the one installed with the plugin, else the one on PATH. Raises UvMissing."""
    try:
        from uv import find_uv_bin

        return str(find_uv_bin())
    except (ImportError, FileNotFoundError):
        pass
    on_path = shutil.which("uv")
    if on_path is None:
        raise UvMissing("uv was not found: install it next to the plugin (pip install uv) or put it on PATH")
    return on_path


def run_uv(arguments: Sequence[str], cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run uv and capture its output as text; the caller checks the exit code. Raises UvMissing, and TooLong."""
    return run_within([find_uv(), *arguments], cwd=cwd, environment=uv_environment())


def uv_environment() -> dict[str, str]:
    """This process's environment without the variables by which uv would prefer another environment or Python.

    uv keeps no cache where it could not write one; without a home it would make one in the working directory.
    """
    ignored = {"VIRTUAL_ENV", "CONDA_PREFIX", "UV_PYTHON", "PYTHONHOME", "PYTHONPATH"}
    kept = {name: value for name, value in os.environ.items() if name not in ignored}
    if "UV_CACHE_DIR" not in kept:
        cache = user_cache()
        there = next((each for each in (cache, *cache.parents) if each.exists()), None) if cache else None
        if there is None or not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
            kept["UV_NO_CACHE"] = "1"
    return kept


def user_home() -> Path | None:
    """The user's home; None where HOME is not set and the system does not know the user, as in a container."""
    home = os.path.expanduser("~")
    return Path(home) if os.path.isabs(home) else None


def user_cache() -> Path | None:
    """The folder of the user's caches: `$XDG_CACHE_HOME`, else `~/.cache`; None without a home."""
    given, home = os.environ.get("XDG_CACHE_HOME", ""), user_home()
    if os.path.isabs(given):
        return Path(given)
    return None if home is None else home / ".cache"


# ---- what the files of a project say about it: what it is called, requires and is built by

SCM: Final = "SETUPTOOLS_SCM_PRETEND_VERSION"
"""The environment variable from which setuptools-scm, and hatch-vcs by it, takes a project's version, not from git."""
_NEVER_EDITABLE: Final = ("meson-python", "mesonpy", "sipbuild.api")
"""Build backends that build an editable install again when it is imported, or make none."""
_LEAVE_NO_FILES: Final = ("hatchling", "flit_core", "uv_build")
"""Build backends that write nothing into the folder that they build."""


def default_install(project: Path) -> tuple[tuple[str, ...], ...]:
    """What to install without ftgate_install: the project itself; if it is not a package, what it requires.

    It is editable, unless its build backend builds such an install again when it is imported, or has none. Raises
    FtgateError if pyproject.toml cannot be read.
    """
    content = pyproject(project)
    if _is_package(project, content):
        build = content.get("build-system", {})
        rebuilds = content.get("tool", {}).get("scikit-build", {}).get("editable", {}).get("rebuild") is True
        rebuilds |= build.get("build-backend") in _NEVER_EDITABLE
        rebuilds |= any(re.match(r"meson[-_.]python\b", str(word)) for word in build.get("requires", ()))
        return ((".",),) if rebuilds else (("-e", "."),)
    if content.get("project", {}).get("dependencies"):
        return (("-r", "pyproject.toml"),)
    return (("-r", "requirements.txt"),) if (project / "requirements.txt").is_file() else ()


def _is_package(project: Path, content: dict[str, Any]) -> bool:
    """Whether a project with this pyproject.toml can be installed. One without a build system is a package to pip.

    To uv it is none, and setuptools would often refuse it: uv's lock file, or its workspace, says who is asked.
    """
    uv = content.get("tool", {}).get("uv", {})
    if "package" in uv:
        return bool(uv["package"])
    if "build-system" in content or (project / "setup.py").is_file():
        return True
    return "project" in content and "workspace" not in uv and not (project / "uv.lock").is_file()


def leaves_no_files(steps: Steps, project: Path) -> bool:
    """Whether these steps are known to write nothing into a project's folder: their builds can run at once."""
    tables, _ = _readable(project)
    backend = str(tables.get("build-system", {}).get("build-backend", ""))
    hooks = "hooks" in str(tables.get("tool", {}).get("hatch", {})) or (project / "hatch.toml").exists()
    known = {project.resolve()} if backend.startswith(_LEAVE_NO_FILES) and not hooks else set()
    built = {path.resolve() for step in steps for path, _ in _paths(project, step) if path.is_dir()}
    return built <= known and not any(map(is_command, steps))


def pyproject(project: Path) -> dict[str, Any]:
    """The tables of pyproject.toml; empty without one. Raises FtgateError if it cannot be read."""
    path = project / "pyproject.toml"
    try:
        return tomllib.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    except (OSError, ValueError) as error:
        raise FtgateError(f"{path} cannot be read: {error}; fix it or set ftgate_install") from error


def project_name(project: Path) -> str:
    """The name of a project's distribution, in its canonical form; "" if no file says it."""
    content = pyproject(project)
    tables = (content.get("project", {}), content.get("tool", {}).get("poetry", {}))
    names = [str(table["name"]) for table in tables if "name" in table]
    for file, pattern in (("setup.cfg", r"^name\s*=\s*([\w.-]+)\s*$"), ("setup.py", r"\bname\s*=\s*['\"]([\w.-]+)")):
        if not names and (project / file).is_file():
            names = re.findall(pattern, (project / file).read_text(encoding="utf-8", errors="replace"), re.MULTILINE)
    return canonicalize_name(names[0]) if names else ""


def project_of(root: Path) -> str:
    """The name of the project at `root`: that of its distribution, else of its folder."""
    try:
        return project_name(root) or root.name
    except FtgateError:  # its pyproject.toml cannot be read: whoever needs more of it says so
        return root.name


def version_variable(project: Path) -> str:
    """The environment variable that gives a build its version; "" if it asks git for none, or the user has set one.

    It is for this project alone if its name is known: a dependency may be built by the same tool.
    """
    tables, options = _readable(project)
    script = project / "setup.py"
    older = script.read_text(encoding="utf-8", errors="replace") if script.is_file() else ""
    needed = (*map(str, tables.get("build-system", {}).get("requires", ())), options.get("setup_requires", ""), older)
    asked = re.findall(r"setuptools-scm|hatch-vcs", " ".join(needed).lower().replace("_", "-"))
    if not asked or any(name.startswith(SCM) for name in os.environ):
        return ""
    name = canonicalize_name(str(tables.get("project", {}).get("name", ""))).replace("-", "_").upper()
    return f"{SCM}_FOR_{name}" if name and "hatch-vcs" not in asked else SCM  # hatch-vcs does not tell the name


def required_python(project: Path) -> str:
    """`requires-python` of a project; empty without one, and if its file cannot be read (its installation says why)."""
    tables, options = _readable(project)
    return str(tables.get("project", {}).get("requires-python") or options.get("python_requires", ""))


def discovers_packages(project: Path) -> bool:
    """Whether setuptools looks for packages beside pyproject.toml by itself."""
    tables, options = _readable(project)
    backend = tables.get("build-system", {}).get("build-backend", "setuptools")
    if not {"project", "build-system"} & set(tables) or not backend.startswith("setuptools"):
        return False
    named = {*tables.get("tool", {}).get("setuptools", {}), *options}
    script = project / "setup.py"
    by_script = script.is_file() and "packages" in script.read_text(encoding="utf-8", errors="replace")
    return not ((project / "src").is_dir() or {"packages", "py-modules", "py_modules"} & named or by_script)


def _readable(project: Path) -> tuple[dict[str, Any], dict[str, str]]:
    """The tables of pyproject.toml and the options of setup.cfg; what cannot be read is empty."""
    tables: dict[str, Any] = {}
    with contextlib.suppress(FtgateError):
        tables = {name: each for name, each in pyproject(project).items() if isinstance(each, dict)}
    older = configparser.RawConfigParser(strict=False)
    with contextlib.suppress(OSError, ValueError, configparser.Error):
        older.read_string(content_of(project / "setup.cfg").decode())
    return tables, dict(older["options"]) if older.has_section("options") else {}


# ---- what is installed into an environment: steps, each of which is arguments of `uv pip install` or a shell command

Step: TypeAlias = tuple[str, ...]
"""The arguments of one `uv pip install`; of a shell command `("$", the command)`."""
Steps: TypeAlias = tuple[Step, ...]
OnStep: TypeAlias = Callable[[str], None]
COMMAND: Final = "$"
SHOWN_LINES: Final = 24
"""Lines of the end of a failed step's output that an error shows."""
_ERROR: Final = re.compile(r"\berror(?:\[\w+\])?: |^\s*[\w.]*(?:Error|Exception)(?:: |$)", re.IGNORECASE)


class InstallError(FtgateError):
    """A step that failed: why, the end of its output, and a fix."""


def is_command(step: Step) -> bool:
    return step[:1] == (COMMAND,)


def spelled(step: Step) -> str:
    """A step as a line of `ftgate_install`."""
    return " ".join(step) if is_command(step) else shlex.join(step)


def arguments(words: Iterable[str]) -> Iterator[tuple[str, str]]:
    """(kind, value) of each argument that may name a file; kind is editable, requirements, wheels or plain."""
    options = {
        "-e": "editable",
        "--editable": "editable",
        **dict.fromkeys(("-r", "--requirement", "--requirements", "-c", "--constraint"), "requirements"),
        **dict.fromkeys(("--constraints", "--override", "--overrides", "--build-constraint"), "requirements"),
        **dict.fromkeys(("-f", "--find-links"), "wheels"),
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


def distribution_of(project: Path, value: str) -> str:
    """The name of the distribution that a path installs, a wheel or a project's folder; "" for anything else."""
    path = path_of(project, value)
    if path.suffix == ".whl":
        with contextlib.suppress(InvalidWheelFilename):
            return str(parse_wheel_filename(path.name)[0])
    return project_name(path) if path.is_dir() else ""


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
        variables = uv_environment()
        if is_command(step):
            doing, words = f"running {step[1]}", ["/bin/sh", "-c", step[1]]
            folders = [str(python.parent), variables.get("PATH", os.defpath), str(Path(find_uv()).parent)]
            variables |= {"VIRTUAL_ENV": str(python.parent.parent), "PATH": os.pathsep.join(folders), **given}
        else:
            # Modules are compiled here: a launch would otherwise measure their compilation.
            refresh = [word for name in stale for word in ("--refresh-package", name)]
            words = [find_uv(), "pip", "install", "--compile-bytecode", *refresh, "--python", str(python), *step]
            doing = f"installing {' '.join(word for word in step if not word.startswith('-'))}"
            built = (value for kind, value in arguments(step) if kind in ("editable", "plain"))
            if any(path_of(project, value).is_dir() for value in built):
                doing = "building the project"
                variables |= given
        done = run_within(
            words,
            cwd=project,
            environment=variables,
            stderr=subprocess.STDOUT,
            on_wait=partial(on_step, f"{doing}{place}"),
        )
        if done.returncode:
            log.write_text(without_secrets(done.stdout.strip()), encoding="utf-8", errors="replace")
            lines = [line.rstrip() for line in done.stdout.splitlines() if line.strip()]
            raise InstallError(
                f"cannot install {spelled(step)}{place}: {cause_of(lines) or f'exit code {done.returncode}'}\n"
                f"for {interpreter.name} in {project}:\n"
                + "".join(f"{line}\n" for line in lines[-SHOWN_LINES:])
                + f"(all {len(lines)} lines: {log})\nfix: {_fix(step, project)}"
            )
    log.unlink(missing_ok=True)


def cause_of(lines: Sequence[str]) -> str:
    """The line of a tool's output that says why it failed: its first error, else uv's own conclusion, else the last."""
    own = next(filter(_ERROR.search, lines), "") or next((line for line in lines if "╰─▶" in line), "")
    return (own or "".join(lines[-1:])).strip()


def _fix(step: Step, project: Path) -> str:
    # A submodule of the repository whose folder is empty.
    top = next((folder for folder in (project, *project.parents) if (folder / ".git").exists()), project)
    with contextlib.suppress(OSError):
        text = content_of(top / ".gitmodules").decode(errors="replace")
        for path in re.findall(r"^\s*path\s*=\s*(.+?)\s*$", text, re.MULTILINE):
            if (top / path).is_dir() and not any((top / path).iterdir()):
                return f"the submodule {path} is not checked out: git submodule update --init --recursive {path}"
    if is_command(step):
        return (
            "correct this command, or install what it runs in a step before, a line of its own in ftgate_install; it "
            "runs in that folder, with the environment's bin first in PATH"
        )
    return "set what to install with ftgate_install, or with packages= of the test"


def missing_hint(detail: str, target: str) -> str:
    """How to install what an error misses in the environment of a target and is there where pytest runs; else ""."""
    modules = re.findall(r"^ModuleNotFoundError: No module named '(\w+)'", detail, re.MULTILINE)
    name = metadata.packages_distributions().get(modules[-1], [""])[0] if modules else ""
    if not name:
        return ""
    return (
        f"{name} is installed where pytest runs, not in the environment of {target}: add packages=[{name!r}] to the "
        f"test's decorator, or install it for all tests, such as by `ftgate_install = -e . {name}` in the ini"
    )


def rebuild_hint(detail: str) -> str:
    """What to do about an editable install that is built again when it is imported, and cannot be; "" otherwise."""
    if not re.search(r"re-?building the \"?[\w.-]+\"? .*editable .*failed", detail):
        return ""
    return (
        "meson-python builds an editable install again when it is imported, and what the build needs is gone by then: "
        "set ftgate_install = . or two steps, a line each: meson-python and what else it needs, then "
        "--no-build-isolation -e ."
    )


# ---- what an install depends on: a digest of the files and variables that its steps read

VARIABLES: Final = (
    *("CC", "CXX", "CPP", "LD", "AR", "CFLAGS", "CPPFLAGS", "CXXFLAGS", "LDFLAGS", "FC", "FFLAGS", "FCFLAGS"),
    *("RUSTFLAGS", "CARGO_BUILD_TARGET", "MATURIN_PEP517_ARGS", "CMAKE_ARGS", "SKBUILD_CMAKE_ARGS"),
    SCM,
)
"""Environment variables by which compilers are called differently, or a project's version is another."""
_METADATA: Final = (
    *("pyproject.toml", "setup.py", "setup.cfg", "MANIFEST.in", "uv.lock", "poetry.lock", "pdm.lock"),
    *("CMakeLists.txt", "meson_options.txt", "Makefile"),
)
_NATIVE: Final = (
    *(".c", ".cc", ".cpp", ".cxx", ".cu", ".cuh", ".h", ".hh", ".hpp", ".hxx", ".inc", ".inl", ".ipp", ".tcc"),
    *(".pyx", ".pxd", ".pxi", ".tp", ".src", ".tmpl", ".rs", ".go", ".zig", ".s", ".S", ".asm", ".i", ".y", ".l"),
    *(".f", ".f90", ".f95", ".F", ".F90", ".toml", ".lock", ".build", ".options", ".cmake", ".in"),
)
_BESIDE: Final = frozenset({"tests", "test", "benchmarks", "docs", "doc", "examples"})
_BUILT: Final = (".so", ".pyd", ".dylib", ".dll", ".o", ".a", ".pyc")
_SKIPPED: Final = frozenset({"build", "dist", "target", "node_modules", "__pycache__", "baselines"})


def inputs_of(steps: Steps, project: Path, given: Mapping[str, str], salt: bytes) -> tuple[str, bool, tuple[str, ...]]:
    """A salted digest of what steps read; whether the result is bound to the project's folder; local distributions.

    Paths count relative to the project: the same files in two checkouts are the same. `given` are variables of these
    steps alone. An editable install or a command leaves something in the folder that it was made from, or points there.
    Local distributions are those that uv has cached: of folders that requirements files name, of folders of wheels, and
    of a project whose build is given variables.
    """
    files, modules = set[Path](), set[Path]()
    bound, local = False, set[str]()
    for step in steps:
        if is_command(step):
            bound = True
            files.update(_project_files(project))
            continue
        for path, kind in _paths(project, step):
            if path.is_dir():
                found = set(_project_files(path))
                if kind.startswith("editable"):  # it lists modules, and has no copy of them
                    bound = True
                    modules.update(each for each in found if _is_top_level(each.relative_to(path)))
                    found = set(filter(_is_built_from, found))
                files.update(found)
                if kind.startswith("wheels"):
                    local.update(distribution_of(project, str(wheel)) for wheel in path.glob("*.whl"))
                elif kind.endswith("listed"):
                    local.add(project_name(path))
            else:
                files.add(path)
    variables = [f"{name}={os.environ[name]}" for name in VARIABLES if name in os.environ] if steps else []
    if given:
        local.add(project_name(project))
        variables += [f"{name}={value}" for name, value in given.items()]
    named = sorted(os.path.relpath(path, project) for path in modules - files)
    digest = hashlib.blake2b("\0".join((*variables, *named)).encode(errors="surrogateescape"), key=salt)
    for name, path in sorted((os.path.relpath(path, project), path) for path in files):
        with contextlib.suppress(OSError):
            with open_regular(path) as file:
                content = hashlib.file_digest(file, hashlib.blake2b).digest()
            digest.update(f"{name}\0".encode(errors="surrogateescape") + content)
    return digest.hexdigest(), bound, tuple(sorted(local - {""}))


def _paths(folder: Path, words: Iterable[str], listed: str = "") -> Iterator[tuple[Path, str]]:
    """(path, kind) of each file and folder that arguments name; the kind ends with `listed`."""
    for kind, value in arguments(words):
        path = path_of(folder, value.rpartition("file://")[2] if "file://" in value else value)
        if kind == "requirements":
            yield from _requirements(path)
        elif path.is_dir() or path.is_file():
            yield path, kind + listed


def _requirements(path: Path, seen: frozenset[Path] = frozenset()) -> Iterator[tuple[Path, str]]:
    """A requirements file, the files that it includes, and its local projects."""
    if path in seen or not path.is_file():
        return
    yield path, "requirements"
    if path.suffix == ".toml":
        return
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        words = tuple(line.split(" #")[0].split())
        if not words or words[0].startswith("#"):
            continue
        if words[0].startswith(("-r", "-c", "--requirement", "--constraint")):
            for _, value in arguments(words):
                yield from _requirements(path.parent / value, seen | {path})
        else:
            yield from _paths(path.parent, words, " listed")


def _project_files(project: Path) -> Iterator[Path]:
    """The files that a build may read: what git does not ignore, without tests and such."""
    for path in _listed(project):
        parts = path.relative_to(project).parts
        if _is_built_from(path) or not (parts[0] in _BESIDE or "baselines" in parts):
            yield path


def _is_built_from(path: Path) -> bool:
    """Whether an editable install is built from a file, too."""
    return path.name.endswith(_NATIVE) or path.name in _METADATA


def _is_top_level(path: Path) -> bool:
    """Whether a path in a project may be a module, or a package, that is imported by one name."""
    return path.name == "__init__.py" or (path.suffix == ".py" and len(path.parts) <= len(("src", "module.py")))


def _listed(folder: Path) -> Iterator[Path]:
    """The files below a folder that git does not ignore, those of submodules too; outside of git all but usual ones."""
    try:
        listing = git(folder, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    except AgainstError:
        yield from _walked(folder)
        return
    names = dict.fromkeys(listing.split("\0"))
    if len(names) == 1:  # an ignored folder, to git
        yield from _walked(folder)
    for path in (folder / name for name in names if name and ".ftgate" not in Path(name).parts):
        if path.is_dir() and not path.is_symlink():
            yield from _listed(path) if (path / ".git").exists() else ()
        else:
            yield path


def _walked(project: Path) -> Iterator[Path]:
    for folder, names, files in os.walk(project):
        for name in list(names):
            usual = name.startswith(".") or name.endswith(".egg-info") or name in _SKIPPED
            if usual or Path(folder, name, "pyvenv.cfg").exists():
                names.remove(name)
        yield from (Path(folder, name) for name in files if not name.startswith(".") and not name.endswith(_BUILT))


# ---- the environments

STAMP: Final = "ftgate-stamp.json"
SALT: Final = "salt"
KEPT_UNUSED_S: Final = 30 * 86400.0
"""An environment unused for this long is removed; it is made again when it is needed."""
_NOT_IMPORTED: Final = (".dist-info", ".data", ".pth", ".libs")
_HELD_S: Final = 2 * 86400.0
"""One used more recently is kept after its checkout is gone, unless it points into it: another may need the same.

A job of CI gets it from a cache, without the checkouts."""


def ensure_environment(
    interpreter: Interpreter,
    *,
    root: Path,
    project: Path,
    install: Steps,
    variables: Mapping[str, str] = MappingProxyType({}),
    on_step: OnStep = lambda _: None,
) -> Path:
    """The python of an environment of `interpreter` under `root`, made if it is missing or out of date.

    `install` are steps in `project`'s folder; none installs nothing. One that was made from the same in another
    checkout is used, if nothing in it points to that checkout. Builds get these environment `variables`, too. `on_step`
    is called with what is done while one is made.
    A file lock keeps two runs from making it at once. Raises InstallError for a step, FtgateError for uv itself.
    """
    folder = environment_folder(interpreter, root=root, project=project, install=install)
    hide_from_git(root)
    with locked(Path(f"{folder}.lock")):
        salt = _salt(root)
        digest, bound, local = inputs_of(install, project, variables, salt)
        binary = os.stat(interpreter.executable)
        stamp = {
            "schema": "4",
            "executable": interpreter.executable,
            "version": interpreter.name,
            "project": str(project.resolve()),
            "bound": "bound" if bound or not install else "",
            "binary": f"{binary.st_mtime_ns} {binary.st_size}",
            "install": hashlib.blake2b(json.dumps(install).encode(), key=salt).hexdigest(),
            "sources": digest if install else "",
        }
        shared = [] if bound or not install else sorted(path.parent for path in root.glob(f"*/{STAMP}"))
        for made in (folder, *shared):
            found = read_stamp(made) or {}  # maybe of another checkout
            same = "project" in found and found | {"project": stamp["project"]} == stamp
            if same and environment_python(made).exists():
                os.utime(made / STAMP)  # the time of its last use, for `prune_environments`
                return environment_python(made)
        (folder / STAMP).unlink(missing_ok=True)
        words = ["venv", "--quiet", "--clear", "--no-project", "--no-config", "--python", interpreter.executable]
        done = run_uv([*words, str(folder)])
        if done.returncode:
            said = done.stderr.strip()
            cause = cause_of(said.splitlines()) or f"exit code {done.returncode}"
            text = f"uv could not make the environment of {interpreter.name}: {cause}\n{folder}\n{said}"
            raise FtgateError(text)
        python = environment_python(folder)
        run_steps(install, python, interpreter, project, local, variables, on_step)
        write_whole(folder / STAMP, [json.dumps(stamp, indent=1, sort_keys=True).encode(), b"\n"])
        return python


def environment_folder(interpreter: Interpreter, *, root: Path, project: Path, install: Steps) -> Path:
    """The folder of the environment for an interpreter and install steps, whether it exists or not."""
    made_of = json.dumps([interpreter.executable, str(project.resolve()), install])
    digest = hashlib.blake2b(made_of.encode(), key=_salt(root), digest_size=4)
    return root.absolute() / f"{interpreter.name}-{digest.hexdigest()}"


def _salt(root: Path) -> bytes:
    """What digests of install steps are salted with: a step may hold a secret, and folders' names are shown.

    It is made once and lies beside the environments, so that they are found again.
    """
    path = root / SALT
    if not path.exists():
        hide_from_git(root)
        with locked(Path(f"{path}.lock")):  # of two runs that begin at once one makes it, for both
            if not path.exists():
                write_whole(path, [os.urandom(16)])
    return path.read_bytes()


def environment_python(folder: Path) -> Path:
    return folder / "Scripts" / "python.exe" if sys.platform == "win32" else folder / "bin" / "python"


def site_packages(python: Path) -> list[str]:
    """The folders that the python of an environment has its distributions in."""
    environment = python.parent.parent
    return [*map(str, environment.glob("lib/python*/site-packages")), str(environment / "Lib/site-packages")]


def copied_modules(python: Path, project: Path) -> tuple[str, ...]:
    """The importable names of an environment that are copies of the project's sources, or of another local one's.

    An editable install has none: its sources are imported where they are.
    """
    own, found = project_name(project), set[str]()
    for distribution in metadata.distributions(path=site_packages(python)):
        origin = distribution.read_text("direct_url.json") or ""
        local = '"file://' in origin or canonicalize_name(distribution.metadata["Name"] or "?") == own
        if local and not re.search(r'"editable":\s*true', origin):
            tops = {path.parts[0] for path in distribution.files or ()}
            found.update(top.partition(".")[0] for top in tops if not top.endswith(_NOT_IMPORTED))
    return tuple(sorted(found - {"", "__pycache__"}))


def read_stamp(folder: Path) -> dict[str, str] | None:
    """What an environment was made from; None if it does not exist or is not finished."""
    return read_json(folder / STAMP, dict[str, str])


def find_environments(interpreter: Interpreter, root: Path) -> list[Path]:
    stamps = {folder: read_stamp(folder) for folder in sorted(root.glob(f"{interpreter.name}-*")) if folder.is_dir()}
    return [folder for folder, stamp in stamps.items() if stamp and stamp.get("executable") == interpreter.executable]


def prune_environments(root: Path, *, kept_unused_s: float = KEPT_UNUSED_S) -> list[Path]:
    """Remove the environments under `root` whose project no longer exists, or unused for `kept_unused_s` seconds.

    One that another run is making, or whose stamp names no project, is kept. Returns the removed folders.
    """
    removed = []
    for folder in sorted(path.parent for path in root.absolute().glob(f"*/{STAMP}")):
        try:
            with filelock.FileLock(f"{folder}.lock", timeout=0):
                stamp = read_stamp(folder) or {}
                unused_s = datetime.now(UTC).timestamp() - (folder / STAMP).stat().st_mtime
                gone = not Path(stamp.get("project", "")).is_dir() and (unused_s > _HELD_S or bool(stamp.get("bound")))
                if "project" in stamp and (gone or unused_s > kept_unused_s):
                    (folder / STAMP).unlink(missing_ok=True)
                    shutil.rmtree(folder, ignore_errors=True)
                    removed.append(folder)
        except filelock.Timeout:
            continue
    return removed


def forget_environments(root: Path, project: Path) -> None:
    """Let the environments under `root` that are bound to a project in this folder be made again."""
    for stamp in root.absolute().glob(f"*/{STAMP}"):
        made = read_stamp(stamp.parent) or {}
        if made.get("bound") and Path(made["project"]).is_relative_to(project.resolve()):
            stamp.unlink(missing_ok=True)
