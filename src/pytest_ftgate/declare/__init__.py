"""What a test says: decorators read and checked, the options table, and the plan of a run.

Start at `tests.py`.
"""
