"""A pytest plugin, `-p fake_run`: its runs measure scripted launches in place of processes, of any target.

A test with `missing` in its name raises a KeyError. One with `slower` in it takes a hundred times as long as in the
reference. What a comment of a side's file says holds for that side: `# takes 40 ms`, `# raises TypeError`.
"""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest
import report_by_hand
import scipy.special  # noqa: F401 -- pytester forgets what a run imports, and NumPy cannot be imported again
from fake_launcher import MS, At, FakeHandle, FakeLauncher, failed

from pytest_ftgate.judge import decide
from pytest_ftgate.measure import conditions
from pytest_ftgate.measure.cell_run import PreparedTarget
from pytest_ftgate.measure.launch import Request
from pytest_ftgate.model.spec import Cell, Interpreter, Spec
from pytest_ftgate.run import run
from pytest_ftgate.run.targets import TargetLookup, Targets
from pytest_ftgate.targets.describe import build_key

USUAL_MS = 20.0
ELSEWHERE: dict[str, str] = {}
"""Fields of the interpreter that a test has otherwise, such as its `executable`."""


class ByName(FakeLauncher):
    """Scripted by the names of tests."""

    def __init__(self) -> None:
        super().__init__(wall_ns=self._wall_ns)
        self._slower = False
        self._takes_ms: dict[tuple[str, bool], float] = {}
        """By label and side."""

    def start(self, request: Request) -> FakeHandle:
        """Start one, unless its test fails."""
        if "missing" in request.cell.nodeid:
            raise failed("KeyError: 'missing'")
        self._slower = "slower" in request.cell.nodeid
        path = Path(request.spec.source.path)
        text = path.read_text(encoding="utf-8") if path.is_file() else ""
        if raises := re.search("# raises (.*)", text):
            raise failed(f"raised {raises[1]}")
        takes = re.search(r"# takes (\d+) ms", text)
        self._takes_ms[request.cell.label, request.reference] = float(takes[1]) if takes else USUAL_MS
        return super().start(request)

    def _wall_ns(self, at: At) -> float:
        takes_ms = USUAL_MS if at.control else self._takes_ms.get((at.label, at.reference), USUAL_MS)
        return takes_ms * MS * (100 if self._slower and not (at.control or at.reference) else 1)


def _interpreter(cell: Cell) -> Interpreter:
    free = cell.target.spec.endswith("t")
    return msgspec.structs.replace(report_by_hand.FREE_THREADED, free_threaded=free, gil_enabled=not free)


def lookup(targets: Targets, cell: Cell, spec: Spec, checkout: object = None) -> TargetLookup:
    """The target of a cell; nothing is looked for."""
    interpreter = _interpreter(cell)
    return TargetLookup(
        target=PreparedTarget(
            interpreter=msgspec.structs.replace(interpreter, **ELSEWHERE),
            python="/opt/env/bin/python",
            key=build_key(interpreter),
            environment={},
        )
    )


def pytest_configure(config: pytest.Config) -> None:
    """From here on, until the end of the run."""
    patch = pytest.MonkeyPatch()
    config.add_cleanup(patch.undo)
    patch.setattr(run, "Launchers", lambda *_: ByName())
    patch.setattr(run, "install_runner", lambda _: None)
    patch.setattr(Targets, "lookup", lookup)
    patch.setattr(Targets, "build", lambda targets, cell, spec: build_key(_interpreter(cell)))
    patch.setattr(Targets, "make_all", lambda *_: None)
    patch.setattr(conditions, "calibration_ns", lambda *_: 5_000_000)
    patch.setattr(decide, "deviation", lambda *_: 0.0)
    patch.setattr(decide, "unfit", lambda *_: "")
