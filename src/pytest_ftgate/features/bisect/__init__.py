"""`ftgate bisect`: which commit made a cell slower."""

from __future__ import annotations

import argparse
import shlex
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from ...declare.options import seconds
from ...hookspec import Subparsers, hookimpl
from ...kit.errors import FtgateError
from ...kit.files import write_whole
from ...kit.git import AgainstError, Repository, shown
from ...kit.hiding import HIDDEN
from ...kit.text import plain, plural
from ...kit.values import Struct
from ...model.report import Report, Row
from ...model.verdict import Decision
from ...report import json, reasons, said
from ..last_run import FINE, LAST_RUN, last_run, no_run, nothing, project, read
from . import steps
from .search import Search
from .steps import Step

if TYPE_CHECKING:
    from ...run.run import Run

LOG: Final = Path(".ftgate") / "bisect.log"
PROBE: Final = Path(".ftgate") / "bisect-run.json"
LOWER: Final = 1 / 3
UPPER: Final = 2 / 3
"""A state is good below, and bad above, these parts of the change (of its logarithm)."""
LARGE: Final = 30.0
"""A change beyond it is looked for as this one: a limit is below 1000 %."""
TRIES: Final = 2
"""Undecided runs of a state before it counts as unknown."""


class Watched(Struct, frozen=True):
    """The cell that got worse between two commits: in a metric by a factor, or, without one, by its verdict."""

    good: str
    bad: str
    nodeid: str
    metric: str = ""
    worse: float = 1.0
    decision: Decision = Decision.REGRESSED
    words: tuple[str, ...] = ()
    """Arguments of pytest for each measurement."""


class OutOfTimeError(Exception):
    """No time is left for another run."""


# ---- the goal of the search


def worst(report: Report, nodeid: str | None = None) -> Row | None:
    """The worst cell, or the one of this name, that fails and was compared with a commit."""
    rows = [row for row in report.rows if row.verdict.commit and row.verdict.decision.fails]
    wanted = [row for row in rows if nodeid in (None, row.cell.nodeid)]
    return min(wanted, key=lambda row: said.place(report, row), default=None)


def what_to_watch(row: Row, good: str, bad: str, words: Sequence[str] = ()) -> Watched:
    """Choose what tells good states from bad ones: the metric that regressed most, or the verdict."""
    judged = [each for each in row.verdict.metrics if each.decision.worse and not each.contract]
    sizes = {each.metric: max(each.ratio.value, 1 / each.ratio.value) for each in judged if each.ratio}
    metric = max(sizes, key=lambda name: sizes[name], default="")
    options = [word for word in row.options if not word.startswith(said.AGAINST.strip())]
    if hidden := [word for word in options if HIDDEN in word]:
        raise FtgateError(f"the last run was given a secret, which is not kept: give {hidden[0]} by a variable")
    return Watched(good, bad, row.cell.nodeid, metric, sizes.get(metric, 1.0), row.verdict.decision, (*options, *words))


def answer(watched: Watched, report: Report) -> tuple[bool | None, str]:
    """Whether a run found its state bad, None if it did not decide, and its figure or reason."""
    row = next((row for row in report.rows if row.cell.nodeid == watched.nodeid), None)
    if row is None:
        return None, "not measured"
    judged = next((each for each in row.verdict.metrics if each.metric == watched.metric), None)
    decision = row.verdict.decision if judged is None or row.verdict.decision is Decision.ERROR else judged.decision
    text = (judged and said.change_text(judged)) or plain(reasons.of_cell(row.verdict)).partition("\n")[0]
    bad: bool | None = None
    if decision is Decision.ERROR:  # of another kind than what is searched: the state cannot be measured
        bad = True if watched.decision is Decision.ERROR else None
    elif decision.worse or decision in (Decision.BROKEN, Decision.ACCEPTED):
        bad = True
    elif decision.good:
        bad = False
    return bad, text


# ---- the search


class Runs:
    """Measures states by runs of pytest, which check out both commits below `.ftgate`: HEAD stays where it is."""

    def __init__(self, root: Path, watched: Watched, until: float | None) -> None:
        """`until` is a time of the monotonic clock in s."""
        self.root, self.watched, self.until = root, watched, until

    def compare(self, reference: str, commit: str) -> tuple[bool | None, str]:
        """Measure a state: whether it is bad, and its figure or reason. Raises OutOfTimeError, FtgateError."""
        watched = self.watched
        lower, upper = (min(watched.worse, LARGE) ** part - 1 for part in (LOWER, UPPER))
        limit = f"{watched.metric}: margin={lower:.2%}, effect={upper:.2%}"
        gate = ["--ftgate-metrics", watched.metric, "--ftgate-limit", limit] if watched.metric else []
        return answer(watched, self.pytest(reference, commit, *gate, "-oftgate_explain=no"))

    def pytest(self, reference: str, commit: str, *words: str) -> Report:
        """The report of a run that compares two commits. Raises OutOfTimeError, FtgateError."""
        left = [] if self.until is None else [f"--ftgate-time={max(0.0, self.until - time.monotonic()):.0f}s"]
        if left == ["--ftgate-time=0s"]:
            raise OutOfTimeError
        words = (f"--ftgate-against={reference}..{commit}", f"--ftgate-report=json:{PROBE}", *left, *words)
        command = [sys.executable, "-m", "pytest", self.watched.nodeid, *self.watched.words, *words]
        (self.root / PROBE).unlink(missing_ok=True)
        with (self.root / LOG).open("a", encoding="utf-8") as log:
            print(f"$ {shlex.join(command)}", file=log, flush=True)
            code = subprocess.run(command, cwd=self.root, stdout=log, stderr=log).returncode
        if not (self.root / PROBE).exists():
            raise FtgateError(f"pytest ended with {code} and left no report: see {LOG}")
        return read(self.root / PROBE)


# ---- the command


@hookimpl
def ftgate_commands(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser(
        "bisect",
        help="find the commit that made a cell slower",
        description="Find the commit that made the worst cell of the last run slower (or fail), by a binary search "
        "of paired comparisons that allows for wrong verdicts. Your checkout stays as it is. Exits with 3 if "
        "nothing is found.",
        exits=(3,),
    )
    parser.add_argument("good", nargs="?", metavar="GOOD", help="default: the reference of the last run")
    parser.add_argument("bad", nargs="?", metavar="BAD", help="default: the working tree")
    parser.add_argument("--cell", metavar="ID", help="a cell that failed in the last run (default: the worst)")
    parser.add_argument("--time", metavar="TIME", help="time of all runs, for example 20m")
    parser.add_argument("--pytest", default="", metavar="WORDS", help="more arguments for pytest")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Search, print each answer, and note the result in the report of the last run. Raises FtgateError."""
    try:
        until = None if args.time is None else time.monotonic() + seconds(args.time)
    except ValueError as error:
        raise FtgateError(f"--time takes {error}") from None
    root = project().rootpath
    report = last_run()

    # 1. What got worse, and the steps between both commits.
    if report is None:
        return no_run("pytest --ftgate-against=REV")
    row = worst(report, args.cell)
    if row is None:
        of = f", named {args.cell}," if args.cell else ""
        return nothing(f"no cell of the last run{of} failed against a commit: run pytest --ftgate-against=REV first")
    repository = Repository(root)
    good, bad = steps.ends(repository, args.good or row.verdict.commit, args.bad or "HEAD")
    path = steps.commits(repository, good, bad)
    if not args.bad and (edits := steps.working_tree(root, root / ".ftgate")):
        path.append(edits)
    if not path:
        return nothing(f"no commit lies between {shown(good)} and {shown(bad)}")

    # 2. The search; runs leave reports of their own, and the last run's stays.
    wanted = what_to_watch(row, good, path[-1].commit, shlex.split(args.pytest))
    runs = Runs(root, wanted, until)
    _say(f"{wanted.nodeid}: {plural(len(path), 'step')} from {shown(good)} to {path[-1].text}")
    kept = (root / LAST_RUN).read_bytes()
    try:
        found = guilty(path, runs)
    except OutOfTimeError:
        return nothing("the time is over before one step was found: give more with --time")
    finally:
        write_whole(root / LAST_RUN, [kept])

    # 3. The result, here and in the report of the last run.
    for line in found:
        _say(line)
    tables = (
        msgspec.structs.replace(table, note="; ".join(filter(None, (table.note, f"ftgate bisect: {', '.join(found)}"))))
        if any(each.cell == row.cell for each in table.rows)
        else table
        for table in report.tables
    )
    write_whole(root / LAST_RUN, [json.render(msgspec.structs.replace(report, tables=tuple(tables))).encode()])
    return FINE


def guilty(path: Sequence[Step], runs: Runs) -> list[str]:
    """Search over the steps, and measure the guilty one alone; the result in lines."""
    good = runs.watched.good
    search, undecided = Search(len(path)), Counter[int]()
    while (number := search.next({each for each, tries in undecided.items() if tries >= TRIES})) is not None:
        bad, text = runs.compare(good, path[number].commit)
        word = {True: "bad", False: "good", None: "unknown"}[bad]
        _say(f"  {word:8}{path[number].text}{f': {text}' if text else ''}")
        if bad is None:
            undecided[number] += 1
        else:
            search.learn(number, bad)
    found, probability = search.guilty, f"probability {100 * search.probability(search.guilty):.1f} %"
    if len(found) > 1:
        return [f"guilty: one of {'; '.join(path[each].text for each in found)}", probability]
    # By how much, and in which function: measured against the step before it.
    step, before = path[found[0]], path[found[0] - 1].commit if found[0] else good
    report = runs.pytest(before, step.commit)
    alone = next((row for row in report.rows if row.cell.nodeid == runs.watched.nodeid), None)
    sentences = [] if alone is None else [said.headline(alone), *said.explained(alone.explanation)]
    return [f"guilty: {step.text}", probability, *sentences]


def _say(line: str) -> None:
    print(plain(line), flush=True)


@hookimpl
def ftgate_finish(run: Run, report: Report) -> Iterable[str]:
    """Name the command that finds the commit if several may have made a cell worse."""
    row = worst(report)
    if row is None or report.partial or ".." in run.config.reference:
        return
    try:
        repository = Repository(run.folder.root)
        good, bad = steps.ends(repository, row.verdict.commit, "HEAD")
        between = len(steps.commits(repository, good, bad)) + report.commit.endswith("+")
    except AgainstError:
        return
    if between > 1:
        yield f"{between} commits lie between {shown(good)} and this: ftgate bisect finds the one"
