"""`--ftgate-shard`: each test runs in one part, and the parts together say what one run says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import fake_run
import pytest
from example import Example, assert_usage_error

from pytest_ftgate import cli

QUICK = (
    "-p",
    "fake_run",
    "--ftgate",
    "--ftgate-launches=5",
    "--ftgate-iterations=4",
    "--ftgate-python=3.14t",
    "--ftgate-explain=no",
)
TESTS = """
    import pytest

    @ftgate.compare(threads, serial, workers=1)
    def test_slower(worker):
        return 1

    @ftgate.compare(threads, workers=[1, 2])
    @pytest.mark.parametrize("size", [1, 2, 3])
    def test_sizes(worker, size):
        return 1

    @ftgate.compare(threads, workers=1)
    def test_missing(worker):
        return 1

    @ftgate.require("threads.wall < 1ms")
    @ftgate.compare(threads, workers=1)
    def test_contract(worker):
        return 1
"""
PLAIN = """
    import pytest

    @pytest.mark.parametrize("number", range(3))
    def test_plain(number): ...
    def test_other(): ...
    def test_third(): ...
"""


@pytest.fixture
def example(pytester: pytest.Pytester, interpreters_on_path: None, monkeypatch: pytest.MonkeyPatch) -> Example:
    monkeypatch.setenv("PYTHONPATH", str(Path(fake_run.__file__).parent))
    files = {"pytest.ini": "[pytest]\nftgate_install =\n", "test_a.py": TESTS, "test_plain.py": PLAIN}
    return Example(pytester, files)


def test_first(example: Example) -> None:
    for k in (1, 2, 3, 7):
        r = example.run_pytest(*QUICK, f"--ftgate-shard={k}/7", f"--ftgate-report=json:s{k}.json", "-v")
        print(r.ret)
        d = json.loads(Path(f"s{k}.json").read_text())
        print(d["shard"])
    assert 0
