"""Runs a cell's body once in this interpreter, as a plain functional test: no measuring, no other process but its workers."""

from __future__ import annotations

import multiprocessing
import sys
from typing import Any

from .launch import setup_of
from .model import Cell, Spec
from .runner import loading
from .runner.crews import make_crew
from .runner.kinds import make_kind
from .runner.protocol import Failure, Unsupported
from .runner.worker import CHECKING, VALUES, Order

__all__ = ["Failure", "Unsupported", "run_here"]


def run_here(cell: Cell, spec: Spec) -> None:
    """One iteration of the cell's workload here. Raises Failure or Unsupported."""
    if cell.executor.kind == "interpreters" and sys.version_info < (3, 14):
        raise Unsupported(f"sub-interpreters need CPython 3.14 or newer, this is {sys.version.split()[0]}")
    setup = setup_of(cell, spec, candle=False)
    declared, owner = loading.declaration(setup)
    context = _context(cell)
    kind = make_kind(cell.executor.kind, cell.executor.method, context)
    shared = None
    if declared.shared is not None:
        shared = _owned(declared.shared, owner)(kind)
    checks = declared.check is not None
    crew = make_crew(setup, shared, True, context)
    try:
        outcome = crew.turn(Order(1, 0, CHECKING | (VALUES if checks else 0)), lambda: None)
    finally:
        crew.close()
        kind.close()
    if checks:
        values = [report["value"] for report in outcome.reports]
        _owned(declared.check, owner)(values[0] if setup["shape"] == "executor" else values)


def _owned(function: Any, owner: Any) -> Any:
    return function if owner is None else function.__get__(owner)


def _context(cell: Cell) -> Any:
    if cell.executor.kind != "processes":
        return None
    if cell.executor.method not in multiprocessing.get_all_start_methods():
        raise Unsupported(f"this platform has no start method {cell.executor.method!r}")
    return multiprocessing.get_context(cell.executor.method)
