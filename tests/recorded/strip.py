"""Keeps of a JSON report what the advice reads: `python tests/recorded/strip.py REPORT > tests/recorded/NAME.json`.

Left out are raw launches of probes, the control workload, verdicts, and what names a place of the machine.
"""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec
from msgspec.structs import replace

from pytest_ftgate.model.report import Report, Row
from pytest_ftgate.model.sample import Launch, Sample
from pytest_ftgate.model.spec import Interpreter
from pytest_ftgate.model.verdict import Verdict
from pytest_ftgate.report import json


def stripped(report: Report) -> Report:
    """The same without what the advice does not read."""
    tables = tuple(replace(table, rows=tuple(map(_row, table.rows))) for table in report.tables)
    return replace(
        report, interpreters=(), tables=tables, updates=(), unused_baselines=(), commit="", branch="", command=""
    )


def _row(row: Row) -> Row:
    verdict = Verdict(decision=row.verdict.decision, reason=row.verdict.reason)
    return replace(row, verdict=verdict, sample=_sample(row.sample) if row.sample else None, conditions=None)


def _sample(sample: Sample) -> Sample:
    return Sample(
        cell=sample.cell,
        interpreter=_interpreter(sample.interpreter),
        key=sample.key,
        all_launches=(
            *(replace(launch, results=()) for launch in sample.launches),
            *map(_memory, sample.of("memory")),
        ),
        reuse=sample.reuse,
        duration_s=sample.duration_s,
    )


def _interpreter(interpreter: Interpreter) -> Interpreter:
    return replace(interpreter, executable=f"python{interpreter.name}", config_args="", found="")


def _memory(launch: Launch) -> Launch:
    points = tuple(replace(point, roles={}) for point in launch.memory[:3])
    return replace(launch, memory=points, barriers=(), iterations=(), waits=None, sampling_cost=None, results=())


if __name__ == "__main__":
    path = Path(sys.argv[1])
    text = json.render(stripped(json.parse(path.read_bytes(), origin=str(path))))
    print(msgspec.json.format(text, indent=0))
