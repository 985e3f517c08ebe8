"""A report in the formats of tools that people already use, from the metric table. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping

from ..hookspec import hookimpl
from ..kit import units
from ..kit.text import split_nodeid
from ..model.report import Format, Report
from ..report import said
from ..report.measured import SUFFIX, measured, writable

ESCAPED = str.maketrans({"\\": "\\\\", "\n": "\\n", '"': '\\"'})
"""Characters that a label of OpenMetrics escapes."""
OPENMETRICS_UNITS = {
    "time": ("seconds", 1e-9),
    "size": ("bytes", 1.0),
    "share": ("ratio", 1.0),
    "ratio": ("ratio", 1.0),
}


@hookimpl
def ftgate_formats() -> Mapping[str, Format]:
    return {"bmf": Format(bmf), "gha-benchmark": Format(gha_benchmark), "openmetrics": Format(openmetrics)}


def bmf(report: Report) -> str:
    """Bencher Metric Format: a benchmark for each cell, a measure for each metric, with the ends of its interval."""
    found: dict[str, dict[str, dict[str, float]]] = {}
    for row in report.rows:
        measures = found[writable(row.cell.nodeid)] = {}
        for each in measured(row):
            ends = {"lower_value": each.estimate.low, "upper_value": each.estimate.high} if each.has_interval else {}
            measures[each.column] = {"value": each.estimate.value, **ends}
    partial = {"ftgate": {"partial": {"value": 1}}} if report.partial else {}
    return json.dumps({name: measures for name, measures in found.items() if measures} | partial, indent=2) + "\n"


def gha_benchmark(report: Report) -> str:
    """The customSmallerIsBetter list of github-action-benchmark: what gates, and is better if it is smaller."""
    found = []
    for row in report.rows:
        for each in measured(row):
            if not each.gates or each.metric.scale == "gain":
                continue
            unit, estimate = each.metric.unit, each.estimate
            half = max(estimate.high - estimate.value, estimate.value - estimate.low)
            beside = [units.estimate(unit, estimate)]  # what the page shows beside a value
            if each.verdict is not None:
                beside += [": ".join(filter(None, (each.verdict.decision, said.change_text(each.verdict))))]
            beside += [f"partial: {report.partial}"] if report.partial else []
            found.append(
                {
                    "name": writable(f"{row.cell.nodeid} {each.metric.name}"),
                    "unit": SUFFIX.get(unit, "fraction" if unit == "share" else unit),
                    "value": estimate.value,
                    "range": f"± {half:.4g}" if each.has_interval else "",
                    "extra": writable("\n".join(beside)),
                }
            )
    return json.dumps(found, indent=2) + "\n"


def openmetrics(report: Report) -> str:
    """OpenMetrics text, as GitLab's metrics report and Prometheus read it: a family of gauges for each metric."""
    families: dict[str, list[str]] = {}
    for row in report.rows:
        for each in measured(row):
            kind, _, named = each.metric.name.partition(".")
            unit, scale = OPENMETRICS_UNITS.get(each.metric.unit, ("", 1.0))
            name = "_".join(filter(None, ("ftgate", kind, "" if kind == unit else unit)))
            if name not in families:
                families[name] = [f"# TYPE {name} gauge", *([f"# UNIT {name} {unit}"] if unit else [])]
            labels = {"test": split_nodeid(row.cell.nodeid)[0], "cell": row.cell.label, "name": named}
            shown = ",".join(f'{key}="{writable(value).translate(ESCAPED)}"' for key, value in labels.items() if value)
            families[name].append(f"{name}{{{shown}}} {each.estimate.value * scale:.9g}")
    partial = ["# TYPE ftgate_partial gauge", "ftgate_partial 1"] if report.partial else []
    return "\n".join([*(line for lines in families.values() for line in lines), *partial, "# EOF"]) + "\n"
