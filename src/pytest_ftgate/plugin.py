"""pytest's hooks: a few lines each, which delegate."""

from __future__ import annotations

import contextlib
import inspect
import os
import random
import sys
import sysconfig
import time
from collections.abc import Generator, Iterable, Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import msgspec
import pytest

from . import functional, marker, options, plan, thresholds, xdist
from .errors import FtgateError
from .model import Arrival, Cell, Decision, Plan, Report, Source, Spec, Target, Threshold
from .progress import Progress, mode_of
from .pythons import parse_target
from .reports import json as json_report
from .reports import terminal
from .runner.api import Declaration
from .runner.protocol import Failure, Unsupported
from .session import RunConfig, Session

PLUGIN = "ftgate-run"
CELL = pytest.StashKey[tuple[Spec, Cell]]()
STRICT = (Decision.INCONCLUSIVE, Decision.UNSUPPORTED, Decision.NO_BASELINE)


# -- options -------------------------------------------------------------------------------------------------------


def pytest_addoption(parser: pytest.Parser) -> None:
    """Every row of the table as an option and an ini key."""
    group = parser.getgroup("ftgate", "concurrency regression gating (ftgate)")
    for option in options.OPTIONS:
        ini = "args" if option.many and option.ini == "args" else option.ini
        parser.addini(option.dest, option.help, type=ini, default=None)
        how: dict[str, Any] = {
            "dest": option.dest,
            "default": None,
            "help": f"{option.help} (ini, env: {option.variable})",
        }
        if option.flag:
            group.addoption(option.cli, action="store_true", **how)
        elif option.optional:
            action = "append" if option.many else "store"
            group.addoption(option.cli, action=action, nargs="?", const=option.optional, metavar=option.metavar, **how)
        else:
            group.addoption(option.cli, action="append" if option.many else "store", metavar=option.metavar, **how)


def value_of(config: pytest.Config, name: str, declared: Any = None) -> Any:
    """The value of an option after precedence. Raises pytest.UsageError."""
    return _resolved(config, name, _ini(config, options.by_name(name)), declared)


def _resolved(config: pytest.Config, name: str, ini: Any, declared: Any = None) -> Any:
    option = options.by_name(name)
    try:
        return options.resolve(option, config.getoption(option.dest), os.environ, ini, declared)
    except FtgateError as error:
        raise pytest.UsageError(str(error)) from None


def _ini(config: pytest.Config, option: options.Option) -> Any:
    try:
        return config.getini(option.dest)
    except (ValueError, TypeError, pytest.UsageError) as error:  # which of them depends on pytest's version
        raise pytest.UsageError(f"ini option {option.dest}: {error}") from None


def run_config(config: pytest.Config, seed: int) -> RunConfig:
    """All options of a run."""
    names = ("baselines", "update", "launches", "turns", "alpha", "probe_cost", "install", "escalate", "metrics")
    values = {name: value_of(config, name) for name in names}
    given, written = thresholds_of(config)
    return RunConfig(
        **values,
        thresholds=given,
        ini_thresholds=written,
        against=value_of(config, "against") or "",
        seed=seed,
        budget_s=value_of(config, "time"),
        test_budget_s=value_of(config, "test_time"),
        timeout_s=value_of(config, "timeout"),
    )


def thresholds_of(config: pytest.Config) -> tuple[tuple[Threshold, ...], tuple[Threshold, ...]]:
    """What counts as a change for this run, and for the project: command line and environment apart from the ini.

    A decorator's own stands between the two. Raises pytest.UsageError.
    """
    rows = [options.by_name(name) for name in options.THRESHOLDS]
    cli = {row.name: config.getoption(row.dest) for row in rows}
    ini = {row.name: _ini(config, row) for row in rows}
    try:
        given, written = options.threshold_layers(cli, os.environ, ini)
        thresholds.check(cli=given, ini=written)
    except FtgateError as error:
        raise pytest.UsageError(str(error)) from None
    return given, written


def pytest_configure(config: pytest.Config) -> None:
    """Register the mark and, under --ftgate, the run."""
    config.addinivalue_line("markers", "ftgate: cells of @ftgate.compare, added by itself; select them with -m ftgate")
    if not config.pluginmanager.hasplugin("pytest_run_parallel"):
        config.addinivalue_line(
            "markers", "thread_unsafe: not to be run in several threads at once (pytest-run-parallel)"
        )
    values = {option.name: value_of(config, option.name) for option in options.OPTIONS}
    _check_values(config)
    asked = values["ftgate"] or values["update"] or config.getoption("ftgate_against")
    if asked and not config.option.collectonly:
        config.pluginmanager.register(Run(config), PLUGIN)


def _check_values(config: pytest.Config) -> None:
    """`--ftgate-update tests/` means an update and a folder, but the option has taken the folder as its value."""
    for value in config.getoption("ftgate_update") or ():
        if value not in ("new", "all") and (config.invocation_params.dir / value).exists():
            raise pytest.UsageError(f"--ftgate-update took {value!r} as its value: write --ftgate-update=new {value}")
    against = config.getoption("ftgate_against")
    if against and (config.invocation_params.dir / against).exists():
        raise pytest.UsageError(
            f"--ftgate-against took {against!r} as its value: write --ftgate-against=merge-base {against}, "
            f"or refs/heads/{against} for a branch of that name"
        )
    if value_of(config, "update") and value_of(config, "against"):
        raise pytest.UsageError(
            "--ftgate-update and --ftgate-against exclude each other: a comparison has no candle to record a time by; "
            "update in a run of its own"
        )


# -- collection ----------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _as_collect_error() -> Iterator[None]:
    """What a user can mend at collection is shown without our frames."""
    try:
        yield
    except FtgateError as error:
        raise pytest.Collector.CollectError(str(error)) from None


@pytest.hookimpl(tryfirst=True)
def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A decorated test becomes one item a cell."""
    declared = marker.declaration_of(metafunc.function)
    if declared is None:
        return
    with _as_collect_error():
        spec = _spec(metafunc, declared)
        chosen = plan.choices(spec, targets(metafunc.config, spec))
    metafunc.parametrize(spec.body, [(spec, choice) for choice in chosen], ids=[choice.id for choice in chosen])


def _spec(metafunc: pytest.Metafunc, declared: Declaration) -> Spec:
    definition = metafunc.definition
    source = _source(metafunc, declared)
    marker.check_function(declared, source, metafunc.function, definition.originalname, metafunc.cls)
    spec = marker.spec_of(declared, source, definition.nodeid)
    given, written = thresholds_of(metafunc.config)
    try:
        thresholds.check(cli=given, declared=spec.thresholds, ini=written)
    except FtgateError as error:
        raise marker.DeclarationError(f"{source.path}:{source.line}: {source.qualname}: {error}") from None
    requested = [name for mark in definition.own_markers if mark.name == "usefixtures" for name in mark.args]
    parametrized = _parametrized(metafunc)
    marker.check_arguments(declared, source, parametrized, requested)
    marker.check_placeholders(declared, spec, parametrized)
    return msgspec.structs.replace(spec, timeout_s=value_of(metafunc.config, "timeout", spec.timeout_s))


def targets(config: pytest.Config, spec: Spec) -> list[Target]:
    """The targets of a test: command line, environment, the decorator's, ini, default. Each once."""
    names: Iterable[str] = value_of(config, "python", spec.pythons)
    return list(dict.fromkeys(parse_target(name) for name in names))


def _parametrized(metafunc: pytest.Metafunc) -> dict[str, bool]:
    """Names that `parametrize` gives, each with whether a fixture makes its value (`indirect`)."""
    names: dict[str, bool] = {}
    for mark in metafunc.definition.iter_markers("parametrize"):
        argnames = mark.args[0] if mark.args else mark.kwargs.get("argnames", ())
        split = argnames.split(",") if isinstance(argnames, str) else argnames
        indirect = mark.kwargs.get("indirect", mark.args[2] if len(mark.args) > 2 else False)
        for name in (given.strip() for given in split):
            names[name] = indirect if isinstance(indirect, bool) else name in indirect
    return names


def _source(metafunc: pytest.Metafunc, declared: Declaration) -> Source:
    config, name = metafunc.config, metafunc.definition.originalname
    return Source(
        path=str(metafunc.definition.path),
        line=declared.line,
        module=metafunc.module.__name__,
        qualname=name if metafunc.cls is None else f"{metafunc.cls.__qualname__}.{name}",
        import_mode=str(config.getoption("importmode")),
        sys_path=tuple(workload_path(config)),
    )


def workload_path(config: pytest.Config) -> list[str]:
    """The entries of sys.path that are the user's, in order.

    These are the ones before the standard library's (put there by pytest, a conftest.py, PYTHONPATH or the
    `pythonpath` ini) and those under the rootdir. The rest is this interpreter's own, built for it, and must not
    reach another.
    """
    roots = [config.rootpath, config.invocation_params.dir]
    named = [Path(entry) for entry in config.getini("pythonpath")]
    named += [Path(entry) for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
    chosen = {path.resolve() for path in named}
    stdlib = Path(sysconfig.get_path("stdlib")).resolve()
    entries = [Path(entry).resolve() for entry in sys.path if entry]
    front = entries.index(stdlib) if stdlib in entries else 0
    found: dict[str, None] = {}
    for position, path in enumerate(entries):
        users = position < front or any(path.is_relative_to(root) for root in roots)
        if path in chosen or (users and not _of_this_interpreter(path)):
            found.setdefault(str(path))
    ours = Path(__file__).resolve().parents[1]
    return [entry for entry in found if ours in roots or Path(entry) != ours]


def _of_this_interpreter(path: Path) -> bool:
    """Whether an entry of sys.path belongs to the interpreter or the environment that runs pytest."""
    folders = [Path(sysconfig.get_path(name)).resolve() for name in ("stdlib", "platstdlib", "scripts")]
    if any(path.is_relative_to(folder) for folder in folders) or {"site-packages", "dist-packages"} & set(path.parts):
        return True
    return path.suffix == ".zip" and path.name.startswith("python")


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """What is checked out to be compared with is no test of this tree."""
    return True if collection_path.name == ".ftgate" else None


@pytest.hookimpl(wrapper=True)
def pytest_pycollect_makeitem(name: str, obj: object) -> Generator[None, object, object]:
    """Give each item of a decorated test its cell, and mark it; complain about what cannot be one."""
    found = yield
    with _as_collect_error():
        if inspect.isclass(obj) and found is not None:
            marker.check_class(obj)
        for item in found if isinstance(found, list) else ():
            if isinstance(item, pytest.Function):
                marker.check_notes(item.function, str(item.path))
                _attach(item)
    return found


def _attach(item: pytest.Function) -> None:
    declared, callspec = marker.declaration_of(item.function), getattr(item, "callspec", None)
    if declared is None or callspec is None:
        return
    params = dict(callspec.params)
    if any(type(value).__name__ == "NotSetType" for value in params.values()):
        return  # an empty parametrize: pytest itself skips the item
    spec, choice = next(params.pop(name) for name in marker.OWN if name in params)
    cell = Cell(
        nodeid=item.nodeid,
        target=choice.target,
        executor=choice.executor,
        workers=choice.workers,
        roles=choice.roles,
        params=tuple(marker.param_of(declared, spec.source, name, value) for name, value in params.items()),
        body=marker.body_kind(declared, choice.executor),
    )
    item.stash[CELL] = (spec, cell)
    item.add_marker("ftgate")
    item.add_marker("thread_unsafe")


# -- running -------------------------------------------------------------------------------------------------------


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> object:
    """Measure and judge the cell, or run it once here."""
    __tracebackhide__ = True
    if CELL not in pyfuncitem.stash:
        return None
    spec, cell = pyfuncitem.stash[CELL]
    run = pyfuncitem.config.pluginmanager.get_plugin(PLUGIN)
    if isinstance(run, Run):
        run.gate(pyfuncitem)
    else:
        _run_here(cell, spec)
    return True


def _own_traceback(error: pytest.ExceptionInfo[BaseException]) -> bool:
    """Hide our frames beside the workload's, but not where its traceback is in the text already."""
    return not error.errisinstance((pytest.fail.Exception, pytest.skip.Exception))


def _run_here(cell: Cell, spec: Spec) -> None:
    __tracebackhide__ = _own_traceback
    reason = failed = ""
    try:
        functional.once(cell, spec)
    except Unsupported as unsupported:
        reason = str(unsupported)
    except Failure as failure:
        failed = f"{failure.reason}\n{failure.detail}".strip()
    # Out of the handlers, so that pytest shows no chain of ours beside the workload's own traceback.
    if reason:
        pytest.skip(reason)
    if failed:
        pytest.fail(failed, pytrace=False)


class Run:
    """A run under --ftgate: registered as a plugin, so that its hooks exist only then."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        strict = STRICT if value_of(config, "strict") else ()
        self.failing = {Decision.ERROR, *strict, *value_of(config, "fail_on")}
        given = xdist.handed_over(config)
        self.is_worker = given is not None
        seed = value_of(config, "seed")
        fresh = (
            f"{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}",
            random.SystemRandom().randrange(2**32) if seed is None else seed,
        )
        self.id, self.seed = given or fresh
        self.progress = Progress(_stream(config), self._mode())
        self.session = Session(run_config(config, self.seed), config.rootpath, self.id, Watch(self.progress, config))
        self.collected: list[str] = []
        self.arrivals: dict[str, Arrival] = {}
        self.plain = False
        self.report: Report | None = None
        if not self.is_worker:
            config.pluginmanager.register(xdist.Handover(self.id, self.seed))
            self._check_out()

    def _check_out(self) -> None:
        """Both sides of a comparison, before any worker or test starts: what git cannot give is an error of usage."""
        if self.session.config.against:
            try:
                self.session.pair()
            except FtgateError as error:
                raise pytest.UsageError(str(error)) from None

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
                arrival = self.session.arrival(item.nodeid)
        except (FtgateError, OSError) as error:  # a full disk or a folder that cannot be written names its file itself
            raise pytest.fail.Exception(str(error), pytrace=False) from None
        finally:
            self.progress.clear()
        item.stash[ARRIVAL] = arrival
        row = arrival.row
        text = (
            terminal.verdict_lines(row, width=100, color=False, unicode=True, verbosity=1).strip() or row.verdict.reason
        )
        if row.verdict.decision in self.failing:
            pytest.fail(text, pytrace=False)
        if row.verdict.decision is Decision.UNSUPPORTED:
            pytest.skip(row.verdict.reason)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """The samples travel with the item's report: a worker that crashes later loses nothing."""
        report = yield
        arrival = item.stash.get(ARRIVAL, None)
        if arrival is not None and report.when == "call":
            report.__dict__["ftgate"] = msgspec.json.encode(arrival).decode()
            report.__dict__["ftgate_decision"] = arrival.row.verdict.decision.value
        return report

    @pytest.hookimpl(tryfirst=True)
    def pytest_report_teststatus(
        self, report: pytest.TestReport
    ) -> tuple[str, str, tuple[str, dict[str, bool]]] | None:
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
            self.arrivals[report.nodeid] = msgspec.json.decode(payload, type=Arrival)
        self.plain = self.plain or (payload is None and report.when == "call")

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Make the report, update baselines, write what was asked for."""
        self.progress.end()
        if self.is_worker or not self.arrivals:
            return
        if session.exitstatus == pytest.ExitCode.OK and self._nothing_measured():
            self.trouble = "nothing was measured: every cell is unsupported here"
            session.exitstatus = pytest.ExitCode.NO_TESTS_COLLECTED
        try:
            self._finish()
        except (FtgateError, OSError) as error:
            self.trouble = str(error)
            session.exitstatus = pytest.ExitCode.INTERNAL_ERROR

    def _nothing_measured(self) -> bool:
        """A gate that gated nothing must not look green."""
        decisions = {arrival.row.verdict.decision for arrival in self.arrivals.values()}
        return decisions == {Decision.UNSUPPORTED} and not self.plain

    trouble = ""

    def _finish(self) -> None:
        collected = None if self._narrowed() else self.collected
        self.report = self.session.report(self.arrivals.values(), version("pytest-ftgate"), collected)
        self.report = self.session.updated(self.report)
        text = json_report.render(self.report)
        self.session.keep(text)
        for target in value_of(self.config, "report"):
            path = self.config.invocation_params.dir / target.partition(":")[2]
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")

    def _narrowed(self) -> bool:
        """Whether this run was not shown all cells of its tests, so that it cannot say which baselines are unused."""
        targets = self.config.getoption("ftgate_python") or os.environ.get("FTGATE_PYTHON")
        return bool(targets) or not self.collected or any("[" in argument for argument in self.config.args)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """The tables and verdicts."""
        if self.report is not None:
            terminalreporter.section("ftgate", sep="=")
            tw = terminalreporter._tw
            unicode = (getattr(sys.stdout, "encoding", None) or "ascii").lower().replace("-", "").startswith("utf")
            text = terminal.render(
                self.report,
                width=tw.fullwidth,
                color=tw.hasmarkup,
                unicode=unicode,
                verbosity=self.config.get_verbosity(),
            )
            terminalreporter.write(text + "\n")
        if self.trouble:
            terminalreporter.write_line(f"ftgate: {self.trouble}", red=True)


ARRIVAL = pytest.StashKey[Arrival]()


class Watch:
    """What the session tells, shown as progress."""

    def __init__(self, progress: Progress, config: pytest.Config) -> None:
        self.progress = progress
        self.config = config

    def begin(self, title: str, cells: Sequence[str]) -> None:
        """A tandem begins, on a line of its own: pytest's own line of letters goes on after it."""
        reporter = self.config.pluginmanager.get_plugin("terminalreporter")
        if reporter is not None and self.config.get_verbosity() >= 0:
            reporter.ensure_newline()
        self.progress.begin(title, cells)

    def advance(self, label: str, phase: str, done: int, wanted: int, left_s: float | None) -> None:
        """One step of a tandem."""
        self.progress.advance(label, phase, done, wanted, left_s=left_s)


def _stream(config: pytest.Config) -> Any:
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    return sys.stdout if reporter is None else reporter._tw._file
