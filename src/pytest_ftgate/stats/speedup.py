"""The serial fraction behind a speed-up."""

from __future__ import annotations


def amdahl(scaling: float, workers: int) -> float:
    """The serial fraction at which Amdahl's law gives that speed-up: (1/S - 1/N) / (1 - 1/N).

    The measure of Karp & Flatt (1990), "Measuring parallel processor performance": 0 for perfect scaling, 1 for none,
    above 1 where more workers are slower, and negative where they do better than N times. Raises ValueError for a
    scaling that is not positive and for fewer than two workers.
    """
    if not scaling > 0 or workers < 2:
        raise ValueError(f"a scaling of {scaling} over {workers} workers has no serial fraction")
    return (1 / scaling - 1 / workers) / (1 - 1 / workers)
