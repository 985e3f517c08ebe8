"""The copy of the runner that launches import."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from ...errors import FtgateError

LIGHT = ("__init__.py", "runner/*.py", "runner/*/*.py")
STAND_IN = Path("pytest_ftgate", "runner", "pytest")


def install_runner(folder: Path) -> Path:
    """A copy of the light part of the package under `folder`, in a place named by its content; for sys.path.

    Beside it, `pytest` is what processes that a workload's libraries start import by that name.

    Only this copy is seen by measured interpreters: the folder that the package stands in holds the controller's
    own dependencies, built for another interpreter. A copy that is there is used if it is the same; what was compiled
    of it is made again, since nobody can tell what it was made of. Raises FtgateError when `folder` cannot be written.
    """
    package = Path(__file__).parents[2]
    files = sorted(path for pattern in LIGHT for path in package.glob(pattern))
    digest = hashlib.sha256()
    for path in files:
        digest.update(path.relative_to(package).as_posix().encode() + b"\0" + path.read_bytes())
    home = folder.absolute() / digest.hexdigest()[:12]
    if not _is_copy(home, package, files):
        unfinished = folder / f"{home.name}.{os.getpid()}"
        try:
            _copy(package, files, unfinished / package.name)
            (unfinished / "pytest").symlink_to(STAND_IN)
            _remove(home)
            unfinished.rename(home)
        except OSError as error:
            if not _is_copy(home, package, files):  # else another run has just put the same there
                mend = "make room there, or make it writable"
                raise FtgateError(f"{folder}: the runner cannot be put there: {error.strerror}; {mend}") from error
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)
    return home


def _is_copy(home: Path, package: Path, files: Sequence[Path]) -> bool:
    """Whether a folder is the copy, without anything else; what was compiled in it is removed."""
    if home.is_symlink() or not home.is_dir():
        return False
    expected = {Path(package.name, path.relative_to(package)): path for path in files}
    found: set[Path] = set()
    for folder, names, others in os.walk(home):
        for name in [name for name in names if name == "__pycache__" or Path(folder, name).is_symlink()]:
            names.remove(name)
            if name == "__pycache__":
                _remove(Path(folder, name))
            else:
                others.append(name)
        found.update(Path(folder, name).relative_to(home) for name in others)
    links = {path for path in found if (home / path).is_symlink()}
    return (
        found == {*expected, Path("pytest")}
        and links == {Path("pytest")}
        and (home / "pytest").readlink() == STAND_IN
        and all((home / path).read_bytes() == source.read_bytes() for path, source in expected.items())
    )


def _remove(path: Path) -> None:
    if path.is_symlink() or path.is_file():
        path.unlink()
    else:
        shutil.rmtree(path, ignore_errors=True)


def _copy(package: Path, files: Sequence[Path], folder: Path) -> None:
    for path in files:
        copy = folder / path.relative_to(package)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, copy)
