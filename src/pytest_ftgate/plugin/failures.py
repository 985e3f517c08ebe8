"""Cells that failed in pytest's own sections: a line for each in its summary, each error once in its FAILURES."""

from __future__ import annotations

import copy
import os
import re
import shlex
import textwrap
from typing import Any

import pytest

from ..declare.options import table
from ..kit.hiding import without_secrets
from ..kit.text import plural, split_nodeid
from ..model.report import Row
from ..model.verdict import Decision
from ..report import said

ADDOPTS = "PYTEST_ADDOPTS"
UNCUT = ("CI", "BUILD_NUMBER")
"""Where one of these variables is set, pytest cuts no line of its summary."""


def set_message(report: pytest.TestReport, headline: str, place: tuple[str, int]) -> None:
    """Give a failure its message, for pytest's summary and JUnit, and its line, for --tb=line."""
    crash: Any = getattr(report.longrepr, "reprcrash", None)
    if crash is not None:
        crash.message = headline
        crash.path, crash.lineno = place


class Failures:
    """The reports of cells that failed, where pytest counts and prints them."""

    def __init__(self) -> None:
        self._same: dict[tuple[object, ...], tuple[pytest.TestReport, list[str]]] = {}
        """The first report of each error, and the node ids of the others."""

    def add(self, report: pytest.TestReport, row: Row) -> None:
        """Leave out of FAILURES what stands elsewhere: the verdicts below our tables, an error that is there already.

        Its line in the summary stays.
        """
        if row.verdict.decision is Decision.ERROR:
            first, others = self._same.setdefault(said.block_of(row), (report, []))
            if first is report:
                return
            others.append(report.nodeid)
        if row.verdict.decision is not Decision.XPASSED:
            report.__dict__["_pdbshown"] = True  # pytest's mark of a report that has been shown

    def finish(self, width: int) -> None:
        """Say of each error that is shown in which other cells it is the same."""
        for report, others in self._same.values():
            section: Any = getattr(report.longrepr, "addsection", None)
            if others and section is not None:
                test, _ = split_nodeid(report.nodeid)
                names = [each[len(test) + 1 : -1] if each.startswith(f"{test}[") else each for each in others]
                title = f"the same in {plural(len(others), 'other cell')}"
                text = said.few(names)
                section(title, textwrap.fill(text, width, break_on_hyphens=False, break_long_words=False))

    def make_room(self, reporter: pytest.TerminalReporter) -> None:
        """Shorten node ids in pytest's summary, where its lines are cut at the terminal's width: the figure stays."""
        config = reporter.config
        if config.get_verbosity() >= 2 or any(map(os.environ.get, UNCUT)):
            return
        failed = reporter.stats.get("failed", [])
        for at, report in enumerate(failed):
            message = getattr(getattr(report.longrepr, "reprcrash", None), "message", "")
            if getattr(report, "ftgate_decision", None) and message:
                _, _, word = config.hook.pytest_report_teststatus(report=report, config=config)
                room = reporter._tw.fullwidth - len(f"{word if isinstance(word, str) else word[0]}  - ")
                message = message.partition("\n")[0]
                figure, folder = said.shortened(message), config.invocation_params.dir
                file, separator, test = report.nodeid.partition("::")
                shown = os.path.relpath(config.rootpath / file, folder) + separator + test
                if len(shown) + len(message) > room:  # a copy, whose node id leaves the figure its room
                    left = room - min(len(figure) + len("...") * (figure != message), room // 2)
                    failed[at] = copy.copy(report)
                    # Where pytest was started elsewhere, it takes the node id for a path below the root.
                    name = shortened(shown, left)
                    failed[at].nodeid = name if folder == config.rootpath else str(folder / name)


def shortened(nodeid: str, room: int) -> str:
    """A node id within `room` columns: folders and the file give way, then the beginning of the test's name."""
    test, bracket, label = nodeid.partition("[")
    starts = [0, *(found.end() for found in re.finditer("/|::", test))]
    names = ("..." * (start > 0) + test[start:] + bracket + label for start in starts)
    return next((name for name in names if len(name) <= room), f"...{nodeid[len(nodeid) + 3 - room :]}")


# The command that repeats a run, and the options that a rerun of one cell needs.


def given(config: pytest.Config) -> tuple[str, ...]:
    """The options of the command line, and of `addopts`, that change what is measured of a cell."""
    words: list[str] = []
    # pytest takes the words of a variable for the command line's: who runs a cell again has it set, too.
    theirs = shlex.split(os.environ.get(ADDOPTS, ""))
    theirs += [part for word in theirs for part in (word.removeprefix("-o"), word.partition("=")[2])]
    for option in table():
        if option.ini_only:
            overridden = config.getoption("override_ini") or ()
            said = [word for word in overridden if word.partition("=")[0] == option.dest and word not in theirs]
            words += [part for word in said[-1:] for part in ("-o", word)]
            continue
        value = config.getoption(option.dest)
        if not option.of_a_cell or value in (None, False):
            continue
        values = value if isinstance(value, list) else [value]
        said = [option.cli if option.flag else f"{option.cli}={each}" for each in values if each not in theirs]
        words += [word for word in said if word not in theirs]
    return tuple(map(without_secrets, words))


def command(config: pytest.Config, seed: int) -> str:
    """The words of the user with the seed, after PYTEST_ADDOPTS as `NAME="$NAME"`.

    It is run from the root of the project.
    """
    words = [os.fspath(each) for each in config.invocation_params.args]
    if not any(word.startswith("--ftgate-seed") for word in words):
        words += ["--ftgate-seed", str(seed)]
    variables = [f'{ADDOPTS}="${ADDOPTS}"'] if ADDOPTS in os.environ else []
    folder, root = config.invocation_params.dir, config.rootpath
    there = ["cd", shlex.quote(str(folder.relative_to(root))), "&&"] if root in folder.parents else []
    return " ".join([*there, *variables, shlex.join(["pytest", *words])])
