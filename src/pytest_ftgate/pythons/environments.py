"""One virtual environment per target, made by uv, with the user's project installed."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import filelock

from ..errors import FtgateError
from ..model import Interpreter
from .uv_tool import run_uv

STAMP: Final = "ftgate-stamp.json"
STAMP_SCHEMA: Final = 2
KEPT_UNUSED_S: Final = 30 * 86400.0
"""An environment unused for this long is removed; it is made again when it is needed."""

_METADATA: Final = ("pyproject.toml", "setup.py", "setup.cfg", "MANIFEST.in", "uv.lock", "poetry.lock", "pdm.lock")
_NATIVE: Final = (
    *(".c", ".cc", ".cpp", ".cxx", ".cu", ".h", ".hh", ".hpp", ".hxx", ".pyx", ".pxd", ".pxi", ".rs", ".go"),
    *(".f", ".f90", ".f95", ".toml", ".lock", ".build", ".cmake", ".in"),
)
_PYTHON: Final = (".py", ".pyi")
_SKIPPED: Final = frozenset({"build", "dist", "target", "node_modules", "__pycache__", "baselines"})


class EnvironmentBroken(FtgateError):
    """An environment that uv could not make; has uv's own message."""


class InstallError(EnvironmentBroken):
    """The user's project could not be installed into an environment; has uv's whole message."""


def default_install(project: Path) -> tuple[str, ...]:
    """What to install without ftgate_install: the project itself, editable; if it is not a package, what it requires.

    Raises FtgateError if pyproject.toml cannot be read.
    """
    pyproject = project / "pyproject.toml"
    content: dict[str, Any] = {}
    if pyproject.is_file():
        try:
            content = tomllib.loads(pyproject.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise FtgateError(f"{pyproject} cannot be read: {error}; fix it or set ftgate_install") from error
    if _is_package(project, content):
        return ("-e", ".")
    if content.get("project", {}).get("dependencies"):
        return ("-r", "pyproject.toml")
    return ("-r", "requirements.txt") if (project / "requirements.txt").is_file() else ()


def _is_package(project: Path, content: Mapping[str, Any]) -> bool:
    """Whether a project with this pyproject.toml can be installed. One without a build system is a package to pip.

    To uv it is none, and setuptools would often refuse it: uv's lock file says who is asked.
    """
    said = content.get("tool", {}).get("uv", {}).get("package")
    if said is not None:
        return bool(said)
    if "build-system" in content or (project / "setup.py").is_file():
        return True
    return "project" in content and not (project / "uv.lock").is_file()


def ensure_environment(interpreter: Interpreter, *, root: Path, project: Path, install: tuple[str, ...]) -> Path:
    """The python of an environment of `interpreter` under `root`, made if it is missing or out of date.

    `install` holds arguments for `uv pip install`, relative to `project`; empty installs nothing. A file lock keeps two
    runs from making it at once. Raises EnvironmentBroken, InstallError.
    """
    folder = environment_folder(interpreter, root=root, project=project, install=install)
    hide_from_git(root)
    with filelock.FileLock(f"{folder}.lock"):
        stamp = _stamp(interpreter, project, install)
        python = environment_python(folder)
        if read_stamp(folder) == stamp and python.exists():
            os.utime(folder / STAMP)  # the time of its last use, for `prune_environments`
            return python
        (folder / STAMP).unlink(missing_ok=True)
        _make(folder, interpreter)
        if install:
            _install(python, interpreter, project, install)
        _write_stamp(folder, stamp)
        return python


def environment_folder(interpreter: Interpreter, *, root: Path, project: Path, install: tuple[str, ...]) -> Path:
    """The folder of the environment for an interpreter and install arguments, whether it exists or not."""
    made_of = json.dumps([interpreter.executable, str(project.resolve()), list(install)])
    return root.absolute() / f"{interpreter.name}-{hashlib.sha256(made_of.encode()).hexdigest()[:8]}"


def environment_python(folder: Path) -> Path:
    """The path of the python of an environment."""
    return folder / "Scripts" / "python.exe" if sys.platform == "win32" else folder / "bin" / "python"


def read_stamp(folder: Path) -> dict[str, str] | None:
    """What an environment was made from; None if it does not exist or is not finished."""
    try:
        content = json.loads((folder / STAMP).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return content if isinstance(content, dict) else None


def find_environments(interpreter: Interpreter, root: Path) -> list[Path]:
    """The finished environments of an interpreter under `root`."""
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
                if _is_stale(folder, kept_unused_s):
                    (folder / STAMP).unlink(missing_ok=True)
                    shutil.rmtree(folder, ignore_errors=True)
                    removed.append(folder)
        except filelock.Timeout:
            continue
    return removed


def _is_stale(folder: Path, kept_unused_s: float) -> bool:
    stamp = read_stamp(folder)
    if stamp is None or "project" not in stamp:
        return False
    unused_s = datetime.now(UTC).timestamp() - (folder / STAMP).stat().st_mtime
    return unused_s > kept_unused_s or not Path(stamp["project"]).is_dir()


def hide_from_git(root: Path) -> None:
    """Make `root` and write the .gitignore that hides it: in the nearest `.ftgate` above, else in `root` itself."""
    root = root.absolute()
    root.mkdir(parents=True, exist_ok=True)
    top = next((folder for folder in (root, *root.parents) if folder.name == ".ftgate"), root)
    ignore = top / ".gitignore"
    if not ignore.exists():
        ignore.write_text("*\n", encoding="utf-8")


def _make(folder: Path, interpreter: Interpreter) -> None:
    arguments = ["venv", "--quiet", "--clear", "--no-project", "--no-config", "--python", interpreter.executable]
    done = run_uv([*arguments, str(folder)])
    if done.returncode:
        raise EnvironmentBroken(
            f"uv could not make the environment {folder} for {interpreter.executable}:\n{done.stderr.strip()}"
        )


def _install(python: Path, interpreter: Interpreter, project: Path, install: tuple[str, ...]) -> None:
    # Modules are compiled here: a launch would otherwise measure their compilation.
    arguments = ["pip", "install", "--compile-bytecode", "--python", str(python), *install]
    done = run_uv(arguments, cwd=project)
    if done.returncode:
        output = "\n".join(part.strip() for part in (done.stdout, done.stderr) if part.strip())
        raise InstallError(
            f"cannot install {' '.join(install)} (of {project}) for {interpreter.name}; "
            f"set what to install with ftgate_install, or with requires= of the test. Output of uv:\n{output}"
        )


def _write_stamp(folder: Path, stamp: dict[str, str]) -> None:
    unfinished = folder / f"{STAMP}.{os.getpid()}"
    unfinished.write_text(json.dumps(stamp, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    unfinished.replace(folder / STAMP)


def _stamp(interpreter: Interpreter, project: Path, install: tuple[str, ...]) -> dict[str, str]:
    binary = os.stat(interpreter.executable)
    return {
        "schema": str(STAMP_SCHEMA),
        "executable": interpreter.executable,
        "version": interpreter.name,
        "project": str(project.resolve()),
        "binary": f"{binary.st_mtime_ns} {binary.st_size}",
        "install": json.dumps(list(install)),
        "sources": _digest(_inputs(project, install)) if install else "",
    }


def _digest(paths: Iterable[Path]) -> str:
    digest = hashlib.sha256()
    for path in sorted(set(paths)):
        try:
            content = path.read_bytes()
        except OSError:
            continue
        digest.update(f"{path}\0{len(content)}\0".encode())
        digest.update(content)
    return digest.hexdigest()


def _inputs(project: Path, install: tuple[str, ...]) -> Iterator[Path]:
    """Every file on which the result of `uv pip install` with these arguments depends."""
    for kind, value in _arguments(install):
        path = project / os.path.expanduser(value.partition("[")[0])
        if kind == "requirements":
            yield from _requirements(path)
        elif path.is_dir():
            yield from _project_files(path, editable=kind == "editable")
        elif path.is_file():
            yield path


def _arguments(arguments: Iterable[str]) -> Iterator[tuple[str, str]]:
    """(kind, value) of each argument that may name a file; kind is editable, requirements or plain."""
    options = {
        "-e": "editable",
        "--editable": "editable",
        **dict.fromkeys(("-r", "--requirement", "--requirements", "-c", "--constraint"), "requirements"),
        **dict.fromkeys(("--constraints", "--override", "--overrides", "--build-constraint"), "requirements"),
    }
    following = ""
    for argument in arguments:
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


def _requirements(path: Path, seen: frozenset[Path] = frozenset()) -> Iterator[Path]:
    """A requirements file, the files that it includes, and the files of its local projects."""
    if path in seen or not path.is_file():
        return
    yield path
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        words = tuple(line.split(" #")[0].split())
        if not words or words[0].startswith("#"):
            continue
        if words[0].startswith(("-r", "-c", "--requirement", "--constraint")):
            for _, value in _arguments(words):
                yield from _requirements(path.parent / value, seen | {path})
        else:
            yield from _inputs(path.parent, words)


def _project_files(project: Path, *, editable: bool) -> Iterator[Path]:
    suffixes = _NATIVE if editable else (*_NATIVE, *_PYTHON)
    yield from (project / name for name in _METADATA if (project / name).is_file())
    for folder, names, files in os.walk(project):
        names[:] = [name for name in names if not _is_skipped(Path(folder, name))]
        for name in files:
            if name.endswith(suffixes) and not name.startswith("."):
                yield Path(folder, name)


def _is_skipped(folder: Path) -> bool:
    return folder.name.startswith(".") or folder.name in _SKIPPED or (folder / "pyvenv.cfg").exists()
