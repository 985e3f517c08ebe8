"""Runs in the measured interpreter: imports only the standard library, and as little of it as a cell needs.

Start at `main.py` and `protocol.py`. What is imported here counts as memory of the workload.
"""

__all__ = [
    "api",
    "client",
    "clock",
    "control",
    "executors",
    "gil",
    "loading",
    "locks",
    "primitives",
    "profile",
    "protocol",
    "reads",
    "record",
    "setups",
    "stacks",
    "state",
    "worker",
]
