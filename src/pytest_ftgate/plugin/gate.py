"""The plugin of a `--ftgate` run: it measures cells, reports verdicts and prints the report."""

from __future__ import annotations

import contextlib
import faulthandler
import os
import secrets
import sys
import time
from collections.abc import Collection, Generator, Iterable, Mapping, Sequence
from importlib.metadata import version
from typing import Final

import msgspec
import pytest

from ..declare import plan
from ..declare.options import BEYOND, UNDECIDED_RUN
from ..judge import decide, limits
from ..kit.errors import FtgateError
from ..kit.text import plain, takes_unicode
from ..model.report import PlacedRow, Report, Row
from ..model.spec import Plan
from ..model.verdict import Decision, Outcome, Verdict
from ..report import errors, measured, said, terminal
from ..run import libraries, privacy
from ..run.run import Ending, Run, missing
from ..runner.executors.base import threads_are_greenlets
from ..store.folder import default_folder
from . import signals
from .collection import CELL, cells_of, default_pair
from .failures import Failures, command, given, set_message
from .options import options_of, usage_errors
from .progress import Progress, mode_of
from .xdist import XdistController, distributes

LETTERS: Final[Mapping[Outcome, str]] = {
    "failed": "F",
    "passed": ".",
    "undecided": "?",
    "skipped": "s",
    "xfailed": "x",
    "xpassed": "X",
}
FAILED = "failed"
"""Marks a strict XPASS: pytest counts and shows it as any other failure."""


class Gate:
    """A run under --ftgate: registered as a plugin, so that its hooks exist only then."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        options = options_of(config)
        with usage_errors():
            limits.check(cli=options.thresholds, ini=options.ini_thresholds)
        self.failing = {
            Decision.ERROR,
            *options.fail_on,
            *(each for each in Decision if each.outcome in options.fail_on),
        }
        """The decisions that fail a test, and perhaps BEYOND."""
        self.seed = secrets.randbits(32) if options.seed < 0 else options.seed
        self.progress = _progress(config)
        baselines = options.baselines or default_folder(config.rootpath)
        self.run = Run(
            options.replaced(seed=self.seed, baselines=baselines, rerun=given(config)),
            config.rootpath,
            f"{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(4)}",
            self.progress,
        )
        taken = signals.Signals()
        config.pluginmanager.register(taken)
        taken.install()
        self.run.start()
        self.collected: list[str] = []
        """The node ids of all cells."""
        self.whole: Plan = ()
        """All cells, before any was deselected."""
        self.planned: list[str] = []
        """The node ids of those that were not deselected."""
        self.rows: dict[str, PlacedRow] = {}
        self.failures = Failures()
        self.report: Report | None = None
        self.stopped = ""
        self.reported: set[str] = set()
        self.lost: set[str] = set()
        kinds = {target: target.partition(":")[0] for target in options.report}
        left_out = libraries.left_out(config.rootpath, kinds.values())
        self.not_made = [f"ftgate: {kind} is not made: {why}" for kind, why in left_out.items()]
        made = [target for target, kind in kinds.items() if kind not in left_out]
        self.ending = Ending(self.run, made, config.invocation_params.dir)
        self.lines: list[str] = []
        """What features say below the report."""
        self.shown = False
        if distributes(config):
            config.pluginmanager.register(XdistController(self.hear))
        try:  # both sides of a comparison, before any worker or test starts
            self.run.check_out()
        except FtgateError as error:
            raise pytest.UsageError(plain(str(error))) from None
        finally:
            self.progress.clear()
        self.run.hooks.ftgate_collect(config=config, options=self.run.config)
        self.run.hooks.ftgate_configure(gate=self)

    def hear(self, collected: list[str], planned: list[str]) -> None:
        """The node ids of the cells that workers of pytest-xdist have collected, for this process to measure."""
        self.collected, self.planned = collected, planned

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_collection_modifyitems(self, items: Sequence[pytest.Item]) -> Generator[None]:
        """Remember all cells before any is deselected, also by a conftest.py that comes first."""
        cells = cells_of(items)
        self.collected = [*cells]
        self.whole = plan.plan_of(item.stash[CELL] for item in cells.values())
        if self.config.pluginmanager.hasplugin("rerunfailures"):  # a verdict is not repeated until it passes
            for item in cells.values():
                item.add_marker(pytest.mark.flaky(reruns=0), append=False)
        yield

    @pytest.hookimpl(trylast=True)
    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Plan the run; below pytest's line of what was collected, which it rewrites until then."""
        planned: Plan = plan.plan_of(item.stash[CELL] for item in session.items if CELL in item.stash)
        if planned and threads_are_greenlets():
            raise pytest.UsageError(
                "gevent.monkey has patched pytest's own process, from which --ftgate measures: call patch_all() where "
                'the measured code runs, in the body or in @test.setup("launch"), not where a test file or conftest.py '
                "is imported"
            )
        try:
            _check_names(self.collected)
            if self.collected:
                self.run.folder.make()  # else nothing measured could be kept
            self.run.hooks.ftgate_collected(run=self.run, nodeids=self.collected)
        except (FtgateError, OSError) as error:  # the text of an OSError names its file
            raise pytest.UsageError(plain(str(error))) from None
        # What may have regressed comes first.
        if first := self.run.hooks.ftgate_first(run=self.run, plan=planned):

            def rank(item: pytest.Item) -> int:
                nodeid = item.stash[CELL][0].nodeid if CELL in item.stash else ""
                return int(first.get(nodeid, sys.maxsize))

            session.items.sort(key=rank)
            planned = plan.plan_of(item.stash[CELL] for item in session.items if CELL in item.stash)
        self.run.collect(planned, self.whole)
        self.planned = self.run.planned()
        self.progress.start(len(planned), self.run.time.left_s, self.run.config.test_time)  # collecting took some of it
        self.run.tell_new()

    def pytest_report_header(self) -> list[str]:
        """With -v the seed, with which a run can be repeated, and the targets of tests that name none."""
        lines, verbose = list[str](), self.config.get_verbosity() > 0
        if verbose:
            lines.append(f"ftgate: measuring, seed {self.seed} (repeat with --ftgate-seed {self.seed})")
        if verbose and not self.run.config.python:
            pair = default_pair(self.config)
            lines.append(f"ftgate: targets of tests that name none: {' and '.join(pair.targets)}, {pair.why}")
        if own := libraries.note(self.config.rootpath):
            lines.append(f"ftgate: {own}")
        return [*lines, *self.not_made]

    @pytest.hookimpl(tryfirst=True, optionalhook=True)
    def pytest_timeout_set_timer(self, item: pytest.Item) -> bool | None:
        """No timer of pytest-timeout for a cell: the first one of a test takes the time that measures all of them."""
        return True if CELL in item.stash else None

    def gate(self, item: pytest.Function) -> None:
        """Measure the item's group unless that is done; fail, skip or pass by its verdict."""
        faulthandler.cancel_dump_traceback_later()  # of pytest's `faulthandler_timeout`: for the same reason
        capture = self.config.pluginmanager.get_plugin("capturemanager")
        shown = capture.global_and_fixture_disabled() if capture is not None else contextlib.nullcontext()
        try:
            with shown:
                try:
                    placed = self.run.row(item.stash[CELL][1].nodeid)
                finally:
                    self.progress.clear()  # before pytest captures what is written
        except (FtgateError, OSError) as error:  # the text of an OSError names its file
            text = plain(str(error))
            item.stash[HEADLINE] = text.partition("\n")[0]
            raise pytest.fail.Exception(text, pytrace=False) from None
        item.stash[PLACED_ROW] = placed
        row = placed.row
        item.user_properties += measured.properties(row)  # pytest's own reports have them
        if failed := self._failed(row):
            item.stash[HEADLINE] = plain(said.headline(failed))
            decorated = not item.stash[CELL][0].source.adapter
            text = terminal.cell_text(failed, max(0, self.config.get_verbosity()), decorated=decorated)
            pytest.fail(text, pytrace=False)
        if row.verdict.decision is Decision.XFAILED:
            pytest.xfail(said.known_text(row.verdict))
        if _is_strict(row.verdict):
            item.stash[HEADLINE] = f"[XPASS(strict)] {said.known_text(row.verdict)}"
            pytest.fail(item.stash[HEADLINE], pytrace=False)
        if row.verdict.decision.skipped:
            pytest.skip(plain(said.skip_reason(row)))

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Keep the row, and say in the item's report how it was decided."""
        report = yield
        placed = item.stash.get(PLACED_ROW, None)
        if report.when == "call" and report.failed and HEADLINE in item.stash:
            # The line that raised, else the test's. Editors do not open the `~` that recorded paths have.
            found = errors.origin(errors.error_of(placed.row)) if placed is not None else None
            place = (os.path.expanduser(found[0]), found[1]) if found else None
            set_message(report, item.stash[HEADLINE], place or (str(item.path), item.stash[CELL][0].source.line))
        if report.when == "call" and isinstance(report.longrepr, tuple) and placed is not None:
            reason = report.longrepr[2]
            report.longrepr = (str(item.path), item.stash[CELL][0].source.line, reason)  # not where we skipped it
        if placed is not None and report.when == "call":
            self.rows[item.nodeid] = placed
            verdict = placed.row.verdict
            report.__dict__["ftgate_decision"] = FAILED if _is_strict(verdict) else verdict.decision.value
            if verdict.decision is Decision.XPASSED and report.passed:
                report.__dict__["wasxfail"] = said.known_text(verdict)
        return report

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_report_teststatus(self, report: pytest.TestReport) -> Generator[None, object, object]:
        """The outcome of a verdict, by its letter, and with -v its word; whatever other plugins call it.

        What --ftgate-fail-on leaves out is counted by its verdict, as in our own summary.
        """
        status = yield
        decision = getattr(report, "ftgate_decision", None)
        if decision is None or report.when != "call" or str(report.outcome) == "rerun":  # of pytest-rerunfailures
            return status
        if decision == FAILED:
            return "failed", "F", ("XPASS(strict)", {"red": True})
        decision = Decision(decision)
        if decision.fails and not report.failed:
            return decision.value, LETTERS["undecided"], (decision.word, {"yellow": True})
        outcome: Outcome = "failed" if report.failed else decision.outcome
        color = "red" if outcome == "failed" else decision.color
        return outcome, LETTERS[outcome], (decision.word, {color: True})

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note which cells were run, which have no row, and which failed."""
        placed = self.rows.get(report.nodeid)
        if report.when == "call" or not report.passed:
            self.reported.add(report.nodeid)
        if report.failed and placed is None:
            self.lost.add(report.nodeid)
        if report.when == "call" and placed is not None and report.failed:
            self.failures.add(report, placed.row)

    def pytest_keyboard_interrupt(self, excinfo: pytest.ExceptionInfo[BaseException]) -> None:
        """Remember what ended the run: Ctrl-C, `pytest.exit`, or pytest itself, as after errors of collection."""
        why = str(excinfo.value).partition("\n")[0]
        self.stopped = f"interrupted: {why}" if why else "interrupted"

    def pytest_internalerror(self, excinfo: pytest.ExceptionInfo[BaseException]) -> None:
        """Remember what ended the run."""
        self.stopped = f"internal error: {excinfo.exconly(tryshort=True).partition(chr(10))[0]}"

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Make the report of all rows there are, write the report files, update baselines."""
        self.progress.end()
        reporter = self.config.pluginmanager.get_plugin("terminalreporter")
        self.failures.finish(80 if reporter is None else int(reporter._tw.fullwidth))

        # 1. Why rows are missing; of cells that were not asked for, what was measured is taken.
        planned = self.planned
        unasked = [nodeid for nodeid in planned if nodeid not in self.reported]
        kept = self.run.rows.by_nodeid
        self.rows |= {nodeid: kept[nodeid] for nodeid in unasked if nodeid in kept}
        unasked = [nodeid for nodeid in unasked if nodeid not in kept]
        ended = str(session.shouldfail or session.shouldstop or "")
        # A gate that judged nothing must not pass; of the parts of a run `ftgate merge` looks at all.
        green = session.exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED)
        measured = any(placed.row.verdict.decision.measured for placed in self.rows.values())
        nothing = green and not measured and not self.run.part
        why = missing(
            self.stopped or (ended if unasked else ""),
            planned=len(self.collected if nothing else planned),
            unasked=len(unasked),
            in_part=sum(placed.row.in_part for placed in self.rows.values()),
            lost=len(self.lost.intersection(planned) - self.rows.keys()),
            skipped=len(self.reported.intersection(planned) - self.rows.keys()) if nothing else 0,
            deselected=len(set(self.collected).difference(planned)) if nothing else 0,
        )
        partial = "; ".join(filter(None, (why, *self.run.hooks.ftgate_measured(gate=self, session=session))))
        if not (self.rows or partial or self.run.part):
            if session.exitstatus == pytest.ExitCode.OK:
                self.lines.append("ftgate: no collected test has cells: nothing was gated")
            return

        if nothing and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.NO_TESTS_COLLECTED
        if nothing and not self.rows:
            partial = f"{said.NOTHING_JUDGED}: {partial}"

        # 2. The report. A run that may have collected only some cells cannot tell which baselines are unused.
        named = "python" in self.run.config.before_declared
        narrowed = named or not self.collected or any("[" in argument for argument in self.config.args)
        collected = None if narrowed else self.collected
        report = self.run.report(self.rows.values(), version("pytest-ftgate"), collected)
        report = msgspec.structs.replace(
            report,
            partial=partial,
            command=privacy.public(command(self.config, self.seed)),
            failing=frozenset(row.cell.nodeid for row in report.rows if self._failed(row) or _is_strict(row.verdict)),
            undecided_fails=UNDECIDED_RUN in self.failing and not self.run.config.update,
        )
        if session.exitstatus == pytest.ExitCode.OK and said.undecided(report):
            session.exitstatus = pytest.ExitCode.NO_TESTS_COLLECTED

        # 3. Its files, the baselines, and what features make of it.
        self.report = self.ending.finish(report)
        if self.ending.troubles:
            session.exitstatus = pytest.ExitCode.INTERNAL_ERROR
        lines = self.run.hooks.ftgate_finish(run=self.run, config=self.config, report=self.report)
        self.lines = [line for each in lines for line in each]

    def _failed(self, row: Row) -> Row | None:
        """The row, or the row without what was accepted, if it fails its test."""
        rest = msgspec.structs.replace(row, verdict=unless_accepted(row.verdict))
        return next((each for each in (row, rest) if fails(each.verdict, self.failing)), None)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """The tables and verdicts; which files were written, and which were not."""
        self.shown = True
        if self.report is not None and not self.report.tables:
            if self.report.partial:
                terminalreporter.write_line(f"ftgate: {plain(self.report.partial)}", red=True)
        elif self.report is not None:
            terminalreporter.section("ftgate", sep="=")
            tw = terminalreporter._tw
            text = terminal.render(
                self.report,
                width=tw.fullwidth,
                color=tw.hasmarkup,
                unicode=takes_unicode(sys.stdout),
                verbosity=self.config.get_verbosity(),
            )
            terminalreporter.write(text + "\n")
        for target, path in self.ending.written.items():
            if self.config.get_verbosity() >= 0:
                terminalreporter.write_line(f"ftgate: wrote {target.partition(':')[0]}:{path}")
        for line in self.not_made if self.report is not None else ():
            terminalreporter.write_line(line, yellow=True)
        explained = [trouble for trouble in self.ending.troubles if "\n" in trouble]  # the report has their first lines
        for trouble in explained:
            terminalreporter.write_line(plain(f"ftgate: {trouble}"), red=True)
        for line in self.lines:
            terminalreporter.write_line(line)
        self.failures.make_room(terminalreporter)

    def pytest_unconfigure(self) -> None:
        """Print the report where pytest has no summary, as after an internal error."""
        reporter = self.config.pluginmanager.get_plugin("terminalreporter")
        if self.report is not None and reporter is not None and not self.shown:
            self.pytest_terminal_summary(reporter)


PLACED_ROW = pytest.StashKey[PlacedRow]()
HEADLINE = pytest.StashKey[str]()
"""What pytest's summary says of a cell that failed."""


def fails(verdict: Verdict, failing: Collection[str]) -> bool:
    """Whether `failing`, which holds decisions and perhaps BEYOND, makes a test of this verdict fail."""
    return verdict.decision in failing or (BEYOND in failing and verdict.beyond)


def _check_names(nodeids: Iterable[str]) -> None:
    """Raise FtgateError for the name of a file that no report and no baseline could hold."""
    for nodeid in nodeids:
        try:
            nodeid.encode()
        except UnicodeEncodeError:  # half of a surrogate pair stands for each byte that cannot be decoded
            encoding = sys.getfilesystemencoding()
            fix = "rename the file" if encoding == "utf-8" else "set PYTHONUTF8=1"
            raise FtgateError(f"{nodeid}: the name of this file cannot be read as {encoding}: {fix}") from None


def unless_accepted(verdict: Verdict) -> Verdict:
    """The verdict without what was accepted, which an option may let fail; any other verdict stays."""
    if verdict.decision is not Decision.ACCEPTED:
        return verdict
    passed = (
        msgspec.structs.replace(each, decision=Decision.PASSED) if each.decision is Decision.ACCEPTED else each
        for each in verdict.metrics
    )
    return msgspec.structs.replace(verdict, decision=decide.worst_of(list(passed)).decision)


def _is_strict(verdict: Verdict) -> bool:
    """Whether a cell passed although a strict mark says that it does not."""
    return verdict.decision is Decision.XPASSED and verdict.expected is not None and verdict.expected.strict


def _progress(config: pytest.Config) -> Progress:
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if reporter is None or config.get_verbosity() < 0:
        return Progress(sys.stdout, mode_of(sys.stdout, quiet=config.get_verbosity() < 0))
    writer = reporter._tw

    def new_line() -> None:
        reporter.ensure_newline()
        if writer.width_of_current_line:  # letters, under pytest-xdist
            writer.line()

    def written() -> int:
        return int(writer.width_of_current_line)

    return Progress(writer._file, mode_of(writer._file, quiet=False), written=written, new_line=new_line)
