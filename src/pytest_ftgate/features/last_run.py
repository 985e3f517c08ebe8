"""Reads the files that runs leave in a project: the report of the last one, and the folder of baselines."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Generator
from pathlib import Path

import pytest

from ..declare.options import Options
from ..kit.errors import FtgateError
from ..kit.files import content_of
from ..kit.text import plain, takes_unicode
from ..model.report import Report
from ..plugin.options import options_of
from ..report import json
from ..store.folder import Store, default_folder

FINE, REGRESSED, NOTHING_FOUND = 0, 1, 3
LAST_RUN = Path(".ftgate") / "last-run.json"
LOCK = Path(".ftgate") / "baselines.lock"


READ: list[Path] = []
NARROW = 80


class _Found(Exception):
    """Ends pytest's start once it has read its configuration."""


class _Stop:
    # A wrapper runs before all plugins: pytest-cov, for one, begins in this hook, and erases what it has stored.
    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_load_initial_conftests(self) -> Generator[None]:
        raise _Found
        yield  # type: ignore[unreachable]  # it makes this a wrapper


def project() -> pytest.Config:
    """The configuration of pytest in this folder, as a run without arguments has it: rootdir, ini file, addopts.

    No conftest.py is loaded and no other plugin starts. Raises FtgateError.
    """
    from _pytest.config import get_config  # there is no public way to a Config

    # Our options also where no plugin is loaded by itself; no import hook.
    words = ["-p", "ftgate", "--assert=plain"]
    config = get_config(words)
    config.pluginmanager.register(_Stop())
    try:
        config.parse(words)
    except _Found:
        config.option = config.known_args_namespace
    except pytest.UsageError as error:
        raise FtgateError(str(error)) from None
    finally:
        config._ensure_unconfigure()
    return config


def options() -> Options:
    """The options of a run without arguments here. Raises FtgateError."""
    try:
        return options_of(project())
    except pytest.UsageError as error:
        raise FtgateError(str(error)) from None


def store() -> Store:
    """The folder and the lock that a run here would use. Raises FtgateError."""
    root = project().rootpath
    return Store(root / (options().baselines or default_folder(root)), lock_path=root / LOCK)


def last_run() -> Report | None:
    """The report that the last run left; None without one. Warns of a partial one. Raises ReportError, FtgateError."""
    path = project().rootpath / LAST_RUN
    if not path.exists():
        return None
    report = read(path, "run pytest --ftgate again")
    if report.partial:
        print(f"the last run is partial: {plain(report.partial)}", file=sys.stderr)
    return report


def read(path: Path, fix: str = "name a file that --ftgate-report json:PATH wrote") -> Report:
    """The report in a file. Raises ReportError, FtgateError."""
    try:
        report = json.parse(content_of(path), origin=str(path))
    except OSError as error:
        raise FtgateError(f"{path}: cannot be read: {error.strerror}; {fix}") from error
    READ.append(path)
    return report


def read_so_far() -> str:
    """The reports that this process has read: one that was changed by hand may hold what nothing here expects."""
    return " or ".join(dict.fromkeys(map(str, READ)))


def no_run(command: str = "pytest --ftgate") -> int:
    """Say that there is no run, and which command makes one; the exit code."""
    return nothing(f"no run was recorded in {project().rootpath / LAST_RUN}: run {command} first")


def nothing(text: str) -> int:
    """Say why there is nothing; the exit code."""
    print(plain(text), file=sys.stderr)
    return NOTHING_FOUND


def unicode() -> bool:
    """Whether standard output takes more than ASCII."""
    return takes_unicode(sys.stdout)


def terminal_width() -> int:
    """The columns of the terminal; of a pipe NARROW."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else NARROW
