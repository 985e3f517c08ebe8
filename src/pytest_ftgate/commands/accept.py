"""`ftgate accept`: write the trailer of a commit by which a regression passes review."""

from __future__ import annotations

import argparse
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ..judge import acceptance
from ..kit.errors import FtgateError
from ..kit.git import AgainstError, Repository
from ..kit.text import listed, plain
from ..model.report import Row
from ..report import said
from ..store.names import matches, named
from . import unicode
from .last_run import FINE, add_rootdir, last_run, no_run, nothing, read, rootdir

if TYPE_CHECKING:
    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]

DESCRIPTION = (
    "Accept a regression of the last run that is meant: makes an empty commit whose trailer names the cells, the "
    "metric and the reason. Reviewers see it in the commit and in every report; nothing is stored. To store the last "
    "run's figures as the new baseline, use ftgate baseline accept."
)


def register(subparsers: Subparsers) -> None:
    """Add `ftgate accept` to the command line."""
    text = "accept a regression by a commit's trailer (ftgate baseline accept stores figures)"
    parser = subparsers.add_parser("accept", help=text, description=DESCRIPTION)
    parser.add_argument("cells", metavar="CELLS", help="a node id, a test's, or either with * and ?; [ and ] are plain")
    parser.add_argument("metric", metavar="METRIC", help="what regressed, such as wall; several with commas")
    parser.add_argument("reason", metavar="REASON", help="why it is meant, in a line")
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--amend", action="store_true", help="add the trailer to the last commit, unless it was pushed")
    how.add_argument("--print", dest="only_print", action="store_true", help="print the trailer and commit nothing")
    parser.add_argument(
        "--report", type=Path, metavar="FILE", help="a JSON report in place of the last run's, as of CI"
    )
    add_rootdir(parser)
    parser.set_defaults(run=accept)


def accept(args: argparse.Namespace) -> int:
    """Write the trailer; 3 without a run, or if it would accept nothing in it. Raises FtgateError."""
    names = tuple(dict.fromkeys(args.metric.split(",")))
    trailer = acceptance.written(args.cells, names, args.reason)
    report = read(args.report) if args.report else last_run(args)
    if report is None:
        return no_run(args)
    rows = report.rows
    chosen = [row for row in rows if matches(args.cells, row.cell.nodeid)]
    if not chosen:
        return nothing(_unknown(args.cells, rows))
    for name in names:
        if not any(_regressed(row, name) for row in chosen):
            return nothing(_not_regressed(args.cells, name, rows))
    if args.only_print:
        print(trailer)
        return FINE
    commit = _amended(rootdir(args), trailer) if args.amend else _committed(rootdir(args), args.cells, names, trailer)
    print(plain(f"commit {said.commit(commit)}: {trailer}"))
    for line in _effects(rows, chosen, names):
        print(plain(line))
    return FINE


# ---- what the last run says


def _unknown(cells: str, rows: Sequence[Row]) -> str:
    """That no cell matches, with those that were meant, perhaps."""
    try:
        meant = named(cells, [row.cell.nodeid for row in rows])
    except FtgateError as error:
        return str(error)
    hint = f"; write the whole node id, or a pattern: {listed(meant[:3])}" if meant else ""
    return f"the run has no cell {cells}{hint}; nothing was written"


def _not_regressed(cells: str, name: str, rows: Sequence[Row]) -> str:
    regressed = [row.cell.nodeid for row in rows if _regressed(row, name)]
    hint = f"; {name} regressed in {listed(regressed[:3], 'and')}" if regressed else ""
    return f"{name} of {cells} did not regress in the run{hint}; nothing was written"


def _regressed(row: Row, name: str) -> bool:
    """Whether a trailer of this metric has something to accept in a row."""
    return any(acceptance.covers(name, each.metric) and acceptance.acceptable(each) for each in row.verdict.metrics)


def _effects(rows: Sequence[Row], chosen: Sequence[Row], names: Sequence[str]) -> Iterator[str]:
    """A line for each change that is accepted from now on, and for each that still fails."""
    for row in rows:
        for each in row.verdict.metrics:
            named_here = row in chosen and any(acceptance.covers(name, each.metric) for name in names)
            accepted = named_here and acceptance.acceptable(each)
            if accepted or each.decision.missed:
                found = said.change(each, row, unicode=unicode())
                word = "accepts" if accepted else "still fails"
                yield f"{word} {row.cell.nodeid}: {each.contract or found.label} {found.change}".rstrip()


# ---- commits


def _committed(root: Path, cells: str, names: Sequence[str], trailer: str) -> str:
    """An empty commit; what is staged stays staged."""
    subject = f"Accept the change of {listed(names, 'and')} in {cells}"
    return _commit(root, "--allow-empty", "-m", subject, "-m", trailer)


def _repository(root: Path) -> Repository:
    try:
        return Repository(root)
    except AgainstError:
        raise FtgateError(f"{root} is in no git repository; with --print the trailer is printed") from None


def _amended(root: Path, trailer: str) -> str:
    repository = _repository(root)
    holding = repository.git("for-each-ref", "--contains=HEAD", "--format=%(refname:short)", "refs/remotes").split()
    if holding:
        raise FtgateError(
            f"--amend: the last commit is on {holding[0]} already, and amending it would rewrite what was pushed; "
            "leave --amend out, and an empty commit has the trailer"
        )
    return _commit(root, "--amend", "--allow-empty", "--no-edit", "--trailer", trailer)


def _commit(root: Path, *arguments: str) -> str:
    """The new HEAD, made by the user's own git: with their name, their hooks and their signature."""
    repository = _repository(root)
    before = repository.commit("HEAD")
    done = subprocess.run(["git", "commit", "--quiet", "--only", *arguments], cwd=root)
    after = repository.commit("HEAD")
    if done.returncode or after is None or after == before:
        raise FtgateError("git made no commit, see above; with --print the trailer is printed, for a commit of yours")
    return after
