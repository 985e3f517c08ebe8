"""Every printed form of a Report: each module is a pure function from Report to text."""

__all__ = [
    "advice",
    "baselines",
    "budgets",
    "findings",
    "formats",
    "headlines",
    "history",
    "json",
    "markdown",
    "measured",
    "terminal",
    "units",
]
