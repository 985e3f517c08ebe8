"""`ftgate merge FOLDER...`: what several jobs recorded becomes one folder of baselines."""

from __future__ import annotations

import shutil
from pathlib import Path

import msgspec
import pytest
from stored_values import COMMIT, MACHINE, change_of, make_sample

from pytest_ftgate import cli
from pytest_ftgate.judge.values import Values, stored_values
from pytest_ftgate.model.report import Machine
from pytest_ftgate.store import recording
from pytest_ftgate.store.folder import Store

FIRST, SECOND = "2026-01-02T03:04:05+00:00", "2026-01-03T03:04:05+00:00"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with one recording of a test, in which the commands work."""
    monkeypatch.chdir(tmp_path)
    record(tmp_path / "baselines", "test_a.py::test_it", FIRST, 1)
    return tmp_path


def record(root: Path, test: str, at: str, seed: int, machine: Machine = MACHINE, label: str = "x") -> None:
    """What a run with that seed stores of a cell, after what is there."""
    sample = make_sample(label, test=test)
    entry = recording.entry_of(sample, stored_values(Values(sample)), at, COMMIT, seed)
    made = change_of(sample, machine=machine, append=True)
    Store(root).save(test, [msgspec.structs.replace(made, entry=entry)])


def checkouts(folder: Path, *names: str) -> list[Path]:
    """What each job began with: the project's own baselines."""
    for name in names:
        shutil.copytree(folder / "baselines", folder / name)
    return [folder / name for name in names]


def files(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*.json")}


def test_what_each_job_recorded_is_added(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one, two, three = checkouts(folder, "one", "two", "three")
    record(one, "test_a.py::test_it", SECOND, 2)
    record(two, "test_b.py::test_it", SECOND, 3)
    elsewhere = msgspec.structs.replace(MACHINE, fingerprint="another")
    record(three, "test_a.py::test_it", SECOND, 4, machine=elsewhere)
    assert cli.main(["merge", "one", "two", "three"]) == 0
    assert capsys.readouterr().out.splitlines() == [f"{name}: 1 recording added" for name in ("one", "two", "three")]
    assert files(folder / "baselines") == files(one) | files(two) | files(three)
    assert cli.main(["merge", "one", "two"]) == 0
    assert capsys.readouterr().out.splitlines() == ["one: 0 recordings added", "two: 0 recordings added"]


def test_the_cell_of_one_machine_is_recorded_once(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one, two = checkouts(folder, "one", "two")
    record(one, "test_a.py::test_it", SECOND, 2)
    record(two, "test_a.py::test_it", SECOND, 3)
    before = files(folder / "baselines")
    assert cli.main(["merge", "one", "two"]) == 2
    assert "test_a.py::test_it[x] was recorded twice, in one and two" in capsys.readouterr().err
    assert files(folder / "baselines") == before


def test_cells_of_one_test_from_two_jobs_share_its_folder(folder: Path) -> None:
    """Two parameter sets in two shards, with the same seed in the same second: the same file, other cells."""
    one, two = checkouts(folder, "one", "two")
    record(one, "test_b.py::test_it", SECOND, 7, label="1")
    record(two, "test_b.py::test_it", SECOND, 7, label="2")
    assert cli.main(["merge", "one", "two"]) == 0
    baseline = Store(folder / "baselines").load("test_b.py::test_it")
    assert baseline is not None
    assert set(baseline.cells) == {"1", "2"}


def test_folders_that_hold_no_baselines_are_named(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "empty").mkdir()
    assert cli.main(["merge", "empty"]) == 2
    assert "empty: holds no baselines" in capsys.readouterr().err
    (folder / ".ftgate").mkdir(exist_ok=True)
    (folder / ".ftgate" / "last-run.json").write_text("{}")
    assert cli.main(["merge", "."]) == 2
    said = capsys.readouterr().err
    assert ". holds .ftgate/last-run.json, which is no baseline: name a folder of baselines alone, such as" in said
    assert "version control" not in said
    (one,) = checkouts(folder, "one")
    path = next(one.rglob("*.json"))
    path.write_text("{", encoding="utf-8")
    assert cli.main(["merge", "one"]) == 2
    assert str(path.relative_to(folder)) in capsys.readouterr().err
