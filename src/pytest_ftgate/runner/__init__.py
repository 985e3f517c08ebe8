"""Runs in the measured interpreter: imports only the standard library, and as little of it as a cell needs.

Start at `main.py` and `protocol.py`. What is imported here counts as memory of the workload.
"""
