"""A scripted project for pytest-xdist, and what a run of it leaves, without times."""

from __future__ import annotations

import json
import shutil
from typing import Any

from example import Example

QUICK = ("-p", "fake_run", "--ftgate", "-oftgate_launches=2", "-oftgate_iterations=2", "--ftgate-seed=3")
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

    @ftgate.contract("wall < 1 us")
    @ftgate.compare(threads, workers=1)
    def test_broken(worker):
        return 1

    @ftgate.compare(threads, processes=["fork"], workers=1)
    def test_missing(worker):
        return 1

    @pytest.mark.xdist_group("one")
    @pytest.mark.parametrize("number", range(3))
    def test_plain(number):
        pass
"""
MOVES = {
    *("started_at", "recorded_at", "started", "after_s", "took_s", "wall_s", "seconds", "command", "conditions"),
    *("options", "project"),
}
"""What differs between two runs of the same launches: times, the load of the machine, the words of the command, the
name of the folder."""


def still(value: Any) -> Any:
    """A report without what moves."""
    if isinstance(value, dict):
        return {name: still(each) for name, each in value.items() if name not in MOVES}
    if isinstance(value, list):
        return [still(each) for each in value]
    return value


def outcome(example: Example, *words: str) -> tuple[int, Any, Any]:
    """The exit code, the report and the files of the baselines of a run that records what is new."""
    result = example.run_fresh(*QUICK, *FILES, *words)
    folder = example.folder / "baselines"
    baselines = [
        (str(path.parent.relative_to(folder)), still(json.loads(path.read_text("utf-8"))))
        for path in sorted(folder.rglob("*.json"))
    ]
    shutil.rmtree(folder)
    assert len(baselines) == 6
    return int(result.ret), still(example.report("out.json")), baselines
