"""A cell's figures in pytest's own JUnit file and in `junit:PATH`, end to end."""

from __future__ import annotations

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


def test_pytests_own_file_and_ours_have_the_same_cases_and_properties(example: Example) -> None:
    folder = example.folder
    reports = (f"--junitxml={folder}/pytest.xml", "--ftgate-report=junit:ours.xml")
    result = example.run_fresh(*QUICK, *reports, "-n2")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    own, ours = cases(folder / "pytest.xml"), cases(folder / "ours.xml")
    broken, new = (
        ("tests.test_a.TestIt", "test_broken[3.14t-threads-w1]"),
        ("tests.test_a", "test_new[3.14t-threads-w1]"),
    )
    assert own.keys() == ours.keys() == {broken, new}
    for name, decision in ((broken, "broken"), (new, "no baseline")):
        assert properties(own[name]) == properties(ours[name])
        assert properties(own[name])["ftgate.verdict"] == decision
        assert own[name].is_failure == ours[name].is_failure == (name == broken)
        # The number is the text's: 12.3 µs of 12345 ns.
        value, unit = properties(own[name])["ftgate.wall"].split(" ")[:2]
        ns = float(properties(own[name])["ftgate.wall.ns"])
        assert ns / {"ns": 1, "µs": 1e3, "ms": 1e6, "s": 1e9}[unit] == pytest.approx(float(value), rel=0.01)
    assert own[broken].result[0].text == ours[broken].result[0].text
    assert own[broken].result[0].message == ours[broken].result[0].message
    assert ours[broken]._elem.get("line") == "3"
    # One cell cannot be in both files of a merge; the files of two runs can.
    assert cli.main(["merge", str(folder / "pytest.xml"), str(folder / "ours.xml"), "-o", str(folder / "all.xml")]) == 2
    assert cli.main(["merge", str(folder / "ours.xml"), "-o", str(folder / "all.xml")]) == 0
    assert cases(folder / "all.xml").keys() == ours.keys()
