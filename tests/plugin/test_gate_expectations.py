"""Known failures, end to end: what pytest counts and shows, and what the reports say."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest
from example import Example

QUICK = ("--ftgate", "-oftgate_launches=1", "-oftgate_iterations=2", "--ftgate-python=3.14t")
WORKLOADS = """
    @ftgate.xfail("broken", threads, reason="one lock for all, issue 7")
    @ftgate.contract(gil="on")
    @ftgate.compare(threads, serial, workers=1)
    def test_known(worker):
        return 1

    @ftgate.xfail("broken", reason="was slow")
    @ftgate.contract(gil="off")
    @ftgate.compare(threads, workers=1)
    def test_mended(worker):
        return 1

    @ftgate.xfail("broken", reason="now and then", strict=False)
    @ftgate.xfail("regressed", reason="never stored")
    @ftgate.contract(gil="off")
    @ftgate.compare(threads, workers=1)
    def test_flaky(worker):
        return 1
"""


@pytest.fixture
def example(pytester: pytest.Pytester, interpreters_on_path: None) -> Example:
    return Example(pytester, {"pytest.ini": "[pytest]\n", "test_a.py": WORKLOADS})


def test_known_failures_fail_no_run_and_a_mended_one_does(example: Example) -> None:
    result = example.run_fresh(*QUICK, "-rxX", "--junitxml=junit.xml")
    text = result.stdout.str()
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    counted = result.parseoutcomes()
    assert {name: counted.get(name) for name in ("xfailed", "failed", "xpassed")} == {
        "xfailed": 1,
        "failed": 2,  # with serial, of which nothing is known
        "xpassed": 1,
    }
    assert re.search(
        r"XFAIL test_a.py::test_known\[3.14t-threads-w1\] - (reason: )?broken, as expected: one lock", text
    )
    assert "[XPASS(strict)] expected broken, passed: remove the mark in line 8 (was slow)" in text
    assert "  xfailed: 3.14t-threads-w1\n      broken, as expected: one lock for all, issue 7\n" in text
    assert "  xpassed: 3.14t-threads-w1\n      expected broken, passed, as the mark in line 14 allows (now and" in text
    rows = example.verdicts()
    known = rows["test_a.py::test_known[3.14t-threads-w1]"]
    assert (known["decision"], known["expected"]["reason"]) == ("xfailed", "one lock for all, issue 7")
    junit = ElementTree.parse(example.folder / "junit.xml").getroot()
    found = {
        case.attrib["name"]: [
            (each.tag, each.attrib["message"].removeprefix("reason: ")) for each in case if each.tag != "properties"
        ]
        for case in junit.iter("testcase")
    }
    assert found["test_known[3.14t-threads-w1]"] == [("skipped", "broken, as expected: one lock for all, issue 7")]
    assert found["test_mended[3.14t-threads-w1]"][0][0] == "failure"
    assert found["test_flaky[3.14t-threads-w1]"] == []


def test_known_failures_can_be_ignored_as_in_pytest(example: Example) -> None:
    result = example.run_fresh(*QUICK, "--runxfail")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    counted = result.parseoutcomes()
    assert (counted.get("failed"), counted.get("passed"), counted.get("xfailed")) == (2, 2, None)


def test_a_plain_run_runs_what_is_known_to_fail(example: Example) -> None:
    result = example.run_fresh("--ftgate-python=3.14t")
    assert result.parseoutcomes() == {"passed": 4}
