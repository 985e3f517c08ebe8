"""Collects the tests of the commit that is compared with, for `--ftgate-trust=base`: in a process of its own.

That process runs pytest with the command line of this run, in the checkout of the commit. There this module is a plugin
that writes down what was collected and what the options are.
"""

from __future__ import annotations

import os
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Final

import msgspec
import pytest
from _pytest.skipping import evaluate_skip_marks

from ..declare import plan
from ..kit.errors import FtgateError
from ..kit.git import Checkout, mapped
from ..kit.processes import run_within
from ..run.base import Base
from .collection import CELL, workload_path
from .options import options_of

FILE: Final = "FTGATE_BASE_FILE"
"""The variable that names the file to write."""
MOST_S: Final = 600.0
_OF_COVERAGE: Final = ("COV_CORE_", "COVERAGE_PROCESS_")


@pytest.hookimpl(trylast=True)
def pytest_collection_finish(session: pytest.Session) -> None:
    """In the process at the reference: write what was collected, without what is skipped there."""
    cells = [item for item in session.items if CELL in item.stash and evaluate_skip_marks(item) is None]
    config = session.config
    base = Base(
        said=options_of(config).trusted(),
        plan=plan.plan_of(item.stash[CELL] for item in cells),
        config_file=str(config.inipath or ""),
    )
    Path(os.environ[FILE]).write_bytes(msgspec.json.encode(base))


def collect(config: pytest.Config, checkout: Checkout, file: Path) -> None:
    """Collect in a checkout and leave the result in `file`. Raises FtgateError."""
    top = checkout.top(config.rootpath.resolve())
    move = partial(mapped, old_root=top, new_root=checkout.top(checkout.project))
    words = [_moved(os.fspath(word), move) for word in config.invocation_params.args]
    words += ["--collect-only", "-q", "-p", "no:cacheprovider", "-p", __name__, f"--rootdir={checkout.project}"]
    unfinished = file.with_name(f"{file.name}.part")
    _run(config, checkout, words, move, unfinished)
    found = msgspec.json.decode(unfinished.read_bytes(), type=Base).config_file
    if found and not Path(found).resolve().is_relative_to(checkout.top(checkout.project).resolve()):
        # The commit has no settings of its own: pytest went on to those of the change, above the checkout.
        _run(config, checkout, [*words, "-c", os.devnull], move, unfinished)
    unfinished.replace(file)


def _moved(word: str, move: partial[str]) -> str:
    option, equals, value = word.partition("=") if word.startswith("-") else ("", "", word)
    return f"{option}{equals}{move(value)}"


def _run(config: pytest.Config, checkout: Checkout, words: list[str], move: partial[str], file: Path) -> None:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(_OF_COVERAGE)}
    paths = [*map(move, workload_path(config)), *filter(None, kept.get("PYTHONPATH", "").split(os.pathsep))]
    variables = kept | {FILE: str(file), "PYTHONPATH": os.pathsep.join(paths)}
    folder = Path(move(str(config.invocation_params.dir)))
    file.unlink(missing_ok=True)
    done = run_within(
        [sys.executable, "-m", "pytest", *words],
        cwd=folder if folder.is_dir() else Path(checkout.root),
        environment=variables,
        stderr=subprocess.STDOUT,
        named=f"pytest --collect-only, for --ftgate-trust=base, of {checkout.label}",
        own_s=MOST_S,
    )
    if done.returncode not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED) or not file.exists():
        said = "\n".join(done.stdout.strip().splitlines()[-15:])
        raise FtgateError(
            f"--ftgate-trust=base: the tests of {checkout.label} cannot be collected here, in this environment, with "
            f"the command line of this run; what pytest says there:\n{said}"
        )
