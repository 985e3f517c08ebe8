"""One run, from the plan to the report: prepare, measure round by round, judge, report, store. Knows no pytest."""

from __future__ import annotations

import contextlib
import time
import traceback
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import msgspec

from ..declare.options import MERGE_BASE, Options
from ..kit import git, waiting
from ..kit.errors import FtgateError
from ..kit.text import plural, split_nodeid
from ..measure.capacity import Capacity
from ..measure.launch import Launcher
from ..measure.launchers import guard
from ..measure.launchers.factory import Launchers
from ..measure.launchers.workload import install_runner
from ..measure.machine import read_machine
from ..model.report import OWN_CODE, PlacedRow, Report, Row, Shard, first_line
from ..model.spec import Group, Plan
from ..report import json, said
from ..targets import environments
from .folder import LAST_RUN, refuse_tracked, write_report
from .privacy import public
from .rows import RowStore, interpreters_of, placed_row, tables_of
from .shared import ProgressListener, RunTime, Shared
from .sides import worktrees
from .stored import StoredBaselines
from .trial import Trial


class Run(Shared):
    """A run: its plan, the measurement of its tests, and its report."""

    def __init__(
        self,
        config: Options,
        root: Path,
        run: str,
        listener: ProgressListener,
        launcher: Launcher | None = None,
        clock: Callable[[], float] | None = None,
    ) -> None:
        """`run` is its id; without a `launcher`, real processes are started."""
        super().__init__(config, root, listener, clock or time.monotonic, scripted=launcher is not None)
        self.id = run
        self.plan: Plan = ()
        self.whole: Plan = ()
        self._cells: dict[str, tuple[Group, int]] = {}
        """By node id: the test of each cell, and its place in the report."""
        self._launcher = launcher
        self._prepared = False
        self.rows = RowStore(self.folder)
        self._ended: set[str] = set()
        """The keys of the tests that have ended."""
        self._announced = ""
        self._no_commit = ""

    def start(self) -> None:
        """Read the machine and start the run's clock; nothing is prepared yet."""
        self.machine = read_machine()
        self.time = RunTime(self.config.time, self.clock)
        self.stored = StoredBaselines(self.config, self.folder, self.machine, self.targets)
        waiting.begin(self.id, self.time.left_s, "--ftgate-time", self.listener.warn)
        self.hooks.ftgate_begin(run=self)

    def check_out(self) -> None:
        """Check out both sides of `--ftgate-against`, if it was given. Raises AgainstError.

        Without it, warn of a repository that git refuses: a run can do without, but knows no commit. Raises FtgateError
        if git tracks the project's `.ftgate`.
        """
        refuse_tracked(self.folder.path)
        if self.config.reference:
            with self.guarded(), self.spent.on("environments"):
                self.references.requested()
            return
        try:
            git.Repository(self.folder.root)
            _ = self.references.tree  # of the files before they are measured
        except git.NotTrusted as refused:
            self._no_commit = f"no commit is recorded, and none is measured: {refused}"
            self.listener.warn(self._no_commit)
        except git.AgainstError:
            pass

    @property
    def part(self) -> Shard | None:
        """The part that is measured of a run that several machines share; None for all of it."""
        part: Shard | None = self.hooks.ftgate_part()
        return part

    def collect(self, plan: Plan, whole: Plan = ()) -> None:
        """Take the plan of what is measured here, and the whole one, before any cell was deselected; empty: the same.

        The error level is split over the whole one.
        """
        self.plan, self.whole = plan, whole or plan
        cells = ((cell.nodeid, group) for group in plan for cell in group.cells)
        self._cells = {nodeid: (group, place) for place, (nodeid, group) in enumerate(cells)}

    def tell_new(self) -> None:
        """Say, after `collect`, which tests the commit that is compared with does not have."""
        pair = self.references.requested() if self.config.reference else None
        if pair is None or not pair.reference.commit:
            return
        reference = pair.reference
        tests = dict.fromkeys(split_nodeid(nodeid)[0] for nodeid in self._cells)
        new = [test for test in tests if worktrees.lacks(reference, test)]
        places = [(test.partition("::")[0], test) for test in new]
        found = [*dict.fromkeys(test if (reference.project / file).exists() else file for file, test in places)]
        if not found:
            return
        branch = worktrees.ahead(self.folder.root, pair, new[0]) if self.config.reference == MERGE_BASE else ""
        if branch:
            self.listener.warn(
                f"{reference.label} has no {said.few(found)}, but the local {branch}, which is ahead of it, does: "
                f"compare with --ftgate-against={branch}"
            )
            return
        later = f"{'they' if found[1:] else 'it'} will be compared from the next change on"
        release = f"--ftgate-against dist:{environments.project_name(self.folder.root) or 'NAME'}==VERSION"
        self.listener.warn(
            f"{reference.label} has no {said.few(found)}: {later}; {release} compares with a release now"
        )

    def row(self, nodeid: str) -> PlacedRow:
        """The row of a cell with its place in the report; its whole group is measured at the first call for a cell.

        Raises FtgateError, and OSError if a file cannot be written.
        """
        group, _ = self._cells[nodeid]
        if group.key not in self._ended:
            with self.folder.locked("measuring"):  # another run in this folder waits
                self.measure(group)
        return self.rows.by_nodeid[nodeid]

    def measure(self, asked: Group) -> None:
        """The program of a run: prepare, measure round by round, judge; the rows of each test are kept as it ends.

        Without a budget one test is measured. A run that has one measures all its tests, a round of each in turn: an
        order by what was measured would choose when tests are judged, which the error levels do not allow for.
        """
        groups = [asked] if self.config.time is None else self.plan
        waiting = [group for group in groups if group.key not in self._ended]
        trials: list[Trial] = []
        try:
            with self.guarded():
                self._prepare()
                while trials or waiting:
                    left_s, tests = self.time.left_s, len(trials) + len(waiting)
                    share_s = None if left_s is None else left_s / tests
                    ahead = share_s is not None and bool(trials) and trials[-1].suspect and trials[-1].spent_s < share_s
                    if waiting and not ahead:
                        # 1. Begin the next test; one that runs what has changed goes ahead for its share of the time.
                        trials.append(Trial(self, waiting.pop(0)))
                        self._announce(trials[-1].group)
                        self._attributing(trials[-1], trials[-1].begin)
                    elif left_s is not None and left_s <= 0:
                        # 2. The time of the run is used up: judge what there is.
                        for trial in trials:
                            self._attributing(trial, trial.close)
                    else:
                        # 3. One round of the test that has had the fewest; first those that run what has changed.
                        trial = min(trials, key=lambda each: (each.rounds, not each.suspect))
                        trial = trials[-1] if ahead else trial
                        self._announce(trial.group)
                        self._attributing(trial, partial(trial.step, share_s, left_s))
                    # 4. Keep the rows of the tests that have ended.
                    for trial in trials:
                        if not trial.open:
                            rows = trial.rows()
                            self.tell_failure(rows)
                            self.rows.add(self._placed(trial, rows))
                            self._ended.add(trial.group.key)
                    trials = [trial for trial in trials if trial.open]
        except BaseException:  # Ctrl-C, a full disk: judge what was measured of tests that have not ended
            for trial in trials:
                with contextlib.suppress(Exception):  # of an interrupted round one side may be missing
                    self.rows.add(self._placed(trial, trial.rows_in_part()))
            raise

    def planned(self) -> list[str]:
        """The node ids of all cells of this run."""
        return list(self._cells)

    def report(self, rows: Iterable[PlacedRow], version: str, collected: Iterable[str] | None) -> Report:
        """Everything measured and judged.

        `collected` are all node ids before any was deselected; None leaves unused baselines unreported.
        """
        rows = list(rows)
        wall_s, seconds = self.time.spent_s, dict(self.spent.seconds)
        if seconds:
            seconds[OWN_CODE] = max(0.0, wall_s - sum(seconds.values()))
        tables = tables_of(rows)
        return Report(
            version=version,
            seed=self.config.seed,
            started_at=datetime.now(UTC).isoformat(timespec="seconds"),
            wall_s=wall_s,
            seconds=seconds,
            machine=self.machine,
            interpreters=interpreters_of(tables),
            tables=tables,
            unused_baselines=self.stored.unused(collected),
            commit=git.commit_of(self.folder.root),
            shard=self.part,
            project=environments.project_of(self.folder.root),
            branch=git.branch_of(self.folder.root),
            tree=self.references.tree,
            weights=self.config.weights,
        )

    def store(self, report: Report) -> Report:
        """Update the baselines as the options ask for; the report with one line for each change."""
        updates = self.stored.update(report)
        if updates and self._no_commit:
            updates += (self._no_commit,)
        return msgspec.structs.replace(report, updates=updates)

    # -- steps of `measure` ------------------------------------------------------------------------------------

    def _attributing(self, trial: Trial, act: Callable[[], object]) -> None:
        """What goes wrong with a test is the error of its cells that are not judged yet; other tests go on."""
        try:
            act()
        except Exception as error:
            if type(error).__name__ == "Exit":  # pytest.exit ends the run; pytest is not imported here
                raise
            trial.fail(error)

    def _placed(self, trial: Trial, rows: Iterable[Row]) -> list[PlacedRow]:
        """Rows of a test with their places in the report."""
        return [placed_row(self._cells[row.cell.nodeid][1], trial.group, row, trial.note) for row in rows]

    def _prepare(self) -> None:
        """What all trials share."""
        if self._prepared:
            return
        if self.config.reference:
            self.references.clean(self.references.requested())
        if self._launcher is not None:
            self.launcher = self._launcher
        else:
            runner, launches = self.folder.path / "runner", self.folder.path / "launches"
            guard.ensure(launches)
            if swept := guard.sweep(runner, launches):  # what runs left that were killed
                self.listener.warn(f"ended {plural(swept, 'process', 'processes')} of a run that was killed")
            self.launcher = Launchers(install_runner(runner), launches)
        self.policy = self.stored.policy(self.whole)
        self.empty = {}
        self.capacity = Capacity.of_this_process()
        self._prepared = True

    def guarded(self) -> contextlib.AbstractContextManager[None]:
        """All that is started in here ends with this process; launches that are no processes need no guard."""
        return guard.guarded() if self._launcher is None else contextlib.nullcontext()

    def _announce(self, group: Group) -> None:
        """Name the group that is measured from now on, if it is another than before."""
        if group.key != self._announced:
            self._announced = group.key
            self.listener.begin(group.key, [cell.label for cell in group.cells])


class Ending:
    """Writes what a run leaves. What cannot be written is one of `troubles`, and everything else still is.

    `files` are the writers by what they are called in an error; one that is added here is called at least once, and
    again with the report as it is then after baselines were stored or another file could not be written.
    """

    def __init__(self, run: Run, targets: Sequence[str], folder: Path) -> None:
        """`targets` are of the form `KIND:PATH`, their paths relative to `folder`."""
        self.run = run
        self.files: dict[str, Callable[[Report], object]] = {f".ftgate/{LAST_RUN}": self._keep}
        self.files |= {target: partial(self._write_file, target, folder) for target in targets}
        self.written: dict[str, Path] = {}
        self.troubles: list[str] = []

    def finish(self, report: Report) -> Report:
        """Write the files, store the baselines; the report as it is then.

        The files come first: if the process dies while baselines are stored, the measurement is not lost.
        """
        report = self._write(report)
        stored = report
        try:
            stored = self.run.store(report)
        except Exception as error:  # noqa: BLE001 -- a failure is reported, whatever it is
            self._note("the baselines cannot be stored", error)
        if self.troubles or stored.updates != report.updates:
            stored = self._write(stored)
        return stored

    def _write(self, report: Report) -> Report:
        """Write every file, and again if one of them fails: then the others say so."""
        missing = report.partial
        while True:
            texts = (missing, *(first_line(trouble) for trouble in self.troubles if first_line(trouble) not in missing))
            report = msgspec.structs.replace(report, partial=public("; ".join(filter(None, texts))))
            failed = []
            for name, write in self.files.items():
                try:
                    write(report)
                except Exception as error:  # noqa: BLE001 -- the other files are still written
                    self._note(f"{name} cannot be written", error)
                    failed.append(name)
            if not failed:
                return report
            for name in failed:  # it is not written again
                del self.files[name]

    def _note(self, what: str, error: Exception) -> None:
        """Name what failed; a mistake of ours comes with its traceback."""
        if isinstance(error, OSError) and error.strerror:
            name = str(error.filename2 or error.filename or "")  # of a renamed file where it was to go
            reason = error.strerror if name in what else f"{error.strerror}: {name}"
        elif isinstance(error, (FtgateError, OSError)):
            reason = str(error)
        else:
            reason = f"{type(error).__name__}: {error}\n{traceback.format_exc()}"
        self.troubles.append(public(f"{what}: {reason}"))  # as the report says it: it is not said twice

    def _keep(self, report: Report) -> None:
        """A run that ended before its first result does not replace the last one that has some."""
        if report.tables:
            self.run.folder.keep(json.rendered("json", report))
            with contextlib.suppress(git.AgainstError):
                self.run.references.prune()

    def _write_file(self, target: str, folder: Path, report: Report) -> None:
        self.written[target] = write_report(target, report, folder)


def missing(
    stopped: str, planned: int, unasked: int, in_part: int, lost: int, *, skipped: int = 0, deselected: int = 0
) -> str:
    """Why rows are missing: `interrupted: 3 of 12 cells were not run, 1 was measured in part`; empty if none is.

    Of `planned` cells these were never asked for, measured in part, failed without a row, and so on. `stopped` says
    what ended the run.
    """
    counted = (
        (unasked, "not run"),
        (in_part, "measured in part"),
        (lost, "not measured because of an error"),
        (skipped, "skipped"),
        (deselected, "deselected"),
    )
    parts: list[str] = []
    for number, what in counted:
        if number:
            of = "" if parts else f" of {planned} cells"
            parts.append(f"{number}{of} {'was' if number == 1 else 'were'} {what}")
    return ": ".join(filter(None, (stopped, ", ".join(parts))))
