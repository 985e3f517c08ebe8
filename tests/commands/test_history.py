"""`ftgate history`: recordings in a git repository, drawn and as JSON, with every exit code."""

from __future__ import annotations

import json as plain_json
import os
import random
from collections.abc import Callable
from functools import partial
from pathlib import Path

import msgspec
import project as projects
import pytest
from stored_values import MACHINE, OTHER_MACHINE, TEST, change_of, launch, make_sample

from golden import check_golden
from pytest_ftgate.judge.values import Values, stored_values
from pytest_ftgate.model.report import Machine
from pytest_ftgate.model.sample import Sample
from pytest_ftgate.store import recording
from pytest_ftgate.store.folder import Store

Ftgate = Callable[..., str]

ORDERS = (0, 2, 4, 6)
CELL = f"{TEST}[3.14t-threads-w2]"
git = partial(projects.git, Path())


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith("FTGATE_")]:
        monkeypatch.delenv(name)
    git("init", "--initial-branch", "main")
    return tmp_path


def sample_at(level: float, seed: int) -> Sample:
    """A sample whose time is `level` times the usual one, with some noise."""
    rng = random.Random(seed)
    own = {order: [round(4000 * level * (1 + rng.gauss(0, 0.01))) for _ in range(3)] for order in ORDERS}
    made = make_sample().with_launches("time", (launch(order, *walls, loops=2) for order, walls in own.items()))
    return made.with_launches("control", (launch(order, 1000, 1010, 1020) for order in ORDERS))


def record(project: Path, day: int, level: float, *, machine: Machine = MACHINE, anew: bool = False) -> None:
    """A recording of that day, committed."""
    sample = sample_at(level, day)
    at, commit = f"2026-05-{day:02d}T03:04:05+00:00", f"{day:02d}" + "ab" * 19
    entry = recording.entry_of(sample, stored_values(Values(sample)), at, commit, day)
    change = change_of(sample, machine=machine, append=not anew)
    Store(project / "baselines").save(TEST, [msgspec.structs.replace(change, entry=entry)])
    git("add", "--all")
    git("commit", "--message", f"day {day}")


def days(project: Path, *levels: float) -> None:
    for day, level in enumerate(levels, start=1):
        record(project, day, level)


def points(ftgate: Ftgate) -> list[str]:
    """The days that are found."""
    cells = plain_json.loads(ftgate("history", "test_count", "--json"))["cells"]
    return [point["recorded_at"][8:10] for cell in cells for point in cell["points"]]


def test_it_draws_the_recordings_and_the_change(project: Path, ftgate: Ftgate) -> None:
    days(project, *[1.0] * 6, *[1.12] * 6)
    drawn = ftgate("history", "test_count")
    check_golden("history.txt", drawn)
    assert max(map(len, drawn.splitlines())) <= 80
    assert "changed  +12" in drawn
    assert "between 06abababab (2026-05-06) and 07abababab (2026-05-07)" in drawn


def test_it_draws_in_ascii(project: Path, ftgate: Ftgate, monkeypatch: pytest.MonkeyPatch) -> None:
    days(project, *[1.0] * 6, *[1.12] * 6)
    monkeypatch.setattr("pytest_ftgate.features.history.unicode", lambda: False)
    drawn = ftgate("history", "test_count")
    assert drawn.isascii()
    check_golden("history_ascii.txt", drawn)


def test_json_has_the_change(project: Path, ftgate: Ftgate) -> None:
    days(project, *[1.0] * 6, *[1.12] * 6)
    (cell,) = plain_json.loads(ftgate("history", CELL, "--json"))["cells"]
    assert (cell["nodeid"], cell["unit"], cell["metric"]) == (CELL, "time", "wall")
    assert [change["index"] for change in cell["changes"]] == [6]
    assert cell["changes"][0]["ratio"] == pytest.approx(1.12, rel=0.02)


def test_recordings_that_were_removed_are_in_git(project: Path, ftgate: Ftgate) -> None:
    days(project, 1.0, 1.0, 1.0)
    git("rm", "--quiet", "-r", "baselines")
    git("commit", "--message", "start again")
    record(project, 4, 1.0)
    assert points(ftgate) == ["01", "02", "03", "04"]


def test_recordings_of_a_merged_branch_are_found(project: Path, ftgate: Ftgate) -> None:
    days(project, 1.0, 1.0)
    git("checkout", "-b", "side")
    record(project, 3, 1.0)
    git("checkout", "main")
    record(project, 4, 1.0)
    git("merge", "--no-edit", "side")
    git("rm", "--quiet", *(str(path) for path in (project / "baselines").rglob("20260503*")))
    git("commit", "--message", "prune")
    assert points(ftgate) == ["01", "02", "03", "04"]


def test_recordings_that_a_branch_added_and_removed_are_found(project: Path, ftgate: Ftgate) -> None:
    days(project, 1.0, 1.0)
    git("checkout", "-b", "side")
    record(project, 3, 1.0)
    git("rm", "--quiet", *(str(path) for path in (project / "baselines").rglob("20260503*")))
    git("commit", "--message", "prune")
    git("checkout", "main")
    git("merge", "--no-ff", "--no-edit", "side")
    assert points(ftgate) == ["01", "02", "03"]


def test_what_is_not_committed_is_there_too(project: Path, ftgate: Ftgate) -> None:
    days(project, 1.0, 1.0)
    git("reset", "--quiet", "--soft", "HEAD~1")
    assert points(ftgate) == ["01", "02"]


def test_without_git_it_has_what_is_there(project: Path, ftgate: Ftgate) -> None:
    days(project, 1.0, 1.0)
    (project / ".git").rename(project / "no-git")
    assert points(ftgate) == ["01", "02"]


def test_a_folder_within_the_repository(project: Path, ftgate: Ftgate, monkeypatch: pytest.MonkeyPatch) -> None:
    inner = project / "inner"
    inner.mkdir()
    monkeypatch.chdir(inner)
    days(inner, 1.0, 1.0)
    git("rm", "--quiet", *(str(path) for path in (inner / "baselines").rglob("20260501*")))
    git("commit", "--message", "prune")
    assert points(ftgate) == ["01", "02"]


def test_machines_are_series_of_their_own(project: Path, ftgate: Ftgate) -> None:
    record(project, 1, 1.0)
    record(project, 2, 3.0, machine=OTHER_MACHINE)
    drawn = ftgate("history", "test_count")
    assert drawn.count("1 recording\n") == 2
    assert MACHINE.fingerprint in drawn
    assert OTHER_MACHINE.fingerprint in drawn
    assert "too few recordings to tell a change of level" in drawn


def test_recordings_that_count_no_more_are_shown(project: Path, ftgate: Ftgate) -> None:
    days(project, 1.0, 1.0)
    record(project, 3, 2.0, anew=True)
    assert points(ftgate) == ["01", "02", "03"]


@pytest.mark.parametrize(
    "text",
    ['{"schema": 1}', f"{'a' * 40} blob 12\nmore\n"],
    ids=["as an older version wrote it", "as git writes what it lists"],
)
def test_files_of_another_format_are_counted(project: Path, ftgate: Ftgate, text: str) -> None:
    days(project, 1.0)
    old = next((project / "baselines").rglob("*.json")).with_name("20260430T030405-00000000.json")
    old.write_text(text, encoding="utf-8")
    git("add", "--all")
    git("commit", "--message", "a file that is no baseline")
    git("rm", "--quiet", str(old))
    git("commit", "--message", "prune")
    said = ftgate("history", "test_count")
    assert "1 recording\n" in said
    assert f"1 former file of {TEST} is of another format and left out" in said


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["test_other"], 3, "no baseline of test_other"),
        (["test_count", "--metric", "latency_p99"], 3, "has latency_p99; --metric takes cold, cores"),
        (["test_count", "--metric", "walll"], 2, "takes a metric, not 'walll' (did you mean 'wall'?); wall"),
        (["test_count", "--last", "0"], 2, "--last takes a number from 1, not 0"),
    ],
)
def test_errors(project: Path, ftgate: Ftgate, arguments: list[str], code: int, said: str) -> None:
    days(project, 1.0)
    assert said in ftgate("history", *arguments, code=code)
