"""The interpreter and the environment of each target, looked up and installed once in a process."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from itertools import product
from pathlib import Path
from typing import TypeAlias

import msgspec

from ..declare.options import STORED
from ..declare.plan import one_per_target
from ..kit import waiting
from ..kit.errors import FtgateError
from ..kit.files import read_json, write_whole
from ..kit.values import Struct
from ..kit.waiting import TooLong
from ..measure import machine
from ..measure.cell_run import PreparedTarget
from ..measure.launchers.factory import missing_programs
from ..measure.round_plan import Listener
from ..measure.spent import Spent
from ..measure.watch import threads
from ..model.spec import Cell, Group, Interpreter, Spec, Target, parse_target
from ..targets import describe, environments, find
from ..targets.find import InterpreterNotFound
from .folder import RunFolder
from .privacy import public
from .sides import references, worktrees
from .sides.checkout import OPTION, Checkout
from .sides.references import steps_of
from .sides.worktrees import note_built

STOPS_IN_S = 3.0
"""An installation ends within a second after it is told to."""
REMEMBERED_S = 24 * 3600.0
"""How long a commit that could not be installed is not tried again: something else than its files may have changed."""
MORE_TIME = 1.1
"""How many times as much time lets a build be tried again that did not end in its time."""
_Key: TypeAlias = tuple[str, str, tuple[str, ...]]


class _Stopped(Exception):
    """The run ends while an environment is made."""


class TargetLookup(Struct, frozen=True, kw_only=True):
    """A target, or the `reason` why there is none: it is missing, or preparing it has `failed`, or took `too_long`."""

    target: PreparedTarget | None = None
    reason: str = ""
    failed: bool = False
    too_long: bool = False


class _Failed(Struct, frozen=True):
    """Why a commit could not be installed; of what took too long the seconds that there were, else 0."""

    reason: str
    within_s: float = 0.0
    commit: str = ""


class Targets:
    """Finds interpreters and installs environments, each when it is first asked for."""

    def __init__(
        self,
        folder: RunFolder,
        install: environments.Steps | None,
        listener: Listener,
        spent: Spent,
        *,
        scripted: bool = False,
    ) -> None:
        """`install` are the steps of each environment; None installs the project if it has a build system.

        With `scripted` launches nothing is made before it is asked for.
        """
        self.folder = folder
        self.install = install
        self.listener = listener
        self.spent = spent
        self.scripted = scripted
        self._builds: dict[str, str] = {}
        self._lookups: dict[_Key, TargetLookup] = {}
        self._made: dict[_Key, Path | FtgateError] = {}
        """What `make_all` has made, or why it could not."""
        self._waits_unavailable: dict[str, str] = {}
        """Why the wait states of a build's threads cannot be told apart; empty if they can."""
        self._told = threading.Lock()

    def build(self, cell: Cell, spec: Spec) -> str:
        """The key of the build that runs a cell, for which nothing is installed; empty if none can."""
        target = cell.target
        if target.spec not in self._builds:
            self._builds[target.spec] = ""
            with contextlib.suppress(InterpreterNotFound):
                interpreter = find.find_interpreter(target)
                if not describe.settings_unsupported(interpreter, target.settings):
                    self._builds[target.spec] = describe.build_key(interpreter)
        return "" if missing_programs(cell, spec) else self._builds[target.spec]

    def lookup(self, cell: Cell, spec: Spec, checkout: Checkout | None = None) -> TargetLookup:
        """The target of a cell, in an environment with the project, or a checkout of it, and what its test requires.

        None for a cell whose program cannot be started here: nothing is installed, or built, for it.
        """
        if reason := missing_programs(cell, spec):
            return TargetLookup(reason=reason)
        target, requires = target_of(cell, checkout), spec.packages
        key = _key(target, requires, checkout)
        if key not in self._lookups:
            try:
                with self.spent.on("environments"):
                    self._lookups[key] = self._prepare(target, requires, checkout)
            except FtgateError as error:
                late = isinstance(error, TooLong)
                self._lookups[key] = TargetLookup(reason=str(error), failed=True, too_long=late)
        return self._lookups[key]

    def prepared(self, cell: Cell, spec: Spec, checkout: Checkout | None = None) -> PreparedTarget:
        """As `lookup`. Raises FtgateError with the reason if the target cannot be used."""
        lookup = self.lookup(cell, spec, checkout)
        if lookup.target is None:
            raise FtgateError(lookup.reason)
        return lookup.target

    def make_all(self, group: Group, sides: Iterable[Checkout]) -> None:
        """Make the environments of several sides at once; `lookup` says what fails.

        Those of one folder follow each other where a build may write into the folder that it builds.
        """
        if self.scripted:
            return
        spec = group.spec
        cells = one_per_target(
            [each for each in group.cells if not (machine.cores_lacking(each, spec) or missing_programs(each, spec))]
        )
        stopped = threading.Event()

        def make(chain: list[tuple[Checkout, Target]], ended: threading.Event) -> None:
            try:
                for side, target in chain:
                    if stopped.is_set():
                        return
                    with contextlib.suppress(InterpreterNotFound, OSError, _Stopped):  # `lookup` finds these again
                        interpreter = find.find_interpreter(target)
                        if not describe.settings_unsupported(interpreter, target.settings):
                            key = _key(target, spec.packages, side)
                            try:
                                self._made[key] = self._environment(interpreter, target, spec.packages, side, stopped)
                            except FtgateError as error:
                                self._made[key] = error
            finally:
                ended.set()

        chains: dict[tuple[str, str], list[tuple[Checkout, Target]]] = {}
        for side, cell in product(sides, cells):
            target = target_of(cell, side)
            key = _key(target, spec.packages, side)
            if key not in self._lookups and key not in self._made:
                with contextlib.suppress(FtgateError):  # `lookup` finds it again
                    apart = environments.leaves_no_files(self._install(side, spec.packages), side.project)
                    chains.setdefault((side.root, target.spec if apart else ""), []).append((side, target))
        # Not by joining them: before Python 3.13 a thread counts as ended once Ctrl-C has interrupted a join of it.
        ends = [threading.Event() for _ in chains]
        try:
            for chain, ended in zip(chains.values(), ends, strict=True):
                # A daemon: a side that waits for another process must not hold up the end of this one.
                threading.Thread(target=make, args=(chain, ended), daemon=True).start()
            for ended in ends:
                while not ended.wait(1.0):  # a signal that another thread receives ends no wait
                    pass
        except BaseException:  # Ctrl-C
            stopped.set()
            for ended in ends:
                ended.wait(STOPS_IN_S)
            raise

    def _prepare(self, target: Target, requires: tuple[str, ...], checkout: Checkout | None) -> TargetLookup:
        try:
            interpreter = find.find_interpreter(target)
        except InterpreterNotFound as missing:
            return TargetLookup(reason=str(missing))
        reason = describe.settings_unsupported(interpreter, target.settings)
        if reason:
            return TargetLookup(reason=reason)
        python = self._made.get(_key(target, requires, checkout))
        if python is None:
            python = self._environment(interpreter, target, requires, checkout)
        elif isinstance(python, FtgateError):
            raise python
        prepared = PreparedTarget(
            interpreter=interpreter,
            python=str(python),
            key=describe.build_key(interpreter),
            environment=describe.environment_variables(target.settings),
            copies=environments.copied_modules(python, self.folder.root if checkout is None else checkout.project),
        )
        build = f"{prepared.key}{'-gil-' + target.settings.gil if target.settings.gil else ''}"
        if build not in self._waits_unavailable:

            def test(python: str, environment: Mapping[str, str] | None) -> str:
                self.listener.advance(interpreter.name, "checking the interpreter", 0, 0, None)
                return threads.self_test(python, environment)

            self._waits_unavailable[build] = threads.patterns_hold(
                build, prepared.python, self.folder.path / "selftests", environment=prepared.environment, test=test
            )
        return TargetLookup(target=msgspec.structs.replace(prepared, waits_unavailable=self._waits_unavailable[build]))

    def _install(self, checkout: Checkout | None, requires: tuple[str, ...]) -> environments.Steps:
        """What is installed for a side. Raises FtgateError if the file that says it cannot be read."""
        root = self.folder.root
        project = root if checkout is None else checkout.project
        steps = environments.default_install(project) if self.install is None else self.install
        return steps_of(steps, root, checkout, requires)

    def _environment(
        self,
        interpreter: Interpreter,
        target: Target,
        requires: tuple[str, ...],
        checkout: Checkout | None,
        stopped: threading.Event | None = None,
    ) -> Path:
        """The python of the environment, made with progress. Raises FtgateError, which names the side."""
        root = self.folder.root
        project = root if checkout is None else checkout.project
        side = "" if checkout is None else f", {checkout.label}"
        steps, moved = list[str](), self._install(checkout, requires)
        # What is installed of a commit is the same each time, and so is what fails of it.
        folder = environments.environment_folder(
            interpreter, root=self.folder.path / "envs", project=project, install=moved
        )
        failed, left_s = folder.with_name(f"{folder.name}.failed"), waiting.left_s()
        if checkout and checkout.commit:
            _refuse_again(failed, checkout.commit, left_s)

        def on_step(doing: str) -> None:
            if stopped is not None and stopped.is_set():
                raise _Stopped
            steps.append(doing)
            with self._told:
                self.listener.advance(f"{target.spec}{side}", f"{doing} for", 0, 0, None)

        try:
            python = environments.ensure_environment(
                interpreter,
                root=self.folder.path / "envs",
                project=project,
                install=moved,
                variables=references.variables(root, project) if checkout and checkout.commit else {},
                on_step=on_step,
            )
        except (environments.InstallError, TooLong) as error:
            if checkout is None:
                raise FtgateError(str(error)) from error
            within_s, text = 0.0, f"{checkout.label}: {error}"
            if isinstance(error, TooLong):
                within_s = left_s
                text += f"; give the run more time, or compare with the stored figures: {OPTION}={STORED}"
            elif hint := worktrees.ignored_hint(str(error), checkout, root):
                text += f"\n{hint}"
            if checkout.commit:
                write_whole(failed, [msgspec.json.encode(_Failed(public(text), within_s, checkout.commit))])
            raise (TooLong if within_s else FtgateError)(text) from error
        if steps and checkout is not None:
            note_built(root, checkout, self.folder.path / "envs")
        return python


def _refuse_again(failed: Path, commit: str, left_s: float) -> None:
    """Raise FtgateError if a commit could not be installed, as a file says, within a day and with as much time."""
    before = read_json(failed, _Failed)
    if before is None or before.commit != commit:
        return
    if datetime.now(UTC).timestamp() - failed.stat().st_mtime > REMEMBERED_S:
        return
    if before.within_s and left_s > MORE_TIME * before.within_s:
        return
    first, _, rest = before.reason.rstrip().partition("\n")
    sooner = "with more time, " if before.within_s else ""
    again = f"as it failed before: it is tried again {sooner}after a day, or without .ftgate/envs/{failed.name}"
    raise (TooLong if before.within_s else FtgateError)("\n".join(filter(None, (f"{first} ({again})", rest))))


def _key(target: Target, requires: tuple[str, ...], checkout: Checkout | None) -> _Key:
    return target.spec, "" if checkout is None else f"{checkout.root} {checkout.install}", requires


def target_of(cell: Cell, checkout: Checkout | None) -> Target:
    """The target that runs a cell on a side: its own, unless that side has another interpreter."""
    return parse_target(checkout.python) if checkout is not None and checkout.python else cell.target


def unavailable(cell: Cell, interpreter: Interpreter) -> str:
    """What a cell needs and an interpreter does not have; empty if it has all."""
    if cell.executor.kind == "interpreters" and interpreter.version.startswith("3.13."):
        return f"sub-interpreters need CPython 3.14 or newer, and this is {interpreter.name}"
    return ""


def same(cell: Cell, one: PreparedTarget, checkout: Checkout, other: PreparedTarget) -> bool:
    """Whether a cell's target (`one`) and that of a side (`other`) are one interpreter with the same settings."""
    executables = (os.path.realpath(each.interpreter.executable) for each in (one, other))
    switches = [(each.interpreter.gil_enabled, each.interpreter.jit_enabled) for each in (one, other)]
    intervals = {each.settings.switchinterval_ns for each in (cell.target, target_of(cell, checkout))}
    return len(set(executables)) == len(set(switches)) == len(intervals) == 1
