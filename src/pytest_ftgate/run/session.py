"""One run: prepares targets, measures tandem by tandem, judges each cell, and makes the Report. Knows no pytest."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import time
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

import filelock
import msgspec

from .. import pythons
from ..errors import FtgateError
from ..judge import decide
from ..judge.judge import ComparedWith, Policy, hypotheses
from ..judge.metrics import LEAST_TAIL_ITERATIONS
from ..measure import budget
from ..measure.cell_run import Limits, PreparedTarget
from ..measure.interleaved import Listener
from ..measure.launch import Launcher
from ..measure.launchers import cpus
from ..measure.launchers.factory import Launchers
from ..measure.launchers.runner_copy import install_runner
from ..measure.machine import read_machine
from ..measure.watch import self_test
from ..model import (
    Cell,
    Decision,
    Figures,
    Group,
    Interpreter,
    Machine,
    Plan,
    Report,
    Row,
    RowMessage,
    Settings,
    Spec,
    Struct,
    Table,
    Threshold,
    Verdict,
    failed_row,
    first_line,
)
from ..pythons import InterpreterNotFound
from ..report.baselines import update_lines
from ..stats import alpha_spending
from ..store import folder, names, recording, schema, unused
from ..store.update import apply_updates, matches, update_plan
from . import git, worktrees
from .measurement import Measurement, executor_cell

RECORD_LAUNCHES, CHECK_LAUNCHES = 12, 5
FIRST_ROUNDS = 6
"""Rounds of every test before the budget goes where a decision is nearest."""
RUNS_KEPT = 5


class RunConfig(Struct, frozen=True, kw_only=True):
    """What the options say about a run; seconds, shares and counts."""

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
    install: tuple[str, ...] | None
    against: str
    escalate: bool


class Watcher(Listener, Protocol):
    """Hears of the run's progress."""

    def begin(self, title: str, cells: Sequence[str]) -> None:
        """A tandem begins."""
        ...


class Found(Struct, frozen=True, kw_only=True):
    """A target that was looked for: ready, or the reason why not: it is not there, or what it needs has `failed`."""

    ready: PreparedTarget | None = None
    reason: str = ""
    failed: bool = False


class Session:
    """A run in one process; under xdist each worker has one, and they take turns under a lock."""

    def __init__(
        self, config: RunConfig, root: Path, run: str, watcher: Watcher, launcher: Launcher | None = None
    ) -> None:
        self.config = config
        self.root = root
        self.folder = root / ".ftgate"
        self.run = self.folder / "runs" / run
        self.watcher = watcher
        self.machine: Machine = read_machine()
        self.store = folder.Store(root / config.baselines, lock_path=self.folder / "baselines.lock")
        self.started = time.monotonic()
        self.plan = Plan(groups=())
        self._groups: dict[str, Group] = {}
        self._launcher = launcher
        self._announced = ""
        self._found: dict[tuple[str, str, tuple[str, ...]], Found] = {}
        self._rows: dict[str, Row] = {}
        self._policy: Policy | None = None
        self._baselines: dict[str, schema.TestBaseline | FtgateError | None] = {}
        self._pairs: dict[str, worktrees.Pair | git.AgainstError] = {}

    # -- what is to be done ------------------------------------------------------------------------------------

    def prepare(self, plan: Plan) -> None:
        """Take the plan of the whole run; nothing is started yet."""
        self.plan = plan
        self._groups = {cell.nodeid: group for group in plan.groups for cell in group.cells}

    def row(self, nodeid: str) -> Row:
        """The verdict on a cell; its whole tandem is measured at the first call for one of its cells."""
        if nodeid not in self._rows:
            self._rows.update({row.cell.nodeid: row for row in self._shared(self._group(nodeid))})
        return self._rows[nodeid]

    def _group(self, nodeid: str) -> Group:
        return self._groups[nodeid]

    def _shared(self, group: Group) -> list[Row]:
        """Measured once in a run, whichever process asks first: the others read what it wrote."""
        self.run.mkdir(parents=True, exist_ok=True)
        pythons.hide_from_git(self.folder)
        with filelock.FileLock(self.folder / "measuring.lock"):
            if not self._kept(group).exists():
                self._measure(group)
            return msgspec.json.decode(self._kept(group).read_bytes(), type=list[Row])

    def _kept(self, group: Group) -> Path:
        """Where the rows of a tandem stand once they are measured."""
        return self.run / f"{hashlib.sha256(group.key.encode()).hexdigest()[:16]}.json"

    def _measure(self, asked: Group) -> None:
        """One test, or all tests of a run that has a budget: then whichever is nearest to its decision goes first.

        The rows of a test are kept as soon as it ends, whatever becomes of the others.
        """
        wanted = [asked] if self.config.budget_s is None else self.plan.groups
        measurements = [self._measurement(group) for group in wanted if not self._kept(group).exists()]
        under_way = self._ended(measurements)
        while under_way:
            left_s = self._left_s()
            if left_s is not None and left_s <= 0:
                for measurement in under_way:
                    measurement.close()
            else:
                measurement = _next_of(under_way)
                self._announce(measurement.group)
                measurement.step(_granted(left_s, measurement, under_way))
            under_way = self._ended(under_way)

    def _ended(self, measurements: Sequence[Measurement]) -> list[Measurement]:
        """Those that are still open; the rows of the others are kept."""
        for measurement in measurements:
            if not measurement.open:
                self._keep_rows(measurement.group, measurement.rows())
        return [measurement for measurement in measurements if measurement.open]

    def _measurement(self, group: Group) -> Measurement:
        self._announce(group)
        return Measurement(self, group, self.config.escalate, self.config.against)

    def _announce(self, group: Group) -> None:
        """Say whose turn it is, where it was another's."""
        if group.key != self._announced:
            self._announced = group.key
            self.watcher.begin(group.key, [cell.label for cell in group.cells])

    def _left_s(self) -> float | None:
        """What is left of the run's budget; None without one."""
        if self.config.budget_s is None:
            return None
        return self.config.budget_s - (time.monotonic() - self.started)

    def _keep_rows(self, group: Group, rows: list[Row]) -> None:
        kept = self._kept(group)
        unfinished = kept.with_suffix(".part")
        unfinished.write_bytes(msgspec.json.encode(rows))
        unfinished.replace(kept)

    # -- targets -----------------------------------------------------------------------------------------------

    def found(self, cell: Cell, side: git.Side | None = None) -> Found:
        """The interpreter and environment of a cell's target, looked for once.

        The environment holds the project, or that side of a comparison.
        """
        key = (cell.target.spec, "" if side is None else f"{side.root} {side.install}", self._requires(cell))
        if key not in self._found:
            try:
                self._found[key] = self._find(cell, side)
            except FtgateError as error:
                self._found[key] = Found(reason=str(error), failed=True)
        return self._found[key]

    def _find(self, cell: Cell, side: git.Side | None) -> Found:
        target = cell.target
        self.watcher.advance(target.spec, "interpreter and environment", 0, 0, None)
        try:
            interpreter = pythons.find_interpreter(target)
        except InterpreterNotFound as missing:
            return Found(reason=str(missing))
        reason = pythons.settings_unsupported(interpreter, target.settings)
        if reason:
            return Found(reason=reason)
        ready = PreparedTarget(
            interpreter=interpreter,
            python=str(self._environment(interpreter, self._requires(cell), side)),
            key=pythons.build_key(interpreter),
            environment=pythons.environment_variables(target.settings),
        )
        refused = self._waits_unavailable(interpreter, ready.python, target.settings)
        return Found(ready=msgspec.structs.replace(ready, waits_unavailable=refused))

    def _requires(self, cell: Cell) -> tuple[str, ...]:
        """What the cell's test needs installed beside the project."""
        return self._group(cell.nodeid).spec.requires

    def _environment(self, interpreter: Interpreter, requires: tuple[str, ...], side: git.Side | None) -> Path:
        project = self.root if side is None else side.project
        install = pythons.default_install(project) if self.config.install is None else self.config.install
        if side is not None:
            install = worktrees.install_of(install, self.root, side)
        return pythons.ensure_environment(
            interpreter, root=self.folder / "envs", project=project, install=(*install, *requires)
        )

    def ready(self, cell: Cell, side: git.Side | None = None) -> PreparedTarget:
        """The target of a cell, with the project or that side of it installed. Raises FtgateError."""
        found = self.found(cell, side)
        if found.ready is None:
            raise FtgateError(found.reason)
        return found.ready

    def _waits_unavailable(self, interpreter: Interpreter, python: str, settings: Settings) -> str:
        """Why the waits of this target's threads cannot be told apart; empty where they can."""
        self.watcher.advance(interpreter.name, "self-test", 0, 0, None)
        return self_test.patterns_hold(
            f"{pythons.build_key(interpreter)}{'-gil-' + settings.gil if settings.gil else ''}",
            python,
            self.folder / "selftests",
            environment=pythons.environment_variables(settings),
        )

    # -- what a course of a test asks for -----------------------------------------------------------------------

    @property
    def seed(self) -> int:
        """Of everything that is random in the run."""
        return self.config.seed

    @property
    def launcher(self) -> Launcher:
        """Starts launches, real ones unless the run was given another."""
        return self._launcher or self._real_launcher()

    def without_measuring(self, cell: Cell) -> Row | None:
        """A row for a cell that need not be measured: no interpreter, or a baseline that cannot be read."""
        found = self.found(cell, self.pair().changed if self.config.against else None)
        if found.ready is None and found.failed:
            return failed_row(cell, first_line(found.reason), found.reason)
        if found.ready is None:
            return Row(cell=cell, verdict=Verdict(decision=Decision.UNSUPPORTED, reason=found.reason))
        if cell.executor.kind == "interpreters" and found.ready.interpreter.version.startswith("3.13"):
            reason = "sub-interpreters need CPython 3.14 or newer"
            return Row(cell=cell, verdict=Verdict(decision=Decision.UNSUPPORTED, reason=reason))
        entry = None if self.config.against else self.entry(cell)
        if isinstance(entry, FtgateError):
            return failed_row(cell, "its baseline cannot be read", str(entry))
        return None

    def pair(self, compared_with: ComparedWith | None = None, test: str = "") -> worktrees.Pair:
        """Both sides of the comparison asked for, or of the commit of what is stored of a test.

        Raises trees.AgainstError.
        """
        key = self.config.against if compared_with is None else f"{compared_with.commit} {compared_with.baseline}"
        if key not in self._pairs:
            self.watcher.advance(key, "checking out", 0, 0, None)
            try:
                self._pairs[key] = self._shared_pair(key, compared_with, test)
            except git.AgainstError as error:
                self._pairs[key] = error
        found = self._pairs[key]
        if isinstance(found, git.AgainstError):
            raise found
        return found

    def _shared_pair(self, key: str, compared_with: ComparedWith | None, test: str) -> worktrees.Pair:
        """The same trees for all processes of a run, whatever is edited meanwhile."""
        self.run.mkdir(parents=True, exist_ok=True)
        pythons.hide_from_git(self.folder)
        kept = self.run / f"pair-{hashlib.sha256(key.encode()).hexdigest()[:16]}.pair"
        with filelock.FileLock(self.folder / "pair.lock"):
            if kept.exists():
                return msgspec.json.decode(kept.read_bytes(), type=worktrees.Pair)
            made = self._made_pair(compared_with, test)
            kept.write_bytes(msgspec.json.encode(made))
        return made

    def _made_pair(self, compared_with: ComparedWith | None, test: str) -> worktrees.Pair:
        """Of what is stored the recorded commit, or the one that brought the file where that cannot stand for it.

        Who records a new test, or changes that are not committed yet, commits them together with the baseline.
        """
        if compared_with is None:
            return worktrees.pair(self.root, self.config.against, self.folder)
        try:
            found = worktrees.commit_pair(self.root, compared_with.commit, self.folder)
            if not worktrees.lacks(found.reference, test):
                return found
            trouble = git.AgainstError(f"{found.reference.label}, at which it was recorded, has no such test")
        except worktrees.NothingToCompare:
            raise
        except git.AgainstError as error:
            trouble = error
        brought = worktrees.introduced(self.root, Path(compared_with.file))
        if not brought or brought == compared_with.commit:
            raise trouble
        found = worktrees.commit_pair(self.root, brought, self.folder)
        if worktrees.lacks(found.reference, test):
            raise trouble
        return found

    def relocated(self, spec: Spec, side: git.Side) -> Spec:
        """A test as it stands on one side; its tree is in use from now on."""
        worktrees.mark_used(side)
        return worktrees.relocated(spec, self.root, side)

    def _real_launcher(self) -> Launcher:
        self._launcher = Launchers(install_runner(self.folder / "runner"), self.folder / "launches")
        return self._launcher

    def hint(self, detail: str, side: git.Side) -> str:
        """What a workload's error on one side may come from; empty where nothing is known."""
        return worktrees.ignored_hint(detail, side, self.root)

    def limits(self, cells: Sequence[Cell], counts: int) -> Limits:
        """How much may be measured; `counts` is the number of worker counts."""
        recording = self.records(cells)
        return Limits(
            budget_s=self._budget_s(self.config.test_budget_s * (2 if recording else 1) * counts),
            floor=RECORD_LAUNCHES if recording else CHECK_LAUNCHES,
            launches=self.config.launches,
            iterations=self.config.iterations,
            least_iterations=LEAST_TAIL_ITERATIONS,
            timeout_s=self.config.timeout_s,
        )

    def records(self, cells: Sequence[Cell]) -> bool:
        """Whether this run records one of these cells."""
        return any(self._will_record(cell) for cell in cells)

    def _will_record(self, cell: Cell) -> bool:
        if not self.config.update:
            return False
        named = any(matches(pattern, cell.nodeid) for pattern in self.config.update)
        return named or "all" in self.config.update or self.entry(cell) is None

    def _budget_s(self, wanted_s: float) -> float:
        """What a test may take: `wanted_s`, or its share of what is left of the run's budget if that is less."""
        if self.config.budget_s is None:
            return wanted_s
        left = self.config.budget_s - (time.monotonic() - self.started)
        return max(1.0, min(wanted_s, budget.share(left * 1e9, len(self.plan.groups)) / 1e9))

    def stored_loops(self, cells: Sequence[Cell]) -> int | None:
        """Loops of the baseline, so that a value spreads dispatch over as many calls as the stored one did."""
        if "all" in self.config.update:
            return None
        stored = (entry for cell in cells if isinstance(entry := self.entry(cell), schema.StoredCell))
        return next((entry.recordings[0].launches[0].loops for entry in stored), None)

    # -- judging -----------------------------------------------------------------------------------------------

    def entry(self, cell: Cell) -> schema.StoredCell | FtgateError | None:
        """What is stored of a cell on this machine and build; an error in its place where the file is broken."""
        if self.found(cell).ready is None:
            return None
        stored = self._baseline(names.split_nodeid(cell.nodeid)[0])
        return stored if isinstance(stored, FtgateError) else self._stored(cell).get(self._key(cell))

    def _baseline(self, test: str) -> schema.TestBaseline | FtgateError | None:
        """A test's file, read once in a run; what is wrong with it in its place."""
        if test not in self._baselines:
            try:
                self._baselines[test] = self.store.load(test)
            except FtgateError as error:
                self._baselines[test] = error
        return self._baselines[test]

    def compared_with(self, cell: Cell, cells: Sequence[Cell]) -> ComparedWith:
        """What a cell is compared with where no reference is measured."""
        entry = self.entry(cell)
        basis, key = "stored", self._key(cell)
        why = ""
        if not isinstance(entry, schema.StoredCell):
            basis, (key, entry) = "portable", self._newest_elsewhere(cell)
            why = f"recorded on another machine or build ({key}): what travels is compared"
        if entry is None:
            return ComparedWith(why="nothing is stored for it; record it with --ftgate-update")
        newest = entry.recordings[-1]
        path = self.store.path(names.split_nodeid(cell.nodeid)[0])
        executor = executor_cell(self._group(cell.nodeid).spec, cell, cells)
        beside = self._stored(executor).get(key) if executor and executor != cell else None
        return ComparedWith(
            basis="stored" if basis == "stored" else "portable",
            why=why,
            entry=entry,
            executor=beside,
            executor_nodeid=executor.nodeid if executor else "",
            baseline=f"{_relative(path, self.root)} ({newest.recorded_at})",
            commit=newest.commit,
            file=str(path),
        )

    def _key(self, cell: Cell) -> str:
        return names.entry_key(self.machine.fingerprint, self.ready(cell).key)

    def _stored(self, cell: Cell) -> dict[str, schema.StoredCell]:
        """By machine and build; nothing of a file that cannot be read, which is its cells' error (see `entry`)."""
        test, label = names.split_nodeid(cell.nodeid)
        stored = self._baseline(test)
        return stored.cells.get(label, {}) if isinstance(stored, schema.TestBaseline) else {}

    def _newest_elsewhere(self, cell: Cell) -> tuple[str, schema.StoredCell | None]:
        """The newest entry of another machine: of the same build if there is one, else of any."""
        stored, build = self._stored(cell), self.ready(cell).key
        same = {key: entry for key, entry in stored.items() if key.partition("/")[2] == build}
        found = sorted((same or stored).items(), key=lambda item: item[1].recordings[-1].recorded_at)
        return found[-1] if found else ("", None)

    def policy(self) -> Policy:
        """What the options say about verdicts, the levels split over all hypotheses of the run.

        The same for every cell: the plan and what is stored stand before anything is measured.
        """
        if self._policy is None:
            alpha, beta = decide.split_alpha(self.config.alpha, alpha_spending.BETA, max(1, self.hypotheses()))
            self._policy = Policy(
                metrics=self.config.metrics,
                cli=self.config.thresholds,
                ini=self.config.ini_thresholds,
                alpha=alpha,
                beta=beta,
                probe_cost=self.config.probe_cost,
            )
        return self._policy

    def hypotheses(self) -> int:
        """How many tests may raise a false alarm in this run: what gates of every cell that is compared."""
        return sum(
            hypotheses(group.spec, self.config.metrics, cell, group.cells, self._compared(cell))
            for group in self.plan.groups
            for cell in group.cells
        )

    def _compared(self, cell: Cell) -> bool:
        if self.config.against:
            return True
        found = self.found(cell)
        return found.ready is not None and not isinstance(self.entry(cell), FtgateError) and bool(self._stored(cell))

    def shown(self, found: Figures) -> Figures:
        """Sites as people name them: below the root, whichever tree was measured, else from the library on."""
        replace, sides = msgspec.structs.replace, self._pairs.values()

        def named(file: str) -> str:
            for side in sides:
                if isinstance(side, worktrees.Pair):
                    file = git.mapped(file, side.changed.project, self.root)
            return recording.portable(file, self.root)

        return replace(found, sites=tuple(replace(site, file=named(site.file)) for site in found.sites))

    # -- the end -----------------------------------------------------------------------------------------------

    def message(self, nodeid: str) -> RowMessage:
        """The row of a cell (see `row`), with its place in the report."""
        nodeids = [cell.nodeid for group in self.plan.groups for cell in group.cells]
        group = self._group(nodeid)
        return RowMessage(
            table=group.key, reference=_reference(group), position=nodeids.index(nodeid), row=self.row(nodeid)
        )

    def report(self, messages: Iterable[RowMessage], version: str, collected: Iterable[str] | None) -> Report:
        """Everything measured and judged.

        `collected` are all node ids before any was deselected; None leaves unused baselines unreported.
        """
        tables = _tables(messages)
        return Report(
            version=version,
            seed=self.config.seed,
            started_at=datetime.now(UTC).isoformat(timespec="seconds"),
            wall_s=time.monotonic() - self.started,
            machine=self.machine,
            interpreters=_interpreters(tables),
            tables=tables,
            unused_baselines=self._unused(collected),
            commit=commit_of(self.root),
        )

    def updated(self, report: Report) -> Report:
        """The report with what the update, if one was asked for, did to the baselines."""
        return msgspec.structs.replace(report, updates=self._update(report))

    def _unused(self, collected: Iterable[str] | None) -> tuple[str, ...]:
        if collected is None or not self.store.root.is_dir():
            return ()
        try:
            found = unused.unused(self.store, collected, fingerprint=self.machine.fingerprint, rootdir=self.root)
        except FtgateError:
            return ()  # a broken file is the error of its cells and of `ftgate baseline`, not the end of a run's report
        return tuple(names.join_nodeid(test, label) for test, label in found)

    def _update(self, report: Report) -> tuple[str, ...]:
        if not self.config.update:
            return ()
        rows = [row for table in report.tables for row in table.rows]
        plan = update_plan(self.config.update, rows, self.store, fingerprint=self.machine.fingerprint)
        apply_updates(
            plan,
            self.store,
            machine=self.machine,
            recorded_at=report.started_at,
            commit=report.commit,
            seed=report.seed,
            root=self.root,
        )
        return update_lines(plan)

    def keep(self, text: str) -> None:
        """Write the run where `ftgate baseline` finds it, and forget runs of long ago."""
        self.folder.mkdir(parents=True, exist_ok=True)
        unfinished = self.folder / "last-run.json.part"
        unfinished.write_text(text, encoding="utf-8")
        unfinished.replace(self.folder / "last-run.json")
        pythons.prune_environments(self.folder / "envs")
        runs = sorted((self.folder / "runs").glob("*"), key=lambda path: path.stat().st_mtime)
        for old in runs[:-RUNS_KEPT]:
            shutil.rmtree(old, ignore_errors=True)


def _tables(messages: Iterable[RowMessage]) -> tuple[Table, ...]:
    grouped: dict[str, list[RowMessage]] = {}
    for message in sorted(messages, key=lambda message: message.position):
        grouped.setdefault(message.table, []).append(message)
    return tuple(
        Table(
            title=title, rows=tuple(message.row for message in group), reference=group[0].reference, note=_note(group)
        )
        for title, group in grouped.items()
    )


def _reference(group: Group) -> str:
    """What the ratios of a test refer to: its first executor, of servers on the first target."""
    label = group.spec.executors[0].label
    first = next((cell for cell in group.cells if cell.executor.label == label), group.cells[0])
    return f"{first.target.spec}-{label}" if first.body == "server" else label


def _note(group: Sequence[RowMessage]) -> str:
    """What is to be said of all rows of a table: where a server and the load on it have to share CPUs."""
    return cpus.cpus_note() if group[0].row.cell.body == "server" else ""


def _next_of(measurements: Sequence[Measurement]) -> Measurement:
    """Whose round is next: every test has its first ones, then the test that is nearest to its decision goes first."""
    first = [measurement for measurement in measurements if measurement.rounds < FIRST_ROUNDS]
    if first:
        return min(first, key=lambda measurement: measurement.rounds)
    return min(measurements, key=lambda measurement: measurement.left_s())


def _granted(left_s: float | None, measurement: Measurement, measurements: Sequence[Measurement]) -> float | None:
    """What a test may plan with: its part of what is left while it has its first rounds, then all of it."""
    if left_s is None or measurement.rounds >= FIRST_ROUNDS:
        return left_s
    return left_s / len(measurements)


def _interpreters(tables: Iterable[Table]) -> tuple[Interpreter, ...]:
    found: dict[str, Interpreter] = {}
    for table in tables:
        for row in table.rows:
            if row.sample is not None:
                found.setdefault(row.sample.key, row.sample.interpreter)
    return tuple(found.values())


def _relative(path: Path, root: Path) -> str:
    return str(path.relative_to(root)) if path.is_relative_to(root) else str(path)


def commit_of(root: Path, run: Callable[..., subprocess.CompletedProcess[str]] = subprocess.run) -> str:
    """The commit of the tree at `root`, with `+` where it is dirty; empty without git."""
    try:
        head = run(["git", "rev-parse", "HEAD"], cwd=root, capture_output=True, text=True, check=True).stdout.strip()
        status = run(
            ["git", "status", "--porcelain", "-uno"], cwd=root, capture_output=True, text=True, check=True
        ).stdout
    except (OSError, subprocess.CalledProcessError):
        return ""
    return head + ("+" if status.strip() else "")
