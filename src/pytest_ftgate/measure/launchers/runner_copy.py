"""The copy of the runner that launches import."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from ...errors import FtgateError

LIGHT = ("__init__.py", "runner/*.py", "runner/*/*.py")


def install_runner(folder: Path) -> Path:
    """A copy of the light part of the package under `folder`, in a place named by its content; for sys.path.

    Beside it, `pytest` is what processes that a workload's libraries start import by that name.

    Only this copy is seen by measured interpreters: the folder that the package stands in holds the controller's
    own dependencies, built for another interpreter. Raises FtgateError when `folder` cannot be written.
    """
    package = Path(__file__).parents[2]
    files = sorted(path for pattern in LIGHT for path in package.glob(pattern))
    digest = hashlib.sha256()
    for path in files:
        digest.update(path.relative_to(package).as_posix().encode() + b"\0" + path.read_bytes())
    home = folder.absolute() / digest.hexdigest()[:12]
    if not home.is_dir():
        unfinished = folder / f"{home.name}.{os.getpid()}"
        try:
            _copy(package, files, unfinished / package.name)
            (unfinished / "pytest").symlink_to(Path(package.name, "runner", "pytest"))
            unfinished.rename(home)
        except OSError as error:
            if not home.is_dir():  # else another run has just put the same there
                mend = "make room there, or make it writable"
                raise FtgateError(f"{folder}: the runner cannot be put there: {error.strerror}; {mend}") from error
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)
    return home


def _copy(package: Path, files: Sequence[Path], folder: Path) -> None:
    for path in files:
        copy = folder / path.relative_to(package)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, copy)
