"""Environments of both sides of a comparison, which are made at once."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from fake_launcher import GIL, Quiet, group_of

from pytest_ftgate.kit import waiting
from pytest_ftgate.measure.spent import Spent
from pytest_ftgate.measure.watch import threads
from pytest_ftgate.model.spec import Cell, Executor, Group, Interpreter, Program, parse_target
from pytest_ftgate.run.folder import RunFolder
from pytest_ftgate.run.sides import references
from pytest_ftgate.run.sides.checkout import Checkout
from pytest_ftgate.run.targets import REMEMBERED_S, Targets
from pytest_ftgate.targets import environments, find
from pytest_ftgate.targets.environments import InstallError, OnStep

Make = Callable[[str, str, OnStep], None]
"""What making an environment does, of a side, for a target."""


class Sides:
    """Two checkouts, two targets, and environments that are made by a script."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.targets = Targets(RunFolder(root), (("$", "make"),), Quiet(), Spent(time.monotonic))
        self.both = [Checkout(label=name, commit="", root=str(root / name)) for name in ("old", "new")]
        group = group_of("threads")
        (one,) = group.cells
        cells = [msgspec.structs.replace(one, target=parse_target(name)) for name in ("3.14", "3.14t")]
        self.group: Group = msgspec.structs.replace(group, cells=tuple(cells))
        self.made: list[tuple[str, str]] = []
        self.make: Make = lambda *_: None
        monkeypatch.setattr(find, "find_interpreter", lambda target: GIL)
        monkeypatch.setattr(environments, "ensure_environment", self._ensure)
        monkeypatch.setattr(threads, "patterns_hold", lambda *_, **__: "")

    def _ensure(self, interpreter: Interpreter, *, project: Path, on_step: OnStep, **_: object) -> Path:
        self.made.append((project.name, threading.current_thread().name))
        self.make(project.name, str(len([side for side, _ in self.made if side == project.name])), on_step)
        return project / "env" / "bin" / "python"

    def cell(self, index: int) -> Cell:
        return self.group.cells[index]


@pytest.fixture
def sides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Sides:
    return Sides(tmp_path, monkeypatch)


def test_both_sides_are_made_at_once_and_each_environment_once(sides: Sides) -> None:
    met = threading.Barrier(2)

    def make(side: str, number: str, on_step: OnStep) -> None:
        met.wait(30)  # one side alone would wait in vain

    sides.make = make
    sides.targets.make_all(sides.group, sides.both)
    assert sorted(side for side, _ in sides.made) == ["new", "new", "old", "old"]
    assert len(set(sides.made)) == 2, "a side's own follow each other: a build writes into its folder"
    sides.targets.make_all(sides.group, sides.both)
    for side in sides.both:
        for cell in sides.group.cells:
            assert sides.targets.prepared(cell, sides.group.spec, side).python == str(
                side.project / "env" / "bin" / "python"
            )
    assert len(sides.made) == 4


def test_all_are_made_at_once_where_no_step_writes_into_the_folder(sides: Sides) -> None:
    met = threading.Barrier(4)

    def make(side: str, number: str, on_step: OnStep) -> None:
        met.wait(30)

    sides.make, sides.targets.install = make, (("numpy",),)
    sides.targets.make_all(sides.group, sides.both)
    assert len(set(sides.made)) == 4


def test_two_sides_in_one_folder_follow_each_other(sides: Sides) -> None:
    """Two versions of a distribution, or two interpreters, have the same files."""
    old = sides.both[0]
    sides.targets.make_all(sides.group, [old, msgspec.structs.replace(old, install=("numpy==2.1.0",))])
    assert len(sides.made) == 4
    assert len({thread for _, thread in sides.made}) == 1


def test_a_build_is_tested_once_for_all_sides(sides: Sides, monkeypatch: pytest.MonkeyPatch) -> None:
    tested = []

    def patterns_hold(key: str, *_: object, **__: object) -> str:
        tested.append(key)
        return "nothing may be read"

    monkeypatch.setattr(threads, "patterns_hold", patterns_hold)
    for side in sides.both:
        found = sides.targets.prepared(sides.cell(0), sides.group.spec, side)
        assert found.waits_unavailable == "nothing may be read"
    assert len(tested) == 1


def test_what_fails_is_said_of_its_own_target_and_tried_once(sides: Sides) -> None:
    def make(side: str, number: str, on_step: OnStep) -> None:
        if (side, number) == ("old", "1"):
            raise InstallError("no such package")

    sides.make = make
    sides.targets.make_all(sides.group, sides.both)
    looked = [sides.targets.lookup(cell, sides.group.spec, side) for side in sides.both for cell in sides.group.cells]
    assert sorted((each.reason, each.failed) for each in looked) == [("", False)] * 3 + [("old: no such package", True)]
    assert len(sides.made) == 4


def test_a_build_that_lacks_what_git_ignores_says_so(sides: Sides) -> None:
    (sides.targets.folder.root / "gen.c").touch()

    def make(side: str, number: str, on_step: OnStep) -> None:
        raise InstallError("cc1: fatal error: gen.c: No such file or directory")

    sides.make = make
    said = sides.targets.lookup(sides.cell(0), sides.group.spec, sides.both[0]).reason
    assert said.splitlines()[1].startswith("gen.c is in the working tree but not in git")


def test_nothing_is_made_for_a_cell_whose_program_is_not_there(sides: Sides) -> None:
    program = Executor(kind="command", program=Program(name="rust", argv=("target/rust",), build=("no-such-cargo",)))
    cells = tuple(msgspec.structs.replace(cell, executor=program) for cell in sides.group.cells)
    spec = msgspec.structs.replace(
        sides.group.spec, programs=(("no-such-cargo", "apt install it"),), packages=("flask",)
    )
    sides.targets.make_all(msgspec.structs.replace(sides.group, cells=cells, spec=spec), sides.both)
    for cell in cells:
        said = sides.targets.lookup(cell, spec)
        assert (said.target, said.failed) == (None, False)
        assert said.reason == "needs no-such-cargo: install it with `apt install it`"
    assert sides.made == []
    sides.targets.lookup(sides.cell(0), spec)  # a cell of threads needs no program
    assert len(sides.made) == 1


def test_ctrl_c_ends_what_is_being_made(sides: Sides) -> None:
    ended = []
    both = threading.Barrier(3)

    def make(side: str, number: str, on_step: OnStep) -> None:
        both.wait(60)
        try:
            while True:
                on_step("building")
                time.sleep(0.02)
        finally:
            ended.append(side)

    sides.make = make
    main = threading.main_thread().ident
    assert main is not None

    def interrupt() -> None:
        both.wait(60)  # until both are at it, however long a busy machine takes
        signal.pthread_kill(main, signal.SIGINT)

    stopper = threading.Thread(target=interrupt)
    heard = signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background may ignore it
    try:
        stopper.start()
        with pytest.raises(KeyboardInterrupt):
            sides.targets.make_all(sides.group, sides.both)
    finally:
        signal.signal(signal.SIGINT, heard)
    stopper.join()
    assert sorted(ended) == ["new", "old"]
    assert len(sides.made) == 2


def test_a_commit_that_could_not_be_installed_is_not_tried_again_for_a_day(
    sides: Sides, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def make(side: str, number: str, on_step: OnStep) -> None:
        raise InstallError("cannot install -e .: no compiler\nand more of it")

    def why(commit: str) -> str:
        fresh = Targets(RunFolder(tmp_path), (), Quiet(), Spent(time.monotonic))
        checkout = Checkout(label="old", commit=commit, root=str(tmp_path / "old"))
        found = fresh.lookup(sides.cell(0), sides.group.spec, checkout)
        assert found.failed
        return found.reason

    monkeypatch.setattr(references, "variables", lambda *_: {})
    sides.make = make
    assert why("1" * 40).splitlines() == ["old: cannot install -e .: no compiler", "and more of it"]
    first, more = why("1" * 40).splitlines()
    assert first.startswith("old: cannot install -e .: no compiler (as it failed before: it is tried again after a day")
    assert more == "and more of it"
    assert len(sides.made) == 1
    (remembered,) = (tmp_path / ".ftgate" / "envs").glob("*.failed")
    assert remembered.name in first
    a_day_ago = time.time() - REMEMBERED_S - 1
    os.utime(remembered, (a_day_ago, a_day_ago))
    assert "failed before" not in why("1" * 40)
    assert len(sides.made) == 2
    assert "failed before" not in why("2" * 40), "another commit in the same folder"
    assert len(sides.made) == 3
    why("")  # the project itself may be mended between two runs
    why("")
    assert len(sides.made) == 5


def test_a_commit_whose_build_took_longer_than_the_run_may_is_tried_again_with_more_time(
    sides: Sides, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else each run would spend all of its time on it, and measure nothing."""

    def make(side: str, number: str, on_step: OnStep) -> None:
        raise waiting.TooLong("`make` did not end within 59 s: --ftgate-time was over")

    def why(left_s: float) -> str:
        monkeypatch.setattr(waiting, "left_s", lambda: left_s)
        fresh = Targets(RunFolder(tmp_path), (), Quiet(), Spent(time.monotonic))
        checkout = Checkout(label="old", commit="1" * 40, root=str(tmp_path / "old"))
        found = fresh.lookup(sides.cell(0), sides.group.spec, checkout)
        assert (found.failed, found.too_long) == (True, True)
        return found.reason

    monkeypatch.setattr(references, "variables", lambda *_: {})
    sides.make = make
    first = why(60.0)
    assert first == (
        "old: `make` did not end within 59 s: --ftgate-time was over; give the run more time, or compare with the "
        "stored figures: --ftgate-against=stored"
    )
    again = why(60.5)
    assert again.startswith(f"{first} (as it failed before: it is tried again with more time, after a day, or without ")
    assert len(sides.made) == 1
    assert why(120.0) == first
    assert len(sides.made) == 2
    assert why(120.0) != first
