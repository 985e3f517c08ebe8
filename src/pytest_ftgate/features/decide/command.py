"""`ftgate decide`: which executor on which interpreter, from the last run or from stored baselines."""

from __future__ import annotations

import argparse
import shutil

from ...declare.options import weight
from ...hookspec import Subparsers
from ...model.report import Criterion
from ...store.names import named
from ..baseline import NAMES
from ..last_run import FINE, last_run, nothing, options, store, unicode
from . import rank, sentences

PLACES = ("run", "baselines")


def add(subparsers: Subparsers) -> None:
    text = "name the best executor and interpreter, by the figures of the last run or of stored baselines"
    parser = subparsers.add_parser("decide", help=text, description=f"{text[0].upper()}{text[1:]}.", exits=(3,))
    parser.add_argument("tests", metavar="TEST", nargs="*", help=f"tests: {NAMES} (default: all)")
    parser.add_argument(
        "--from",
        dest="place",
        choices=PLACES,
        help="take the figures only from there (default: the last run, and baselines for tests that it lacks)",
    )
    parser.add_argument(
        "--weight",
        type=_weight,
        action="append",
        default=[],
        metavar="NAME=NUMBER",
        help="trade time for memory, such as --weight time=1 --weight memory=0.5 (default: the ini's ftgate_weights)",
    )
    parser.add_argument("-v", "--verbose", action="store_true", help="add contention, scaling and memory to the advice")
    parser.add_argument("--json", action="store_true", help="print the figures behind the sentences as JSON")
    parser.set_defaults(run=decide)


def _weight(text: str) -> tuple[Criterion, float]:
    try:
        return weight(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"takes {error}") from None


def decide(args: argparse.Namespace) -> int:
    """Print the advice on the tests named; 3 where nothing is known of them. Raises FtgateError."""
    weights = tuple(args.weight) or options().weights
    report = last_run() if args.place != "baselines" else None
    stored = list(store().baselines()) if args.place != "run" else []
    if report is None and not stored:
        return nothing("nothing was measured yet, and no baseline is stored: run pytest --ftgate first")

    # The last run, and the baselines of the tests that it did not measure.
    found = {} if report is None else {each.test: each for each in rank.of_report(report, weights)}
    for each in stored:
        if each.test not in found or not found[each.test].choices:
            # On the machine of the run where it has recordings, else on the one that recorded last.
            recorded = (
                (cell.recordings[-1].recorded_at, key.partition("/")[0])
                for builds in each.cells.values()
                for key, cell in builds.items()
            )
            here = report.machine.fingerprint if report is not None else ""
            fingerprint = here if here in each.machines else max(recorded, default=("", ""))[1]
            kept = rank.of_stored(each, fingerprint, weights) if fingerprint else None
            found |= {each.test: kept} if kept else {}
    if args.tests:
        chosen = {test for name in args.tests for test in named(name, found)}
        found = {test: advice for test, advice in found.items() if test in chosen}

    if not found:
        where = {"run": "the last run", "baselines": "the baselines"}.get(args.place, "the last run and the baselines")
        tests = ", ".join(args.tests)
        return nothing(f"{where} have no test {tests}: see ftgate baseline list, or run pytest --ftgate on it")
    if args.json:
        print(sentences.as_json(found.values()))
    else:
        said = map(sentences.said, found.values())
        width = shutil.get_terminal_size().columns
        print(sentences.render(said, width, unicode=unicode(), verbose=args.verbose), end="")
    return FINE
