"""Concurrency regression gating for pytest: the names that a workload's module imports.

This module is imported in the measured interpreter too, so it holds a few light names and nothing beyond
the standard library.
"""

from .runner.api import command, executor, ftgate, interpreters, load, processes, serial, tasks, threads

__all__ = ["command", "executor", "ftgate", "interpreters", "load", "processes", "serial", "tasks", "threads"]
