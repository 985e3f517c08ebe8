"""A cell's figures in pytest's own JUnit file, end to end."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from example import Example
from junitparser import JUnitXml, Properties, TestCase

from pytest_ftgate import cli

QUICK = ("-p", "fake_run", "--ftgate", "-oftgate_launches=1", "-oftgate_iterations=2", "--ftgate-python=3.14t")
WORKLOADS = """
    class TestIt:
        @ftgate.contract(gil="on")
        @ftgate.compare(threads, workers=1)
        def test_broken(self, worker):
            return 1

    @ftgate.compare(threads, workers=1)
    def test_new(worker):
        return 1
"""


@pytest.fixture
def example(pytester: pytest.Pytester, scripted_runs: None) -> Example:
    return Example(pytester, {"pytest.ini": "[pytest]\n", "tests/test_a.py": WORKLOADS})


def cases(path: Path) -> dict[tuple[str, str], TestCase]:
    return {(case.classname, case.name): case for suite in JUnitXml.fromfile(str(path)) for case in suite}


def properties(case: TestCase) -> dict[str, str]:
    return {each.name: each.value for each in case.child(Properties)}


def test_pytests_own_file_has_a_cells_verdict_and_figures(example: Example) -> None:
    folder = example.folder
    result = example.run_fresh(*QUICK, f"--junitxml={folder}/one.xml", "-n2")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    own = cases(folder / "one.xml")
    broken, new = (
        ("tests.test_a.TestIt", "test_broken[3.14t-threads-w1]"),
        ("tests.test_a", "test_new[3.14t-threads-w1]"),
    )
    assert own.keys() == {broken, new}
    for name, decision in ((broken, "broken"), (new, "no baseline")):
        assert properties(own[name])["ftgate.verdict"] == decision
        assert own[name].is_failure == (name == broken)
        # The number is the text's: 12.3 µs of 12345 ns.
        value, unit = properties(own[name])["ftgate.wall"].split(" ")[:2]
        ns = float(properties(own[name])["ftgate.wall.ns"])
        assert ns / {"ns": 1, "µs": 1e3, "ms": 1e6, "s": 1e9}[unit] == pytest.approx(float(value), rel=0.01)
    # One cell cannot be in both files of a merge; the files of two shards can.
    one, all_of = str(folder / "one.xml"), str(folder / "all.xml")
    shutil.copy(one, folder / "same.xml")
    assert cli.main(["merge", one, str(folder / "same.xml"), "-o", all_of]) == 2
    parts = [str(folder / f"{part}.xml") for part in (1, 2)]
    for number, part in enumerate(parts, start=1):
        example.run_pytest(*QUICK, f"--junitxml={part}", f"--ftgate-shard={number}/2")
    assert cli.main(["merge", *parts, "-o", all_of]) == 0
    assert cases(folder / "all.xml").keys() == own.keys()
