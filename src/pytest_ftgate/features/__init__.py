"""What can be left out: each feature is a module or a folder here, which the core knows by its hooks alone.

To take one out, remove it and its name below.
"""

from __future__ import annotations

from typing import Final

IN_A_RUN: Final = (
    "run.acceptances",
    "judge.expectations",
    "run.unchanged",
    "plugin.github",
    "features.hosts",
    "plugin.shards",
    "plugin.base",
    "plugin.advice",
)
"""What takes part in a measuring run, in the order in which hooks are called."""

COMMANDS: Final = (
    "commands.init",
    "commands.doctor",
    "commands.pythons",
    "commands.baseline",
    "commands.accept",
    "commands.decide",
    "commands.report",
    "commands.compare",
    "commands.merge",
    "commands.history",
)
"""What the `ftgate` command has, in the order of its help."""
