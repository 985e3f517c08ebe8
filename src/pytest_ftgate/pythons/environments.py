"""One virtual environment per target, made by uv, with the user's project installed."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path, PurePath
from types import MappingProxyType
from typing import Final

import filelock
from packaging.utils import canonicalize_name

from ..errors import FtgateError
from ..files import write_whole
from ..model import Interpreter
from .install_inputs import Inputs, inputs_of
from .project import project_name
from .steps import OnStep, Steps, cause_of, run_steps, with_wheels
from .uv_tool import run_uv
from .waiting import held

STAMP: Final = "ftgate-stamp.json"
STAMP_SCHEMA: Final = 3
KEPT_UNUSED_S: Final = 30 * 86400.0
"""An environment unused for this long is removed; it is made again when it is needed."""

_HELD_S: Final = 2 * 86400.0
"""One used more recently stays without its checkout, if it is not bound to that: another may need the same.

A job of CI gets it from a cache, without the checkouts."""


class EnvironmentBroken(FtgateError):
    """An environment that uv could not make; has uv's own message."""


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
    A file lock keeps two runs from making it at once. Raises EnvironmentBroken, InstallError, and FtgateError for a
    wheel that is missing.
    """
    install = with_wheels(install, project, interpreter)
    folder = environment_folder(interpreter, root=root, project=project, install=install)
    hide_from_git(root)
    with held(Path(f"{folder}.lock")):
        inputs = inputs_of(install, project, variables)
        stamp = _stamp(interpreter, project, install, inputs)
        shared = [] if inputs.bound or not install else sorted(path.parent for path in root.glob(f"*/{STAMP}"))
        for made in (folder, *shared):
            if _is_made_of(stamp, made):
                os.utime(made / STAMP)  # the time of its last use, for `prune_environments`
                return environment_python(made)
        (folder / STAMP).unlink(missing_ok=True)
        _make(folder, interpreter)
        python = environment_python(folder)
        run_steps(install, python, interpreter, project, inputs.local, variables, on_step)
        _write_stamp(folder, stamp)
        return python


def environment_folder(interpreter: Interpreter, *, root: Path, project: Path, install: Steps) -> Path:
    """The folder of the environment for an interpreter and install steps, whether it exists or not."""
    made_of = json.dumps([interpreter.executable, str(project.resolve()), install])
    return root.absolute() / f"{interpreter.name}-{hashlib.sha256(made_of.encode()).hexdigest()[:8]}"


def environment_python(folder: Path) -> Path:
    """The path of the python of an environment."""
    return folder / "Scripts" / "python.exe" if sys.platform == "win32" else folder / "bin" / "python"


def copied_modules(python: Path, project: Path) -> tuple[str, ...]:
    """The importable names of an environment that are copies of the project's sources, or of another local one's.

    An editable install has none: its sources are imported where they are.
    """
    own, found = project_name(project), set[str]()
    environment = python.parent.parent
    sites = [*environment.glob("lib/python*/site-packages"), environment / "Lib/site-packages"]
    for distribution in metadata.distributions(path=[str(site) for site in sites]):
        origin = distribution.read_text("direct_url.json") or ""
        local = '"file://' in origin or canonicalize_name(distribution.metadata["Name"] or "?") == own
        if local and not re.search(r'"editable":\s*true', origin):
            found.update(path.parts[0].partition(".")[0] for path in distribution.files or () if _imported(path))
    return tuple(sorted(found - {"", "__pycache__"}))


def _imported(path: PurePath) -> bool:
    return path.parts[0] != ".." and not path.parts[0].endswith((".dist-info", ".data", ".pth", ".libs"))


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


def forget_environments(root: Path, project: Path) -> None:
    """Let the environments under `root` that were made for a project in this folder be made again."""
    for stamp in root.absolute().glob(f"*/{STAMP}"):
        made_for = (read_stamp(stamp.parent) or {}).get("project", "")
        if made_for and Path(made_for).is_relative_to(project.resolve()):
            stamp.unlink(missing_ok=True)


def _is_stale(folder: Path, kept_unused_s: float) -> bool:
    stamp = read_stamp(folder)
    if stamp is None or "project" not in stamp:
        return False
    unused_s = datetime.now(UTC).timestamp() - (folder / STAMP).stat().st_mtime
    gone = not Path(stamp["project"]).is_dir() and (unused_s > _HELD_S or bool(stamp.get("bound")))
    return gone or unused_s > kept_unused_s


def hide_from_git(root: Path) -> None:
    """Make `root` and write the .gitignore that hides it: in the nearest `.ftgate` above, else in `root` itself."""
    root = root.absolute()
    root.mkdir(parents=True, exist_ok=True)
    top = next((folder for folder in (root, *root.parents) if folder.name == ".ftgate"), root)
    ignore = top / ".gitignore"
    if not ignore.exists():
        write_whole(ignore, [b"*\n"])  # one without its line would hide nothing for good


def _make(folder: Path, interpreter: Interpreter) -> None:
    arguments = ["venv", "--quiet", "--clear", "--no-project", "--no-config", "--python", interpreter.executable]
    done = run_uv([*arguments, str(folder)])
    if done.returncode:
        said = done.stderr.strip()
        cause = cause_of(said.splitlines()) or f"exit code {done.returncode}"
        raise EnvironmentBroken(f"uv could not make the environment of {interpreter.name}: {cause}\n{folder}\n{said}")


def _write_stamp(folder: Path, stamp: dict[str, str]) -> None:
    write_whole(folder / STAMP, [json.dumps(stamp, indent=1, sort_keys=True).encode(), b"\n"])


def _stamp(interpreter: Interpreter, project: Path, install: Steps, inputs: Inputs) -> dict[str, str]:
    binary = os.stat(interpreter.executable)
    return {
        "schema": str(STAMP_SCHEMA),
        "executable": interpreter.executable,
        "version": interpreter.name,
        "project": str(project.resolve()),
        "bound": "bound" if inputs.bound or not install else "",
        "binary": f"{binary.st_mtime_ns} {binary.st_size}",
        "install": json.dumps(install),
        "sources": inputs.digest if install else "",
    }


def _is_made_of(stamp: dict[str, str], folder: Path) -> bool:
    """Whether an environment is finished and made from the same, maybe in another checkout."""
    found = read_stamp(folder) or {}
    return "project" in found and found | {"project": stamp["project"]} == stamp and environment_python(folder).exists()
