"""`ftgate merge`: what several jobs left, joined: reports of shards, JUnit files, or folders of baselines."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from ..judge import joining
from ..kit.errors import FtgateError
from ..model.verdict import Decision
from ..report import said
from ..store.joining import join
from .last_run import FINE, NOTHING_FOUND, REGRESSED, add_rootdir, nothing, read, store
from .report import add_forms, checked, command, show, write

if TYPE_CHECKING:
    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]


def register(subparsers: Subparsers) -> None:
    """Add `ftgate merge` to the command line."""
    parser = subparsers.add_parser(
        "merge",
        help="join reports of shards, JUnit files, or baselines that several jobs recorded",
        description="Join the JSON reports of all shards of a run (--ftgate-shard) into one and show it. A shard that "
        "is missing, or a cell that was measured twice, is an error. Exits with 1 if a cell fails the run, and with 3 "
        "if the report is partial or (almost) nothing was decided. JUnit files, of --ftgate-report junit:PATH or of "
        "pytest's --junit-xml, are joined into the file of -o: a case that was run in two of them is an error; one "
        "that was skipped in some is taken from the file in which it was run. What folders of baselines have in "
        "addition to this project's is added.",
    )
    parser.add_argument(
        "sources", metavar="PATH", nargs="+", type=Path, help="a JSON report, a JUnit file, or a folder of baselines"
    )
    parser.add_argument("-o", "--output", metavar="OUT", type=Path, help="the joined report as JSON, or as JUnit")
    parser.add_argument("--partial", action="store_true", help="join the reports that there are: exits with 3, or 1")
    add_forms(parser)
    add_rootdir(parser)
    parser.add_argument("--baselines", type=Path, metavar="DIR", help="where recordings go (default: as in a run)")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Join what is given, by its kind. Raises FtgateError."""
    kinds: dict[str, Path] = {}
    for path in args.sources:
        kinds.setdefault(_kind(path), path)
    if len(kinds) > 1:
        found = ", ".join(f"{path} is a {kind}" for kind, path in kinds.items())
        raise FtgateError(f"only sources of one kind can be joined: {found}")
    if "folder" in kinds:
        print("\n".join(join(store(args), args.sources)))
        return FINE
    if "JSON report" in kinds:
        return _reports(args)
    from . import merge_junit

    return merge_junit.merge(args.sources, args.output)


def _kind(path: Path) -> str:
    if path.is_dir():
        return "folder"
    try:
        with path.open("rb") as file:
            began = file.read(64)
    except OSError as error:
        raise FtgateError(f"{path}: cannot be read: {error.strerror}") from None
    return "JSON report" if began.lstrip()[:1] in (b"{", b"[") else "JUnit file"


def _reports(args: argparse.Namespace) -> int:
    """Show the joined report, write its files, and say how it was judged; its exit code is that of a run."""
    output = [f"json:{args.output}"] if args.output else []
    targets = checked([*output, *args.to])
    reports = {str(path): read(path) for path in _once(args.sources)}
    joined = joining.joined(reports, partial=args.partial)
    words = [*(["--partial"] if args.partial else []), *reports]
    joined = msgspec.structs.replace(joined, command=command("merge", *words))
    show(joined, args.verbose)
    write(joined, targets)
    print(joining.budget(reports.values()))
    if joined.failing:
        return REGRESSED
    if joined.partial or said.undecided(joined):
        return NOTHING_FOUND
    if joined.rows and all(row.verdict.decision is Decision.UNSUPPORTED for row in joined.rows):
        return nothing("nothing was measured: every cell is unsupported on its machine")
    return FINE


def _once(paths: Sequence[Path]) -> list[Path]:
    twice = next((path for number, path in enumerate(paths) if path in paths[:number]), None)
    if twice:
        raise FtgateError(f"{twice} is given twice")
    return list(paths)
