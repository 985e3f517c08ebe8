"""What a test says: decorators read and checked, the options table, and the plan of a run.

Start at `declaration.py`.
"""

__all__ = ["declaration", "option_types", "options", "plan", "reader"]
