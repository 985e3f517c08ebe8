"""What a run can know of the cells that trailers name: whether it collected all of them."""

from __future__ import annotations

import os
from collections.abc import Sequence

import pytest

from ..run.acceptances import Collected


def collected(config: pytest.Config, nodeids: Sequence[str]) -> Collected:
    """The node ids of all cells before any was deselected, and what the command line left out at collection."""
    left_out = any(config.getoption(name, None) for name in ("lf", "ignore", "ignore_glob"))
    return Collected(
        nodeids=nodeids,
        some_files=config.args_source is config.ArgsSource.ARGS or left_out,
        some_targets=bool(config.getoption("ftgate_python") or os.environ.get("FTGATE_PYTHON")),
        some_cells=left_out or any("::" in argument for argument in config.args),
    )
