"""The time of a run, and its error levels."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from ..declare.options import Options
from ..judge import decide
from ..judge.judge import Policy, hypotheses
from ..model.spec import Cell, Group, Plan
from ..stats import alpha_spending
from .stored import StoredBaselines

if TYPE_CHECKING:
    pass

LAUNCHES = 5
"""Of each cell, where nothing says how many decide. A recording needs no more: one differs from the next by what
launches of either do not show (`benchmarks/verdicts/stored.py`)."""


class RunTime:
    """The time of a run: how much it has taken, and what is left of its budget."""

    def __init__(self, budget_s: float | None, spent_s: float = 0.0) -> None:
        """`spent_s` were taken before this process was started."""
        self.budget_s = budget_s
        self.started_s = time.monotonic() - spent_s

    @property
    def spent_s(self) -> float:
        """Seconds since the run was started."""
        return time.monotonic() - self.started_s

    @property
    def left_s(self) -> float | None:
        """Seconds left; None without a budget."""
        return None if self.budget_s is None else self.budget_s - self.spent_s

    @property
    def over(self) -> bool:
        """Whether none is left: no launch begins any more."""
        return self.left_s is not None and self.left_s <= 0


def hypotheses_of(plan: Plan, config: Options, stored: StoredBaselines, *, in_parts: bool) -> int:
    """How many tests may raise a false alarm in a run: whatever gates of every cell that is compared.

    Of a run in parts also those of cells that cannot run here: the count is the same for each part, and no part
    prepares the targets of another's tests.
    """

    def compared(group: Group, cell: Cell) -> bool:
        return bool(config.against) or (stored.holds(cell) if in_parts else stored.has_any(group, cell))

    return sum(
        hypotheses(group.spec, names, cell, group.cells, compared(group, cell))
        for group in plan.groups
        for names in [(*config.metrics, *group.spec.gated)]
        for cell in group.cells
    )


def policy_of(plan: Plan, config: Options, stored: StoredBaselines, *, in_parts: bool) -> Policy:
    """What the options say about verdicts, with the error levels split over all hypotheses of the run.

    `plan` is the whole one, also where a part of it is measured.

    The same for every cell: the plan and the baselines are known before anything is measured.
    """
    hypotheses = max(1, hypotheses_of(plan, config, stored, in_parts=in_parts))
    alpha, beta = decide.split_alpha(config.alpha, alpha_spending.BETA, hypotheses)
    return Policy(
        metrics=config.metrics,
        cli=config.thresholds,
        ini=config.ini_thresholds,
        alpha=alpha,
        beta=beta,
        probe_cost=config.probe_cost,
    )
