"""`--ftgate-decide`: what the figures of the run speak for, at its end."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from ...hookspec import hookimpl
from ...kit.text import takes_unicode
from ...plugin.options import options_of
from . import sentences

if TYPE_CHECKING:
    from ...plugin.gate import Gate


@hookimpl
def ftgate_configure(gate: Gate) -> None:
    if gate.config.getoption("ftgate_decide"):
        gate.config.pluginmanager.register(AdvicePrinter(gate))


class AdvicePrinter:
    """Prints the advice after the tables of a run."""

    def __init__(self, gate: Gate) -> None:
        self.gate = gate

    @pytest.hookimpl(trylast=True)
    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self.gate.report is None or not self.gate.report.tables:
            return
        advised = sentences.of_report(self.gate.report, options_of(self.gate.config).decide)
        terminalreporter.section("ftgate advice", sep="=")
        width, unicode = terminalreporter._tw.fullwidth, takes_unicode(sys.stdout)
        terminalreporter.write(sentences.render(advised, width, unicode=unicode))
