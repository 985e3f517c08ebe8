"""One run: prepares targets and references, measures each test, judges it and makes the report.

Start at `run.py`, then `trial.py`.
"""
