"""`ftgate pythons`: find or install the target interpreters, and say which."""

from __future__ import annotations

import argparse
import contextlib
import math
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final, TextIO

from ..hookspec import Subparsers, hookimpl
from ..kit import units
from ..kit.errors import FtgateError
from ..kit.processes import run_within
from ..model.spec import Interpreter, Target, is_path, parse_target
from ..targets.describe import FOUND, describe
from ..targets.environments import find_uv, required_python, uv_environment
from ..targets.find import InterpreterNotFound, cache_folder, default_pair, find_interpreter, kept_folder
from .last_run import FINE, NOTHING_FOUND

PLAIN_LINE_EVERY_S: Final = 15.0
TERMINAL_LINE_EVERY_S: Final = 0.2
UV_TIMEOUT_S: Final = 900.0


@hookimpl
def ftgate_commands(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser(
        "pythons",
        help="find or install the target interpreters",
        description="Find each target on PATH, in the user's cache folder or by uv, else install it with uv into that "
        "folder, else report what is missing.",
        exits=(3,),
    )
    parser.add_argument("--python", action="append", metavar="TARGET", help="a version such as 3.14t (repeatable)")
    parser.add_argument("--strict", action="store_true", help="exit with 3 when a default target is missing, too")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Provide each target in turn; 3 if one is missing that was named, or under --strict. Raises TargetError."""
    specs = args.python
    if not specs:
        pair = default_pair(required_python(Path.cwd()))
        print(f"targets: {' and '.join(pair.targets)}: {pair.why}", flush=True)
        specs = pair.targets
    targets = [parse_target(spec) for spec in specs]
    missing = []
    for target in targets:
        with install_progress(target.spec, sys.stdout) as progress:
            interpreter, did, notes = provide(target, progress=progress)
        print(outcome_text(target.spec, interpreter, did, notes), flush=True)
        if interpreter is None:
            missing.append(target.spec)
    if missing:
        print(f"WARNING: no interpreter for {', '.join(missing)}: cells that need it are unsupported", flush=True)
    return NOTHING_FOUND if missing and (args.strict or args.python) else FINE


def outcome_text(spec: str, interpreter: Interpreter | None, did: str, notes: Sequence[str]) -> str:
    """The outcome for a target as text: one line, with its notes indented below."""
    head = f"{spec}: {did}"
    if interpreter is not None:
        head += f": {interpreter.executable} ({interpreter.name}, {interpreter.build})"
    return "\n".join([head, *(f"  {line}" for note in notes for line in note.splitlines())])


def provide(
    target: Target, *, cache: Path | None = None, progress: Callable[[str], None] = lambda _: None
) -> tuple[Interpreter | None, str, list[str]]:
    """The interpreter of `target` or None, how it was provided, and why it was not.

    `progress` gets a line about the current step, several times a second.
    """
    started = time.monotonic()
    try:
        found = find_interpreter(target, cache=cache)
        return found, FOUND[found.found], []
    except InterpreterNotFound as error:
        notes = [str(error).partition("\n  fix: run")[0]]  # what it advises to run is this
    if not is_path(target.request):
        try:
            # Into our own folder.
            folder = kept_folder(cache or cache_folder())
            folder.mkdir(parents=True, exist_ok=True)
            variables = {"UV_PYTHON_INSTALL_DIR": str(folder)}
            _run_uv(["python", "install", "--no-bin", "--no-config", target.request], variables, progress)
            words = ["python", "find", "--managed-python", "--no-python-downloads", "--no-project", "--no-config"]
            executable = _run_uv([*words, "--system", target.request], variables, progress).strip()
            interpreter = describe(executable, found="cache", settings=target.settings)
            took_s = time.monotonic() - started
            return interpreter, "installed by uv" + (f" in {units.span(took_s)}" if took_s >= 1 else ""), []
        except FtgateError as error:
            notes.append(str(error))
        except OSError as error:
            fix = "set HOME or XDG_CACHE_HOME to a folder that can be written"
            notes.append(f"{error.filename}: {error.strerror}; {fix}")
    return None, "missing", notes


def _run_uv(arguments: list[str], variables: dict[str, str], progress: Callable[[str], None]) -> str:
    """What uv printed. Raises FtgateError with its message."""
    done = run_within(
        [find_uv(), *arguments],
        environment=uv_environment(variables),
        on_wait=lambda: progress("uv is downloading"),
        own_s=UV_TIMEOUT_S,
    )
    if done.returncode:
        lines = [line.strip().removeprefix("error: ") for line in done.stderr.splitlines() if line.strip()]
        said = f"{lines[0]} ({lines[-1]})" if len(lines) > 1 else "".join(lines) or "it printed nothing"
        raise FtgateError(f"uv {' '.join(arguments[:2])} failed: {said}")
    return done.stdout


@contextlib.contextmanager
def install_progress(label: str, stream: TextIO) -> Iterator[Callable[[str], None]]:
    """Shows the steps of a long job: one line that is rewritten on a terminal, a plain line every 15 s elsewhere."""
    terminal = stream.isatty() and os.environ.get("TERM") != "dumb"
    started, last = time.monotonic(), -math.inf

    def show(step: str) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= (TERMINAL_LINE_EVERY_S if terminal else PLAIN_LINE_EVERY_S):
            last = now
            line = f"{label}: {step} ({units.span(now - started)})"
            stream.write(f"\r\x1b[K{line[:100]}" if terminal else f"{line}\n")
            stream.flush()

    try:
        yield show
    finally:
        if terminal and last > -math.inf:
            stream.write("\r\x1b[K")
            stream.flush()
