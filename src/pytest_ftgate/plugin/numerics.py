"""NumPy and SciPy for pytest's own process, where the project under test is one of them."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

NEEDED = ("numpy", "scipy")
"""What the gate judges with."""

_BROKEN = (ImportError, AttributeError, ValueError)
"""What an import of a source folder, or of a build for another version of its dependency, raises."""


def import_needed(root: Path, needed: Sequence[str] = NEEDED) -> None:
    """Import them where `root`, the project's, has a source folder of one: its own build, else the installed one.

    Such a folder is on sys.path by a conftest.py, `pythonpath` or `python -m pytest`, and cannot be imported unless it
    was built in place. In any other project nothing is done: only a measurement needs them. Raises pytest.UsageError.
    """
    sources = [entry for entry in sys.path if _has_sources(Path(entry or os.getcwd()), root, needed)]
    for name in needed if sources else ():
        _import(name, sources)


def _has_sources(entry: Path, root: Path, needed: Sequence[str]) -> bool:
    installed = {"site-packages", "dist-packages"} & set(entry.parts)
    return not installed and entry.is_relative_to(root) and any((entry / name).is_dir() for name in needed)


def _import(name: str, sources: Sequence[str]) -> None:
    try:
        importlib.import_module(name)
    except _BROKEN as error:
        failure = str(error).strip().partition("\n")[0]
    else:
        return
    for loaded in [module for module in sys.modules if module == name or module.startswith(f"{name}.")]:
        del sys.modules[loaded]
    before = sys.path[:]
    sys.path[:] = [entry for entry in before if entry not in sources]
    try:
        importlib.import_module(name)
    except _BROKEN:
        raise pytest.UsageError(
            f"--ftgate judges with {name} in pytest's own process, where it is this project's source folder, which "
            f"cannot be imported ({failure}), and no other is installed. The measured processes have environments of "
            f"their own. Install {name} where pytest runs, a release or a build of this project, or run pytest from an "
            "environment of its own: uvx --with pytest-ftgate pytest --ftgate"
        ) from None
    finally:
        sys.path[:] = before
