"""Whether what git has of a project can be installed, as it is in CI and on both sides of a comparison."""

from __future__ import annotations

from pathlib import Path

from .. import pythons
from ..errors import FtgateError
from ..model import Interpreter
from ..pythons import OnStep, Steps
from . import installs, mending, release, worktrees


def failure(root: Path, interpreter: Interpreter, steps: Steps, on_step: OnStep) -> str:
    """Why these steps do not install a clean checkout of HEAD; "" if they do. Raises AgainstError without a commit.

    `on_step` is called as by `ensure_environment`.
    """
    checkout, environments = worktrees.head(root, root / ".ftgate"), root / ".ftgate" / "envs"
    mending.remove_all_extras(root, checkout, environments)
    try:
        pythons.ensure_environment(
            interpreter,
            root=environments,
            project=checkout.project,
            install=installs.steps_of(steps, root, checkout),
            variables=release.variables(root, checkout.project),
            on_step=on_step,
        )
    except FtgateError as error:
        hint = worktrees.ignored_hint(str(error), checkout, root)
        return "\n".join(filter(None, (str(error).partition("\n")[0], hint)))
    mending.note_built(root, checkout)
    return ""
