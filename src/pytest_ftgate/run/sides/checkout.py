"""One side of a comparison, as the rest of a run knows it."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from ...kit.values import Struct

OPTION: Final = "--ftgate-against"


class Checkout(Struct, frozen=True, kw_only=True):
    """One side of a comparison, checked out."""

    label: str
    """For people: `main (1eb3b87e5d)`, `working tree (uncommitted changes)`, `numpy==2.1.0`."""
    commit: str
    """What is checked out: for uncommitted changes a snapshot that no branch holds, for a distribution ""."""
    root: str
    """The project's folder in this checkout."""
    prefix: str = ""
    """The path of that folder below the repository's top; "" at the top."""
    install: tuple[str, ...] = ()
    """Arguments for `uv pip install` after the usual ones."""
    copied: str = ""
    """A project that is installed as a copy, because the other side has a wheel of it: an editable install runs code
    when the interpreter starts."""
    python: str = ""
    """A target that runs in place of each cell's own; "" for none."""

    @property
    def project(self) -> Path:
        return Path(self.root)

    def top(self, root: Path) -> Path:
        """The repository's top, of the project at `root`."""
        depth = len(Path(self.prefix).parts)
        return root.parents[depth - 1] if depth else root
