"""pytest's hooks: a few lines each, which delegate.

Every pytest run of an environment imports this module, whether a test is decorated or not: what needs more than the
options is imported by the hook that first needs it. tests/plugin/test_imports.py holds the list.
"""

from __future__ import annotations

import inspect
from collections.abc import Generator
from pathlib import Path
from types import FunctionType
from typing import Any

import pytest

from ..kit.plugins import features
from .options import check_values, measures, options_of, pytest_addoption  # noqa: F401 -- a hook as those below

GATE = "ftgate-run"
"""The name under which the plugin of a measuring run is registered."""


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    """Register the mark and, under --ftgate, the run: after all other plugins, so that its words are the last."""
    config.addinivalue_line("markers", "ftgate: cells of @ftgate.compare, added by itself; select them with -m ftgate")
    if not config.pluginmanager.hasplugin("pytest_run_parallel"):
        config.addinivalue_line(
            "markers", "thread_unsafe: not to be run in several threads at once (pytest-run-parallel)"
        )
    measuring = measures(config)
    if measuring:
        from .collection import import_needed

        import_needed(config.rootpath)
    check_values(config, measuring=measuring)
    is_worker = hasattr(config, "workerinput")  # of pytest-xdist
    if measuring and (config.option.collectonly or is_worker):
        features("run").hook.ftgate_collect(config=config, options=options_of(config))
    if measuring and is_worker:
        from .xdist import XdistWorker

        config.pluginmanager.register(XdistWorker(config))
    elif measuring and not config.option.collectonly:
        from ..kit.platforms import unsupported

        if why := unsupported():
            raise pytest.UsageError(
                f"--ftgate cannot measure here: {why}. Without --ftgate the tests run as plain tests"
            )
        from .gate import Gate

        config.pluginmanager.register(Gate(config), GATE)


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """A checkout that is compared with holds no tests of this tree."""
    return True if collection_path.name == ".ftgate" else None


def _decorated(thing: object) -> bool:
    """Whether a decorator of ours may have been there; `collection` looks closer."""
    return hasattr(thing, "__ftgate__") or hasattr(thing, "__ftgate_notes__")


def _may_be_cell(item: pytest.Item) -> bool:
    """Whether an item has our mark; its function may be another plugin's by now."""
    return item.get_closest_marker("ftgate") is not None


@pytest.hookimpl(tryfirst=True)
def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A decorated test becomes one item for each cell."""
    if _decorated(metafunc.function):
        from .collection import generate

        generate(metafunc)


MARKS = "__ftgate_marks__"
"""The marks of a decorated test as its file writes them, while plugins add theirs."""


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_pycollect_makeitem(name: str, obj: object) -> Generator[None, object, object]:
    """Give each item of a decorated test its cell and its marks; refuse what cannot have cells."""
    if isinstance(obj, FunctionType) and _decorated(obj):
        setattr(obj, MARKS, [*getattr(obj, "pytestmark", ())])
    found = yield
    if inspect.isclass(obj) and found is not None:
        # Members that are not functions may be lazy objects, which hasattr would evaluate.
        methods = (member for member in vars(obj).values() if isinstance(member, FunctionType))
        if _decorated(obj) or any(map(_decorated, methods)):
            from .collection import check_class

            check_class(obj)
    items = [item for item in found if isinstance(item, pytest.Function)] if isinstance(found, list) else []
    for item in items:
        if _decorated(item.function):
            from .collection import complete

            complete(item)
    return found


@pytest.hookimpl(specname="pytest_pycollect_makeitem")
def pytest_pycollect_makeitem_without_fixtures_of_plugins(obj: object) -> None:
    """Take back the fixtures that a plugin requested for a decorated test, as AnyIO's for what is `async`.

    Those that its file requests stay, to be refused: a body has none of them where it is measured.
    """
    if isinstance(obj, FunctionType) and hasattr(obj, MARKS):
        written = getattr(obj, MARKS)
        marks = [mark for mark in getattr(obj, "pytestmark", ()) if mark.name != "usefixtures" or mark in written]
        vars(obj).update(pytestmark=marks)


def pytest_exception_interact(node: object, call: pytest.CallInfo[object], report: object) -> None:
    """Say what to install where a file cannot be imported here, but only for its targets."""
    if isinstance(report, pytest.CollectReport) and isinstance(node, pytest.Module) and call.excinfo is not None:
        from .missing import hint

        if said := hint(node.path, call.excinfo.value.__cause__):
            report.sections.append(("ftgate", said))


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> object:
    """Measure and judge the cell, or run it once here."""
    __tracebackhide__ = True
    if not _may_be_cell(pyfuncitem):
        return None
    from .collection import CELL

    if CELL not in pyfuncitem.stash:
        return None
    run = pyfuncitem.config.pluginmanager.get_plugin(GATE)
    if run is not None:
        run.gate(pyfuncitem)
    else:
        from . import plain

        plain.run(pyfuncitem, *pyfuncitem.stash[CELL])
    return True


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Name the exception of a cell that failed in a plain run; say to other tests where `worker` comes from."""
    report = yield
    if report.failed and _may_be_cell(item):
        from . import plain

        plain.set_message(item, report)
    elif report.failed and (name := getattr(report.longrepr, "argname", "")) in ("worker", "executor"):
        error: Any = report.longrepr
        lacks = "is not decorated with it"
        if hasattr(getattr(item, "function", None), "hypothesis"):
            lacks = "is run by hypothesis: @given and a cell do not go together"
        error.errorstring += f"\n @ftgate.compare gives a test its {name}, and {item.name} {lacks}"
    return report


@pytest.hookimpl(wrapper=True)
def pytest_report_teststatus(report: pytest.TestReport | pytest.CollectReport) -> Generator[None, Any, Any]:
    """With -v a plain run says of a cell that passed where it ran: its id names an interpreter that it was not."""
    status = yield
    if report.when == "call" and report.passed and any(word.startswith("ftgate ") for word in report.keywords):
        from .plain import word

        category, letter, _ = status
        return category, letter, word(report.keywords) or status[2]
    return status


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say of a plain run which targets it did not use."""
    reports = (report for each in terminalreporter.stats.values() for report in each)
    keywords = {word for report in reports for word in getattr(report, "keywords", ()) if word.startswith("ftgate ")}
    if keywords and terminalreporter.config.get_verbosity() >= 0:
        from .plain import summary

        if said := summary(keywords):
            terminalreporter.write_line(said)
