"""However a measuring run ends, its report files are written, and say what is missing or failed."""

from __future__ import annotations

import json
from typing import Any

import pytest
from example import Example

QUICK = ("--ftgate", "--ftgate-launches=1", "--ftgate-iterations=2", "--ftgate-python=3.14t", "--ftgate-metrics=wall")
TESTS = """
    @ftgate.compare(threads, workers=[1, 2])
    def test_first(worker):
        return 1

    @ftgate.compare(threads, serial, workers=1)
    def test_second(worker):
        return 1
"""
RAISING = """
    import pytest
    from pytest_ftgate.run.measurement import Measurement

    step = Measurement.step

    def stopped(self, *shares):
        if "test_second" in self.group.key:
            raise {error}
        step(self, *shares)

    Measurement.step = stopped
"""


@pytest.fixture
def example(pytester: pytest.Pytester, interpreters_on_path: None) -> Example:
    return Example(pytester, {"pytest.ini": "[pytest]\nftgate_install =\n", "test_a.py": TESTS})


def report_of(example: Example, name: str = "out.json") -> dict[str, Any]:
    found: dict[str, Any] = json.loads((example.pytester.path / name).read_text(encoding="utf-8"))
    return found


def cells_of(report: dict[str, Any]) -> list[str]:
    return [row["cell"]["nodeid"].partition("::")[2] for table in report["tables"] for row in table["rows"]]


FIRST = ["test_first[3.14t-threads-w1]", "test_first[3.14t-threads-w2]"]
ENDS = {
    "KeyboardInterrupt": ("interrupted", pytest.ExitCode.INTERRUPTED),
    'pytest.exit("enough")': ("interrupted: enough", pytest.ExitCode.INTERRUPTED),
    'SystemError("of ours")': None,
}


@pytest.mark.parametrize(
    ("error", "said", "code"),
    [
        ("KeyboardInterrupt", "interrupted", pytest.ExitCode.INTERRUPTED),
        ('pytest.exit("enough")', "interrupted: enough", pytest.ExitCode.INTERRUPTED),
    ],
)
def test_a_run_that_is_stopped_reports_what_was_measured(
    example: Example, error: str, said: str, code: pytest.ExitCode
) -> None:
    example.pytester.makeconftest(RAISING.format(error=error))
    result = example.run_fresh(*QUICK, "--ftgate-report=json:out.json", "--ftgate-report=json:more.json")
    partial = f"{said}: 2 of 4 cells were not run"
    assert result.ret == code
    assert (report_of(example)["partial"], cells_of(report_of(example))) == (partial, FIRST)
    assert report_of(example) == report_of(example, "more.json") == report_of(example, ".ftgate/last-run.json")
    assert f"this report is partial: {partial}" in result.outlines
