"""What the stored baselines hold for the cells of a run, whose error levels they decide; nothing else in a run reads or
writes them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence

from ..declare.options import STORED, Options
from ..judge import decide
from ..judge.judge import ComparedWith, Policy, hypotheses
from ..judge.values import entries_of
from ..kit.errors import FtgateError
from ..kit.text import split_nodeid
from ..model.report import Machine, Report
from ..model.spec import Cell, Group, Plan
from ..report.baselines import update_lines
from ..stats import alpha_spending
from ..store import names, schema
from ..store.folder import Store
from ..store.update import apply_updates, unused, update_plan
from .folder import RunFolder
from .sides.references import Newest
from .targets import Targets


class StoredBaselines:
    """The baselines of a project as one run sees them: each file is read once."""

    def __init__(self, config: Options, folder: RunFolder, machine: Machine, targets: Targets) -> None:
        self.config = config
        self.root = folder.root
        self.machine = machine
        self.targets = targets
        self.store = Store(folder.root / config.baselines, lock_path=folder.path / "baselines.lock")
        self._tests: dict[str, schema.TestBaseline | FtgateError | None] = {}

    def entry(self, group: Group, cell: Cell) -> schema.StoredCell | FtgateError | None:
        """What is stored of a cell on this machine and build; an error in its place if the file cannot be read."""
        stored = self._test(cell)
        return stored if isinstance(stored, FtgateError) else self._entries(cell).get(self._key(group, cell))

    def took_s(self, group: Group) -> float:
        """Seconds that a test took when it was last recorded, on whatever machine; 0 if unknown."""
        took_s = [0.0]
        for entries in map(self._entries, group.cells):
            newest = sorted((entry.recordings[-1].recorded_at, key) for key, entry in entries.items())[-1:]
            took_s += [entries[key].recordings[-1].took_s for _, key in newest]
        return max(took_s)

    def compared_with(self, group: Group, cell: Cell) -> tuple[ComparedWith, Newest | None]:
        """What is stored of a cell: its figures of this machine and build, if there are some, and its newest recording,
        whichever machine made it.
        """
        entries, key = self._entries(cell), self._key(group, cell)
        here = entries.get(key)
        if not entries:
            return ComparedWith(why="nothing is stored for it; record it with --ftgate-update"), None
        newest_key = max(entries, key=lambda each: (entries[each].recordings[-1].recorded_at, each))
        newest, test = entries[newest_key].recordings[-1], split_nodeid(cell.nodeid)[0]
        own = here.recordings[-1] if here else newest
        path = self.store.path(test)
        path = path.relative_to(self.root) if path.is_relative_to(self.root) else path
        figures = ComparedWith(
            basis="stored" if here else "",
            why="" if here else f"another machine or build recorded it ({newest_key})",
            entry=here,
            baseline=f"{path} ({own.recorded_at})",
            commit=own.commit,
        )
        file = self.store.file(test, newest_key.partition("/")[0], newest)
        return figures, Newest(newest.commit, newest.tree, file)

    def loops(self, group: Group, cells: Sequence[Cell]) -> int | None:
        """Loops of the baseline: a value then spreads the cost of dispatch over as many calls as the stored one."""
        if "all" in self.config.update:
            return None
        entries = (self.entry(group, cell) for cell in cells)
        stored = (entry for entry in entries if isinstance(entry, schema.StoredCell))
        return next((entry.recordings[0].loops for entry in stored), None)

    def hypotheses(self, plan: Plan) -> int:
        """How many tests may raise a false alarm: whatever gates of every cell that is compared.

        Also of cells that cannot run here: no target is prepared for what is not measured.
        """
        config = self.config
        return sum(
            hypotheses(group.spec, names, cell, group.cells, bool(config.reference or self._entries(cell)))
            for group in plan
            for names in [(*config.metrics, *group.spec.gated)]
            for cell in group.cells
        )

    def policy(self, whole: Plan) -> Policy:
        """What the options say about verdicts, with the error level split over all hypotheses of the whole plan.

        Deselected cells count: what is run in several parts, by shards or `-k`, has together the level of one run. The
        same for every cell: plan and baselines are known before anything is measured.
        """
        config = self.config
        return Policy(
            metrics=config.metrics,
            cli=config.thresholds,
            ini=config.ini_thresholds,
            alpha=decide.split_alpha(config.alpha, self.hypotheses(whole)),
            beta=alpha_spending.BETA,
            probe_cost=config.probe_cost,
        )

    @property
    def decide(self) -> str:
        """Why stored figures judge every cell of this run; empty where the commits of recordings do."""
        if self.config.update:
            return "a run that records measures no reference"
        return f"--ftgate-against {self.config.against}" if self.config.against == STORED else ""

    def records(self, group: Group, cells: Sequence[Cell]) -> bool:
        """Whether this run records one of these cells."""
        named = self.config.update
        return bool(named) and any(
            "all" in named
            or any(names.matches(pattern, cell.nodeid) for pattern in named)
            or self.entry(group, cell) is None
            for cell in cells
        )

    def unused(self, collected: Iterable[str] | None) -> tuple[str, ...]:
        """Node ids of baselines whose cells no longer exist; empty if `collected`, all node ids, is None."""
        if collected is None or not self.store.root.is_dir():
            return ()
        try:
            cells = unused(self.store, collected, fingerprint=self.machine.fingerprint, rootdir=self.root)
        except FtgateError:
            return ()  # a broken file is an error of its cells and of `ftgate baseline`; the report is still made
        return tuple(names.join_nodeid(test, label) for test, label in cells)

    def update(self, report: Report) -> tuple[str, ...]:
        """Record what the options ask for; one line for each change. Raises FtgateError."""
        if not self.config.update:
            return ()
        rows, entries = report.rows, entries_of(report, report.rows)
        plan = update_plan(self.config.update, rows, entries, self.store, fingerprint=self.machine.fingerprint)
        apply_updates(plan, self.store, self.machine)
        return update_lines(plan, os.path.relpath(self.store.root, self.root), git=bool(report.commit))

    def _test(self, cell: Cell) -> schema.TestBaseline | FtgateError | None:
        """A test's file, or the error in its place."""
        test = split_nodeid(cell.nodeid)[0]
        if test not in self._tests:
            try:
                self._tests[test] = self.store.load(test)
            except FtgateError as error:
                self._tests[test] = error
        return self._tests[test]

    def _entries(self, cell: Cell) -> dict[str, schema.StoredCell]:
        """By machine and build; empty for a file that cannot be read, which is an error of its cells (see `entry`)."""
        stored = self._test(cell)
        label = split_nodeid(cell.nodeid)[1]
        return stored.cells.get(label, {}) if isinstance(stored, schema.TestBaseline) else {}

    def _key(self, group: Group, cell: Cell) -> str:
        return names.entry_key(self.machine.fingerprint, self.targets.build(cell, group.spec))
