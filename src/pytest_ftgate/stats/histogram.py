"""Percentiles of histograms of waits."""

from __future__ import annotations

from collections.abc import Mapping


def percentile(histogram: Mapping[int, int], q: float) -> float:
    """The wait in ns that the share `q` (0 to 1) of a histogram's waits does not exceed, interpolated in its bucket.

    The error is at most the bucket's width, 6.25 %. 0.0 for no waits. Raises ValueError for another `q`.
    """
    if not 0 <= q <= 1:
        raise ValueError(f"a percentile's share is between 0 and 1, not {q}")
    from ..runner.locks.sites import bounds_of  # not when a decorated test is collected: `ftgate.named` looks for it

    rank = q * sum(histogram.values())
    below, highest = 0, 0.0
    for bucket, count in sorted(histogram.items()):
        low, high = bounds_of(bucket)
        if count and below + count >= rank:
            return low + (high - low) * (rank - below) / count
        below, highest = below + count, float(high)
    return highest
