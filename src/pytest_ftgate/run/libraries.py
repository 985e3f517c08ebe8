"""The libraries that we import, where the project under test is one of them."""

from __future__ import annotations

import json
import sys
from collections.abc import Collection, Iterable
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, distribution
from importlib.util import find_spec
from pathlib import Path

from ..kit.errors import FtgateError
from ..report.json import formats
from ..targets.environments import project_name

DECIDING = ("filelock", "msgspec", "numpy", "packaging", "psutil", "scipy")
"""What no run can do without."""


def left_out(root: Path, kinds: Iterable[str]) -> dict[str, str]:
    """Each of these forms that is not made in the project at `root`, and why: what it is made with is the project's."""
    forms = formats()
    found = {kind: _of_project(root, forms[kind].needs) for kind in kinds if kind in forms}
    return {
        kind: f"{' and '.join(own)} here is this project's own, and no report is made with the code under test; "
        f"`ftgate report --to {kind}:PATH` makes it in an environment without this project"
        for kind, own in found.items()
        if own
    }


def note(root: Path) -> str:
    """Which libraries of the project this process measures and judges with; empty where there is none."""
    own = _of_project(root, DECIDING)
    return f"measures and judges with this project's own {' and '.join(own)}" if own else ""


def _of_project(root: Path, names: Collection[str]) -> list[str]:
    """Those that are imported from the project's folder, or were installed from it."""
    own = []
    for name in names:
        loaded, beneath, installed = sys.modules.get(name), False, False
        with suppress(ImportError, ValueError):
            spec = find_spec(name) if loaded is None else loaded.__spec__
            if spec is not None and spec.origin:
                place = Path(spec.origin).resolve()
                installs = {"site-packages", "dist-packages"} & set(place.parts)
                beneath = place.is_relative_to(root.resolve()) and not installs
        # A folder of the project was installed, or what tox built of it there; other wheels there are releases.
        with suppress(PackageNotFoundError, ValueError, FtgateError):
            given = json.loads(distribution(name).read_text("direct_url.json") or "{}")
            here = f"{given.get('url', '').rstrip('/')}/".startswith(f"{root.resolve().as_uri()}/")
            installed = here and ("dir_info" in given or project_name(root) == name)
        own += [name] if beneath or installed else []
    return own
