"""A report in the formats of tools that people already use, from the metric table. Pure."""

from __future__ import annotations

import csv
import json
from collections import Counter
from collections.abc import Mapping
from types import SimpleNamespace
from urllib.parse import quote

from ..hookspec import hookimpl
from ..judge.values import values_of
from ..kit import units
from ..kit.text import split_nodeid
from ..kit.values import Metric
from ..model.report import Format, Report, Row
from ..model.spec import Cell
from ..report import said
from ..report.measured import SUFFIX, measured, writable

IN_NAMES = ":()[]{},+@._"
"""Besides letters and digits, what stays as it is in a name for benchstat."""
ESCAPED = str.maketrans({"\\": "\\\\", "\n": "\\n", '"': '\\"'})
"""In a label of OpenMetrics."""
OPENMETRICS_UNITS = {
    "time": ("seconds", 1e-9),
    "size": ("bytes", 1.0),
    "share": ("ratio", 1.0),
    "ratio": ("ratio", 1.0),
}


@hookimpl
def ftgate_formats() -> Mapping[str, Format]:
    made = {"bmf": bmf, "gha-benchmark": gha_benchmark, "benchstat": benchstat, "otava": otava}
    return {kind: Format(render) for kind, render in (made | {"openmetrics": openmetrics}).items()}


def bmf(report: Report) -> str:
    """Bencher Metric Format: a benchmark for each cell, a measure for each metric, with the ends of its interval."""
    found: dict[str, dict[str, dict[str, float]]] = {}
    for row, name, _ in _cells(report):
        measures = found[writable(name)] = {}
        for each in measured(row):
            ends = {"lower_value": each.estimate.low, "upper_value": each.estimate.high} if each.has_interval else {}
            measures[each.column] = {"value": each.estimate.value, **ends}
    partial = {"ftgate": {"partial": {"value": 1}}} if report.partial else {}
    return json.dumps({name: measures for name, measures in found.items() if measures} | partial, indent=2) + "\n"


def _cells(report: Report) -> list[tuple[Row, str, str]]:
    """Each row, its name, and the fingerprint of its machine if unlike ones measured the same cell; else ""."""
    count = Counter(row.cell.nodeid for row in report.rows)
    ons = [report.machine_of(row).fingerprint if count[row.cell.nodeid] > 1 else "" for row in report.rows]
    names = [f"{row.cell.nodeid} on {on}" if on else row.cell.nodeid for row, on in zip(report.rows, ons, strict=True)]
    return list(zip(report.rows, names, ons, strict=True))


def gha_benchmark(report: Report) -> str:
    """The customSmallerIsBetter list of github-action-benchmark: what gates, and is better if it is smaller."""
    found = []
    for row, name, _ in _cells(report):
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
                    "name": writable(f"{name} {each.metric.name}"),
                    "unit": SUFFIX.get(unit, "fraction" if unit == "share" else unit),
                    "value": estimate.value,
                    "range": f"± {half:.4g}" if each.has_interval else "",
                    "extra": writable("\n".join(beside)),
                }
            )
    return json.dumps(found, indent=2) + "\n"


def benchstat(report: Report) -> str:
    """Go's benchmark format with its unit metadata: a line for each launch, with the metrics that this launch gave."""
    better: dict[str, str] = {}
    lines: list[str] = []
    for (row, _, on), values in zip(_cells(report), values_of(report.rows), strict=True):
        if values is None or row.sample is None:
            continue
        by_launch: dict[int, list[str]] = {}
        for each in measured(row):
            # As benchstat knows units: `ns/op` of the wall time, `start-ns/op`, `uss-B`.
            unit = quote(each.metric.name, safe=IN_NAMES) + {"time": "-ns/op", "size": "-B"}.get(each.metric.unit, "")
            unit = "ns/op" if each.metric.name == Metric.WALL else unit
            better[unit] = "higher" if each.metric.scale == "gain" else "lower"
            for order, value in values.of(each.metric.name).items():
                by_launch.setdefault(order, []).append(f"{value:.9g} {unit}")
        counts = {launch.order: len(launch.iterations) * launch.loops for launch in row.sample.launches}
        lines.append(f"pkg: {_line(row.cell.nodeid.partition('::')[0])}")
        name = _go_name(row.cell, on)
        lines += [f"{name} {counts.get(order) or 1} {' '.join(values)}" for order, values in sorted(by_launch.items())]
    about = [_line(f"# pytest-ftgate {report.version}, {report.commit or 'no commit'}, {report.started_at}")]
    about += [f"# partial: {_line(report.partial)}"] if report.partial else []
    about += [f"Unit {unit} better={direction}" for unit, direction in better.items()]
    return "\n".join([*about, f"cpu: {_line(report.machine.cpu)}", *lines]) + "\n"


def _line(text: str) -> str:
    return " ".join(writable(text).split())


def _go_name(cell: Cell, machine: str) -> str:
    """The test, and each dimension of the cell as `/key=value`, by which benchstat can select and compare."""
    workers = ",".join(f"{role}:{count}" for role, count in cell.roles) or str(cell.workers)
    dimensions = [("target", cell.target.spec), ("executor", cell.executor.label)]
    dimensions += [(param.name, param.literal) for param in cell.params]
    dimensions += [("environment", ",".join(cell.environment.words))] if cell.environment.words else []
    dimensions += [("machine", machine)] if machine else []
    dimensions += [("workers", "cores" if cell.cores else workers)]  # last, as a `-8` at the end is GOMAXPROCS
    test = split_nodeid(cell.nodeid)[0].partition("::")[2]
    parts = [test, *("=".join(each) for each in dimensions)]
    return "Benchmark" + "/".join(quote(writable(part), safe=f"{IN_NAMES}=") for part in parts)


def otava(report: Report) -> str:
    """CSV for Apache Otava: a column for each figure, a row for each recording in the history and one for this run."""
    now = (report.started_at, report.commit)
    runs: dict[tuple[str, str], dict[str, float]] = {}
    columns: dict[str, None] = {}
    for row, name, _ in _cells(report):
        past = {(history.metric, history.unit): history.points for history in row.history}
        for each in measured(row):
            column = writable(f"{name} {each.column}")
            columns[column] = None
            for point in past.get((each.metric.name, each.metric.unit), ()):  # not those over the control's time
                runs.setdefault((point.recorded_at, point.commit), {})[column] = point.value.value
            runs.setdefault(now, {})[column] = each.estimate.value
    lines: list[str] = []
    table = csv.writer(SimpleNamespace(write=lines.append), lineterminator="\n")
    table.writerow(["time", "commit", "partial", *columns])
    for (at, commit), values in sorted(runs.items()):
        partial = writable(report.partial) if (at, commit) == now else ""
        table.writerow([writable(at), writable(commit), partial, *(values.get(column, "nan") for column in columns)])
    return "".join(lines)


def openmetrics(report: Report) -> str:
    """OpenMetrics text, as GitLab's metrics report and Prometheus read it: a family of gauges for each metric."""
    families: dict[str, list[str]] = {}
    for row, _, on in _cells(report):
        for each in measured(row):
            kind, _, named = each.metric.name.partition(".")
            unit, scale = OPENMETRICS_UNITS.get(each.metric.unit, ("", 1.0))
            name = "_".join(filter(None, ("ftgate", kind, "" if kind == unit else unit)))
            if name not in families:
                families[name] = [f"# TYPE {name} gauge", *([f"# UNIT {name} {unit}"] if unit else [])]
            labels = {"test": split_nodeid(row.cell.nodeid)[0], "cell": row.cell.label, "name": named, "machine": on}
            shown = ",".join(f'{key}="{writable(value).translate(ESCAPED)}"' for key, value in labels.items() if value)
            families[name].append(f"{name}{{{shown}}} {each.estimate.value * scale:.9g}")
    partial = ["# TYPE ftgate_partial gauge", "ftgate_partial 1"] if report.partial else []
    return "\n".join([*(line for lines in families.values() for line in lines), *partial, "# EOF"]) + "\n"
