"""The one reference of each cell, from outside, run after run: recordings, their commits, what takes their place."""

from __future__ import annotations

import os
import re
import time
from typing import Any

import msgspec
import pytest
from example import Example
from project import NOBODY, commit, git

from pytest_ftgate import cli
from pytest_ftgate.store import names, schema

OK, FAILED = pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED
UNDECIDED = pytest.ExitCode.NO_TESTS_COLLECTED
"""What unchanged code is by the figures of one day: others may differ by more than the effect."""
QUICK = ("-p", "fake_run", "-oftgate_iterations=4", "--ftgate-metrics=wall", "-v")
ONE = """
    # takes {ms} ms
    @ftgate.compare(threads, workers=1)
    def test_it(worker):
        return 1
    """
CHANGED = ONE + "\n    # changed\n"
TWO = ONE.replace("threads,", "threads, serial,")
IT = "test_a.py::test_it[3.14-{}-w1]"
THREADS, SERIAL = IT.format("threads"), IT.format("serial")
NOT_MEASURED = "not measured: the files are those of {}"


class Story(Example):
    """A project whose runs follow each other: its one test takes the time that its file says."""

    def write(self, ms: int = 20, text: str = ONE) -> None:
        """The test as it is from now on."""
        Example(self.pytester, {"test_a.py": text.format(ms=ms)})

    def commit(self) -> str:
        """Commits all; the short id."""
        return commit(self.folder)[:10]

    def record(self, *options: str, ret: int = OK) -> str:
        """A run that records; what it says."""
        result = self.run_pytest(*QUICK, *(options or ("--ftgate-update",)))
        assert result.ret == ret, result.stdout.str()
        time.sleep(1 - time.time() % 1)  # of two recordings of one second none would be the newer one
        return result.stdout.str()

    def recorded(self, text: str = ONE) -> str:
        """Committed, recorded, and the recording committed after it; the commit that was recorded."""
        self.write(text=text)
        at = self.commit()
        self.record()
        self.commit()
        return at

    def gate(self, *options: str, ret: int = OK) -> str:
        """A run that gates; what it says."""
        result = self.run_pytest(*QUICK, "--ftgate", *options)
        assert result.ret == ret, result.stdout.str()
        return " ".join(result.stdout.str().split())

    def verdict(self, nodeid: str = THREADS) -> dict[str, Any]:
        """Of a cell in the last run."""
        return self.verdicts()[nodeid]

    def beside(self, at: str, decision: str, nodeid: str = THREADS) -> None:
        """The cell was measured together with this commit."""
        verdict = self.verdict(nodeid)
        assert (verdict["decision"], verdict["basis"]) == (decision, "paired"), verdict
        assert verdict["baseline"] == f"the baseline's commit ({at})"

    def by_figures(self, why: str, decision: str, nodeid: str = THREADS) -> None:
        """The cell was judged by what is stored, for this reason."""
        verdict = self.verdict(nodeid)
        assert (verdict["decision"], verdict["basis"]) == (decision, "stored"), verdict
        assert re.search(why, verdict["why"]), verdict["why"]


@pytest.fixture
def story(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, scripted_runs: None, bare_git: None) -> Story:
    for name, value in NOBODY.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("CI", raising=False)
    return Story(
        pytester,
        {"pytest.ini": "[pytest]\nftgate_install =\nftgate_python = 3.14\n", ".gitignore": ".ftgate/\n__pycache__/\n"},
    )


# -- the commit of a recording -------------------------------------------------------------------------------------


def test_the_files_that_were_recorded_are_unchanged_and_only_contracts_are_measured(story: Story) -> None:
    at = story.recorded()
    said = story.gate()
    assert story.verdict()["reason"] == NOT_MEASURED.format(at)
    assert NOT_MEASURED.format(at) in said
    (row,) = story.rows()
    assert row["sample"] is None


@pytest.mark.parametrize(("limit", "ret", "decision"), [("1 s", OK, "passed"), ("1 ms", FAILED, "broken")])
def test_contracts_are_measured_all_the_same(story: Story, limit: str, ret: int, decision: str) -> None:
    story.write(text=ONE.replace("@ftgate.compare", f'@ftgate.contract("wall < {limit}")\n    @ftgate.compare'))
    story.commit()
    story.record(ret=ret)
    story.commit()
    said = story.gate(ret=ret)
    assert (story.verdict()["decision"], story.verdict()["basis"]) == (decision, "")
    assert "baseline the files are those of" in said


@pytest.mark.parametrize("committed", [True, False], ids=["later commit", "edited tree"])
def test_a_change_is_measured_beside_the_commit_that_was_recorded(story: Story, committed: bool) -> None:
    at = story.recorded()
    for ms, ret, decision in ((20, OK, "passed"), (40, FAILED, "regressed"), (10, OK, "improved")):
        story.write(ms, CHANGED)
        if committed:
            story.commit()
        said = story.gate(ret=ret)
        story.beside(at, decision)
        assert f"against the baseline's commit ({at}); stored 20.0 ms, the reference 20.0 ms here" in said
        assert "judged by paired launches" in said


def test_a_recording_of_an_edited_tree_is_of_the_commit_that_brought_both(story: Story) -> None:
    story.write()
    before = story.commit()
    story.write(30)
    story.record()
    story.gate()
    assert story.verdict()["decision"] == "unchanged", "it is still edited as it was"
    at = story.commit()
    assert at != before
    story.gate()
    assert story.verdict()["decision"] == "unchanged"
    story.write(60)
    story.gate(ret=FAILED)
    story.beside(at, "regressed")


def test_a_recording_of_an_edited_tree_that_no_commit_has_leaves_it_to_its_figures(story: Story) -> None:
    story.write()
    before = story.commit()
    story.write(30)
    story.record()
    story.write(31)
    story.commit()
    said = story.gate(ret=UNDECIDED)
    why = f"recorded at {before}, whose test cannot run here: the baseline was recorded with uncommitted changes"
    story.by_figures(why, "inconclusive")
    assert "judged by stored figures, by which a pass rules out +15 %" in said
    assert "record it again: pytest '--ftgate-update=" in said
    story.write(90)
    story.gate(ret=FAILED)
    story.by_figures(why, "regressed")


def test_without_git_stored_figures_judge(story: Story) -> None:
    story.write()
    story.record()
    said = story.gate(ret=UNDECIDED)
    story.by_figures("it was recorded outside of git", "inconclusive")
    assert re.search(r"nothing was decided: 0 of 1 compared cell; record on \d more days? \(pytest --ftgate-up", said)
    assert "--ftgate-against" not in said
    story.write(60)
    said = story.gate(ret=FAILED)
    story.by_figures("it was recorded outside of git", "regressed")
    assert "stale" not in said


@pytest.mark.parametrize(
    ("ci", "there", "why"),
    [
        ("true", True, ""),
        ("", True, "but this clone is shallow: fetch it with `git fetch --depth=1 origin {at}"),
        ("true", False, "but this clone is shallow: fetch it"),
    ],
    ids=["fetched", "not in CI", "not there"],
)
def test_a_shallow_clone(story: Story, monkeypatch: pytest.MonkeyPatch, ci: str, there: bool, why: str) -> None:
    at = story.recorded()
    story.write(text=CHANGED)
    story.commit()
    whole = story.folder.rename(story.folder.with_name(f"{story.folder.name}-whole"))
    git(whole, "config", "uploadpack.allowAnySHA1InWant", "true")
    git(whole.parent, "clone", "--quiet", "--depth=1", f"file://{whole}", str(story.folder))
    os.chdir(story.folder)
    if not there:
        git(story.folder, "remote", "set-url", "origin", f"file://{whole}-gone")
    monkeypatch.setenv("CI", ci)
    said = story.gate(ret=UNDECIDED if why else OK)
    if why:
        story.by_figures(f"recorded at {at}, which is not at hand: .*{re.escape(why.format(at=at))}", "inconclusive")
        assert "missing 1 cell: recorded at" in said
        assert "record it again" not in said, "it would be fetched"
    else:
        story.beside(at, "passed")


def test_a_test_that_is_new_or_renamed_has_no_baseline(story: Story) -> None:
    story.recorded()
    story.write(text=ONE.replace("test_it", "test_other"))
    story.commit()
    said = story.gate()
    assert f"unused 1 baseline of cells that no longer exist, remove them with ftgate baseline prune {THREADS}" in said
    (verdict,) = story.verdicts().values()
    reason = "nothing is stored for it; record it with --ftgate-update"
    assert (verdict["decision"], verdict["reason"]) == ("no baseline", reason)


def test_a_commit_whose_test_has_another_api_leaves_it_to_its_figures(story: Story) -> None:
    story.recorded()
    story.write(text=ONE + "\n    # raises TypeError: of another version\n")
    old = commit(story.folder)
    for path in (story.folder / "baselines").rglob("*.json"):  # as if it had been recorded there
        run = msgspec.structs.replace(schema.decode(path.read_bytes(), path.name), commit=old, tree="")
        path.unlink()
        name = names.file_name(run.recorded_at, old, run.seed, run.machine.fingerprint)
        path.with_name(name).write_text(schema.encode(run), encoding="utf-8")
    story.write()
    story.commit()
    said = story.gate(ret=UNDECIDED)
    why = f"recorded at {old[:10]}, whose test cannot run here: raised TypeError: of another version"
    story.by_figures(re.escape(why), "inconclusive")
    assert f"stale 1 cell: {why}" in said
    assert "record it again: pytest" in said


def test_a_new_cell_does_not_move_the_reference_of_an_old_one(story: Story) -> None:
    """Else the slowdown between both recordings would be absorbed."""
    first = story.recorded()
    story.write(40, TWO)
    second = story.commit()
    said = story.record(ret=FAILED)
    assert "refused" not in said, "it was not asked for"
    story.by_figures("a run that records measures no reference", "regressed")
    story.commit()
    story.gate(ret=FAILED)
    story.beside(first, "regressed")
    assert story.verdict(SERIAL)["reason"] == NOT_MEASURED.format(second)
    story.write(40, TWO + "\n    # changed\n")
    story.gate(ret=FAILED)
    story.beside(first, "regressed")
    story.beside(second, "passed", SERIAL)


# -- runs that record, and stored figures --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ms", "update", "ret", "line"),
    [
        (20, "new", OK, "kept 1 cell that has a baseline"),
        (20, "all", OK, "recorded test_a.py::test_it"),
        (20, "CELL", OK, "recorded test_a.py::test_it"),
        (60, "new", FAILED, "kept 1 cell that has a baseline"),
        (60, "all", FAILED, "refused test_a.py::test_it"),
        (60, "CELL", FAILED, "recorded test_a.py::test_it"),
    ],
)
def test_a_run_that_records_judges_by_stored_figures(story: Story, ms: int, update: str, ret: int, line: str) -> None:
    at = story.recorded()
    story.write(ms)
    now = story.commit()
    said = story.record(f"--ftgate-update={update.replace('CELL', THREADS)}", ret=ret)
    story.by_figures("^a run that records measures no reference$", "inconclusive" if ms == 20 else "regressed")
    assert line in said
    # What was recorded is the reference from now on.
    story.commit()
    story.write(ms, CHANGED)
    recorded = line.startswith("recorded")
    story.gate(ret=OK if recorded or ms == 20 else FAILED)
    story.beside(now if recorded else at, "passed" if recorded or ms == 20 else "regressed")


def test_stored_figures_judge_where_they_are_asked_for(story: Story) -> None:
    """The same code on a slower system, which no commit shows."""
    story.recorded()
    said = story.gate("--ftgate-against=stored", ret=UNDECIDED)
    story.by_figures("^--ftgate-against stored$", "inconclusive")
    assert "record on" in said
    story.write(60)
    said = story.gate("--ftgate-against=stored", ret=FAILED)
    story.by_figures("^--ftgate-against stored$", "regressed")
    assert "rerun pytest --ftgate-against=stored" in said


def test_stored_figures_and_an_update_cannot_be_combined(story: Story) -> None:
    story.recorded()
    result = story.run_pytest(*QUICK, "--ftgate-update", "--ftgate-against=stored")
    assert result.ret == pytest.ExitCode.USAGE_ERROR


# -- what people say of a change -----------------------------------------------------------------------------------


def test_what_is_accepted_is_accepted_up_to_what_was_seen_and_the_effect(story: Story) -> None:
    at = story.recorded()
    story.write(30)
    story.commit()
    story.gate(ret=FAILED)
    assert cli.main(["accept", THREADS, "wall", "the index costs it"]) == 0
    trailer = f"Ftgate-Accept: {THREADS} wall+55%: the index costs it"
    assert git(story.folder, "log", "-1", "--format=%B").endswith(trailer)
    story.gate()
    story.beside(at, "accepted")
    story.write(29, CHANGED)
    story.gate()
    story.beside(at, "accepted")
    story.write(40)
    story.gate(ret=FAILED)
    story.beside(at, "regressed")
    told = [reason for each in story.verdict()["metrics"] for reason in each["reasons"]]
    assert ("accepted_less", 1.55) in [(reason["code"], reason.get("limit")) for reason in told]


def test_a_known_failure_is_judged_beside_the_commit_too(story: Story) -> None:
    at = story.recorded()
    known = ONE.replace("@ftgate.compare", '@ftgate.xfail("regressed", reason="known")\n    @ftgate.compare')
    story.write(40, known)
    story.gate()
    story.beside(at, "xfailed")
    story.write(20, known)
    story.gate(ret=FAILED)
    story.beside(at, "xpassed")


def test_shards_find_the_references_that_one_run_finds(story: Story, monkeypatch: pytest.MonkeyPatch) -> None:
    at = story.recorded(ONE + ONE.replace("test_it", "test_other"))
    story.write(40, ONE + ONE.replace("test_it", "test_other"))
    for part in (1, 2):
        report = f"--ftgate-report=json:{part}.json"
        story.gate(f"--ftgate-shard={part}/2", "--ftgate-seed=1", report, ret=FAILED)
        (verdict,) = story.verdicts(f"{part}.json").values()
        assert (verdict["decision"], verdict["baseline"]) == ("regressed", f"the baseline's commit ({at})")
    monkeypatch.chdir(story.folder)
    assert cli.main(["merge", "1.json", "2.json"]) == 1
