"""What runs leave in a project: the report of the last one, and the folder of baselines."""

from __future__ import annotations

import argparse
import shutil
import sys
import traceback
from pathlib import Path

from ..kit.errors import FtgateError
from ..kit.text import plain, takes_unicode
from ..model.report import Report
from ..report import json
from ..store.folder import Store, default_folder
from .inifile import options_of

FINE, REGRESSED, NOTHING_FOUND = 0, 1, 3
BASELINES = "baselines"
LAST_RUN = Path(".ftgate") / "last-run.json"
LOCK = Path(".ftgate") / "baselines.lock"


READ: list[Path] = []
"""The report files that this process has read: what cannot be shown is a fault of one of them."""
NARROW = 80


def add_rootdir(parser: argparse.ArgumentParser, *, baselines: str = "") -> None:
    """Add the option that `rootdir` reads, and with a help for it the one that `store` reads."""
    parser.add_argument("--rootdir", type=Path, metavar="DIR", help="the project (default: found from here upwards)")
    if baselines:
        parser.add_argument("--baselines", type=Path, metavar="DIR", help=baselines)


def rootdir(args: argparse.Namespace) -> Path:
    """The given folder, else the nearest parent that has baselines or a run, else the current folder."""
    if args.rootdir is not None:
        if not args.rootdir.is_dir():
            raise FtgateError(f"--rootdir {args.rootdir}: no such folder")
        return Path(args.rootdir).resolve()
    here = Path.cwd()
    upwards = (here, *here.parents)
    marks = (BASELINES, LAST_RUN)
    return next((folder for folder in upwards if any((folder / mark).exists() for mark in marks)), here)


def store(args: argparse.Namespace) -> Store:
    """The folder and the lock that a run here would use."""
    root = rootdir(args)
    given = None if args.baselines is None else str(args.baselines.absolute())
    folder = root / (options_of(root, "baselines", baselines=given).baselines or default_folder(root))
    if given is not None and not folder.is_dir():
        raise FtgateError(f"--baselines {args.baselines}: no such folder")
    return Store(folder, lock_path=root / LOCK)


def last_run(args: argparse.Namespace) -> Report | None:
    """The report that the last run left; None without one. Warns of a partial one. Raises ReportError, FtgateError."""
    path = rootdir(args) / LAST_RUN
    if not path.exists():
        return None
    report = read(path, "run pytest --ftgate again")
    if report.partial:
        print(f"the last run is partial: {plain(report.partial)}", file=sys.stderr)
    return report


def read(path: Path, fix: str = "name a file that --ftgate-report json:PATH wrote") -> Report:
    """The report in a file. Raises ReportError, FtgateError."""
    try:
        report = json.parse(path.read_bytes(), origin=str(path))
    except OSError as error:
        raise FtgateError(f"{path}: cannot be read: {error.strerror}; {fix}") from error
    READ.append(path)
    return report


def meaningless(error: Exception) -> str:
    """Why a report that was read cannot be used: its figures contradict each other; empty if none was read."""
    if not READ:
        return ""
    named = " and ".join(dict.fromkeys(map(str, READ)))
    frame = traceback.extract_tb(error.__traceback__)[-1]
    fault = f"{type(error).__name__}: {error}, in {Path(frame.filename).name}, line {frame.lineno}"
    return f"{named}: holds figures that cannot be used ({plain(fault)}); {json.AGAIN}"


def no_run(args: argparse.Namespace) -> int:
    """Say that there is no run; the exit code."""
    return nothing(f"no run was recorded in {rootdir(args) / LAST_RUN}: run pytest --ftgate first")


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
