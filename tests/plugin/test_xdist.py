"""The same scripted project with and without pytest-xdist, in each of its distribution modes."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import fake_run
import pytest
from example import Example

QUICK = ("-p", "fake_run", "--ftgate", "--ftgate-launches=2", "--ftgate-iterations=2", "--ftgate-seed=3")
FILES = ("--ftgate-report=json:out.json", "--ftgate-update=new")
TESTS = """
    import pytest

    @ftgate.compare(threads, serial, workers=[1, 2])
    def test_first(worker):
        return 1

    @pytest.mark.xdist_group("one")
    @ftgate.compare(threads, workers=[1, 2])
    def test_second(worker):
        return 1

    @ftgate.require("wall < 1 us")
    @ftgate.compare(threads, workers=1)
    def test_broken(worker):
        return 1

    @ftgate.compare(threads, processes("fork"), workers=1)
    def test_missing(worker):
        return 1

    @pytest.mark.xdist_group("one")
    @pytest.mark.parametrize("number", range(3))
    def test_plain(number):
        pass
"""
MODES = {
    "-n2 --dist=loadgroup": ["-n2", "--dist=loadgroup"],
    "-n2 --dist=each": ["-n2", "--dist=each"],
}
"""The others are in tests/faults/test_distribution.py: each takes seconds."""
MOVES = {"started_at", "wall_s", "at", "command", "began_at", "conditions", "options"}
"""What differs between two runs of the same launches: times, the load of the machine, the words of the command."""


@pytest.fixture
def example(pytester: pytest.Pytester, interpreters_on_path: None, monkeypatch: pytest.MonkeyPatch) -> Example:
    monkeypatch.setenv("PYTHONPATH", str(Path(fake_run.__file__).parent))
    ini = "[pytest]\nftgate_install =\nftgate_python = 3.14t\n"
    return Example(pytester, {"pytest.ini": ini, "a/test_a.py": TESTS, "b/test_b.py": TESTS.replace("first", "fourth")})


def still(value: Any) -> Any:
    """A report without what moves."""
    if isinstance(value, dict):
        shared = {name: [] for name in ("floor", "growth_floor") if name in value}  # by the tests of one process
        return {name: still(each) for name, each in value.items() if name not in MOVES} | shared
    return [still(each) for each in value] if isinstance(value, list) else value


def outcome(example: Example, *words: str) -> tuple[object, ...]:
    """The exit code, the report and the files of the baselines of a run that records what is new."""
    result = example.run_fresh(*QUICK, *FILES, *words)
    folder = example.pytester.path / "baselines"
    baselines = [(path.parent, still(json.loads(path.read_text("utf-8")))) for path in sorted(folder.rglob("*.json"))]
    shutil.rmtree(folder)
    assert len(baselines) == 6
    return result.ret, still(example.report("out.json")), baselines


@pytest.fixture(scope="module")
def without() -> dict[str, tuple[object, ...]]:
    """What a run without pytest-xdist gives, once it was run."""
    return {}


@pytest.mark.parametrize(
    "mode",
    MODES,
)
def test_each_way_of_distribution_gives_the_same(
    example: Example, without: dict[str, tuple[object, ...]], mode: str
) -> None:
    if not without:
        without["-"] = outcome(example)
    assert outcome(example, *MODES[mode]) == without["-"]
