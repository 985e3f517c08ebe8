"""`--ftgate-shard`: the tests of this part stay, all others are deselected. `part.py` says which those are."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ...declare.options import Option, option
from ...hookspec import hookimpl

if TYPE_CHECKING:
    import pytest

    from ...declare.options import Options
    from ...plugin.gate import Gate


def shard(text: str) -> tuple[int, int]:
    """`2/5`: the second of five parts."""
    match = re.fullmatch(r"(\d{1,4})/(\d{1,4})", text.strip())
    if not match or not 1 <= int(match[1]) <= int(match[2]):
        raise ValueError("a part and their number, such as 2/5")
    return int(match[1]), int(match[2])


SHARD = option(
    "shard",
    None,
    shard,
    "measure one part of the tests, such as 2/5, of about equal recorded cost; ftgate merge joins the reports",
    metavar="I/N",
    of_a_cell=False,
    shard_own=True,
)


@hookimpl
def ftgate_options() -> list[Option]:
    return [SHARD]


@hookimpl
def ftgate_collect(config: pytest.Config, options: Options) -> None:
    """Split the tests in a worker of pytest-xdist, which measures nothing."""
    if hasattr(config, "workerinput") and (of := SHARD.of(options)):
        from .part import Sharding

        config.pluginmanager.register(Sharding(config, None, *of))


@hookimpl
def ftgate_configure(gate: Gate) -> None:
    """Split the cells in the process that measures."""
    if of := SHARD.of(gate.run.config):
        from .part import Sharding

        sharding = Sharding(gate.config, gate, *of)
        gate.config.pluginmanager.register(sharding)
        gate.run.plugins.register(sharding)
