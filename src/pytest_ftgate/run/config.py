"""What the options say about a run."""

from __future__ import annotations

from typing import Literal

from ..kit.values import Struct, Threshold
from ..targets.environments import Steps


class RunConfig(Struct, frozen=True, kw_only=True):
    """The options of a run; seconds, shares and counts. `budget_s` is the whole run's, None without a limit.

    `options` are words of the command line that a rerun of a cell needs.
    """

    baselines: str
    update: tuple[str, ...]
    seed: int
    budget_s: float | None
    test_budget_s: float
    launches: int | None
    iterations: int | None
    timeout_s: float
    metrics: tuple[str, ...]
    thresholds: tuple[Threshold, ...]
    ini_thresholds: tuple[Threshold, ...]
    alpha: float
    probe_cost: float
    install: Steps | None
    against: str
    unchanged: Literal["skip", "measure"]
    escalate: bool
    explain: bool
    trust: Literal["head", "base"] = "head"
    exclusive: bool = True
    shard: tuple[int, int] | None = None
    options: tuple[str, ...] = ()
