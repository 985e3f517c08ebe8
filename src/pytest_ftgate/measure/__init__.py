"""Starts processes and watches them: launchers, samples of memory and threads, interleaved rounds.

Start at `rounds.py`, then `launch.py`.
"""
