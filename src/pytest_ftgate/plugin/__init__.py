"""The only importer of pytest: hooks, options and the items that a run measures. Start at `hooks.py`."""
