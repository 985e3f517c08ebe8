"""Tables as the pages of docs/appendix/ have them, each below a comment that names its script."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def show(script: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print a table, each row as soon as there is one."""
    print(f"\n<!-- made by {Path(script).resolve().relative_to(ROOT).as_posix()} -->\n")
    for cells in (columns, ["---"] * len(columns)):
        print(row(cells))
    for cells in rows:
        print(row(cells), flush=True)


def row(cells: Sequence[str]) -> str:
    """One line of a table."""
    return f"| {' | '.join(cells)} |"
