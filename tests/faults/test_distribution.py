"""The other ways in which pytest-xdist distributes tests: the report, the exit code and the baselines are the same."""

from __future__ import annotations

from typing import Any

import pytest
from example import Example
from under_xdist import TESTS, outcome

MODES = (
    ["-n2"],
    ["-n4"],
    ["-n4", "--maxschedchunk=1"],
    ["-n4", "--dist=loadscope"],
    ["-n4", "--dist=loadfile"],
    ["-n4", "--dist=worksteal"],
    ["-n4", "--dist=each"],
    ["-d", "--tx", "3*popen"],
    ["-n2", "--dist=no"],
    ["-n2", "--max-worker-restart=0"],
    ["-n0"],
    ["-p", "no:xdist"],
)


@pytest.fixture(scope="module")
def without() -> dict[str, tuple[int, Any, Any]]:
    """What a run without pytest-xdist gives, once it was run."""
    return {}


@pytest.mark.long
@pytest.mark.parametrize("mode", MODES, ids=" ".join)
def test_each_way_of_distribution_gives_the_same(
    pytester: pytest.Pytester,
    scripted_runs: None,
    without: dict[str, tuple[int, Any, Any]],
    mode: list[str],
) -> None:
    ini = "[pytest]\nftgate_install =\nftgate_python = 3.14t\n"
    files = {"pytest.ini": ini, "a/test_a.py": TESTS, "b/test_b.py": TESTS.replace("first", "fourth")}
    example = Example(pytester, files)
    if not without:
        without["-"] = outcome(example)
    code, report, baselines = outcome(example, *mode)
    same = (code, report, baselines) == without["-"]
    assert same, "a difference of thousands of lines takes minutes to show"
