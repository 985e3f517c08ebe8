"""Pure: metrics, comparisons, decisions and contracts. Start at `judge.py`, then `decide.py`."""
