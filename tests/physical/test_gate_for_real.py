"""The main job on real interpreters: a baseline is recorded, a regression fails the run and names the cell."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from project import commit

WORKLOAD = """
from pytest_ftgate import ftgate, threads

ROUNDS = {rounds}


@ftgate.compare(threads, workers=1)
def test_burn(worker):
    x = 1
    for _ in range(ROUNDS):
        x = (x * 1103515245 + 12345) & 0xFFFFFFFF
    return x if ROUNDS == 0 else None
"""
ROUNDS = 30_000
FAST = (
    "--ftgate",
    "-oftgate_iterations=5",
    "--ftgate-metrics=wall",
    "--ftgate-test-time=60s",
    "-p",
    "no:cacheprovider",
)


class Project:
    """A user's project: its workload is rewritten as code changes do it, then gated."""

    def __init__(self, pytester: pytest.Pytester) -> None:
        self.pytester = pytester
        pytester.makeini("[pytest]\n")
        pytester.makefile("", **{".gitignore": ".ftgate/\n__pycache__/\nrunpytest-*\nstdout\nstderr\n"})

    def write(self, rounds: int = ROUNDS) -> None:
        """The workload as it is now."""
        self.pytester.makepyfile(test_burn=WORKLOAD.format(rounds=rounds))

    def run(self, *options: str) -> pytest.RunResult:
        """One gated run."""
        return self.pytester.runpytest_subprocess(*options, timeout=300)

    @property
    def baseline(self) -> Path:
        """The only file that is stored of the test; one that is not there yet has a name of its own."""
        folder = self.pytester.path / "baselines" / "test_burn.py" / "test_burn"
        (path,) = folder.glob("*.json") if folder.is_dir() else (folder / "recording.json",)
        return path


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, interpreters_on_path: None) -> Project:
    """A project whose runs take the two interpreters by their paths' folders, as a user's would."""
    for name in ("FTGATE_PYTHON", "FTGATE_TIME", "PYTEST_ADDOPTS"):
        monkeypatch.delenv(name, raising=False)
    return Project(pytester)


def decisions(project: Project) -> dict[str, str]:
    """Cell label -> decision of the last run, from the report kept beside the environments."""
    report = json.loads((project.pytester.path / ".ftgate" / "last-run.json").read_text(encoding="utf-8"))
    rows = [row for table in report["tables"] for row in table["rows"]]
    return {row["cell"]["nodeid"].partition("[")[2].rstrip("]"): row["verdict"]["decision"] for row in rows}


def skip_where_it_cannot_tell(project: Project) -> None:
    """The gate decides at an error of its own; where the machine is too busy for that, it says so."""
    report = json.loads((project.pytester.path / ".ftgate" / "last-run.json").read_text(encoding="utf-8"))
    for row in (row for table in report["tables"] for row in table["rows"]):
        others = row["conditions"] and row["conditions"]["others"]
        busy = others is not None and others > 0.5
        if row["verdict"]["decision"] == "inconclusive" or (row["verdict"]["decision"] == "suspect" and busy):
            pytest.skip(f"the gate cannot tell: {row['verdict']['reason']}; other processes took {others} cores")


def test_a_regression_fails_the_run_and_names_the_cell(project: Project) -> None:
    project.write()
    commit(project.pytester.path)
    recorded = project.run(*FAST, "--ftgate-update", "-oftgate_launches=9", "-k", "3.14t")  # both builds below
    recorded.assert_outcomes()  # "no baseline" is a word of our own, not "passed"
    assert recorded.ret == 0
    recorded.stdout.fnmatch_lines(["*recorded test_burn.py::test_burn?3.14t-threads-w1?: wall*", "*1 no baseline*"])
    assert project.baseline.is_file()

    unchanged = project.run(*FAST, "-k", "3.14t")
    assert unchanged.ret in (0, 5), "a busy machine may leave it undecided\n" + unchanged.stdout.str()
    assert "regressed" not in decisions(project).values()

    before = project.baseline.read_text(encoding="utf-8")
    project.write(int(ROUNDS * 1.6))
    slower = project.run(*FAST, "--ftgate-update=all", "-k", "3.14t")
    skip_where_it_cannot_tell(project)
    assert slower.ret == 1
    assert decisions(project) == {"3.14t-threads-w1": "regressed"}
    assert project.baseline.read_text(encoding="utf-8") == before
    slower.stdout.fnmatch_lines(
        [
            "*regressed: 3.14t-threads-w1*",
            "*wall *ms, *+*% CI*",
            "*is beyond*: p = *",
            "*judged by*paired launches*",
            "*refused test_burn.py::test_burn?3.14t-threads-w1?*",
            "*1 regressed*",
        ]
    )
