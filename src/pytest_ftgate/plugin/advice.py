"""`--ftgate-decide`: what the figures of the run speak for, at its end."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import pytest

from ..declare import options
from ..hookspec import hookimpl
from ..kit.errors import FtgateError
from ..kit.text import takes_unicode
from ..report import advice

if TYPE_CHECKING:
    from .gate import Run


@hookimpl
def ftgate_configure(gate: Run) -> None:
    """Only where it is asked for."""
    if gate.config.getoption("ftgate_decide"):
        gate.config.pluginmanager.register(Summary(gate.config, gate))


class Summary:
    """Prints the advice after the tables of a run."""

    def __init__(self, config: pytest.Config, run: Run) -> None:
        self.run = run
        option = options.by_name("decide")
        try:
            # The command line only asks for it: the weights are those of the environment or the ini.
            self.weights = options.resolve(option, None, os.environ, config.getini(option.dest))
        except FtgateError as error:
            raise pytest.UsageError(str(error)) from None

    @pytest.hookimpl(trylast=True)
    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """A section of its own, after the one with the tables."""
        if self.run.report is None or not self.run.report.tables:
            return
        unicode = takes_unicode(sys.stdout)
        advised = advice.sentences(self.run.report, self.weights, unicode=unicode)
        terminalreporter.section("ftgate advice", sep="=")
        terminalreporter.write(advice.render(advised, width=terminalreporter._tw.fullwidth, unicode=unicode))
