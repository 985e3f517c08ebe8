"""Pure: metrics, comparisons, decisions and contracts. Start at `judge.py`, then `decide.py`."""

__all__ = [
    "acceptance",
    "advice",
    "comparisons",
    "contracts",
    "decide",
    "disturbance",
    "expectations",
    "explain",
    "figures",
    "history",
    "joining",
    "judge",
    "metrics",
    "recorded",
    "scale",
    "thresholds",
    "two_runs",
]
