"""A gate against another interpreter, end to end."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from example import Example, assert_usage_error

QUICK = ("--ftgate-launches=1", "--ftgate-iterations=2", "--ftgate-python=3.14", "--ftgate-python=3.14t")
WORKLOAD = """
    @ftgate.compare(threads, workers=1)
    def test_it(worker):
        return 1
"""


@pytest.fixture
def example(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, executables: dict[str, str]) -> Example:
    folders = [str(Path(path).parent) for path in executables.values()]
    monkeypatch.setenv("PATH", ":".join(dict.fromkeys(folders)), prepend=":")
    monkeypatch.setenv("COLUMNS", "200")
    return Example(pytester, {"pytest.ini": "[pytest]\n", "test_a.py": WORKLOAD})


def test_every_target_is_compared_with_the_interpreter_that_is_named(example: Example) -> None:
    result = example.run_fresh("--ftgate", "--ftgate-against=python:3.14", *QUICK, "-v", "-rs")
    text = result.stdout.str()
    report = json.loads((example.pytester.path / ".ftgate" / "last-run.json").read_text(encoding="utf-8"))
    itself, threaded = (row for table in report["tables"] for row in table["rows"])
    version = threaded["sample"]["reference"]["interpreter"]["version"]
    assert (itself["verdict"]["decision"], itself["sample"]) == ("unsupported", None)
    assert itself["verdict"]["reason"] == f"3.14 is {version} itself, with which the targets are compared"
    assert threaded["verdict"]["basis"] == "paired"
    assert threaded["verdict"]["baseline"] == version
    sides = (threaded["sample"], threaded["sample"]["reference"])
    assert [(side["interpreter"]["free_threaded"], len(side["memory"]), len(side["locks"])) for side in sides] == [
        (True, 1, 1),
        (False, 1, 1),
    ]
    assert f"      against    {version}\n" in text
    assert [each["free_threaded"] for each in report["interpreters"]] == [True, False]


def test_an_interpreter_that_is_not_there_ends_the_run_with_a_fix(example: Example) -> None:
    result = example.run_fresh("--ftgate", "--ftgate-against=python:3.14.99", *QUICK)
    assert_usage_error(
        result, "--ftgate-against python:3.14.99: no interpreter found", "ftgate pythons --target 3.14.99"
    )
