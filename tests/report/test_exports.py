"""Reports in the formats of other tools: golden files, and the rules that each format's documentation gives."""

from __future__ import annotations

import json
import re
from typing import Any

import jsonschema
import msgspec
import pytest
import report_by_hand
import small_report
from report_by_hand import of_rows

from golden import check_golden
from pytest_ftgate.judge import metrics
from pytest_ftgate.model.report import Report, Row
from pytest_ftgate.model.verdict import Decision, Verdict
from pytest_ftgate.report import json as formats

KINDS = ("bmf", "gha-benchmark", "openmetrics")
# https://bencher.dev/bmf.json
BMF_SCHEMA = {
    "type": "object",
    "patternProperties": {
        ".+": {
            "type": "object",
            "patternProperties": {
                ".+": {
                    "type": "object",
                    "properties": {name: {"type": "number"} for name in ("value", "lower_value", "upper_value")},
                    "required": ["value"],
                }
            },
        }
    },
}
# The grammar of https://prometheus.io/docs/specs/om/open_metrics_spec/ without timestamps and exemplars.
SAMPLE = re.compile(r'([a-zA-Z_:][a-zA-Z0-9_:]*)\{((?:\w+="(?:[^"\\\n]|\\["\\n])*",?)*)\} ([-+.e\d]+)')


def rendered(kind: str, **fields: Any) -> str:
    return "".join(formats.rendered(kind, msgspec.structs.replace(report_by_hand.report(), **fields)))


@pytest.mark.parametrize("kind", KINDS)
def test_the_whole_text(kind: str) -> None:
    check_golden(f"export.{kind}", "".join(formats.rendered(kind, small_report.report())))


def test_bmf_follows_benchers_schema() -> None:
    found = json.loads(rendered("bmf"))
    jsonschema.validate(found, BMF_SCHEMA)
    assert "tests/test_words.py::test_tokenise[3.13-interpreters-w8]" not in found  # nothing was measured
    assert json.loads(rendered("bmf", partial="Ctrl-C"))["ftgate"] == {"partial": {"value": 1}}


def test_gha_benchmark_lists_what_gates_and_is_better_if_smaller() -> None:
    found = json.loads(rendered("gha-benchmark", partial="Ctrl-C"))
    assert {tuple(entry) for entry in found} == {("name", "unit", "value", "range", "extra")}
    names = {entry["name"].rpartition(" ")[2] for entry in found}
    assert {"wall", "uss", "lock_wait"} <= names
    assert not {name for name in names if metrics.is_gain(name)}  # scaling was judged, too
    assert all(entry["extra"].endswith("\npartial: Ctrl-C") for entry in found)


def test_openmetrics_follows_the_specification() -> None:
    *lines, end = rendered("openmetrics", partial="Ctrl-C").split("\n")[:-1]
    assert end == "# EOF"
    assert lines[-2:] == ["# TYPE ftgate_partial gauge", "ftgate_partial 1"]
    families: list[str] = []
    samples = set()
    for line in lines[:-2]:
        if line.startswith("# TYPE "):
            families.append(line.removeprefix("# TYPE ").removesuffix(" gauge"))
        elif line.startswith("# UNIT "):
            name, unit = line.removeprefix("# UNIT ").split(" ")
            assert name == families[-1]
            assert name.endswith(f"_{unit}")
        else:
            match = SAMPLE.fullmatch(line)
            assert match, line
            assert match[1] == families[-1]  # a family is in one piece
            samples.add((match[1], match[2]))
    assert len(families) == len(set(families))
    assert len(samples) == sum(not line.startswith("#") for line in lines) - 1
    assert {"ftgate_wall_seconds", "ftgate_uss_bytes", "ftgate_lock_wait_ratio", "ftgate_ratio"} <= set(families)


def test_a_label_is_escaped() -> None:
    cell = msgspec.structs.replace(
        report_by_hand.cell("t.py::test", "3.14", "threads", 1), nodeid='t.py::test["\\\n\ud800]'
    )
    row = Row(cell=cell, verdict=Verdict(decision=Decision.PASSED), figures=report_by_hand.figures(1, 1, 1, 1))
    text = rendered("openmetrics", tables=of_rows(row).tables)
    assert '{test="t.py::test",cell="\\"\\\\\\n\\\\ud800"} 0.001\n' in text
    for kind in KINDS:
        rendered(kind, tables=of_rows(row).tables).encode()


def test_nothing_measured_is_still_a_file_of_its_format() -> None:
    report = msgspec.structs.replace(report_by_hand.report(), tables=())
    assert isinstance(report, Report)
    assert {kind: "".join(formats.rendered(kind, report)) for kind in KINDS} == {
        "bmf": "{}\n",
        "gha-benchmark": "[]\n",
        "openmetrics": "# EOF\n",
    }
