"""Reports in the formats of other tools: golden files, and the rules that each format's documentation gives."""

from __future__ import annotations

import csv
import io
import json
import re
from typing import Any

import jsonschema
import msgspec
import pytest
import report_by_hand
from fake_launcher import group_of, spec_of
from report_by_hand import of_rows
from values import sample_of, timed

from golden import check_golden
from pytest_ftgate.judge import metrics
from pytest_ftgate.kit.values import Interval
from pytest_ftgate.model.report import History, HistoryPoint, Report, Row
from pytest_ftgate.model.spec import Environment, Param
from pytest_ftgate.model.verdict import Decision, Verdict
from pytest_ftgate.report import json as formats

KINDS = ("bmf", "gha-benchmark", "benchstat", "otava", "openmetrics")
WALL = "tests/test_words.py::test_tokenise[3.14t-threads-w8] wall_ns"
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
# The reader of https://pkg.go.dev/golang.org/x/perf/benchfmt: name, count, then values with their units.
GO_LINE = re.compile(r"Benchmark\S+ [1-9]\d*( [-+.e\d]+ \S+)+")
# The grammar of https://prometheus.io/docs/specs/om/open_metrics_spec/ without timestamps and exemplars.
SAMPLE = re.compile(r'([a-zA-Z_:][a-zA-Z0-9_:]*)\{((?:\w+="(?:[^"\\\n]|\\["\\n])*",?)*)\} ([-+.e\d]+)')


def rendered(kind: str, **fields: Any) -> str:
    return "".join(formats.rendered(kind, msgspec.structs.replace(report_by_hand.report(), **fields)))


def go_results(text: str) -> list[tuple[str, dict[str, float]]]:
    lines = [line.split() for line in text.splitlines() if line.startswith("Benchmark")]
    return [
        (name, {unit: float(value) for value, unit in zip(rest[::2], rest[1::2], strict=True)})
        for name, _, *rest in lines
    ]


@pytest.mark.parametrize("kind", KINDS)
def test_the_whole_text(kind: str) -> None:
    check_golden(f"export.{kind}", rendered(kind))


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


def test_benchstat_has_a_line_for_each_launch_and_the_direction_of_each_unit() -> None:
    cell = msgspec.structs.replace(
        group_of(spec=spec_of("threads", workers=2)).cells[0],
        nodeid="tests/a b.py::TestA::test_it[x]",
        params=(Param(name="size", literal="'a/b c-8'"),),
        environment=Environment(words=("OMP_NUM_THREADS:1",)),
    )
    sample = sample_of([timed(order, [1000 + order] * 4, loops=5) for order in range(7)], cell=cell)
    row = Row(cell=cell, verdict=Verdict(decision=Decision.PASSED), sample=sample)
    text = rendered("benchstat", tables=of_rows(row).tables, partial="Ctrl-C\nBenchmarkEvil 1 1 ns/op")
    results = go_results(text)
    assert [values["ns/op"] for _, values in results] == [200 + order / 5 for order in range(7)]
    assert {name for name, _ in results} == {
        "BenchmarkTestA::test_it/target=3.14/executor=threads/size=%27a%2Fb%20c-8%27/environment=OMP_NUM_THREADS:1/workers=2"
    }
    assert all(GO_LINE.fullmatch(line) for line in text.splitlines() if line.startswith("Benchmark"))
    units = {unit for _, values in results for unit in values}
    directions = dict(re.findall(r"^Unit (\S+) better=(lower|higher)$", text, re.MULTILINE))
    assert units <= set(directions)
    assert (directions["ns/op"], directions["ops_per_s"]) == ("lower", "higher")
    assert "# partial: Ctrl-C BenchmarkEvil 1 1 ns/op\n" in text
    assert "\npkg: tests/a b.py\n" in text


def test_otava_has_a_row_for_each_recording_and_one_for_this_run() -> None:
    first = report_by_hand.report().tables[0].rows[0]
    points = tuple(
        HistoryPoint(commit=commit, recorded_at=at, value=Interval(value=value, low=value, high=value, level=0.95))
        for commit, at, value in (
            ("b" * 40, "2026-01-01T00:00:00+00:00", 2e6),
            ("a" * 40, "2025-12-31T00:00:00+00:00", 1e6),
        )
    )
    row = msgspec.structs.replace(first, history=(History(metric="wall", points=points, unit="time"),))
    of_control = msgspec.structs.replace(row, history=(History(metric="wall", points=points, unit="x control"),))
    assert rendered("otava", tables=of_rows(of_control).tables).count("\n") == 2
    text = rendered("otava", tables=of_rows(row).tables, partial="Ctrl-C")
    runs = list(csv.DictReader(io.StringIO(text)))
    assert [(run["time"], run["commit"][:4], run["partial"], run[WALL]) for run in runs] == [
        ("2025-12-31T00:00:00+00:00", "aaaa", "", "1000000.0"),
        ("2026-01-01T00:00:00+00:00", "bbbb", "", "2000000.0"),
        ("2026-01-02T03:04:05+00:00", "1a2b", "Ctrl-C", "1832000.0"),
    ]
    assert all(float(value) != 0 for run in runs for name, value in run.items() if "::" in name)  # `nan` where unknown


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
    assert {
        kind: "".join(formats.rendered(kind, report)) for kind in ("bmf", "gha-benchmark", "otava", "openmetrics")
    } == {
        "bmf": "{}\n",
        "gha-benchmark": "[]\n",
        "otava": "time,commit,partial\n",
        "openmetrics": "# EOF\n",
    }
