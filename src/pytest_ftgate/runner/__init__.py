"""Runs in the measured interpreter: the standard library alone, and of it as little as a cell needs."""

__all__ = [
    "api",
    "clock",
    "control",
    "executors",
    "gil",
    "loading",
    "locks",
    "primitives",
    "protocol",
    "record",
    "worker",
]
