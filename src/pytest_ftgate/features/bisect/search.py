"""A binary search whose answers may be wrong. Pure."""

from __future__ import annotations

from collections.abc import Container
from typing import Final

FALSE_ALARM: Final = 0.01
"""The probability that a good state is called bad: the default of `ftgate_alpha`."""
MISS: Final = 0.04
"""The probability that a bad state is called good: the level at which a cell passes."""
ERROR: Final = 0.01
"""The search ends where what it names is right with a probability of 1 - ERROR."""


class Search:
    """Finds the first of `count` steps after which a state is bad.

    Each step is as likely at first, and an answer multiplies the probability of each by that of the answer if it is the
    one: probabilistic bisection, Horstein 1963; Waeber, Frazier and Henderson, SIAM J. Control Optim. 51 (2013) 2261.
    The state after the last step is bad, the one before the first is good.
    """

    def __init__(self, count: int) -> None:
        self.weights = [1 / count] * count

    def learn(self, step: int, bad: bool) -> None:
        """The state after a step was found to be bad or good."""
        of_good, of_bad = (FALSE_ALARM, 1 - MISS) if bad else (1 - FALSE_ALARM, MISS)
        weights = [weight * (of_bad if each <= step else of_good) for each, weight in enumerate(self.weights)]
        self.weights = [weight / sum(weights) for weight in weights]

    @property
    def guilty(self) -> list[int]:
        """The fewest steps that hold the guilty one with a probability of 1 - ERROR, in order."""
        found: list[int] = []
        for step in sorted(range(len(self.weights)), key=lambda step: -self.weights[step]):
            if self.probability(found) >= 1 - ERROR:
                break
            found.append(step)
        return sorted(found)

    def probability(self, steps: list[int]) -> float:
        return sum(self.weights[step] for step in steps)

    def next(self, unknown: Container[int] = ()) -> int | None:
        """The step whose state halves the probability; None where no state outside `unknown` does."""
        guilty = self.guilty
        states = [step for step in range(guilty[0], guilty[-1]) if step not in unknown]
        return min(states, key=lambda step: abs(sum(self.weights[: step + 1]) - 0.5), default=None)
