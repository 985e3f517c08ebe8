"""`ftgate bisect`: the search, the steps between two commits, and the command over scripted runs."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from project import NOBODY, commit, git
from stored_values import MACHINE, TEST, make_sample

from pytest_ftgate.declare import options
from pytest_ftgate.declare.options import Options
from pytest_ftgate.features import bisect
from pytest_ftgate.features.bisect import steps
from pytest_ftgate.features.bisect.search import ERROR, FALSE_ALARM, MISS, Search
from pytest_ftgate.features.last_run import LAST_RUN
from pytest_ftgate.kit.git import Repository
from pytest_ftgate.kit.values import Interval
from pytest_ftgate.model.report import Report, Row, Table
from pytest_ftgate.model.verdict import Decision, MetricVerdict, Verdict
from pytest_ftgate.report import json
from pytest_ftgate.run.folder import RunFolder

CELL = f"{TEST}[3.14t-threads-w2]"


# ---- the search


@pytest.mark.parametrize("count", [1, 2, 3, 10, 100])
def test_right_answers_name_every_step_in_few_runs(count: int) -> None:
    for guilty in range(count):
        search, runs = Search(count), 0
        while (step := search.next()) is not None:
            search.learn(step, step >= guilty)
            runs += 1
        assert search.guilty == [guilty]
        assert runs <= 2 * count.bit_length() + 4


def test_wrong_answers_at_their_stated_rates_name_a_wrong_step_no_more_often_than_stated() -> None:
    draw, searches, wrong = random.Random(29), 2000, 0
    for _ in range(searches):
        search, guilty = Search(12), draw.randrange(12)
        while (step := search.next()) is not None:
            is_bad = step >= guilty
            search.learn(step, is_bad != (draw.random() < (MISS if is_bad else FALSE_ALARM)))
        wrong += search.guilty != [guilty]
    assert 0 < wrong <= 1.5 * ERROR * searches  # 20 are expected; 30 and more come once in 50 times


# ---- the steps


@pytest.fixture
def project(tmp_path: Path, bare_git: None, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Commits 0 to 6; from commit 4 on `speed` says slow."""
    for name, value in NOBODY.items():
        monkeypatch.setenv(name, value)
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / ".gitignore").write_text(".ftgate/\n")
    for number in range(7):
        (folder / "number").write_text(str(number))
        (folder / "speed").write_text("slow" if number >= 4 else "fast")
        commit(folder, f"commit {number}")
    monkeypatch.chdir(folder)
    return folder


def test_commits_oldest_first_a_merge_as_one_and_edits_as_the_last(project: Path) -> None:
    git(project, "checkout", "--quiet", "-b", "side", "HEAD~1")
    (project / "more").write_text("more")
    commit(project, "aside")
    git(project, "checkout", "--quiet", "main")
    git(project, "merge", "--quiet", "--no-ff", "-m", "merged", "side")
    repository = Repository(project)
    found = [each.text.partition(" ")[2] for each in steps.commits(repository, "HEAD~3", "HEAD")]
    assert found == ["commit 5", "commit 6", "merged"]
    assert steps.ends(repository, "main~1", "side") == tuple(git(project, "rev-parse", *("main~2", "side")).split())
    assert steps.working_tree(project, project / ".ftgate") is None
    (project / "speed").write_text("edited")
    edits = steps.working_tree(project, project / ".ftgate")
    assert edits is not None
    assert (edits.text, git(project, "show", f"{edits.commit}:speed")) == ("uncommitted changes", "edited")


# ---- the command


PROBES = ["0..3", "0..4", "0..3", "0..4", "3..4"]
"""The runs that find commit 4 of 6, and the one that measures it alone."""


class Scripted:
    """Runs that read what a commit's files say."""

    def __init__(self, project: Path) -> None:
        self.project = project
        self.compared: list[str] = []
        self.undecided: set[str] = set()

    def pytest(self, reference: str, commit: str, *words: str) -> Report:
        """In place of `Runs.pytest`."""
        number, before = (git(self.project, "show", f"{each}:number") for each in (commit, reference))
        self.compared.append(f"{before}..{number}")
        speeds = [git(self.project, "show", f"{each}:speed") for each in (reference, commit)]
        times = [2.0 if speed == "slow" else 1.0 for speed in speeds]
        decision = Decision.REGRESSED if times[1] > times[0] else Decision.PASSED
        return report(Decision.INCONCLUSIVE if number in self.undecided else decision, reference, times[1] / times[0])


def report(decision: Decision, reference: str, ratio: float = 2.0) -> Report:
    """Of one cell that was compared with a commit."""
    change = Interval(value=ratio, low=ratio - 0.1, high=ratio + 0.1, level=0.95)
    judged = MetricVerdict(metric="wall", decision=decision, ratio=change)
    verdict = Verdict(decision=decision, metrics=(judged,), basis="paired", baseline="it", commit=reference)
    sample = make_sample("3.14t-threads-w2")
    return Report(
        version="0.1.0",
        seed=23,
        started_at="2026-02-03T04:05:06+00:00",
        wall_s=1.0,
        machine=MACHINE,
        interpreters=(),
        tables=(Table(title=TEST, rows=(Row(cell=sample.cell, verdict=verdict, sample=sample),), reference="threads"),),
    )


@pytest.fixture
def runs(project: Path, monkeypatch: pytest.MonkeyPatch) -> Scripted:
    """The last run compared with commit 0, and regressed."""
    scripted = Scripted(project)
    monkeypatch.setattr(bisect.Runs, "pytest", lambda runs, *words: scripted.pytest(*words))
    (project / ".ftgate").mkdir()
    last = json.render(report(Decision.REGRESSED, git(project, "rev-parse", "HEAD~6")))
    (project / ".ftgate" / "last-run.json").write_text(last)
    return scripted


def test_the_guilty_commit_is_found_measured_alone_and_noted(
    runs: Scripted, ftgate: Callable[..., str], project: Path
) -> None:
    said = ftgate("bisect").splitlines()
    guilty = git(project, "rev-parse", "--short=10", "HEAD~2")
    assert said[0] == f"{CELL}: 6 steps from {git(project, 'rev-parse', 'HEAD~6')[:10]} to " + git(
        project, "log", "-1", "--abbrev=10", "--format=%h commit 6"
    )
    assert f"  bad     {guilty} commit 4: +100 % (+90.0 to +110)" in said
    assert said[-3:] == [f"guilty: {guilty} commit 4", "probability 99.5 %", "wall +100 % (+90.0 to +110)"]
    assert runs.compared == PROBES
    last = json.parse((project / ".ftgate" / "last-run.json").read_bytes(), origin="it")
    assert last.tables[0].note == f"ftgate bisect: {', '.join(said[-3:])}"


def test_what_is_not_decided_is_tried_twice_and_its_neighbours_are_named(
    runs: Scripted, ftgate: Callable[..., str]
) -> None:
    runs.undecided = {"4"}
    said = ftgate("bisect").splitlines()
    assert [line.partition("commit ")[2][:1] for line in said if line.startswith("  unknown")] == ["4", "4"]
    assert re.fullmatch(r"guilty: one of \w+ commit 4; \w+ commit 5", said[-2])


def test_the_time_ends_between_runs(
    runs: Scripted, ftgate: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    measure = runs.pytest

    def interrupted(*words: str) -> Report:
        if len(runs.compared) == 2:
            raise bisect.OutOfTimeError
        return measure(*words)

    monkeypatch.setattr(runs, "pytest", interrupted)
    assert "the time is over before one step was found" in ftgate("bisect", "--time=1h", code=3)
    assert runs.compared == PROBES[:2]


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("--cell", "other"), 3, "no cell of the last run, named other, failed against a commit: run pytest"),
        (("--time", "soon"), 2, "--time takes a duration above 0 such as 90s"),
        (("nowhere",), 2, "nowhere: git knows no such revision; name a branch, a tag or a commit"),
        (("HEAD",), 3, "no commit lies between"),
    ],
)
def test_what_cannot_be_searched(
    runs: Scripted, ftgate: Callable[..., str], words: tuple[str, ...], code: int, said: str
) -> None:
    assert said in ftgate("bisect", *words, code=code)
    assert runs.compared == []


def test_without_a_run_it_says_which_to_make(runs: Scripted, ftgate: Callable[..., str]) -> None:
    (runs.project / LAST_RUN).unlink()
    said = ftgate("bisect", code=3)
    assert "no run was recorded" in said
    assert "run pytest --ftgate-against=REV first" in said


@pytest.mark.parametrize("worse", [1.05, 2.0, 3.0, 1000.0])
def test_a_state_is_bad_from_within_the_change_however_large(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, worse: float
) -> None:
    (tmp_path / ".ftgate").mkdir()
    asked: list[str] = []
    monkeypatch.setattr(bisect.Runs, "pytest", lambda _, *words: asked.extend(words))
    monkeypatch.setattr(bisect, "answer", lambda *_: (True, ""))
    watched = bisect.Watched(good="0", bad="1", nodeid=CELL, metric="wall", worse=worse)
    bisect.Runs(tmp_path, watched, None).compare("0", "1")
    limit = options.threshold(asked[asked.index("--ftgate-limit") + 1])
    assert limit.metric == "wall"
    assert limit.margin is not None
    assert limit.effect is not None
    assert 0 < limit.margin < limit.effect < worse - 1


def test_a_run_against_several_commits_names_the_command(runs: Scripted, project: Path) -> None:
    def said(back: int, against: str = "main") -> list[str]:
        run: Any = SimpleNamespace(folder=RunFolder(project), config=Options(against=against))
        return [*bisect.ftgate_finish(run, report(Decision.REGRESSED, git(project, "rev-parse", f"HEAD~{back}")))]

    first = git(project, "rev-parse", "HEAD~6")[:10]
    assert said(6) == [f"6 commits lie between {first} and this: ftgate bisect finds the one"]
    assert said(1) == said(6, against="main..other") == []
