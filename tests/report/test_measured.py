"""A cell's verdict and figures as the properties of a test case, which pytest's JUnit file has."""

from __future__ import annotations

from report_by_hand import cell, figures, told
from values import held, sample_of, timed

from pytest_ftgate.kit.values import Interval
from pytest_ftgate.model.report import Row
from pytest_ftgate.model.sample import WorkloadError
from pytest_ftgate.model.verdict import Decision, MetricVerdict, Verdict
from pytest_ftgate.report import measured

HOSTILE = "<b>&\x1b[31m\x00\x07\x9b\ud800\ufffe]]>\u202e"


def test_no_property_holds_what_xml_cannot() -> None:
    error = WorkloadError(reason=f"the workload raised ValueError: {HOSTILE}", detail=f"printed {HOSTILE}")
    broken = MetricVerdict(metric="contract", decision=Decision.BROKEN, contract=HOSTILE, reasons=told(HOSTILE))
    verdict = Verdict(decision=Decision.ERROR, reason=HOSTILE, metrics=(broken,))
    shown = figures(1.0, 1.0, 10.0, 10.0)
    row = Row(cell=cell("t.py::test", "3.14t", "threads", 2), verdict=verdict, figures=shown, error=error)
    found = dict(measured.properties(row))
    for text in (found["ftgate.reason"], found["ftgate.contract"]):
        assert "<b>&" in text
        assert "\\ud800#xFFFE]]>" in text
        assert not {"\x00", "\x07", "\x1b", "\x9b"} & set(text)
    assert found["ftgate.wall"] == "1.00 ms [0.98, 1.02] (95 %)"


def test_a_figure_without_an_interval_has_that_of_its_median_over_launches() -> None:
    sample = sample_of(
        [timed(0, [100])], memory=[held(order, uss) for order, uss in enumerate((10, 30, 20, 50, 40, 60))]
    )
    row = Row(cell=sample.cell, verdict=Verdict(decision=Decision.PASSED), sample=sample)
    found = {each.column: each for each in measured.measured(row)}
    # The sign test's interval of six values is from the least to the greatest, at 1 - 2 / 2**6.
    assert found["uss_bytes"].estimate == Interval(value=35.0, low=10.0, high=60.0, level=0.96875)
    assert found["wall_ns"].has_interval is False
    assert dict(measured.properties(row))["ftgate.uss"] == "35 B [10.0, 60.0] (96.8 %)"
