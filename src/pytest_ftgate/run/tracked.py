"""Refuses a `.ftgate` that git tracks: a change could bring its own runner, environments and worktrees."""

from __future__ import annotations

from pathlib import Path

from ..errors import FtgateError
from .git import AgainstError, Repository


def refuse_tracked(folder: Path) -> None:
    """Raise FtgateError if git tracks anything in `folder`, or the folder as a link or a submodule.

    Outside of a repository there is nothing to refuse.
    """
    try:
        repository = Repository(folder.parent)
        tracked = repository.git("ls-files", "-z", "--", f":(icase,literal){folder.name}").split("\0")[:-1]
    except AgainstError:
        return
    if tracked:
        more = f" and {len(tracked) - 1} more" if len(tracked) > 1 else ""
        raise FtgateError(
            f"git tracks {tracked[0]}{more}: what is in {folder.name} is run and measured with, so no commit may bring "
            f"it; remove it with `git rm -r -f {folder.name}` and commit that"
        )
