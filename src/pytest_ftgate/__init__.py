"""Concurrency regression gating for pytest: the names that a workload's module imports.

This module is imported in the measured interpreter too, so it holds a few light names and nothing beyond
the standard library. The classes are for annotations; each is imported when it is asked for.
"""

import os

from .runner.api import command, executor, ftgate, load
from .runner.tokens import interpreters, processes, serial, tasks, threads

TYPE_CHECKING = False
MEASURED = not os.path.isdir(os.path.join(__path__[0], "plugin"))
"""Whether this is the copy of the light part that measured processes have."""
if not TYPE_CHECKING and MEASURED:
    from .runner.any_version import anything, command, executor, ftgate, load
if TYPE_CHECKING:
    from .runner.client import Server
    from .runner.primitives import Context
    from .runner.worker import Worker
else:
    _CLASSES = {"Server": "client", "Context": "primitives", "Worker": "worker"}

    def __getattr__(name):  # noqa: ANN001, ANN202
        if name not in _CLASSES:
            if MEASURED and not name.startswith("__"):
                return anything(name)
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib import import_module

        return getattr(import_module(f".runner.{_CLASSES[name]}", __name__), name)


__all__ = [
    "Context",
    "Server",
    "Worker",
    "command",
    "executor",
    "ftgate",
    "interpreters",
    "load",
    "processes",
    "serial",
    "tasks",
    "threads",
]
