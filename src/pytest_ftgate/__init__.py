"""Concurrency regression gating for pytest: the names that a workload's module imports.

This module is imported in the measured interpreter too, so it holds a few light names and nothing beyond
the standard library. The classes are for annotations; each is imported when it is asked for.
"""

from .runner.api import command, executor, ftgate, interpreters, load, processes, serial, tasks, threads

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .runner.client import Server
    from .runner.primitives import Context
    from .runner.worker import Worker
else:
    _CLASSES = {"Server": "client", "Context": "primitives", "Worker": "worker"}

    def __getattr__(name):  # noqa: ANN001, ANN202
        if name not in _CLASSES:
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
