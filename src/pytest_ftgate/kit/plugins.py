"""The features that take part in a run or a command: loaded by their names alone, and called by `hookspec`'s hooks."""

from __future__ import annotations

import importlib
from typing import Final

import pluggy

GROUP: Final = "ftgate"
_PACKAGE: Final = __name__.partition(".")[0]


def features(kind: str) -> pluggy.PluginManager:
    """The features that take part where `kind` says, see `features.FEATURES`, and all of other distributions."""
    listed = importlib.import_module(f"{_PACKAGE}.features").FEATURES
    plugins = pluggy.PluginManager(GROUP)
    plugins.add_hookspecs(importlib.import_module(f"{_PACKAGE}.hookspec"))
    plugins.load_setuptools_entrypoints(GROUP)
    for name, kinds in reversed(listed.items()):  # pluggy calls the last first
        if kind in kinds.split():
            plugins.register(importlib.import_module(f"{_PACKAGE}.features.{name}"), name)
    return plugins
