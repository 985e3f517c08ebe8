"""A cell in a run without --ftgate: its workload runs once, as a functional test."""

from __future__ import annotations

import sys
import sysconfig
from collections.abc import Iterable

import pytest

from ..kit.text import plain
from ..model.sample import WorkloadError
from ..model.spec import Cell, Spec
from ..run.plain import once
from ..runner.protocol import Failure, Unsupported


def _own_traceback(error: pytest.ExceptionInfo[BaseException]) -> bool:
    """Hide our frames in the traceback of a workload, but not where the text holds that traceback already."""
    return not error.errisinstance((pytest.fail.Exception, pytest.skip.Exception))


PASSED = pytest.StashKey[dict[tuple[object, ...], str]]()
"""What has passed here, on whatever target, and the node id of the first cell that it passed for."""
ERROR = pytest.StashKey[WorkloadError]()
"""Why a cell failed here."""
TARGET = "ftgate target "
"""The beginning of a keyword of an item that ran here: reports keep keywords, also those of xdist's workers."""


def run(item: pytest.Function, spec: Spec, cell: Cell) -> None:
    """Run a cell once here, unless the same has passed here for a cell of another target: nothing differs but that."""
    __tracebackhide__ = True
    item.keywords[f"{TARGET}{cell.target.spec}"] = True
    passed = item.config.stash.setdefault(PASSED, {})
    same = (spec.nodeid, cell.executor, cell.workers, cell.roles, cell.environment, cell.params)
    if passed.get(same, item.nodeid) != item.nodeid:
        return
    run_once(item, spec, cell)
    passed.setdefault(same, item.nodeid)


def _here() -> list[str]:
    """This interpreter as a target: `3.14t` and `3.14.2t`."""
    free_threaded = "t" if sysconfig.get_config_var("Py_GIL_DISABLED") else ""
    return [".".join(map(str, sys.version_info[:parts])) + free_threaded for parts in (2, 3)]


def _elsewhere(keywords: Iterable[str]) -> list[str]:
    """The targets of these cells that this interpreter is not."""
    targets = (keyword.removeprefix(TARGET) for keyword in keywords if keyword.startswith(TARGET))
    return sorted(target for target in targets if target not in _here())


def summary(keywords: Iterable[str]) -> str:
    """Which targets the run did not use; empty where it ran on all of them."""
    others = _elsewhere(keywords)
    if not others:
        return ""
    return f"ftgate: plain run on CPython {_here()[-1]}, not on {' and '.join(others)}; use --ftgate to measure"


def word(keywords: Iterable[str]) -> str:
    """`PASSED (plain, on 3.11)`, of a cell that is named after another interpreter; empty for all others."""
    return f"PASSED (plain, on {_here()[0]})" if _elsewhere(keywords) else ""


def set_message(item: pytest.Item, report: pytest.TestReport) -> None:
    """Give a failed cell the line in pytest's summary that it has in a measuring run: the exception itself."""
    if report.when == "call" and report.failed and ERROR in item.stash:
        from ..report import errors
        from . import failures

        error = item.stash[ERROR]
        place = errors.origin(error) or (str(item.path), (item.location[1] or 0) + 1)
        failures.set_message(report, errors.exception(error), place)


def run_once(item: pytest.Item, spec: Spec, cell: Cell) -> None:
    """Pass, skip where the cell is not supported here, or fail with the workload's own traceback."""
    __tracebackhide__ = _own_traceback
    reason, failed = "", None
    try:
        with pytest.MonkeyPatch.context() as patch:
            # A program gets its variables when it is started.
            if cell.environment.variables and cell.executor.program is None:
                from ..measure.launchers import programs  # plain runs of other cells do without

                for name, value in programs.workload_variables(cell, spec, sys.executable).items():
                    patch.setenv(name, value)
            once(cell, spec)
    except Unsupported as unsupported:
        reason = plain(str(unsupported))
    except Failure as failure:
        failed = WorkloadError(reason=failure.reason, detail=failure.detail)
    # Outside the handlers, so that pytest does not show our exception as the cause.
    if reason:
        pytest.skip(reason)
    if failed:
        from ..report import errors  # runs that pass do without

        item.stash[ERROR] = failed
        pytest.fail(errors.error_text(failed), pytrace=False)
