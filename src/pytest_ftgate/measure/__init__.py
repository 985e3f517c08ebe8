"""Starts processes and watches them: launchers, samples of memory and threads, interleaved rounds.

Start at `interleaved.py`, then `launch.py`.
"""

__all__ = [
    "budget",
    "capacity",
    "cell_run",
    "conditions",
    "cores",
    "interleaved",
    "launch",
    "launchers",
    "machine",
    "profile_round",
    "run_context",
    "stacks",
    "watch",
]
