"""pytest's hooks: a few lines each, which delegate."""

from __future__ import annotations

import contextlib
import os
import random
import sys
import time
from collections.abc import Generator, Iterable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import msgspec
import pytest

from . import functional, marker, options, plan, xdist
from .errors import FtgateError
from .interpreters import parse_target
from .model import Cell, Decision, Param, Plan, Report, Row, Source, Spec, Target
from .progress import Progress, mode_of
from .reports import json as json_report
from .reports import terminal
from .runner.api import Declaration
from .runner.protocol import Failure, Unsupported
from .session import RunConfig, Session

PLUGIN = "ftgate-run"
CELL = pytest.StashKey[tuple[Spec, Cell]]()
FAILING = (Decision.REGRESSED, Decision.ERROR)
STRICT = (Decision.INCONCLUSIVE, Decision.UNSUPPORTED, Decision.NO_BASELINE)


# -- options -------------------------------------------------------------------------------------------------------


def pytest_addoption(parser: pytest.Parser) -> None:
    """Every row of the table as an option and an ini key."""
    group = parser.getgroup("ftgate", "concurrency regression gating (ftgate)")
    for option in options.OPTIONS:
        ini = "args" if option.many and option.ini == "args" else option.ini
        parser.addini(option.dest, option.help, type=ini, default=None)
        how: dict[str, Any] = {"dest": option.dest, "default": None, "help": f"{option.help} (ini, env: {option.variable})"}
        if option.flag:
            group.addoption(option.cli, action="store_true", **how)
        elif option.optional:
            group.addoption(option.cli, action="append", nargs="?", const=option.optional, metavar=option.metavar, **how)
        else:
            group.addoption(option.cli, action="append" if option.many else "store", metavar=option.metavar, **how)


def value_of(config: pytest.Config, name: str, declared: Any = None) -> Any:
    """The value of an option after precedence. Raises pytest.UsageError."""
    option = options.by_name(name)
    try:
        return options.resolve(option, config.getoption(option.dest), os.environ, config.getini(option.dest), declared)
    except FtgateError as error:
        raise pytest.UsageError(str(error)) from None


def run_config(config: pytest.Config, seed: int) -> RunConfig:
    """All options of a run."""
    names = ("baselines", "update", "launches", "turns", "margin", "effect", "memory_margin", "memory_effect", "alpha", "install")
    values = {name: value_of(config, name) for name in names}
    return RunConfig(
        **values,
        seed=seed,
        budget_s=value_of(config, "time"),
        test_budget_s=value_of(config, "test_time"),
        timeout_s=value_of(config, "timeout"),
    )


def pytest_configure(config: pytest.Config) -> None:
    """Register the mark and, under --ftgate, the run."""
    config.addinivalue_line("markers", "ftgate: cells of @ftgate.compare, added by itself; select them with -m ftgate")
    if not config.pluginmanager.hasplugin("pytest_run_parallel"):
        config.addinivalue_line("markers", "thread_unsafe: not to be run in several threads at once (pytest-run-parallel)")
    for path in config.getoption("ftgate_update") or ():
        if Path(path).exists():
            raise pytest.UsageError(f"--ftgate-update took {path!r} as its value: write --ftgate-update=new {path}")
    updating = bool(value_of(config, "update"))
    if (value_of(config, "ftgate") or updating) and not config.option.collectonly:
        config.pluginmanager.register(Run(config), PLUGIN)


# -- collection ----------------------------------------------------------------------------------------------------


@pytest.hookimpl(tryfirst=True)
def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A decorated test becomes one item a cell."""
    declared = getattr(metafunc.function, "__ftgate__", None)
    if not isinstance(declared, Declaration):
        return
    try:
        spec = marker.spec_of(declared, _source(metafunc, declared), metafunc.definition.nodeid)
        marker.check_fixtures(declared, spec.source, _parametrized(metafunc))
        chosen = plan.choices(spec, targets(metafunc.config, spec))
    except FtgateError as error:
        raise pytest.Collector.CollectError(str(error)) from None
    metafunc.parametrize(spec.body, [(spec, choice) for choice in chosen], ids=[choice.id for choice in chosen])


def targets(config: pytest.Config, spec: Spec) -> list[Target]:
    """The targets of a test: command line, environment, the decorator's, ini, default."""
    names: Iterable[str] = value_of(config, "python", spec.pythons)
    return [parse_target(name) for name in dict.fromkeys(names)]


def _parametrized(metafunc: pytest.Metafunc) -> list[str]:
    names: list[str] = []
    for mark in metafunc.definition.iter_markers("parametrize"):
        argnames = mark.args[0] if mark.args else mark.kwargs["argnames"]
        split = argnames.split(",") if isinstance(argnames, str) else argnames
        names += [name.strip() for name in split]
    return names


def _source(metafunc: pytest.Metafunc, declared: Declaration) -> Source:
    config, path = metafunc.config, metafunc.definition.path
    qualname = declared.body.__qualname__
    if metafunc.cls is not None:
        qualname = f"{metafunc.cls.__qualname__}.{declared.body.__name__}"
    return Source(
        path=str(path),
        line=declared.line,
        module=metafunc.module.__name__,
        qualname=qualname,
        import_mode=str(config.getoption("importmode")),
        sys_path=tuple(workload_path(config)),
    )


def workload_path(config: pytest.Config) -> list[str]:
    """The entries of sys.path that are the user's: those under the rootdir, the `pythonpath` ini and PYTHONPATH.

    The rest is this interpreter's own, built for it, and must not reach another.
    """
    roots = [config.rootpath, config.invocation_params.dir]
    named = [Path(entry) for entry in config.getini("pythonpath")]
    named += [Path(entry) for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
    own = [Path(prefix).resolve() for prefix in {sys.prefix, sys.base_prefix, str(Path(__file__).parents[1])}]
    found = []
    for entry in sys.path:
        path = Path(entry).resolve()
        wanted = path in [name.resolve() for name in named] or any(path.is_relative_to(root) for root in roots)
        if entry and wanted and not any(path.is_relative_to(prefix) for prefix in own if prefix not in roots):
            found.append(str(path))
    return found


def pytest_itemcollected(item: pytest.Item) -> None:
    """Remember the cell of an item, and mark it."""
    callspec = getattr(item, "callspec", None)
    declared = getattr(getattr(item, "function", None), "__ftgate__", None)
    if callspec is None or not isinstance(declared, Declaration):
        return
    params = dict(callspec.params)
    given = next((params.pop(name) for name in ("worker", "executor") if name in params), None)
    if given is None:
        return
    spec, choice = given
    cell = Cell(
        nodeid=item.nodeid,
        target=choice.target,
        executor=choice.executor,
        workers=choice.workers,
        params=_params(declared, spec, params),
        body=marker.body_kind(declared, choice.executor),
    )
    item.stash[CELL] = (spec, cell)
    item.add_marker("ftgate")
    item.add_marker("thread_unsafe")


def _params(declared: Declaration, spec: Spec, params: dict[str, Any]) -> tuple[Param, ...]:
    try:
        return tuple(marker.param_of(declared, spec.source, name, value) for name, value in params.items())
    except FtgateError as error:
        raise pytest.Collector.CollectError(str(error)) from None


# -- running -------------------------------------------------------------------------------------------------------


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> object:
    """Measure and judge the cell, or run it once here."""
    if CELL not in pyfuncitem.stash:
        return None
    spec, cell = pyfuncitem.stash[CELL]
    run = pyfuncitem.config.pluginmanager.get_plugin(PLUGIN)
    if isinstance(run, Run):
        run.gate(pyfuncitem)
    else:
        _run_here(cell, spec)
    return True


def _run_here(cell: Cell, spec: Spec) -> None:
    try:
        functional.run_here(cell, spec)
    except Unsupported as reason:
        pytest.skip(str(reason))
    except Failure as failure:
        pytest.fail(f"{failure.reason}\n{failure.detail}".strip(), pytrace=False)


class Run:
    """A run under --ftgate: registered as a plugin, so that its hooks exist only then."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.strict: bool = value_of(config, "strict")
        given = xdist.handed_over(config)
        self.is_worker = given is not None
        seed = value_of(config, "seed")
        fresh = (f"{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}", random.SystemRandom().randrange(2**32) if seed is None else seed)
        self.id, self.seed = given or fresh
        self.progress = Progress(_stream(config), self._mode())
        self.session = Session(run_config(config, self.seed), config.rootpath, self.id, Watch(self.progress))
        self.collected: list[str] = []
        self.payloads: dict[str, Row] = {}
        self.report: Report | None = None
        if not self.is_worker and config.pluginmanager.hasplugin("xdist"):
            config.pluginmanager.register(xdist.Handover(self.id, self.seed))

    def _mode(self) -> Any:
        quiet = self.is_worker or self.config.get_verbosity() < 0
        return mode_of(_stream(self.config), quiet=quiet)

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items: Sequence[pytest.Item]) -> None:
        """All cells, before any is deselected."""
        self.collected = [item.nodeid for item in items if CELL in item.stash]

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """The plan of what was selected."""
        found: Plan = plan.plan_of(item.stash[CELL] for item in session.items if CELL in item.stash)
        self.session.prepare(found)
        self.progress.start(len(found.tandems))

    def pytest_report_header(self) -> str:
        """The seed, so that a run can be repeated."""
        return f"ftgate: measuring, seed {self.seed} (repeat with --ftgate-seed {self.seed})"

    def gate(self, item: pytest.Function) -> None:
        """Measure the item's tandem if that was not done yet; fail, skip or pass as its verdict says."""
        capture = self.config.pluginmanager.get_plugin("capturemanager")
        shown = capture.global_and_fixture_disabled() if capture is not None else contextlib.nullcontext()
        try:
            with shown:
                row = self.session.row(item.nodeid)
        except FtgateError as error:
            pytest.fail(str(error), pytrace=False)
        finally:
            self.progress.clear()
        item.stash[ROW] = row
        text = terminal.verdict_lines(row, width=100, color=False, unicode=True, verbosity=1).strip() or row.verdict.reason
        if row.verdict.decision in FAILING or (self.strict and row.verdict.decision in STRICT):
            pytest.fail(text, pytrace=False)
        if row.verdict.decision is Decision.UNSUPPORTED:
            pytest.skip(row.verdict.reason)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """The samples travel with the item's report: a worker that crashes later loses nothing."""
        report = yield
        row = item.stash.get(ROW, None)
        if row is not None and report.when == "call":
            report.__dict__["ftgate"] = msgspec.json.encode(row).decode()
            report.__dict__["ftgate_decision"] = row.verdict.decision.value
        return report

    @pytest.hookimpl(tryfirst=True)
    def pytest_report_teststatus(self, report: pytest.TestReport) -> tuple[str, str, tuple[str, dict[str, bool]]] | None:
        """Words and letters of our own."""
        decision = getattr(report, "ftgate_decision", None)
        if decision is None or report.when != "call":
            return None
        category, letter, word, markup = terminal.STATUS[Decision(decision)]
        return category, letter, (word, markup)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Gather what arrived, in the controller or in the only process."""
        payload = getattr(report, "ftgate", None)
        if payload is not None and not self.is_worker:
            self.payloads[report.nodeid] = msgspec.json.decode(payload, type=Row)

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Make the report, update baselines, write what was asked for."""
        self.progress.end()
        if self.is_worker or not self.payloads:
            return
        try:
            self._finish()
        except (FtgateError, OSError) as error:
            self.trouble = str(error)
            session.exitstatus = pytest.ExitCode.INTERNAL_ERROR

    trouble = ""

    def _finish(self) -> None:
        narrowed = self.config.getoption("ftgate_python") or os.environ.get("FTGATE_PYTHON")
        self.report = self.session.report(
            self.payloads.values(), version("pytest-ftgate"), None if narrowed else self.collected
        )
        text = json_report.render(self.report)
        self.session.keep(self.report, text)
        for target in value_of(self.config, "report"):
            path = self.config.invocation_params.dir / target.partition(":")[2]
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """The tables and verdicts."""
        if self.report is not None:
            terminalreporter.section("ftgate", sep="=")
            tw = terminalreporter._tw
            unicode = (getattr(sys.stdout, "encoding", None) or "ascii").lower().replace("-", "").startswith("utf")
            text = terminal.render(
                self.report, width=tw.fullwidth, color=tw.hasmarkup, unicode=unicode, verbosity=self.config.get_verbosity()
            )
            terminalreporter.write(text + "\n")
        if self.trouble:
            terminalreporter.write_line(f"ftgate: {self.trouble}", red=True)


ROW = pytest.StashKey[Row]()


class Watch:
    """What the session tells, shown as progress."""

    def __init__(self, progress: Progress) -> None:
        self.progress = progress

    def begin(self, title: str, cells: Sequence[str]) -> None:
        """A tandem begins."""
        self.progress.begin(title, cells)

    def advance(self, label: str, phase: str, done: int, wanted: int, left_s: float | None) -> None:
        """One step of a tandem."""
        self.progress.advance(label, phase, done, wanted, left_s=left_s)


def _stream(config: pytest.Config) -> Any:
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    return sys.stdout if reporter is None else reporter._tw._file
