"""Pure statistics: exact rank tests, alpha spending, histograms. Start at `rank_tests.py`."""

__all__ = ["alpha_spending", "histogram", "rank_tests"]
