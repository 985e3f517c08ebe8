"""Pure statistics: the test of pairs, alpha spending, estimators, histograms. Start at `moderated.py`."""
