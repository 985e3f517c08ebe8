"""Writes the report files of a run."""

from __future__ import annotations

from pathlib import Path

from ..files import write_whole
from ..model import Report
from ..report import formats


def write(target: str, report: Report, folder: Path) -> Path:
    """Write the report as `KIND:PATH` says, a path relative to `folder`; a file that is there stays if that fails.

    Raises OSError.
    """
    kind, _, name = target.partition(":")
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, map(str.encode, formats.pieces(kind, report)))
    return path
