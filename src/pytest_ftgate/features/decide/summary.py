"""`--ftgate-decide`: what the figures of the run speak for, at its end."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from ...hookspec import hookimpl
from ...kit.text import takes_unicode
from ...plugin.options import options_of
from . import text

if TYPE_CHECKING:
    from ...plugin.gate import Gate


@hookimpl
def ftgate_configure(gate: Gate) -> None:
    """Only where it is asked for."""
    if gate.config.getoption("ftgate_decide"):
        gate.config.pluginmanager.register(AdvicePrinter(gate.config, gate))


class AdvicePrinter:
    """Prints the advice after the tables of a run."""

    def __init__(self, config: pytest.Config, gate: Gate) -> None:
        self.gate = gate
        self.weights = options_of(config).decide

    @pytest.hookimpl(trylast=True)
    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """A section of its own, after the one with the tables."""
        if self.gate.report is None or not self.gate.report.tables:
            return
        unicode = takes_unicode(sys.stdout)
        advised = text.sentences(self.gate.report, self.weights, unicode=unicode)
        terminalreporter.section("ftgate advice", sep="=")
        terminalreporter.write(text.render(advised, width=terminalreporter._tw.fullwidth, unicode=unicode))
