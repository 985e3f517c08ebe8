"""One run, from the plan to the report: prepare, measure round by round, judge, report, store. Knows no pytest."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

import msgspec

from ..measure.launch import Launcher
from ..measure.launchers.factory import Launchers
from ..measure.launchers.runner_copy import install_runner
from ..measure.machine import read_machine
from ..measure.run_context import Listener
from ..model import Group, Machine, Plan, Report, Row, RowMessage, failed_row
from . import assembly
from .acceptances import Acceptances, Collected
from .config import RunConfig
from .folder import RunFolder, write_whole
from .measurement import Measurement
from .others import OtherTests
from .references import References
from .resources import Resources, RunTime, policy_of
from .stored import StoredBaselines
from .targets import Targets
from .unchanged import UnchangedCells


class ProgressListener(Listener, Protocol):
    """Receives the progress of a run."""

    def begin(self, title: str, cells: Sequence[str]) -> None:
        """The measurement of a group begins."""
        ...


class Session:
    """A run in one process. Under pytest-xdist each worker has one; a lock lets one of them measure at a time."""

    def __init__(
        self,
        config: RunConfig,
        root: Path,
        run: str,
        listener: ProgressListener,
        launcher: Launcher | None = None,
        worker: str = "",
        spent_s: float = 0.0,
    ) -> None:
        """`root` is the project's, `run` the run's id; without a `launcher`, real processes are started.

        `worker` is this process among those of the run, which had taken `spent_s` before it was started.
        """
        self.config = config
        self.spent_s = spent_s
        self.folder = RunFolder(root, run)
        self.listener = listener
        self.others = OtherTests(self.folder.run, worker, exclusive=config.exclusive) if worker else None
        self.references = References(self.folder, config.against, listener)
        self.targets = Targets(self.folder, config.install, listener)
        self.acceptances = Acceptances(self.folder, listener)
        self.plan = Plan(groups=())
        self._groups: dict[str, Group] = {}
        self._launcher = launcher
        self._resources: Resources | None = None
        self._messages: dict[str, RowMessage] = {}
        self._in_part: dict[str, RowMessage] = {}
        self._announced = ""
        self._begun_file: Path | None = None

    def start(self) -> None:
        """Read the machine and start the run's clock; nothing is prepared yet."""
        if self.others is not None:
            self.folder.make()
            self.others.open()
        self.machine: Machine = read_machine()
        self.stored = StoredBaselines(self.config, self.folder, self.machine, self.targets)
        self.time = RunTime(self.config.budget_s, self.spent_s)

    def check_out(self) -> None:
        """Check out both sides of `--ftgate-against`, if it was given. Raises AgainstError."""
        if self.config.against:
            self.references.requested()

    def collect(self, plan: Plan) -> None:
        """Take the plan of the whole run."""
        self.plan = plan
        self._groups = {cell.nodeid: group for group in plan.groups for cell in group.cells}

    def check_acceptances(self, collected: Collected) -> None:
        """Raise FtgateError for trailers of this branch that accept nothing; see `Acceptances.check`."""
        reference = self.references.requested().reference.commit if self.config.against else ""
        self.acceptances.check(collected, reference)

    def message(self, nodeid: str) -> RowMessage:
        """The row of a cell with its place in the report; its whole group is measured at the first call for a cell.

        Raises FtgateError, and OSError if a file cannot be written.
        """
        group = self._groups[nodeid]
        if nodeid not in self._messages:
            with self.others.paused() if self.others else contextlib.nullcontext():
                self._messages |= self._measured_once(group)
        return self._messages[nodeid]

    def measure(self, asked: Group) -> None:
        """The program of a run: prepare, measure round by round, judge; the rows of each test are kept as it ends.

        Without a budget one test is measured. A run that has one measures all its tests, a round of each in turn: an
        order by what was measured would choose when tests are judged, which the error levels do not allow for.
        """
        groups = [asked] if self.config.budget_s is None else self.plan.groups
        measurements: list[Measurement] = []
        try:
            measurements.extend(self._begun(group) for group in groups if not self._kept(group).exists())
            while measurements := self._keep_ended(measurements):
                self._step(measurements)
        except BaseException:  # Ctrl-C, a full disk
            self._keep_parts(measurements)
            raise
        finally:
            self._set_begun(None)

    def rows_kept(self, crashed: Collection[str] = ()) -> dict[str, RowMessage]:
        """By node id: all rows that a process of this run has kept, whether they were asked for or not.

        Of a measurement that was interrupted in this process, too: what was measured until then. And errors for the
        test in whose measurement a process ended, if these `crashed` cells are of it.
        """
        run = self.folder.run
        begun = _decoded(run.glob("begun-*.json")) if crashed else {}
        tables = {begun[nodeid].table for nodeid in crashed if nodeid in begun}
        lost = {nodeid: message for nodeid, message in begun.items() if message.table in tables}
        return lost | self._in_part | _decoded(run.glob("rows-*.json"))

    def planned(self) -> list[str]:
        """The node ids of all cells of this run; empty if nothing was collected in this process."""
        return list(self._groups)

    def report(self, messages: Iterable[RowMessage], version: str, collected: Iterable[str] | None) -> Report:
        """Everything measured and judged.

        `collected` are all node ids before any was deselected; None leaves unused baselines unreported.
        """
        tables = self.stored.with_history(assembly.tables_of(messages))
        return Report(
            version=version,
            seed=self.config.seed,
            started_at=datetime.now(UTC).isoformat(timespec="seconds"),
            wall_s=self.time.spent_s,
            machine=self.machine,
            interpreters=assembly.interpreters_of(tables),
            tables=tables,
            unused_baselines=self.stored.unused(collected),
            commit=assembly.commit_of(self.folder.root),
        )

    def store(self, report: Report) -> Report:
        """Update the baselines as the options ask for; the report with one line for each change."""
        return msgspec.structs.replace(report, updates=self.stored.update(report))

    def keep(self, text: str) -> None:
        """Keep the report for `ftgate baseline`."""
        self.folder.keep(text)

    # -- steps of `measure` ------------------------------------------------------------------------------------

    def _step(self, measurements: Sequence[Measurement]) -> None:
        """One round of the test that has had the fewest; of none if the time of the run is used up."""
        left_s = self.time.left_s
        if left_s is not None and left_s <= 0:
            for measurement in measurements:
                measurement.close()
            return
        measurement = min(measurements, key=lambda each: each.rounds)
        self._announce(measurement.group)
        measurement.step(None if left_s is None else left_s / len(measurements), left_s)

    def _keep_parts(self, measurements: Iterable[Measurement]) -> None:
        """Judge what was measured of tests that have not ended."""
        for measurement in measurements:
            with contextlib.suppress(Exception):  # of an interrupted round one side may be missing
                self._in_part |= self._messages_of(measurement.group, measurement.rows_in_part())

    def _messages_of(self, group: Group, rows: Iterable[Row]) -> dict[str, RowMessage]:
        beside = self.others.note if self.others else ""
        messages = [assembly.message_of(self.plan, group, row) for row in rows]
        if beside:
            messages = [
                msgspec.structs.replace(each, note="; ".join(filter(None, (each.note, beside)))) for each in messages
            ]
        return {each.row.cell.nodeid: each for each in messages}

    def _measured_once(self, group: Group) -> dict[str, RowMessage]:
        """Measured once in a run, by the process that asks first: the others read its rows."""
        with self.folder.locked("measuring"):
            self._keep_lost()
            if not self._kept(group).exists():
                with self._alone():
                    self.measure(group)
            kept = msgspec.json.decode(self._kept(group).read_bytes(), type=list[RowMessage])
        return {message.row.cell.nodeid: message for message in kept}

    def _kept(self, group: Group) -> Path:
        return self.folder.shared("rows", group.key)

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """While no other test of the run runs."""
        if self.others is None:
            yield
            return
        with self.others.excluded(lambda test: self.listener.advance(test, "waiting for", 0, 0, None)):
            yield

    def _set_begun(self, group: Group | None) -> None:
        """Note whose measurement ends with this process if it is killed: its rows then are errors.

        No other process measures that test again: it may have killed this one.
        """
        if self._begun_file is not None:
            self._begun_file.unlink(missing_ok=True)
            self._begun_file = None
        if group is not None and self.others is not None:
            reason = f"the process that measured it ended: worker {self.others.name} of pytest-xdist"
            fix = "It was killed, as for want of memory, or it crashed. The other tests are not concerned."
            lost = [
                msgspec.structs.replace(
                    failed_row(cell, reason, fix), line=group.spec.source.line, options=self.config.options
                )
                for cell in group.cells
            ]
            messages = [assembly.message_of(self.plan, group, row) for row in lost]
            self._begun_file = self.folder.shared("begun", group.key)
            write_whole(self._begun_file, msgspec.json.encode(messages))

    def _keep_lost(self) -> None:
        """What another process began to measure and did not end is an error: who began it held the lock."""
        for path in self.folder.run.glob("begun-*.json"):
            kept = path.with_name(path.name.replace("begun-", "rows-"))
            path.unlink() if kept.exists() else path.replace(kept)

    def _begun(self, group: Group) -> Measurement:
        self._announce(group)
        measurement = Measurement(group, self._prepared())
        measurement.begin()
        return measurement

    def _prepared(self) -> Resources:
        """What all measurements share; the error levels depend on which targets and baselines the plan has."""
        if self._resources is None:
            folder = self.folder.path
            launcher = self._launcher or Launchers(install_runner(folder / "runner"), folder / "launches")
            self._resources = Resources(
                config=self.config,
                plan=self.plan,
                targets=self.targets,
                references=self.references,
                stored=self.stored,
                policy=policy_of(self.plan, self.config, self.stored),
                launcher=launcher,
                listener=self.listener,
                time=self.time,
                unchanged=UnchangedCells(self.config, self.targets, self.references, launcher, self.listener),
                floors={},
                acceptances=self.acceptances,
            )
        return self._resources

    def _keep_ended(self, measurements: Sequence[Measurement]) -> list[Measurement]:
        """Keep the rows of those that have ended; returns those that are still open."""
        for measurement in measurements:
            if not measurement.open:
                messages = self._messages_of(measurement.group, measurement.rows())
                write_whole(self._kept(measurement.group), msgspec.json.encode([*messages.values()]))
        return [measurement for measurement in measurements if measurement.open]

    def _announce(self, group: Group) -> None:
        """Name the group that is measured from now on, if it is another than before."""
        if group.key != self._announced:
            self._announced = group.key
            self._set_begun(group)
            self.listener.begin(group.key, [cell.label for cell in group.cells])


def _decoded(paths: Iterable[Path]) -> dict[str, RowMessage]:
    kept = (msgspec.json.decode(path.read_bytes(), type=list[RowMessage]) for path in sorted(paths))
    return {message.row.cell.nodeid: message for messages in kept for message in messages}
