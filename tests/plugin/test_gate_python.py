"""A gate against another interpreter, end to end."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from example import Example, assert_usage_error

QUICK = ("-oftgate_launches=1", "-oftgate_iterations=2", "--ftgate-python=3.14", "--ftgate-python=3.14t")
WORKLOAD = """
    @ftgate.compare(threads, workers=1)
    def test_it(worker):
        return 1
"""


@pytest.fixture
def example(pytester: pytest.Pytester, interpreters_on_path: None) -> Example:
    return Example(pytester, {"pytest.ini": "[pytest]\n", "test_a.py": WORKLOAD})


def test_every_target_is_compared_with_the_interpreter_that_is_named(example: Example) -> None:
    result = example.run_fresh("--ftgate", "--ftgate-against=python:3.14", "-oftgate_explain=no", *QUICK, "-v", "-rs")
    text = result.stdout.str()
    itself, threaded = example.rows()
    version = threaded["sample"]["reference"]["interpreter"]["version"]
    assert (itself["verdict"]["decision"], itself["sample"]) == ("unsupported", None)
    assert itself["verdict"]["reason"] == f"3.14 is {version} itself, with which the targets are compared"
    assert threaded["verdict"]["basis"] == "paired"
    assert threaded["verdict"]["baseline"] == version
    sides = (threaded["sample"], threaded["sample"]["reference"])
    roles = [{launch.get("role", "time") for launch in side["launches"]} for side in sides]
    assert all({"time", "memory", "locks"} <= found for found in roles)
    assert [side["interpreter"]["free_threaded"] for side in sides] == [True, False]
    assert f"      against    {version}\n" in text
    assert [each["free_threaded"] for each in example.report()["interpreters"]] == [True, False]


def test_an_interpreter_that_is_not_there_ends_the_run_with_a_fix(example: Example) -> None:
    result = example.run_fresh("--ftgate", "--ftgate-against=python:3.14.99", *QUICK)
    assert_usage_error(result, "--ftgate-against python:3.14.99: no interpreter found", "uv python install 3.14.99")


@pytest.mark.parametrize(
    ("requires", "said"),
    [
        (
            ">=3.11",
            r".* that name none: 3\.14 and 3\.14t, the (only|newest) version here that requires-python >=3\.11",
        ),
        (
            ">=3.99",
            r".* that name none: 3\.14 and 3\.14t, no version that requires-python >=3\.99 allows can be measured",
        ),
    ],
)
def test_a_run_says_which_targets_it_takes_where_none_is_named(
    pytester: pytest.Pytester,
    monkeypatch: pytest.MonkeyPatch,
    executables: dict[str, str],
    tmp_path: Path,
    requires: str,
    said: str,
) -> None:
    for name, path in executables.items():
        (tmp_path / f"python{name}").symlink_to(path)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("UV_PYTHON_INSTALL_DIR", str(tmp_path / "uv"))
    project = f'[project]\nname = "a"\nversion = "1"\nrequires-python = "{requires}"\n[tool.pytest.ini_options]\n'
    example = Example(pytester, {"pyproject.toml": project, "test_a.py": WORKLOAD})
    result = example.run_fresh("--ftgate", "-v", "--deselect=test_a.py")
    assert re.search(f"ftgate: {said}", result.stdout.str())


def test_a_run_whose_targets_are_named_says_nothing_of_them(example: Example) -> None:
    result = example.run_pytest("--ftgate", "-v", "--ftgate-python=3.14", "--deselect=test_a.py")
    assert "that name none" not in result.stdout.str()
