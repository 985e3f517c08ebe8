"""`ftgate demo`: scenario 1, what starting workers costs, on the interpreters of this machine."""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ..declare.option_types import seconds
from ..errors import FtgateError
from ..model import Interpreter, Report, Row
from ..model.targets import parse_target
from ..pythons import InterpreterNotFound, default_pair, find_interpreter
from ..report import json, units
from . import unicode
from .templates import fill

if TYPE_CHECKING:
    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]

METHODS: Final = ("fork", "forkserver", "spawn")
WORKERS: Final = 8
TIME: Final = "60s"
ITERATIONS: Final = "3"
"""Few, so that a round is short even if processes start slowly."""
ROUND_S: Final = 30.0
"""About how long a round of all cells takes on two idle cores; the number of rounds follows from it."""
TEST: Final = "test_starting_workers.py"
REPORT: Final = "report.json"
PATIENCE_S: Final = 15.0
"""How long pytest may take to end its launches after Ctrl-C."""
NOTHING_RAN: Final = 5
"""pytest's exit code where nothing was measured."""


def register(subparsers: Subparsers) -> None:
    """Add `ftgate demo` to the command line."""
    parser = subparsers.add_parser(
        "demo",
        help="measure what starting workers costs here, in about a minute",
        description=f"Measure {WORKERS} threads and as many processes by each start method, on the interpreters of "
        "this machine, in a temporary folder, and summarize the figures. Exits with 0 unless something failed.",
    )
    parser.add_argument("--python", action="append", metavar="SPEC", help="a target such as 3.14t (repeatable)")
    parser.add_argument("--time", type=_time, default=TIME, metavar="TIME", help=f"time to measure (default: {TIME})")
    parser.add_argument("--keep", action="store_true", help="keep the folder with the test and the report")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Measure, print pytest's table and a summary; 0, or 2 if something failed, or 3 if nothing was measured.

    Raises FtgateError; KeyboardInterrupt after pytest has ended and the folder is gone.
    """
    found = interpreters(args.python)
    with _folder(keep=args.keep) as folder:
        write_project(folder, found)
        print(
            f"{WORKERS} workers are started, do a small loop of work, and are joined: measured for about {args.time} on"
        )
        print("\n".join(f"  {spec}: {each.name} ({each.build})" for spec, each in found.items()), flush=True)
        code = _pytest(folder, command(found, args.time))
        report = folder / REPORT
        if code or not report.is_file():
            print(f"\nthe demo failed: pytest ended with {code}; --keep keeps its folder", file=sys.stderr)
            return 3 if code == NOTHING_RAN else 2
        lines = shows(json.parse(report.read_bytes(), origin=str(report)))
        if not lines:
            print(f"\nnothing was measured within {args.time}: give more with --time", file=sys.stderr)
            return 3
        print("\n" + "\n".join(lines))
    print("\nnext: `ftgate init` in a project of yours writes a first test, its configuration and a CI workflow.")
    return 0


# -- what is measured ----------------------------------------------------------------------------------------------


def interpreters(asked: Sequence[str] | None) -> dict[str, Interpreter]:
    """The targets to measure: those asked for, else both builds of the newest version here, else this interpreter.

    Says which of the usual two is missing. Raises InterpreterNotFound, TargetError for one that was asked for, and
    FtgateError where there is no interpreter that can be measured.
    """
    if asked:
        return {spec: find_interpreter(parse_target(spec)) for spec in asked}
    pair = default_pair().targets
    found = _here(pair)
    missing = [spec for spec in pair if spec not in found]
    if missing:
        print(f"not installed: {', '.join(missing)}; `ftgate pythons` installs them")
    found = found or _this_one()
    if len(found) == 1:
        print(f"only {next(iter(found))} is installed: builds cannot be compared")
    return found


def _here(specs: Sequence[str]) -> dict[str, Interpreter]:
    found = {}
    for spec in specs:
        with contextlib.suppress(InterpreterNotFound):
            found[spec] = find_interpreter(parse_target(spec))
    return found


def _this_one() -> dict[str, Interpreter]:
    try:
        return {sys.executable: find_interpreter(parse_target(sys.executable))}
    except InterpreterNotFound as error:
        raise FtgateError(f"found no interpreter to measure: {error}\n  fix: run `ftgate pythons`") from error


def write_project(folder: Path, found: Mapping[str, Interpreter]) -> None:
    """The test and its configuration; only start methods that every interpreter has."""
    methods = [name for name in METHODS if all(name in each.start_methods for each in found.values())]
    named = ", ".join(f'"{name}"' for name in methods)
    (folder / TEST).write_text(fill("demo.txt", methods=named, workers=WORKERS), encoding="utf-8")
    (folder / "pytest.ini").write_text("[pytest]\nftgate_install =\n", encoding="utf-8")


def command(found: Mapping[str, Interpreter], time: str) -> list[str]:
    """The pytest command line: with our plugin alone, whatever else is installed."""
    targets = [word for spec in found for word in ("--ftgate-python", spec)]
    plugins = ["-p", "pytest_ftgate.plugin.hooks", "-p", "no:cacheprovider"]
    launches = max(1, round(seconds(time) / ROUND_S))
    end = f"{2 * launches * ROUND_S:.0f}s"  # a slow machine is to have its rounds, too
    limits = ["--ftgate-test-time", end, "--ftgate-launches", str(launches), "--ftgate-iterations", ITERATIONS]
    options = ["--ftgate", *limits, "--ftgate-report", f"json:{REPORT}"]
    return [sys.executable, "-m", "pytest", "-q", *plugins, *options, *targets, TEST]


def _time(text: str) -> str:
    try:
        seconds(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"give {error}") from None
    return text


# -- running it ----------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _folder(*, keep: bool) -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="ftgate-demo-"))
    try:
        yield folder
    finally:
        if keep:
            print(f"\nthe files are in {folder}: {TEST}, pytest.ini and {REPORT}")
        else:
            shutil.rmtree(folder, ignore_errors=True)


def _pytest(folder: Path, words: Sequence[str]) -> int:
    """The exit code of pytest. After an interruption it gets one SIGINT and time to end what it started."""
    ignored = ("FTGATE", "PYTEST_")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(ignored)}
    environment["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    # In a group of its own: the terminal's Ctrl-C reaches this process alone, which passes it on.
    with (
        _ended_by_signals(),
        subprocess.Popen(words, cwd=folder, env=environment, stdin=subprocess.DEVNULL, process_group=0) as process,
    ):
        try:
            return process.wait()
        except KeyboardInterrupt:
            _end(process)
            raise


def _end(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGINT)
    try:
        process.wait(PATIENCE_S)
    except (subprocess.TimeoutExpired, KeyboardInterrupt):
        process.kill()


@contextlib.contextmanager
def _ended_by_signals() -> Iterator[None]:
    """Treat SIGTERM and SIGHUP as Ctrl-C, so that no process and no folder stays.

    SIGINT is set as well: pytest would inherit it as ignored from a process that was started so.
    """
    names = [signal.SIGINT, signal.SIGTERM, *([signal.SIGHUP] if hasattr(signal, "SIGHUP") else [])]
    before = {name: signal.signal(name, signal.default_int_handler) for name in names}
    try:
        yield
    finally:
        for name, handler in before.items():
            signal.signal(name, handler)


# -- what it shows -------------------------------------------------------------------------------------------------


def shows(report: Report) -> list[str]:
    """A summary of the table: each interpreter's threads and processes, then threads of both builds.

    Empty if nothing was measured.
    """
    rows = [row for row in report.rows if row.figures.wall_ns is not None]
    targets = list(dict.fromkeys(row.cell.target.spec for row in rows))
    lines = []
    for spec in targets:
        lines += _of_target(spec, [row for row in rows if row.cell.target.spec == spec])
    if not lines:
        return []
    lines += _of_builds([row for row in rows if row.cell.executor.kind == "threads"])
    lines.append('  Each iteration starts new workers; reuse="pool" starts them once.')
    lines.append("  Nothing was gated: there is no baseline and no commit to compare with.")
    return ["Summary for this machine:", *lines]


def _of_target(spec: str, rows: Sequence[Row]) -> list[str]:
    by_name: dict[str, Row] = {row.cell.executor.method or row.cell.executor.kind: row for row in rows}
    threads = by_name.pop("threads", None)
    if threads is None or not by_name:
        return []
    wall_ns = _wall_ns(threads)
    times = ", ".join(f"{name} {units.ratio(_wall_ns(row) / wall_ns)}" for name, row in by_name.items())
    taken = units.time(wall_ns, unicode=unicode())
    lines = [f"  {spec}: {WORKERS} threads take {taken}; processes instead: {times}."]
    sizes = {name: row.figures.uss_bytes for name, row in by_name.items() if row.figures.uss_bytes}
    if sizes and threads.figures.uss_bytes:
        name, largest = max(sizes.items(), key=lambda item: item[1])
        shown = f"{units.size(threads.figures.uss_bytes)} with threads, {units.size(largest)} with {name}"
        lines.append(f"  {'':{len(spec)}}  Private memory (USS): {shown}.")
    return lines


def _of_builds(threads: Sequence[Row]) -> list[str]:
    """Threads with the GIL and without it, by what the interpreters said they ran with."""
    held = next((row for row in threads if row.figures.gil_enabled), None)
    free = next((row for row in threads if row.figures.gil_enabled is False), None)
    if held is None or free is None:
        return []
    ratio = units.ratio(_wall_ns(free) / _wall_ns(held))
    cores = [units.cores(row.figures.cores) for row in (free, held) if row.figures.cores]
    used = f" ({cores[0]} cores in use against {cores[1]})" if len(cores) == 2 else ""
    names = f"{free.cell.target.spec}, without the GIL,", f"{held.cell.target.spec}, with it"
    return [f"  Threads on {names[0]} take {ratio} the time of {names[1]}{used}."]


def _wall_ns(row: Row) -> float:
    assert row.figures.wall_ns is not None
    return row.figures.wall_ns.value
