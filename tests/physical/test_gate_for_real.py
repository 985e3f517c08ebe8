"""The main job on real interpreters: a regression fails the run and names the cell; its commit is found."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable

import pytest
from example import Example
from project import commit, git

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
)
UNEXPLAINED = "-oftgate_explain=no"
"""What a regression comes from is for the last test here, and for `plugin/test_explained.py`."""


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, interpreters_on_path: None) -> Example:
    """A user's project: its workload is rewritten as code changes do it, then gated."""
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)
    return Example(pytester, {"pytest.ini": "[pytest]\n", ".gitignore": ".ftgate/\n__pycache__/\n"})


LEAK = """
from pytest_ftgate import ftgate, threads

HELD = []


@ftgate.compare(threads, workers=2)
def test_leak(worker):
    sum(range(1000))
"""


def test_a_leak_fails_by_default_against_a_commit_and_a_contract(project: Example) -> None:
    project.pytester.makepyfile(test_leak=LEAK)
    commit(project.folder, "one")
    leaking = LEAK.replace("    sum(", "    HELD.append(bytearray(16 << 10))\n    sum(")
    held = leaking.replace("@ftgate.compare", '@ftgate.contract("growth < 16 KiB")\n@ftgate.compare')
    project.pytester.makepyfile(test_leak=held)
    options = "--ftgate", "--ftgate-against=HEAD", "--ftgate-test-time=60s", "-oftgate_launches=5", UNEXPLAINED
    result = project.run_pytest(*options)
    result.assert_outcomes(failed=len(project.rows()))
    for row in project.rows():
        found = {each["contract"] or each["metric"]: each["decision"] for each in row["verdict"]["metrics"]}
        assert found["growth"] == "regressed"
        assert found["growth < 16 KiB"] == "broken"


POOL = """
from pytest_ftgate import ftgate

TEXTS = [f"text {number} " * 200 for number in range(16)]


def words(number):
    return len(TEXTS[number].split())


@ftgate.compare(processes=["fork"], reuse="pool", workers=2)
def test_words(executor):
    return sum(executor.map(words, range(16)))
"""


def test_a_bigger_argument_fails_by_default_and_is_named(project: Example) -> None:
    project.pytester.makepyfile(test_words=POOL)
    commit(project.folder, "one")
    bigger = POOL.replace("TEXTS[number].split", "job[1][job[0]].split").replace("words(number)", "words(job)")
    project.pytester.makepyfile(test_words=bigger.replace("range(16)))", "[(each, TEXTS) for each in range(16)]))"))
    result = project.run_pytest(
        "--ftgate", "--ftgate-against=HEAD", "--ftgate-test-time=60s", "-oftgate_launches=2", "-k", "3.14-fork"
    )
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*payload * +* KiB (exact), regressed: * KiB, was * B*"])
    result.stdout.fnmatch_lines(["*argument 1 of words, int -> tuple: * B -> * KiB a task*"])


def write(project: Example, rounds: int = ROUNDS) -> None:
    """The workload as it is now."""
    project.pytester.makepyfile(test_burn=WORKLOAD.format(rounds=rounds))


def decisions(project: Example) -> dict[str, str]:
    """Cell label -> decision of the last run, from the report kept beside the environments."""
    return {row["cell"]["nodeid"].partition("[")[2].rstrip("]"): row["verdict"]["decision"] for row in project.rows()}


def skip_where_it_cannot_tell(project: Example) -> None:
    """The gate decides at an error of its own; where the machine is too busy for that, it says so."""
    for row in project.rows():
        others = row["conditions"] and row["conditions"]["others"]
        busy = others is not None and others > 0.5
        if row["verdict"]["decision"] == "inconclusive" or (row["verdict"]["decision"] == "suspect" and busy):
            why = [each["reasons"] for each in row["verdict"]["metrics"]]
            pytest.skip(f"the gate cannot tell: {why}; other processes took {others} cores")


def test_a_regression_fails_the_run_and_names_the_cell(project: Example) -> None:
    write(project)
    commit(project.folder)
    fast = (*FAST, UNEXPLAINED, "-k", "3.14t")
    recorded = project.run_fresh(*fast, "--ftgate-update", "-oftgate_launches=9")
    recorded.assert_outcomes(passed=1)
    assert recorded.ret == 0
    recorded.stdout.fnmatch_lines(["*recorded test_burn.py::test_burn?3.14t-threads-w1?: wall*", "*1 recorded*"])
    (baseline,) = (project.folder / "baselines" / "test_burn.py" / "test_burn").glob("*.json")

    unchanged = project.run_fresh(*fast)
    assert unchanged.ret in (0, 5), "a busy machine may leave it undecided\n" + unchanged.stdout.str()
    assert "regressed" not in decisions(project).values()

    before = baseline.read_text(encoding="utf-8")
    write(project, int(ROUNDS * 1.6))
    slower = project.run_fresh(*fast, "--ftgate-update=all")
    skip_where_it_cannot_tell(project)
    assert slower.ret == 1
    assert decisions(project) == {"3.14t-threads-w1": "regressed"}
    assert baseline.read_text(encoding="utf-8") == before
    slower.stdout.fnmatch_lines(
        [
            "*regressed: 3.14t-threads-w1*",
            "*wall *+*% (*), regressed: * ms*",
            "*judged by*stored figures*",
            "*refused test_burn.py::test_burn?3.14t-threads-w1?*",
            "*1 regressed*",
        ]
    )


def test_the_commit_that_made_it_slower_is_found(
    project: Example, monkeypatch: pytest.MonkeyPatch, ftgate: Callable[..., str]
) -> None:
    for change, rounds in enumerate((ROUNDS, ROUNDS + 1, 3 * ROUNDS, 3 * ROUNDS + 1)):
        write(project, rounds)
        commit(project.folder, f"change {change}")
    words = (*FAST, "-k", "3.14t")
    against = project.run_fresh("--ftgate-against=HEAD~3", *words)
    skip_where_it_cannot_tell(project)
    against.stdout.fnmatch_lines(["*3 commits lie between *: ftgate bisect finds the one*"])
    monkeypatch.chdir(project.folder)
    # It runs with an uncommitted file on the user's branch, which stays so.
    (project.folder / "notes.txt").write_text("not committed")
    checkout = [("symbolic-ref", "HEAD"), ("rev-parse", "HEAD"), ("status", "--porcelain"), ("stash", "list")]
    before = [git(project.folder, *words_of) for words_of in checkout]
    said = ftgate("bisect", "--pytest", shlex.join(words))
    assert [git(project.folder, *words_of) for words_of in checkout] == before
    assert re.search(r"^guilty: \w+ change 2$", said, re.MULTILINE), said
    assert re.search(r" added are spent in test_burn, test_burn.py:", said, re.MULTILINE), said
