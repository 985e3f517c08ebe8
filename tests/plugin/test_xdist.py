"""The same scripted project with and without pytest-xdist."""

from __future__ import annotations

from typing import Any

import pytest
from example import Example
from under_xdist import FILES, QUICK, TESTS, outcome


@pytest.fixture
def example(pytester: pytest.Pytester, scripted_runs: None) -> Example:
    ini = "[pytest]\nftgate_install =\nftgate_python = 3.14t\n"
    return Example(pytester, {"pytest.ini": ini, "a/test_a.py": TESTS, "b/test_b.py": TESTS.replace("first", "fourth")})


def test_two_workers_give_the_same(example: Example) -> None:
    """Other ways of distribution are in tests/faults/test_distribution.py: each takes seconds."""
    assert outcome(example, "-n2", "--dist=loadgroup") == outcome(example)


SLOW = """
    import pathlib, time
    from pytest_ftgate.run.trial import Trial

    step = Trial.step

    def slow(self, *shares):
        began_s = time.monotonic()
        pathlib.Path(__file__).with_name("measuring").touch()
        time.sleep(0.5)
        step(self, *shares)
        with open(pathlib.Path(__file__).with_name("spans"), "a") as file:
            print("measured", began_s, time.monotonic(), file=file)

    Trial.step = slow

    def pytest_runtest_setup(item):
        while "test_plain" not in item.name and not pathlib.Path(__file__).with_name("begun").exists():
            time.sleep(0.02)  # until the other worker runs its first test
"""
BESIDE = """
    import fcntl, pathlib, time, pytest

    HERE = pathlib.Path(__file__).parent

    @ftgate.compare(threads, workers=1)
    def test_cell(worker):
        return 1

    def awaited():
        [path] = sorted(HERE.glob(".ftgate/runs/*/turn.lock"))[-1:]
        with open(path) as file:
            try:
                fcntl.lockf(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except OSError:
                return True
        return (HERE / "measuring").exists()

    @pytest.mark.parametrize("number", range(6))
    def test_plain(number):
        began_s = time.monotonic()
        if number == 1:  # the first of the second worker
            (HERE / "begun").touch()
            while not awaited():
                time.sleep(0.02)
            time.sleep(1.3)
        with open(HERE / "spans", "a") as file:
            print("plain", began_s, time.monotonic(), file=file)
"""


def beside(example: Example, *words: str) -> tuple[int, Any, str]:
    """How many plain tests ran while something was measured, the report, and the output."""
    spans = example.folder / "spans"
    for name in ("spans", "begun", "measuring"):
        (example.folder / name).unlink(missing_ok=True)
    result = example.run_fresh(*QUICK, *FILES, "-n2", "--maxschedchunk=1", *words)
    lines = [line.split() for line in spans.read_text(encoding="utf-8").splitlines()]
    measured, plain = (
        [(float(began), float(ended)) for what, began, ended in lines if what == name] for name in ("measured", "plain")
    )
    assert measured
    assert len(plain) == 6
    overlapping = sum(any(began < end and start < ended for start, end in measured) for began, ended in plain)
    return overlapping, example.report("out.json"), result.stdout.str()


def test_no_other_test_runs_while_one_is_measured(pytester: pytest.Pytester, scripted_runs: None) -> None:
    ini = "[pytest]\nftgate_install =\nftgate_python = 3.14t\n"
    files = {"pytest.ini": ini, "conftest.py": SLOW, "test_a.py": BESIDE}
    example = Example(pytester, files)
    overlapping, report, _ = beside(example, "-oftgate_exclusive=no")
    assert overlapping
    [table] = report["tables"]
    assert table["note"].endswith(" ran meanwhile (ftgate_exclusive = no)"), table["note"]
    path = pytester.path / "test_a.py"
    path.write_text(path.read_text(encoding="utf-8").replace("test_cell", "test_new"), encoding="utf-8")
    overlapping, report, text = beside(example)
    [table] = report["tables"]
    assert (overlapping, table["note"]) == (0, "")
    assert report["unused_baselines"] == ["test_a.py::test_cell[3.14t-threads-w1]"]
    assert "ftgate: waiting for test_a.py::test_plain[1] in gw" in text


def test_workers_of_other_machines_are_refused_before_they_are_asked(example: Example) -> None:
    result = example.run_pytest("--ftgate", "--tx=ssh=nowhere.invalid", "--dist=load")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(
        ["ERROR: --ftgate measures on this machine, and --tx *ssh=nowhere.invalid starts a worker on another: *"]
    )
