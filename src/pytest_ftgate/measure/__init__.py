"""Starts processes and watches them: launchers, samples of memory and threads, interleaved rounds.

Start at `group.py`, then `launch.py`.
"""
