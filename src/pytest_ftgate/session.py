"""One run: prepares targets, measures tandem by tandem, judges each cell, and makes the Report. Knows no pytest."""

from __future__ import annotations

import hashlib
import random
import shutil
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

import filelock
import msgspec

from . import baselines, figures, gate, pythons, schedule, stats, waits
from .errors import FtgateError
from .launch import Launcher, ProcessLauncher, install_runner
from .machine import read_machine
from .model import (
    Arrival,
    Cell,
    Comparison,
    Decision,
    Figures,
    Interpreter,
    Interval,
    Machine,
    Metric,
    MetricVerdict,
    Plan,
    Report,
    Row,
    Sample,
    Settings,
    Struct,
    Table,
    Tandem,
    Verdict,
    WorkloadError,
)
from .pythons import InterpreterNotFound
from .reports.baseline import update_lines
from .tandem import Limits, Listener, Ready, TandemRun

CHECK_LAUNCHES = 5
RECORD_LAUNCHES = 12
MOST_FLOOR = 12
RUNS_KEPT = 5
PAGE_BYTES = 4096
USS_FLOOR_PAGES = 64
BETA = 0.05
LOCK_WAIT_LIMITS = (0.25, 0.5, 0.01)
"""Margin and effect of the share as fractions, and the point that is no change at all."""
NO_NEW = {
    Metric.USS: "the baseline has figures and no launch of this run gave one: its processes ended before the look",
    Metric.LOCK_WAIT: "the baseline has figures and no launch of this run gave one",
}
"""Without a new value. Scaling is not judged then: the cell with one worker was not selected, or has its own error."""


class RunConfig(Struct, frozen=True, kw_only=True):
    """What the options say about a run; seconds, shares and counts."""

    baselines: str
    update: tuple[str, ...]
    seed: int
    budget_s: float | None
    test_budget_s: float
    launches: int | None
    turns: int | None
    timeout_s: float
    margin: float
    effect: float
    memory_margin: float
    memory_effect: float
    alpha: float
    probe_cost: float
    install: tuple[str, ...] | None


class Watcher(Listener, Protocol):
    """Hears of the run's progress."""

    def begin(self, title: str, cells: Sequence[str]) -> None:
        """A tandem begins."""
        ...


class Found(Struct, frozen=True, kw_only=True):
    """A target that was looked for: ready, or the reason why not."""

    ready: Ready | None = None
    reason: str = ""


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
        self.store = baselines.Store(root / config.baselines, lock_path=self.folder / "baselines.lock")
        self.started = time.monotonic()
        self.plan = Plan(tandems=())
        self._launcher = launcher
        self._found: dict[str, Found] = {}
        self._rows: dict[str, Row] = {}
        self._hypotheses: int | None = None
        self._entries: dict[str, baselines.Entry | FtgateError | None] = {}

    # -- what is to be done ------------------------------------------------------------------------------------

    def prepare(self, plan: Plan) -> None:
        """Take the plan of the whole run; nothing is started yet."""
        self.plan = plan

    def row(self, nodeid: str) -> Row:
        """The verdict on a cell; its whole tandem is measured at the first call for one of its cells."""
        if nodeid not in self._rows:
            self._rows.update({row.cell.nodeid: row for row in self._shared(self._tandem(nodeid))})
        return self._rows[nodeid]

    def _tandem(self, nodeid: str) -> Tandem:
        return next(tandem for tandem in self.plan.tandems if any(cell.nodeid == nodeid for cell in tandem.cells))

    def _shared(self, tandem: Tandem) -> list[Row]:
        """Measured once in a run, whichever process asks first: the others read what it wrote."""
        self.run.mkdir(parents=True, exist_ok=True)
        pythons.hide_from_git(self.folder)
        kept = self.run / f"{hashlib.sha256(tandem.key.encode()).hexdigest()[:16]}.json"
        with filelock.FileLock(self.folder / "measuring.lock"):
            if kept.exists():
                return msgspec.json.decode(kept.read_bytes(), type=list[Row])
            rows = self._measured(tandem)
            unfinished = kept.with_suffix(".part")
            unfinished.write_bytes(msgspec.json.encode(rows))
            unfinished.replace(kept)
        return rows

    # -- targets -----------------------------------------------------------------------------------------------

    def found(self, cell: Cell) -> Found:
        """The interpreter and environment of a cell's target, looked for once."""
        spec = cell.target.spec
        if spec not in self._found:
            self._found[spec] = self._find(cell)
        return self._found[spec]

    def _find(self, cell: Cell) -> Found:
        target = cell.target
        self.watcher.advance(target.spec, "interpreter and environment", 0, 0, None)
        try:
            interpreter = pythons.find_interpreter(target)
        except InterpreterNotFound as missing:
            return Found(reason=str(missing))
        reason = pythons.settings_unsupported(interpreter, target.settings)
        if reason:
            return Found(reason=reason)
        install = pythons.default_install(self.root) if self.config.install is None else self.config.install
        python = pythons.ensure_environment(interpreter, root=self.folder / "envs", project=self.root, install=install)
        ready = Ready(
            interpreter=interpreter,
            python=str(python),
            key=pythons.build_key(interpreter),
            environment=pythons.environment_variables(target.settings),
            waits_unavailable=self._waits_unavailable(interpreter, str(python), target.settings),
        )
        return Found(ready=ready)

    def _waits_unavailable(self, interpreter: Interpreter, python: str, settings: Settings) -> str:
        """Why the waits of this target's threads cannot be told apart; empty where they can."""
        self.watcher.advance(interpreter.name, "self-test", 0, 0, None)
        return waits.patterns_hold(
            f"{pythons.build_key(interpreter)}{'-gil-' + settings.gil if settings.gil else ''}",
            python,
            self.folder / "selftests",
            environment=pythons.environment_variables(settings),
        )

    # -- measuring ---------------------------------------------------------------------------------------------

    def _measured(self, tandem: Tandem) -> list[Row]:
        self.watcher.begin(tandem.key, [cell.label for cell in tandem.cells])
        early = {cell.nodeid: row for cell in tandem.cells if (row := self._without_measuring(cell)) is not None}
        cells = tuple(cell for cell in tandem.cells if cell.nodeid not in early)
        samples = self._samples(tandem, cells) if cells else []
        return self._rows_of(tandem, samples, early)

    def _without_measuring(self, cell: Cell) -> Row | None:
        """A row for a cell that need not be measured: no interpreter, or a baseline that cannot be read."""
        found = self.found(cell)
        if found.ready is None:
            return Row(cell=cell, verdict=Verdict(decision=Decision.UNSUPPORTED, reason=found.reason))
        if cell.executor.kind == "interpreters" and found.ready.interpreter.version.startswith("3.13"):
            reason = "sub-interpreters need CPython 3.14 or newer"
            return Row(cell=cell, verdict=Verdict(decision=Decision.UNSUPPORTED, reason=reason))
        entry = self.entry(cell)
        if isinstance(entry, FtgateError):
            error = WorkloadError(reason="its baseline cannot be read", detail=str(entry))
            return Row(cell=cell, verdict=Verdict(decision=Decision.ERROR, reason=error.reason), error=error)
        return None

    def _samples(self, tandem: Tandem, cells: tuple[Cell, ...]) -> list[Sample]:
        targets = {cell.target.spec: ready for cell in cells if (ready := self.found(cell).ready) is not None}
        running = TandemRun(
            Tandem(key=tandem.key, spec=tandem.spec, cells=cells),
            targets,
            self._launcher or self._real_launcher(),
            self._limits(cells),
            random.Random(f"{self.config.seed}:{tandem.key}"),
            self.watcher,
            loops=self._stored_loops(cells),
        )
        return running.measure()

    def _real_launcher(self) -> Launcher:
        self._launcher = ProcessLauncher(install_runner(self.folder / "runner"), self.folder / "launches")
        return self._launcher

    def _limits(self, cells: Sequence[Cell]) -> Limits:
        recording = any(self._will_record(cell) for cell in cells)
        stored = [len(_launches(entry)) for cell in cells if isinstance(entry := self.entry(cell), baselines.Entry)]
        alpha, _ = self._alpha_beta()
        needed = [stats.launches_for(alpha, launches) for launches in stored if launches]
        counts = len({cell.workers for cell in cells})
        floor = RECORD_LAUNCHES if recording else max([CHECK_LAUNCHES, *(min(n, MOST_FLOOR) for n in needed)])
        return Limits(
            budget_s=self._budget_s(self.config.test_budget_s * (2 if recording else 1) * counts),
            floor=floor,
            launches=self.config.launches,
            turns=self.config.turns,
            effect=self.config.effect,
            timeout_s=self.config.timeout_s,
        )

    def _will_record(self, cell: Cell) -> bool:
        if not self.config.update:
            return False
        named = any(baselines.names(pattern, cell.nodeid) for pattern in self.config.update)
        return named or "all" in self.config.update or self.entry(cell) is None

    def _budget_s(self, wanted_s: float) -> float:
        """What a test may take: `wanted_s`, or its share of what is left of the run's budget if that is less."""
        if self.config.budget_s is None:
            return wanted_s
        left = self.config.budget_s - (time.monotonic() - self.started)
        to_come = len(self.plan.tandems) - sum(1 for _ in self.run.glob("*.json"))
        return max(1.0, min(wanted_s, schedule.share(left * 1e9, to_come) / 1e9))

    def _stored_loops(self, cells: Sequence[Cell]) -> int | None:
        """Loops of the baseline, so that a value spreads dispatch over as many calls as the stored one did."""
        if "all" in self.config.update:
            return None
        stored = (entry for cell in cells if isinstance(entry := self.entry(cell), baselines.Entry))
        return next((_launches(entry)[0].loops for entry in stored), None)

    # -- judging -----------------------------------------------------------------------------------------------

    def entry(self, cell: Cell) -> baselines.Entry | FtgateError | None:
        """What is stored of a cell on this machine and build; an error in its place where the file is broken."""
        if cell.nodeid not in self._entries:
            ready = self.found(cell).ready
            try:
                found = self.store.lookup(cell.nodeid, self.machine.fingerprint, ready.key) if ready else None
            except FtgateError as error:
                self._entries[cell.nodeid] = error
            else:
                self._entries[cell.nodeid] = found
        return self._entries[cell.nodeid]

    def hypotheses(self) -> int:
        """How many tests may raise a false alarm in this run: the gating metrics of every cell with a baseline."""
        cells = [cell for tandem in self.plan.tandems for cell in tandem.cells]
        stored = [entry for cell in cells if isinstance(entry := self.entry(cell), baselines.Entry)]
        return sum(map(_gating, stored))

    def _alpha_beta(self) -> tuple[float, float]:
        if self._hypotheses is None:  # the same for every cell: the plan and what is stored stand before measuring
            self._hypotheses = self.hypotheses()
        return gate.split_alpha(self.config.alpha, BETA, max(1, self._hypotheses))

    def _rows_of(self, tandem: Tandem, samples: Sequence[Sample], early: Mapping[str, Row]) -> list[Row]:
        by_nodeid = {sample.cell.nodeid: sample for sample in samples}
        rows = []
        for cell in tandem.cells:
            if cell.nodeid in early:
                rows.append(early[cell.nodeid])
                continue
            sample = by_nodeid[cell.nodeid]
            shown = self._shown(figures.figures(sample, reference=_reference(tandem, cell, by_nodeid)))
            rows.append(
                Row(
                    cell=cell,
                    verdict=self.judge(sample, shown),
                    figures=shown,
                    sample=sample,
                    error=sample.error,
                )
            )
        return rows

    def _shown(self, found: Figures) -> Figures:
        """Sites as people name them: below the root, else from the library on."""
        replace = msgspec.structs.replace
        sites = (replace(site, file=baselines.portable(site.file, self.root)) for site in found.sites)
        return replace(found, sites=tuple(sites))

    def judge(self, sample: Sample, shown: Figures) -> Verdict:
        """The verdict on a sample from its stored baseline; `shown` are its figures, the cost of looking among them."""
        if sample.unsupported is not None:
            return Verdict(decision=Decision.UNSUPPORTED, reason=sample.unsupported)
        if sample.error is not None:
            return Verdict(decision=Decision.ERROR, reason=sample.error.reason)
        entry = self.entry(sample.cell)
        if not isinstance(entry, baselines.Entry):
            return Verdict(decision=Decision.NO_BASELINE, reason=self._why_none(sample))
        mismatch = baselines.mismatch(entry, sample)
        if mismatch:
            return Verdict(decision=Decision.NO_BASELINE, reason=mismatch)
        newest = entry.recordings[-1]
        path = self.store.path(baselines.split_nodeid(sample.cell.nodeid)[0])
        return gate.judge(
            self._metrics(sample, entry, shown),
            baseline=f"{_relative(path, self.root)} ({newest.recorded_at})",
            commit=newest.commit,
        )

    def _metrics(self, sample: Sample, entry: baselines.Entry, shown: Figures) -> list[MetricVerdict]:
        new = baselines.recording_from_sample(sample)
        estimator = stats.blind_estimator(baselines.paired_turns(entry))
        time_ratios = baselines.wall_ratios(new, estimator), baselines.wall_ratios(entry, estimator)
        beside = {
            Metric.USS: baselines.uss_of_sides(new, entry),
            Metric.LOCK_WAIT: (baselines.lock_shares(new), baselines.lock_shares(entry)),
            Metric.SCALING: (baselines.scalings(new), baselines.scalings(entry)),
        }
        costs = {Metric.USS: shown.memory_cost, Metric.LOCK_WAIT: shown.lock_cost}
        verdicts = [self._verdict(Metric.WALL, *time_ratios, None)]
        for metric, (values, stored) in beside.items():
            if stored and (values or metric in NO_NEW):
                verdicts.append(self._verdict(metric, values, stored, costs.get(metric)))
        return verdicts

    def _verdict(
        self, metric: Metric, new: tuple[float, ...], stored: tuple[float, ...], cost: Interval | None
    ) -> MetricVerdict:
        """The verdict on one metric that the baseline has; refused where looking at it cost too much."""
        refused = gate.refused(metric, cost, self.config.probe_cost)
        if refused is not None:
            return refused
        if not new and metric is not Metric.WALL:
            return MetricVerdict(metric=metric, decision=Decision.INCONCLUSIVE, reason=NO_NEW[metric])
        return gate.compare(self._comparison(metric, new, stored))

    def _comparison(self, metric: Metric, new: tuple[float, ...], stored: tuple[float, ...]) -> Comparison:
        config = self.config
        units = {Metric.WALL: "x candle", Metric.USS: "bytes", Metric.LOCK_WAIT: "of the time", Metric.SCALING: "x"}
        limits = {
            Metric.USS: (config.memory_margin, config.memory_effect, USS_FLOOR_PAGES * PAGE_BYTES),
            Metric.LOCK_WAIT: LOCK_WAIT_LIMITS,
        }
        margin, effect, floor = limits.get(metric, (config.margin, config.effect, 0.0))
        alpha, beta = self._alpha_beta()
        return Comparison(
            metric=metric,
            new=new,
            reference=stored,
            unit=units[metric],
            margin=margin,
            effect=effect,
            floor=floor,
            alpha=alpha,
            beta=beta,
        )

    def _why_none(self, sample: Sample) -> str:
        test, label = baselines.split_nodeid(sample.cell.nodeid)
        stored = self.store.load(test)
        others = sorted(stored.cells.get(label, {})) if stored else []
        if others:
            known = ", ".join(others)
            return f"its baseline is of another machine or build ({known}); record one here with --ftgate-update"
        return "nothing is stored for it; record it with --ftgate-update"

    # -- the end -----------------------------------------------------------------------------------------------

    def arrival(self, nodeid: str) -> Arrival:
        """The row of a cell (see `row`), with its place in the report."""
        nodeids = [cell.nodeid for tandem in self.plan.tandems for cell in tandem.cells]
        tandem = self._tandem(nodeid)
        reference = tandem.spec.executors[0].label
        return Arrival(table=tandem.key, reference=reference, position=nodeids.index(nodeid), row=self.row(nodeid))

    def report(self, arrivals: Iterable[Arrival], version: str, collected: Iterable[str] | None) -> Report:
        """Everything measured and judged.

        `collected` are all node ids before any was deselected; None leaves unused baselines unreported.
        """
        tables = _tables(arrivals)
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
            found = baselines.unused(self.store, collected, fingerprint=self.machine.fingerprint, rootdir=self.root)
        except FtgateError:
            return ()  # a broken file is the error of its cells and of `ftgate baseline`, not the end of a run's report
        return tuple(baselines.join_nodeid(test, label) for test, label in found)

    def _update(self, report: Report) -> tuple[str, ...]:
        if not self.config.update:
            return ()
        rows = [row for table in report.tables for row in table.rows]
        plan = baselines.update_plan(self.config.update, rows, self.store, fingerprint=self.machine.fingerprint)
        baselines.apply_updates(
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
        runs = sorted((self.folder / "runs").glob("*"), key=lambda path: path.stat().st_mtime)
        for old in runs[:-RUNS_KEPT]:
            shutil.rmtree(old, ignore_errors=True)


def _tables(arrivals: Iterable[Arrival]) -> tuple[Table, ...]:
    grouped: dict[str, list[Arrival]] = {}
    for arrival in sorted(arrivals, key=lambda arrival: arrival.position):
        grouped.setdefault(arrival.table, []).append(arrival)
    return tuple(
        Table(title=title, rows=tuple(arrival.row for arrival in group), reference=group[0].reference)
        for title, group in grouped.items()
    )


def _gating(entry: baselines.Entry) -> int:
    """How many metrics of a stored cell gate: its time, and whatever else it has figures of."""
    beside = (baselines.uss_bytes(entry), baselines.lock_shares(entry), baselines.scalings(entry))
    return 1 + sum(map(bool, beside))


def _launches(entry: baselines.Entry) -> list[baselines.StoredLaunch]:
    return [launch for recording in entry.recordings for launch in recording.launches]


def _reference(tandem: Tandem, cell: Cell, samples: Mapping[str, Sample]) -> Sample | None:
    """The sample of the first executor on the same target: what the ratio of a row refers to."""
    first = tandem.spec.executors[0]
    for other in tandem.cells:
        if other.executor == first and other.target == cell.target and other.workers == cell.workers:
            return samples.get(other.nodeid)
    return None


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
