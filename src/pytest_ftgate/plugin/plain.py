"""A cell in a run without --ftgate: its workload runs once, as a functional test."""

from __future__ import annotations

import sys

import pytest

from ..model import Cell, Spec
from ..run import once
from ..runner.protocol import Failure, Unsupported


def _own_traceback(error: pytest.ExceptionInfo[BaseException]) -> bool:
    """Hide our frames in the traceback of a workload, but not where the text holds that traceback already."""
    return not error.errisinstance((pytest.fail.Exception, pytest.skip.Exception))


def _variables(spec: Spec, cell: Cell) -> dict[str, str]:
    """The environment variables of a cell that runs in this process; a program gets its own when it is started."""
    if not cell.environment.variables or cell.executor.program is not None:
        return {}
    from ..measure.launchers import program_words  # plain runs of other cells do without

    return program_words.workload_variables(cell, spec, sys.executable)


def run_once(spec: Spec, cell: Cell) -> None:
    """Pass, skip where the cell is not supported here, or fail with the workload's own traceback."""
    __tracebackhide__ = _own_traceback
    reason = failed = ""
    try:
        with pytest.MonkeyPatch.context() as patch:
            for name, value in _variables(spec, cell).items():
                patch.setenv(name, value)
            once.once(cell, spec)
    except Unsupported as unsupported:
        reason = str(unsupported)
    except Failure as failure:
        failed = f"{failure.reason}\n{failure.detail}".strip()
    # Outside the handlers, so that pytest does not show our exception as the cause.
    if reason:
        pytest.skip(reason)
    if failed:
        pytest.fail(failed, pytrace=False)
