"""What the tests of a run share: options, folder, references, targets, baselines, time. Knows no pytest."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Final, Protocol

from ..declare.options import Options
from ..judge.judge import Policy
from ..kit.plugins import features
from ..measure.capacity import Capacity
from ..measure.cell_run import EmptyLaunches
from ..measure.launch import Launcher
from ..measure.round_plan import Listener
from ..measure.spent import Spent
from ..model.report import Machine, Row
from ..model.verdict import Decision
from ..report import said
from .folder import RunFolder
from .sides.references import References
from .stored import StoredBaselines
from .targets import Targets

FAILURES: Final = (Decision.REGRESSED, Decision.BROKEN, Decision.ERROR)
"""Decisions that no later launch changes, and that are said at once."""


class RunTime:
    """The time of a run: how much it has taken, and what is left of its budget."""

    def __init__(self, budget_s: float | None, clock: Callable[[], float]) -> None:
        self.budget_s = budget_s
        self.clock = clock
        self.started_s = clock()

    @property
    def spent_s(self) -> float:
        """Seconds since the run was started."""
        return self.clock() - self.started_s

    @property
    def left_s(self) -> float | None:
        """Seconds left; None without a budget."""
        return None if self.budget_s is None else self.budget_s - self.spent_s

    @property
    def over(self) -> bool:
        """Whether none is left: no launch begins any more."""
        return self.left_s is not None and self.left_s <= 0


class ProgressListener(Listener, Protocol):
    """Receives the progress of a run."""

    def begin(self, title: str, cells: Sequence[str]) -> None:
        """The measurement of a group begins."""
        ...


class Shared:
    """What the tests of a run share. The second half is there once it has started and is prepared."""

    machine: Machine
    time: RunTime
    stored: StoredBaselines
    launcher: Launcher
    policy: Policy
    empty: EmptyLaunches
    capacity: Capacity

    def __init__(
        self, config: Options, root: Path, listener: ProgressListener, clock: Callable[[], float], *, scripted: bool
    ) -> None:
        """`root` is the project's; `clock` times the run and its launches, in s; `scripted` ones are no processes."""
        self.config = config
        self.clock = clock
        self.folder = RunFolder(root)
        self.listener = listener
        self.references = References(self.folder, config.reference, listener)
        self.spent = Spent(clock)
        self.targets = Targets(self.folder, config.install, listener, self.spent, scripted=scripted)
        self.plugins = features("run")
        self.hooks = self.plugins.hook
        self.failure_told = False

    def tell_failure(self, rows: Iterable[Row]) -> None:
        """Say the first failure of the run, if it is among these: where tests share a time, pytest reports none yet."""
        row = next((each for each in rows if each.verdict.decision in FAILURES), None)
        if row is not None and not self.failure_told:
            self.failure_told = True
            self.listener.warn(f"{row.verdict.decision}: {row.cell.nodeid} - {said.headline(row)}")
