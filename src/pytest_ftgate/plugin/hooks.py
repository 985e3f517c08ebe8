"""pytest's hooks: a few lines each, which delegate."""

from __future__ import annotations

import pytest

from ..declare import options
from ..model import Cell, Spec
from ..run import once
from ..runner.protocol import Failure, Unsupported
from .collection import CELL, pytest_generate_tests, pytest_ignore_collect, pytest_pycollect_makeitem
from .gate import PLUGIN, Run
from .options import check_values, pytest_addoption, value_of

__all__ = [
    "pytest_addoption",
    "pytest_configure",
    "pytest_generate_tests",
    "pytest_ignore_collect",
    "pytest_pycollect_makeitem",
    "pytest_pyfunc_call",
]


def pytest_configure(config: pytest.Config) -> None:
    """Register the mark and, under --ftgate, the run."""
    config.addinivalue_line("markers", "ftgate: cells of @ftgate.compare, added by itself; select them with -m ftgate")
    if not config.pluginmanager.hasplugin("pytest_run_parallel"):
        config.addinivalue_line(
            "markers", "thread_unsafe: not to be run in several threads at once (pytest-run-parallel)"
        )
    values = {option.name: value_of(config, option.name) for option in options.OPTIONS}
    check_values(config)
    asked = values["ftgate"] or values["update"] or config.getoption("ftgate_against")
    if asked and not config.option.collectonly:
        config.pluginmanager.register(Run(config), PLUGIN)


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
        once.once(cell, spec)
    except Unsupported as unsupported:
        reason = str(unsupported)
    except Failure as failure:
        failed = f"{failure.reason}\n{failure.detail}".strip()
    # Out of the handlers, so that pytest shows no chain of ours beside the workload's own traceback.
    if reason:
        pytest.skip(reason)
    if failed:
        pytest.fail(failed, pytrace=False)
