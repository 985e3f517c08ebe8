"""Runs a cell's body once in this interpreter, as a plain functional test: nothing is measured."""

from __future__ import annotations

import sys
import warnings
from typing import Any

from .launch import setup_of
from .model import Cell, Spec
from .runner import loading
from .runner.crews import Onlooker, make_crew
from .runner.gilwatch import watch
from .runner.kinds import context_of, make_kind
from .runner.protocol import Failure, Unsupported
from .runner.worker import CHECKING, VALUES, Order

__all__ = ["Failure", "Unsupported", "run_here"]


def run_here(cell: Cell, spec: Spec) -> None:
    """One iteration of the cell's workload here. Raises Failure, Unsupported, and what @shared or @check raise.

    The target's settings are left out: a switch interval would be that of all tests that follow.
    """
    __tracebackhide__ = True
    if cell.executor.kind == "interpreters" and sys.version_info < (3, 14):
        raise Unsupported(f"sub-interpreters need CPython 3.14 or newer, this is {sys.version.split()[0]}")
    setup = {**setup_of(cell, spec), "switch_s": None}
    declared, owner = loading.declaration(setup)
    context = context_of(cell.executor.kind, cell.executor.method)
    kind = make_kind(cell.executor.kind, cell.executor.method, context)
    try:
        shared = None if declared.shared is None else loading.owned(declared.shared, owner)(kind)
        outcome = _turn(setup, shared, context, VALUES if declared.check is not None else 0)
    finally:
        kind.close()
    if declared.check is not None:
        values = [report["value"] for report in outcome.reports]
        loading.owned(declared.check, owner)(values[0] if setup["shape"] == "executor" else values)


def _turn(setup: dict[str, Any], shared: Any, context: Any, flags: int) -> Any:
    with warnings.catch_warnings():
        # pytest-xdist's own threads are alive while a cell forks here.
        warnings.filterwarnings("ignore", message=".*multi-threaded, use of fork", category=DeprecationWarning)
        watch.install()  # once, before several threads would
        crew = make_crew(setup, shared, True, context)
        try:
            return crew.turn(Order(1, 0, CHECKING | flags), Onlooker())
        finally:
            crew.close()
