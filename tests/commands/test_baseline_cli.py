"""`ftgate baseline`: every action on a real folder, with its text and its exit code."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from stored_values import (
    COMMIT,
    MACHINE,
    OTHER_MACHINE,
    PYTHON,
    TEST,
    change,
    entries_of,
    make_row,
    make_sample,
)

from golden import check_golden
from pytest_ftgate.cli import build_parser
from pytest_ftgate.features.baseline import render_diff
from pytest_ftgate.judge.values import Values, stored_values
from pytest_ftgate.kit.errors import FtgateError
from pytest_ftgate.model.report import Report, Row, Table
from pytest_ftgate.model.sample import WorkloadError
from pytest_ftgate.model.verdict import Acceptance, Decision
from pytest_ftgate.report import json
from pytest_ftgate.report.baselines import update_lines
from pytest_ftgate.store import recording, update
from pytest_ftgate.store.folder import Store

Ftgate = Callable[..., str]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    source = tmp_path / TEST.partition("::")[0]
    source.parent.mkdir()
    source.write_text("class TestA:\n    def test_count(self): ...\n", encoding="utf-8")
    (tmp_path / ".ftgate").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def store(project: Path) -> Store:
    return Store(project / "baselines")


@pytest.fixture
def ftgate(project: Path, capsys: pytest.CaptureFixture[str]) -> Ftgate:
    """Runs `ftgate baseline ...` in the project as the command line does; returns what it says."""

    def run(*argv: str, code: int = 0) -> str:
        args = build_parser().parse_args(["baseline", *argv])
        assert Path.cwd().is_relative_to(project)
        assert args.run(args) == code
        said = capsys.readouterr()
        assert not (said.out if code == 3 else said.err)
        return said.out + said.err

    return run


def rows() -> list[Row]:
    """One cell of each kind against the baselines of `stored`."""
    return [
        make_row(make_sample("3.14t-threads-w2"), Decision.PASSED),
        make_row(make_sample("3.14t-threads-w4", scale=2, uss=6_000_000), Decision.REGRESSED),
        make_row(make_sample("3.14t-threads-w8"), Decision.NO_BASELINE),
        make_row(make_sample("3.14t-fork-w2", reuse="pool"), Decision.NO_BASELINE),
        make_row(make_sample("3.14t-spawn-w2", error=WorkloadError(reason="it hung")), Decision.ERROR),
    ]


def stored(store: Store) -> None:
    labels = ("3.14t-threads-w2", "3.14t-threads-w4", "3.14t-fork-w2", "3.14t-gone-w2")
    store.save(TEST, [change(label) for label in labels])


def leave_run(project: Path, *cells: Row, unused: tuple[str, ...] = ()) -> None:
    """What a session leaves behind."""
    report = Report(
        version="0.1.0",
        seed=23,
        started_at="2026-02-03T04:05:06+00:00",
        wall_s=1.0,
        machine=MACHINE,
        interpreters=(PYTHON,),
        tables=(Table(title=TEST, rows=cells, reference="threads"),),
        commit="f" * 40,
        unused_baselines=unused,
    )
    (project / ".ftgate" / "last-run.json").write_text(json.render(report), encoding="utf-8")


# ---- list and show


def test_list_is_a_line_a_cell_and_machine(ftgate: Ftgate, store: Store) -> None:
    store.save(TEST, [change("3.14t-threads-w4"), change(), change(machine=OTHER_MACHINE)])
    store.save("other.py::test_o", [change()])
    check_golden("baseline_list.txt", ftgate("list"))


def test_list_of_nothing_says_how_to_begin(ftgate: Ftgate) -> None:
    assert "--ftgate-update" in ftgate("list", code=3)


def test_show_gives_the_figures_of_one_test(ftgate: Ftgate, store: Store) -> None:
    store.save(TEST, [change("3.14t-threads-w4", scale=2), change(), change(machine=OTHER_MACHINE)])
    store.save("other.py::test_o", [change()])
    check_golden("baseline_show.txt", ftgate("show", TEST))


@pytest.mark.parametrize("width", [40, 80])
def test_what_is_stored_and_what_changed_fit_the_terminal(
    ftgate: Ftgate, store: Store, project: Path, monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    monkeypatch.setattr("pytest_ftgate.features.baseline.terminal_width", lambda: width)
    long = "3.14t-threads-receiver1-w2"
    store.save(TEST, [change(long), change(), change(machine=OTHER_MACHINE)])
    leave_run(project, *rows(), make_row(make_sample(long, scale=2), Decision.REGRESSED))
    for words, code in ((["show", TEST], 0), (["diff"], 1)):
        lines = ftgate(*words, code=code).splitlines()
        assert max(len(line) for line in lines if " " in line.strip()) <= max(width, 66)
        assert any(long in line for line in lines)


def test_show_of_an_unknown_test_finds_nothing(ftgate: Ftgate, store: Store) -> None:
    stored(store)
    assert "nowhere.py::test_n" in ftgate("show", "nowhere.py::test_n", code=3)
    ftgate("show", "*::test_count")


@pytest.mark.parametrize(
    "name",
    [
        "test_count",
        "TestA::test_count",
        "test_words.py::TestA::test_count",
        f"{TEST}[3.14t-threads-w2]",
        "test_count[3.14t-threads-w2]",
        "test_words.py",
        "test_words",
        "tests/test_words.py",
        "A::test_c",
        "*count",
    ],
)
def test_a_part_of_a_name_that_is_unique_finds_its_test(ftgate: Ftgate, store: Store, project: Path, name: str) -> None:
    store.save(TEST, [change()])
    store.save("tests/test_words_of_others.py::test_counts", [change()])
    leave_run(project, rows()[0], make_row(make_sample("3.14t-threads-w2", test="other.py::test_o")))
    assert ftgate("show", name).partition("\n")[0] == TEST
    assert "other.py" not in ftgate("diff", name)
    assert f"recorded {TEST}[3.14t-threads-w2]" in ftgate("update", name)


@pytest.mark.parametrize("name", ["test_count", "test_words.py", "words"])
def test_a_name_of_several_tests_lists_them(ftgate: Ftgate, store: Store, project: Path, name: str) -> None:
    others = ("a/test_words.py::test_count", "b/test_words.py::test_count")
    for test in others:
        store.save(test, [change()])
    leave_run(project, *(make_row(make_sample(test=test)) for test in others))
    for action in ("show", "diff", "update"):
        with pytest.raises(FtgateError, match=rf"^{name} fits several, name one of them:\n  a/test_words"):
            ftgate(action, name)


# ---- diff


def test_the_text_of_a_diff(store: Store) -> None:
    stored(store)
    found = update.differences(rows(), entries_of(rows()), store, fingerprint=MACHINE.fingerprint)
    check_golden("baseline_diff.txt", render_diff(found))


def test_a_stream_that_is_not_unicode_gets_ascii(
    ftgate: Ftgate, store: Store, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored(store)
    leave_run(project, *rows())
    monkeypatch.setattr("pytest_ftgate.features.baseline.unicode", lambda: False)
    for words, code in ((["show", TEST], 0), (["diff"], 1), (["update"], 0)):
        text = ftgate(*words, code=code)
        assert text.isascii()
        assert "2.05 us" in text


def test_a_diff_says_what_is_accepted_and_why(store: Store) -> None:
    stored(store)
    given = Acceptance(cells=f"{TEST}[*-w4]", metric="wall", reason="the index costs it", commit="f" * 40)
    row = make_row(make_sample("3.14t-threads-w4"), Decision.ACCEPTED)
    row = msgspec.structs.replace(row, verdict=msgspec.structs.replace(row.verdict, accepted=(given,)))
    both = (*rows()[:1], row)
    found = update.differences(both, entries_of(both), store, fingerprint=MACHINE.fingerprint)
    lines = [line for line in render_diff(found).splitlines() if "accepted by" in line]
    assert lines == ["  3.14t-threads-w4: wall accepted by commit ffffffffff: the index costs it"]


def test_diff_exits_with_1_for_a_regressed_cell_alone(ftgate: Ftgate, store: Store, project: Path) -> None:
    stored(store)
    leave_run(project, *rows())
    before = store.load(TEST)
    assert "3.14t-threads-w4" in ftgate("diff", code=1)
    assert "3.14t-threads-w4" not in ftgate("diff", f"{TEST}[3.14t-threads-w2]")
    ftgate("diff", "nowhere.py*", code=3)
    assert store.load(TEST) == before


@pytest.mark.parametrize("action", ["diff", "update", "prune"])
def test_without_a_run_there_is_nothing_to_do(ftgate: Ftgate, action: str) -> None:
    assert "run pytest --ftgate first" in ftgate(action, code=3)


@pytest.mark.parametrize("action", ["diff", "update", "prune"])
def test_a_run_file_that_cannot_be_read_is_named(ftgate: Ftgate, project: Path, action: str) -> None:
    (project / ".ftgate" / "last-run.json").write_text('{"schema": 6,', encoding="utf-8")
    with pytest.raises(FtgateError, match=r"last-run\.json is not JSON"):
        ftgate(action)


# ---- accept


def test_update_takes_new_cells(ftgate: Ftgate, store: Store, project: Path) -> None:
    stored(store)
    before = store.load(TEST)
    leave_run(project, *rows())
    said = ftgate("update")
    assert f"recorded {TEST}[3.14t-threads-w8]: wall 2.05 µs, to control 2.00x, uss 3.82 MiB (new)" in said
    assert "kept 2 cells that have a baseline" in said
    assert f"skipped {TEST}[3.14t-spawn-w2]: not measured: it hung" in said
    after = store.load(TEST)
    assert before is not None
    assert after is not None
    (entry,) = after.cells["3.14t-threads-w8"].values()
    assert entry.recordings[0].seed == 23
    assert entry.recordings[0].commit == "f" * 40
    assert entry.recordings[0].recorded_at == "2026-02-03T04:05:06+00:00"
    assert {label: builds for label, builds in after.cells.items() if label in before.cells} == before.cells


def test_update_of_all_refuses_what_regressed_until_it_is_named(ftgate: Ftgate, store: Store, project: Path) -> None:
    stored(store)
    leave_run(project, *rows())
    said = ftgate("update", "--all", code=1)
    assert f"refused {TEST}[3.14t-threads-w4]: regressed, wall 4.10 µs (was 2.05 µs, +100 %)" in said
    naming = f"ftgate baseline update '{TEST}[3.14t-threads-w4]'"
    assert naming in said
    kept = store.load(TEST)
    assert kept is not None
    assert kept.cells["3.14t-threads-w4"] == {change("3.14t-threads-w4").key: change("3.14t-threads-w4").entry}
    assert next(iter(kept.cells["3.14t-fork-w2"].values())).recordings[-1].reuse == "pool"
    ftgate("update", f"{TEST}[3.14t-threads-w4]")
    taken = store.load(TEST)
    assert taken is not None
    assert taken.cells["3.14t-threads-w4"] != kept.cells["3.14t-threads-w4"]


def test_update_of_an_unknown_cell_stores_nothing(ftgate: Ftgate, store: Store, project: Path) -> None:
    leave_run(project, *rows())
    assert "nowhere.py::test_n" in ftgate("update", f"{TEST}[3.14t-threads-w2]", "nowhere.py::test_n", code=3)
    assert not store.root.exists()


def test_update_never_writes_over_a_broken_file(ftgate: Ftgate, store: Store, project: Path) -> None:
    stored(store)
    leave_run(project, *rows())
    (path,) = store.path(TEST).iterdir()
    path.write_text("<<<<<<< HEAD\n", encoding="utf-8")
    with pytest.raises(FtgateError, match="merge conflict"):
        ftgate("update", "--all")
    assert [each.read_text(encoding="utf-8") for each in store.path(TEST).iterdir()] == ["<<<<<<< HEAD\n"]


def test_the_text_of_an_update(store: Store) -> None:
    stored(store)
    known, entries = rows(), entries_of(rows())
    plan = update.update_plan(["all", "nowhere.py::t"], known, entries, store, fingerprint=MACHINE.fingerprint)
    check_golden("baseline_update.txt", "\n".join(update_lines(plan, "baselines", git=True)) + "\n")
    plan = update.update_plan(["new"], known[:2], entries, store, fingerprint=MACHINE.fingerprint)
    assert update_lines(plan, "baselines", git=True) == (
        "kept 2 cells that have a baseline; name one to store it again: --ftgate-update=CELL",
    )


# ---- prune


def test_prune_shows_first_and_removes_when_told(ftgate: Ftgate, store: Store, project: Path) -> None:
    stored(store)
    store.save("gone.py::test_g", [change()])
    leave_run(project, *rows(), unused=(f"{TEST}[3.14t-gone-w2]",))
    unused = f"unused gone.py::test_g[3.14t-threads-w2]\nunused {TEST}[3.14t-gone-w2]\n"
    assert ftgate("prune") == unused + "remove them with: ftgate baseline prune --yes\n"
    assert len(list(store.baselines())) == 2
    assert ftgate("prune", "--yes") == unused.replace("unused", "removed")
    (left,) = store.baselines()
    assert sorted(left.cells) == ["3.14t-fork-w2", "3.14t-threads-w2", "3.14t-threads-w4"]
    assert ftgate("prune", "--yes") == "no unused baselines\n"


def test_prune_keeps_what_the_last_run_did_not_have(ftgate: Ftgate, store: Store, project: Path) -> None:
    stored(store)
    other = "tests/test_words.py::TestA::test_other"
    store.save(other, [change()])
    # A run of one cell says nothing of the others, whatever an old report may claim of another test.
    leave_run(project, rows()[0], unused=(f"{other}[3.14t-threads-w2]",))
    before = list(store.baselines())
    ftgate("prune", "--yes")
    assert list(store.baselines()) == before


def test_prune_without_a_run_still_finds_sources_that_are_gone(ftgate: Ftgate, store: Store) -> None:
    stored(store)
    store.save("gone.py::test_g", [change()])
    ftgate("prune", "--yes")
    assert [left.test for left in store.baselines()] == [TEST]


# ---- where the files are


def test_the_project_is_found_from_a_folder_inside(
    ftgate: Ftgate, store: Store, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored(store)
    (project / "pytest.ini").touch()
    monkeypatch.chdir(project / "tests")
    ftgate("list")


def test_the_folder_is_that_of_the_configuration(ftgate: Ftgate, project: Path) -> None:
    Store(project / "perf").save(TEST, [change()])
    ftgate("list", code=3)
    for named, code in (("perf", 0), ("other", 3)):
        (project / "pytest.ini").write_text(f"[pytest]\nftgate_baselines = {named}\nlog_format = %(message)s\n")
        ftgate("list", code=code)


def test_a_package_of_a_monorepo_has_its_own(ftgate: Ftgate, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where `addopts` says which, in either configuration."""
    package = project / "packages" / "one"
    package.mkdir(parents=True)
    Store(project / "all").save("theirs.py::test_t", [change()])
    Store(package / "mine").save(TEST, [change()])
    (project / "pytest.ini").write_text("[pytest]\naddopts = --ftgate-baselines=all\n")
    (package / "pyproject.toml").write_text('[tool.pytest.ini_options]\naddopts = "--ftgate-baselines=mine"\n')
    assert "theirs.py" in ftgate("list")
    monkeypatch.chdir(package)
    assert TEST in ftgate("list")
    assert "theirs.py" not in ftgate("list")
    monkeypatch.setenv("PYTEST_ADDOPTS", "--ftgate-baselines=../../all")
    assert "theirs.py" in ftgate("list")


def test_a_run_and_the_command_take_the_same_lock(ftgate: Ftgate, store: Store, project: Path) -> None:
    leave_run(project, rows()[0])
    ftgate("update")
    assert (project / ".ftgate" / "baselines.lock").exists()
    assert store.lock_path == project / ".ftgate" / "baselines.lock"


def test_accepted_figures_are_those_that_a_run_would_store(ftgate: Ftgate, store: Store, project: Path) -> None:
    leave_run(project, rows()[0])
    ftgate("update")
    (path,) = store.path(TEST).iterdir()
    accepted = path.read_bytes()
    store.save(TEST, [msgspec.structs.replace(change(), entry=None)])
    stored = stored_values(Values(make_sample()))
    again = recording.entry_of(make_sample(), stored, "2026-02-03T04:05:06+00:00", "f" * 40, 23)
    store.save(TEST, [msgspec.structs.replace(change(), entry=again)])
    assert path.read_bytes() == accepted
    assert COMMIT.encode() not in accepted
