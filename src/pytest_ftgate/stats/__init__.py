"""Pure statistics: the test of pairs, alpha spending, estimators, histograms. Start at `moderated.py`."""

__all__ = ["alpha_spending", "change_points", "histogram", "moderated", "rank_tests"]
