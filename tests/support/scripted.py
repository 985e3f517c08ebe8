"""Scripted days, and runs of them: a project in which whole runs follow each other, or one test is on its way."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest
from fake_launcher import CONFIG, GIL, MIB, MS, At, FakeLauncher, Quiet, group_of, memory_of, noisy, spec_of
from stored_values import MACHINE

from pytest_ftgate.declare import plan
from pytest_ftgate.judge import decide
from pytest_ftgate.kit import git
from pytest_ftgate.kit.values import Metric
from pytest_ftgate.measure import conditions
from pytest_ftgate.measure.cell_run import PreparedTarget
from pytest_ftgate.model.report import Report, Row
from pytest_ftgate.model.spec import Cell, DeclaredContract, Group, Spec, parse_target
from pytest_ftgate.model.verdict import Decision, MetricVerdict
from pytest_ftgate.report import reasons
from pytest_ftgate.run import run as run_module
from pytest_ftgate.run.run import Run
from pytest_ftgate.run.sides import worktrees
from pytest_ftgate.run.sides.checkout import Checkout
from pytest_ftgate.run.sides.references import Newest, References
from pytest_ftgate.run.targets import TargetLookup, Targets, target_of
from pytest_ftgate.run.trial import Trial
from pytest_ftgate.targets.describe import build_key

TWO = group_of("threads", "fork")
THREADS, FORK = (cell.nodeid for cell in TWO.cells)
COMMIT = "1eb3b87".ljust(40, "0")


def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """What else runs on this machine says nothing of scripts."""
    monkeypatch.setattr(conditions, "calibration_ns", lambda *_: 5_000_000)
    monkeypatch.setattr(conditions, "cpu_s", lambda _: 0.0)
    monkeypatch.setattr(decide, "deviation", lambda *_: 0.0)
    monkeypatch.setattr(decide, "unfit", lambda *_: "")
    monkeypatch.setattr(worktrees, "lacks", lambda side, test: side.label == "without it")


def day(
    slower: Callable[[At], float] = lambda _: 1.0, *, uss_bytes: int = 20 * MIB, between: float = 0.003, seed: int = 2
) -> FakeLauncher:
    """A day's launches, of 20 ms an iteration: what `slower` says times as slow."""
    noise_of = noisy(20 * MS, between, seed=seed)
    launcher = FakeLauncher(wall_ns=lambda at: noise_of(at) * slower(at))
    launcher.memory = lambda _: memory_of(uss_bytes)
    return launcher


def cells_slower(factor: float, *nodeids: str) -> Callable[[At], float]:
    """The cells' own work costs `factor`, the control workload and the reference what they did."""
    labels = [nodeid.partition("[")[2].removesuffix("]") for nodeid in nodeids or (THREADS,)]
    return lambda at: factor if at.label in labels and not (at.control or at.reference) else 1.0


def required(group: Group, *texts: str) -> Group:
    """The test with these contracts."""
    spec = msgspec.structs.replace(group.spec, contracts=tuple(DeclaredContract(text=text) for text in texts))
    return msgspec.structs.replace(group, spec=spec)


def of_counts(*counts: int, executors: Iterable[str] = ("threads",)) -> Group:
    """One test at each of these worker counts."""
    groups = [group_of(spec=spec_of(*executors, workers=count)) for count in counts]
    spec = msgspec.structs.replace(groups[0].spec, workers=counts)
    return Group(key=f"counts {counts}", spec=spec, cells=tuple(cell for group in groups for cell in group.cells))


# -- runs of them --------------------------------------------------------------------------------------------------


class Watcher(Quiet):
    """Keeps what began, too."""

    def __init__(self) -> None:
        super().__init__()
        self.begun: list[str] = []

    def begin(self, title: str, cells: Sequence[str]) -> None:
        """Keep it."""
        self.begun.append(f"{title}: {', '.join(cells)}")


class Outcome:
    """One run from its plan to its report."""

    def __init__(self, running: Run, launcher: FakeLauncher, report: Report) -> None:
        self.session = running
        self.launcher = launcher
        self.report = report
        self.rows = {row.cell.nodeid: row for table in report.tables for row in table.rows}
        self.begun = cast(Watcher, running.listener).begun

    def decision(self, nodeid: str = THREADS) -> Decision:
        return self.rows[nodeid].verdict.decision

    def reason(self, nodeid: str = THREADS) -> str:
        return reasons.of_cell(self.rows[nodeid].verdict)

    def metric(self, metric: Metric, nodeid: str = THREADS) -> MetricVerdict:
        return next(found for found in self.rows[nodeid].verdict.metrics if found.metric == metric)

    def launches(self, nodeid: str = THREADS) -> int:
        sample = self.rows[nodeid].sample
        return len(sample.launches) if sample else 0


class Project:
    """A folder in which runs follow each other, on scripted launches; neither git nor an interpreter is looked for."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root = root
        self.count = 0
        self.machine = MACHINE
        self.listener = Watcher()
        """Of the newest run."""
        self.missing: dict[str, str] = {}
        """Why a target, or the one of a cell, is not there."""
        self.uninstallable: set[str] = set()
        """Labels of checkouts that cannot be installed."""
        self.looked: list[str] = []
        """Labels of checkouts whose target was looked up."""
        self.paired = True
        self.label = "main (1eb3b87)"
        """Of the reference that is asked for."""
        self.commit = COMMIT
        """At which a run records."""
        self.recorded_pairs: list[str] = []
        """Commits of recordings that were checked out."""
        self.same = False
        """The working tree has the files of each recording."""
        self.hinted = ""
        monkeypatch.setattr(run_module, "read_machine", lambda: self.machine)
        alone(monkeypatch)
        monkeypatch.setattr(References, "requested", lambda references: self._requested(references.against))
        monkeypatch.setattr(References, "recorded", lambda _, newest, test: self._recorded(newest))
        monkeypatch.setattr(References, "relocated", lambda _, spec, checkout: relocated(spec, checkout))
        monkeypatch.setattr(References, "hint", lambda _, detail, checkout: self.hinted if checkout else "")
        monkeypatch.setattr(Targets, "lookup", lambda _, cell, spec, checkout=None: self.lookup(cell, checkout))
        monkeypatch.setattr(Targets, "build", lambda _, cell, spec: self.build(cell))

    def lookup(self, cell: Cell, checkout: Checkout | None = None) -> TargetLookup:
        """The target of a cell, whose version and settings are what it is called."""
        target = target_of(cell, checkout)
        for name in (target.spec, cell.nodeid):
            if name in self.missing:
                return TargetLookup(reason=self.missing[name])
        if checkout is not None:
            self.looked.append(checkout.label)
            if checkout.label in self.uninstallable:
                why = f"cannot install {checkout.label}: no such package\nand more of it"
                return TargetLookup(reason=why, failed=True)
        parsed = parse_target(target.spec)
        threaded = parsed.request.endswith("t")
        interpreter = msgspec.structs.replace(
            GIL,
            executable=f"/opt/{parsed.request}/bin/python",
            version=f"{parsed.request.removesuffix('t')}.7",
            free_threaded=threaded,
            gil_enabled=not threaded or parsed.settings.gil == "on",
        )
        python = f"{checkout.root if checkout else '/opt'}/{target.spec}/bin/python"
        return TargetLookup(
            target=PreparedTarget(interpreter=interpreter, python=python, key=build_key(interpreter), environment={})
        )

    def build(self, cell: Cell) -> str:
        """The key of its target's build."""
        target = self.lookup(cell).target
        return target.key if target else ""

    def pair(self, label: str, commit: str, python: str = "") -> worktrees.Pair:
        """Both sides, of which the reference's launches are scripted apart; none where there is no git."""
        if not self.paired:
            raise git.AgainstError("no git here")
        return worktrees.Pair(
            reference=Checkout(label=label, commit=commit, root=str(self.root / "old"), python=python),
            changed=Checkout(label="work tree", commit="2", root=str(self.root / "new")),
        )

    def _requested(self, against: str) -> worktrees.Pair:
        python = against.removeprefix("python:")
        return self.pair(self.label, COMMIT) if python == against else self.pair(python, "", python)

    def _recorded(self, newest: Newest) -> worktrees.Pair:
        self.recorded_pairs.append(newest.commit)
        if self.same:
            raise worktrees.NothingToCompare(f"the files are those of {newest.commit[:7]}")
        return self.pair(newest.commit[:7], newest.commit)

    def session(self, launcher: FakeLauncher, *groups: Group, until: str = "", **changed: Any) -> Run:
        """A run that has collected these groups; `changed` are its options."""
        self.count += 1
        self.listener = Watcher()
        config = CONFIG.replaced(until=until, **changed)
        made = Run(config, self.root, f"run-{self.count}", self.listener, launcher, clock=launcher.clock)
        made.start()
        made.collect(plan.plan_of((group.spec, cell) for group in groups or (TWO,) for cell in group.cells))
        return made

    def trial(self, launcher: FakeLauncher, group: Group = TWO, **changed: Any) -> Trial:
        """A trial of this group that has begun."""
        session = self.session(launcher, group, **changed)
        session._prepare()
        trial = Trial(session, group)
        trial.begin()
        return trial

    def run(self, launcher: FakeLauncher | None = None, *groups: Group, **changed: Any) -> Outcome:
        """A whole run."""
        launcher = launcher or day()
        running = self.session(launcher, *groups, **changed)
        nodeids = [cell.nodeid for group in running.plan for cell in group.cells]
        messages = [running.row(nodeid) for nodeid in nodeids]
        report = running.report(reversed(messages), "0.1", nodeids)
        # Scripted runs follow each other within a second; each stands for one of another day.
        started = datetime.fromisoformat(report.started_at) + timedelta(days=self.count)
        report = msgspec.structs.replace(report, started_at=started.isoformat(), commit=self.commit)
        return Outcome(running, launcher, running.store(report))

    def record(
        self, launcher: FakeLauncher | None = None, *groups: Group, update: str = "new", **changed: Any
    ) -> Outcome:
        """A run of another day that records."""
        return self.run(launcher or day(seed=1), *groups, update=(update,), **changed)

    def recorded(
        self, group: Group = TWO, launches: int | None = None, commits: Sequence[str] = (), days: int = 1
    ) -> None:
        """As after `record(None, group)`, its cells at one of `commits` each: the files are made once for all tests.

        One day says little of what computes, `days` more.
        """
        self.count += max(1, len(commits)) + days - 1
        key = (group.cells, launches, days, *commits)
        if key not in recordings:
            with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
                project = Project(root := Path(folder), patch)
                for number, commit in enumerate(commits or (self.commit,), 1):
                    cells = group.cells[:number] if commits else group.cells
                    project.commit = commit
                    project.record(None, msgspec.structs.replace(group, cells=cells), launches=launches)
                for seed in range(2, 1 + days):
                    project.record(day(seed=seed), group, launches=launches, update="all")
                recordings[key] = {
                    str(path.relative_to(root)): path.read_bytes() for path in (root / "baselines").rglob("*.json")
                }
        for name, content in recordings[key].items():
            path = self.root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)

    @property
    def baseline(self) -> Path:
        """The file of the only recording."""
        (path,) = (self.root / "baselines" / "test_work.py" / "test_work").iterdir()
        return path


recordings: dict[tuple[object, ...], dict[str, bytes]] = {}
"""What `record` leaves in `baselines`."""


def relocated(spec: Spec, checkout: Checkout) -> Spec:
    """A test in a checkout."""
    source = msgspec.structs.replace(spec.source, path=f"{checkout.root}/{spec.source.path}")
    return msgspec.structs.replace(spec, source=source)


def finish(trial: Trial) -> dict[str, Row]:
    """All its steps; its rows by node id."""
    while trial.open:
        trial.step()
    return rows_of(trial)


def rows_of(trial: Trial) -> dict[str, Row]:
    """By node id."""
    return {row.cell.nodeid: row for row in trial.rows()}
