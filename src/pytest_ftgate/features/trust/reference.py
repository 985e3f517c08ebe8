"""What the commit that is compared with says of a run: under `--ftgate-trust=base` a change does not judge itself."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any, Final, get_type_hints

import msgspec
import pytest
from _pytest.skipping import evaluate_skip_marks

from ...declare import plan
from ...declare.options import Options, table
from ...hookspec import hookimpl
from ...kit.errors import FtgateError
from ...kit.git import OPTION, Checkout, mapped, shown
from ...kit.processes import run_within
from ...kit.values import Struct, Threshold
from ...model.report import failed_row
from ...model.spec import Plan
from ...plugin.collection import CELL, workload_path
from ...plugin.gate import Gate, failing_of
from ...plugin.options import options_of
from ...run.rows import placed_row, positions_of

OF_A_TEST: Final = ("thresholds", "gated", "contracts", "xfails")


LAST: Final = 1_000_000
"""Tests that are only at the reference come after those of the run."""


class TrustedBase(Struct, frozen=True, kw_only=True):
    """What was collected at the reference with the command line of this run, and what its options say there."""

    said: dict[str, Any]
    plan: Plan
    """The cells that are selected and not skipped."""
    config_file: str = ""
    """The file of pytest's settings that was read; empty for none."""


# Collects the tests of that commit in a process of its own: pytest with the command line of this run, in a checkout.
# There this module is a plugin that writes down what was collected and what the options are.

FILE: Final = "FTGATE_BASE_FILE"
"""The variable that names the file to write."""
MOST_S: Final = 600.0
_OF_COVERAGE: Final = ("COV_CORE_", "COVERAGE_PROCESS_")


def judge(gate: Gate) -> None:
    """Let the commit that is compared with judge. Raises pytest.UsageError."""
    run = gate.run
    if not run.config.against:
        raise pytest.UsageError(
            "--ftgate-trust=base takes limits from the commit that is compared with: add --ftgate-against REV"
        )
    run.listener.advance("the commit that is compared with", "collecting the tests of", 0, 0, None)
    try:
        pair, shared = run.references.requested(), run.folder.shared("base", "")
        reference = pair.reference
        if not shared.exists():  # what an earlier run left there must not be read
            with run.folder.locked("measuring"):
                run.references.clean(pair)
        with run.guarded():  # written once in a run
            if not reference.commit:
                raise FtgateError(
                    f"--ftgate-trust=base takes limits from a commit, and {reference.label} is none: {OPTION} REV"
                )
            if not shared.exists():
                collect(gate.config, reference, shared)
            base = msgspec.json.decode(shared.read_bytes(), type=TrustedBase)
    except FtgateError as error:
        raise pytest.UsageError(str(error)) from None
    finally:
        gate.progress.clear()
    # This run has its own options, and is judged by those of the reference.
    types = get_type_hints(Options, localns={"Threshold": Threshold})
    theirs = {name: msgspec.convert(value, types[name]) for name, value in base.said.items() if name in types}
    others = {**run.config.others, **{name: base.said[name] for name in base.said.keys() - types.keys()}}
    run.judge_by(dataclasses.replace(run.config, **theirs, others=others), reference.commit)
    run.plugins.register(Trusted(base.plan, reference.commit))
    gate.failing = failing_of(run.config)


class Trusted:
    """What the reference says, in the run that it judges."""

    def __init__(self, theirs: Plan, commit: str) -> None:
        self.theirs = theirs
        self.commit = commit

    @hookimpl
    def ftgate_plan(self, plan: Plan) -> Plan:
        """Each test with the limits that it has at the reference; a new one with its own."""
        known = {group.spec.nodeid: group.spec for group in self.theirs}
        groups = []
        for group in plan:
            spec = known.get(group.spec.nodeid, group.spec)
            limits = {name: getattr(spec, name) for name in OF_A_TEST}
            groups.append(msgspec.structs.replace(group, spec=msgspec.structs.replace(group.spec, **limits)))
        return tuple(groups)

    @hookimpl
    def ftgate_measured(self, gate: Gate, session: pytest.Session) -> str:
        """Add what the reference has and this run has not; what fails by the reference fails, whatever a mark says."""
        planned, shard = set(gate.planned()), gate.run.part
        known = planned - gate.reported | gate.lost | gate.rows.keys()
        if shard:  # the other parts' cells are theirs
            known |= set(shard.planned) - planned
        # The first part names what no part has.
        first = shard is None or shard.part == 1
        reason = (
            f"it is measured at {shown(self.commit)} and was not here: under --ftgate-trust=base a change cannot "
            "remove, rename, skip or deselect what is gated"
        )
        positions = positions_of(self.theirs)
        for group in self.theirs:
            for cell in group.cells:
                if cell.nodeid not in known and (first or cell.nodeid in planned):
                    row = failed_row(cell, reason, "")
                    gate.rows[cell.nodeid] = placed_row(LAST + positions[cell.nodeid], group, row)
        if gate.failed() and session.exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
        return ""


@pytest.hookimpl(trylast=True)
def pytest_collection_finish(session: pytest.Session) -> None:
    """In the process at the reference: write what was collected, without what is skipped there."""
    cells = [item for item in session.items if CELL in item.stash and evaluate_skip_marks(item) is None]
    config = session.config
    options = options_of(config)
    trusted = {option.name: option.of(options) for option in table() if option.trusted}
    base = TrustedBase(
        said=trusted | {name: getattr(options, name) for name in ("thresholds", "ini_thresholds")},
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
    found = msgspec.json.decode(unfinished.read_bytes(), type=TrustedBase).config_file
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
