"""`ftgate accept`: what it writes, and what it refuses."""

from __future__ import annotations

from pathlib import Path

import pytest
from project import NOBODY, commit, git
from stored_values import MACHINE, TEST, make_sample

from pytest_ftgate import cli
from pytest_ftgate.kit.values import Interval
from pytest_ftgate.model.report import Report, Row, Table
from pytest_ftgate.model.verdict import Decision, MetricVerdict, Verdict
from pytest_ftgate.report import json

CELL = f"{TEST}[3.14t-threads-w2]"
OTHER = f"{TEST}[3.14t-threads-w4]"
FINE = f"{TEST}_all[3.14t-threads-w2]"
GROWN = f"{TEST}_all[3.14t-threads-w4]"
TRAILER = f"Ftgate-Accept: {CELL} wall+14%: the index costs it"
WORDS = ("accept", CELL, "wall", "the index\n costs it")


def row(label: str, test: str = TEST, **decisions: Decision) -> Row:
    change = Interval(value=1.09, low=1.08, high=1.1, level=0.95)
    grown = Interval(value=49_600.0, low=49_000.0, high=51_000.0, level=0.95)
    judged = tuple(
        MetricVerdict(metric=name, decision=each, points=grown, effect=65_536.0)
        if name == "growth"
        else MetricVerdict(metric=name, decision=each, ratio=change, effect=1.05)
        for name, each in decisions.items()
    )
    worst = Decision.REGRESSED if Decision.REGRESSED in decisions.values() else Decision.PASSED
    sample = make_sample(label, test=test)
    return Row(cell=sample.cell, verdict=Verdict(decision=worst, metrics=judged), sample=sample)


@pytest.fixture
def project(tmp_path: Path, bare_git: None, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with a commit and the report of a run in which three cells regressed; one file is staged."""
    for name, value in NOBODY.items():
        monkeypatch.setenv(name, value)
    folder = tmp_path / "project"
    (folder / ".ftgate").mkdir(parents=True)
    (folder / "README").write_text("one\n")
    (folder / ".gitignore").write_text(".ftgate/\n")
    commit(folder, "first\n\nbody")
    (folder / "staged").write_text("not to be committed\n")
    git(folder, "add", "staged")
    rows = (
        row("3.14t-threads-w2", wall=Decision.REGRESSED, uss=Decision.REGRESSED),
        row("3.14t-threads-w4", wall=Decision.REGRESSED, uss=Decision.PASSED),
        row("3.14t-threads-w2", f"{TEST}_all", wall=Decision.PASSED, uss=Decision.PASSED),
        row("3.14t-threads-w4", f"{TEST}_all", growth=Decision.REGRESSED),
    )
    report = Report(
        version="0.1.0",
        seed=23,
        started_at="2026-02-03T04:05:06+00:00",
        wall_s=1.0,
        machine=MACHINE,
        interpreters=(),
        tables=(Table(title=TEST, rows=rows, reference="threads"),),
    )
    (folder / ".ftgate" / "last-run.json").write_text(json.render(report))
    monkeypatch.chdir(folder)
    return folder


def message(folder: Path) -> str:
    return git(folder, "log", "-1", "--format=%B")


def test_it_makes_an_empty_commit_and_leaves_what_is_staged(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = git(project, "rev-parse", "HEAD")
    assert cli.main(WORDS) == 0
    assert message(project) == f"Accept the change of wall in {CELL}\n\n{TRAILER}"
    assert git(project, "log", "-1", "--format=%(trailers:key=Ftgate-Accept)") == TRAILER
    assert git(project, "rev-parse", "HEAD~1") == before
    assert git(project, "diff", "HEAD~1", "HEAD") == ""
    assert git(project, "diff", "--cached", "--name-only") == "staged"
    lines = capsys.readouterr().out.splitlines()
    assert lines == [
        f"commit {git(project, 'rev-parse', 'HEAD')[:10]}: {TRAILER}",
        f"accepts {CELL}: wall +9.0 % (+8.0 to +10.0)",
        f"still fails {CELL}: uss +9.0 % (+8.0 to +10.0)",
        f"still fails {OTHER}: wall +9.0 % (+8.0 to +10.0)",
        f"still fails {GROWN}: growth +48.4 KiB (+47.9 to +49.8)",
    ]


def test_it_amends_the_last_commit_where_that_is_asked_and_it_was_not_pushed(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    git(project, "update-ref", "refs/remotes/origin/older", "HEAD")
    git(project, "commit", "--quiet", "--allow-empty", "--only", "-m", "first\n\nbody")
    assert cli.main((*WORDS, "--amend")) == 0
    assert message(project) == f"first\n\nbody\n\n{TRAILER}"
    assert git(project, "diff", "--cached", "--name-only") == "staged"
    assert cli.main(("accept", OTHER, "wall", "why")) == 0
    assert cli.main((*WORDS, "--amend")) == 0, "the last commit may be the empty one that the command made"
    assert message(project).endswith(f"\n\nFtgate-Accept: {OTHER} wall+14%: why\n{TRAILER}")
    assert git(project, "diff", "--cached", "--name-only") == "staged"
    git(project, "update-ref", "refs/remotes/origin/mine", "HEAD")
    head = git(project, "rev-parse", "HEAD")
    assert cli.main((*WORDS, "--amend")) == 2
    assert "the last commit is on origin/mine already" in capsys.readouterr().err
    assert git(project, "rev-parse", "HEAD") == head


def test_of_several_metrics_it_names_what_each_accepts(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(("accept", f"{TEST}[3.14t-*]", "wall,uss,wall", "why")) == 0
    commit, *effects = capsys.readouterr().out.splitlines()
    assert commit.endswith(f"Ftgate-Accept: {TEST}[3.14t-*] wall+14%,uss+14%: why")
    assert [line.partition(" +")[0] for line in effects] == [
        f"accepts {CELL}: wall",
        f"accepts {CELL}: uss",
        f"accepts {OTHER}: wall",
        f"still fails {GROWN}: growth",
    ]


@pytest.mark.parametrize(
    ("cells", "metrics", "trailers"),
    [
        (("test_count[3.14t-threads-w2]",), "wall,uss", [f"{CELL} wall+14%,uss+14%"]),
        (("test_count",), "wall", [f"{TEST} wall+14%"]),
        (("TestA::test_count[3.14t-threads-w4]", CELL), "wall", [f"{OTHER} wall+14%", f"{CELL} wall+14%"]),
        (("test_count", "test_count_all"), "wall,growth", [f"{TEST} wall+14%", f"{TEST}_all growth+113KiB"]),
        ((CELL, OTHER), "wall,uss", [f"{CELL} wall+14%,uss+14%", f"{OTHER} wall+14%"]),
        ((GROWN,), "growth", [f"{GROWN} growth+113KiB"]),
        ((GROWN,), "growth+1.5MiB", [f"{GROWN} growth+1.5MiB"]),
    ],
)
def test_parts_of_names_and_several_cells_each_get_what_regressed_in_them(
    project: Path, capsys: pytest.CaptureFixture[str], cells: tuple[str, ...], metrics: str, trailers: list[str]
) -> None:
    assert cli.main(("accept", *cells, metrics, "why", "--print")) == 0
    written = capsys.readouterr().out
    assert written.splitlines() == [f"Ftgate-Accept: {each}: why" for each in trailers]
    assert cli.main(("accept", *cells, metrics, "why")) == 0
    assert cli.main(("accept", *cells, metrics, "so", "--amend")) == 0
    all_of_them = f"{written}{written.replace('why', 'so')}".strip()
    assert message(project).endswith(f"\n\n{all_of_them}")
    assert git(project, "log", "-1", "--format=%(trailers:key=Ftgate-Accept)") == all_of_them, "they are git's trailers"


def test_how_much_is_accepted_can_be_said(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Else it is what was seen plus the effect."""
    assert cli.main(("accept", CELL, "wall+40%,uss", "why", "--print")) == 0
    assert capsys.readouterr().out == f"Ftgate-Accept: {CELL} wall+40%,uss+14%: why\n"
    assert cli.main(("accept", CELL, "wall+0%", "why", "--print")) == 0
    assert capsys.readouterr().out == f"Ftgate-Accept: {CELL} wall+0%: why\n"


def test_it_prints_the_trailer_alone(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    head = git(project, "rev-parse", "HEAD")
    assert cli.main(("accept", f"{TEST}[3.14t-*]", "wall", "why", "--print")) == 0
    assert capsys.readouterr().out == f"Ftgate-Accept: {TEST}[3.14t-*] wall+14%: why\n"
    assert git(project, "rev-parse", "HEAD") == head


@pytest.mark.parametrize(
    ("cells", "metric", "code", "said"),
    [
        (OTHER, "uss", 3, "uss did not regress in it: wall did; nothing was written"),
        (CELL, "wall,tail", 3, "tail did not regress in it: wall and uss did; nothing was written"),
        (FINE, "uss", 3, f"uss did not regress in it; it did in {CELL}; nothing was written"),
        ("test_count", "tail,lock_wait", 3, "tail and lock_wait did not regress in them: wall and uss did; nothing"),
        ("test_", "wall", 2, "test_ fits several, name one of them"),
        ("no::such", "wall", 3, "the run has no cell no::such; nothing was written"),
        (CELL, "wal", 2, "did you mean 'wall'?"),
        (CELL, "contract", 2, "@ftgate.xfail('broken')"),
    ],
)
def test_what_would_accept_nothing_is_not_written(
    project: Path, capsys: pytest.CaptureFixture[str], cells: str, metric: str, code: int, said: str
) -> None:
    head = git(project, "rev-parse", "HEAD")
    assert cli.main(("accept", cells, metric, "why")) == code
    assert said in capsys.readouterr().err
    assert git(project, "rev-parse", "HEAD") == head


def test_a_report_of_ci_takes_the_place_of_the_last_run(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / ".ftgate" / "last-run.json").rename(project / "ci.json")
    assert cli.main(WORDS) == 3
    assert "run pytest --ftgate first" in capsys.readouterr().err
    assert cli.main((*WORDS, "--print", "--report", "ci.json")) == 0


def test_where_git_makes_no_commit_it_says_so(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    hook = project / ".git" / "hooks" / "commit-msg"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\nexit 1\n")
    hook.chmod(0o755)
    assert cli.main(WORDS) == 2
    assert "git made no commit" in capsys.readouterr().err
    (project / ".git").rename(project / "gone")
    assert cli.main(WORDS) == 2
    assert "is in no git repository; with --print" in capsys.readouterr().err


def test_the_help_tells_it_from_the_acceptance_of_baselines(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["accept", "--help"])
    assert "ftgate baseline update stores" in " ".join(capsys.readouterr().out.split())
