"""The tables of the examples' READMEs: a row for each contract, and what `make recordings` writes into them."""

from __future__ import annotations

import re
import runpy
import statistics
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from pytest_ftgate.declare.tests import notes_of
from pytest_ftgate.kit import units
from pytest_ftgate.model.report import Table
from pytest_ftgate.model.sample import MemoryPoint
from pytest_ftgate.model.verdict import Decision, MetricVerdict, Verdict
from pytest_ftgate.report.json import parse

ROOT = Path(__file__).parents[1]
SCRIPT = runpy.run_path(str(ROOT / "benchmarks" / "examples" / "tables.py"))
READMES = sorted((ROOT / "examples").glob("*/README.md"))
MEASURED = ROOT / "tests" / "recorded" / "pipeline.json"
README = ROOT / "examples" / "trading_pipeline" / "README.md"
HEAVY = "PROC_MS=5, EVAL_MS=50"
STARVED = f"threads[{HEAVY}].timer.processed_to_evaluated < 0.5 * tasks[{HEAVY}].timer.processed_to_evaluated"
LATE = "threads[PROC_MS:5, EVAL_MS:50].peak.late_ms / tasks[PROC_MS:5, EVAL_MS:50].peak.late_ms"
OLD = f"""\
| test | contract | write-up | 2 cores | 16 cores | why two cores differ |
|---|---|---|---|---|---|
| `test_pipeline` | `tasks.wall < 9 * threads.wall` | 1 | broken, 20 | | it is no contract any more |
| `test_pipeline` | `{LATE}` | 0.5 |  | 0.7 | not asserted |
| `test_pipeline` | `{STARVED}` | 0.4 | undecided, 7 | met, 0.3 | it is so |
| `test_elsewhere` | `threads.wall < processes.wall` | 3 | met, 4 |  |  |
""".splitlines()
FIGURES = """\
| `test_pipeline` | `wall.p50` | write-up | `ops_per_s` |
| --- | --- | --- | --- |
| `tasks[PROC_MS:5, EVAL_MS:50]` |  | 130 ms | 7 |
| `threads[PROC_MS:7, EVAL_MS:50]` |  |  | 9 |
""".splitlines()


def tables_of(readme: Path) -> list[list[str]]:
    between = readme.read_text("utf-8").partition(SCRIPT["BEGIN"])[2].partition(SCRIPT["END"])[0]
    tables: list[list[str]] = SCRIPT["tables_in"](between)
    return tables


@pytest.mark.parametrize("readme", READMES, ids=lambda path: path.parent.name)
def test_each_contract_has_a_row_and_each_row_a_contract(readme: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(readme.parent), *sys.path])
    (path,) = readme.parent.glob("test_*.py")
    functions: dict[str, Callable[..., Any]] = {
        name: value for name, value in runpy.run_path(str(path)).items() if name.startswith("test_")
    }
    written = {
        (f"`{name}`", f"`{text}`")
        for name, function in functions.items()
        for note in notes_of(function)
        if note.decorator == "contract"
        for text in note.args
    }
    contracts, *figures = tables_of(readme)
    rows = SCRIPT["read"](contracts)[1]
    assert {row for row in rows if any(sign in row[1] for sign in "<>=")} == written
    shown = {re.match(r"\| `(\w+)", table[0])[1] for table in figures}  # type: ignore[index]
    assert {name.strip("`") for name, _ in rows} | shown <= set(functions)


def judged() -> list[Table]:
    """A measured test whose contract was met at one of its cells."""
    report = parse(MEASURED.read_bytes())
    met = MetricVerdict(metric="contract", decision=Decision.PASSED, contract=STARVED)
    return [
        msgspec.structs.replace(
            table,
            rows=tuple(
                msgspec.structs.replace(row, verdict=Verdict(decision=Decision.PASSED, metrics=(met,)))
                if row.cell.label.startswith("3.14t-threads")
                else row
                for row in table.rows
            ),
        )
        for table in report.tables
        if SCRIPT["name_of"](table) == "test_pipeline"
    ]


def test_the_measured_column_is_replaced_and_the_others_stay() -> None:
    columns, rows = SCRIPT["read"](SCRIPT["rewritten"](OLD, judged(), "2 cores"))
    assert columns == ["test", "contract", "write-up", "2 cores", "16 cores", "why two cores differ"]
    contract, ratio, elsewhere = rows.values()
    assert contract["2 cores"].startswith("met, 0.")
    assert [contract[each] for each in columns[2:] if each != "2 cores"] == ["0.4", "met, 0.3", "it is so"]
    assert 0 < float(ratio["2 cores"]) < 1
    assert ratio["16 cores"] == "0.7"
    assert elsewhere["2 cores"] == "met, 4"


def test_figures_in_backticks_are_measured_and_the_others_stay() -> None:
    tasks, elsewhere = SCRIPT["cells_of"](SCRIPT["with_figures"](FIGURES, judged()))[1:]
    assert re.fullmatch(r"[\d.]+ m?s", tasks[1])
    assert tasks[2] == "130 ms"
    assert 0 < float(tasks[3]) < 7
    assert elsewhere == ["`threads[PROC_MS:7, EVAL_MS:50]`", "", "", "9"], "it has no such cell"
    of_others = ["| `test_pipeline[rate=2]` |" + line.partition(" |")[2] for line in FIGURES[:1]] + FIGURES[1:]
    assert SCRIPT["with_figures"](of_others, judged()) == of_others


def test_what_a_machine_without_a_program_cannot_judge_stays() -> None:
    (table,) = judged()
    lacking = msgspec.structs.replace(table.rows[0], verdict=Verdict(decision=Decision.UNSUPPORTED), sample=None)
    tables = [msgspec.structs.replace(table, rows=(lacking, *table.rows[1:]))]
    _, rows = SCRIPT["read"](SCRIPT["rewritten"](OLD, tables, "2 cores"))
    gone = rows["`test_pipeline`", "`tasks.wall < 9 * threads.wall`"]
    assert (gone["write-up"], gone["2 cores"]) == ("1", "broken, 20")
    assert rows["`test_pipeline`", f"`{STARVED}`"]["2 cores"].startswith("met, 0.")
    # A README of which nothing was measured stays as it is.
    report = parse(MEASURED.read_bytes())
    nothing = [msgspec.structs.replace(row, sample=None) for row in table.rows]
    assert SCRIPT["measured_of"](report, README)
    empty = msgspec.structs.replace(report, tables=(msgspec.structs.replace(table, rows=tuple(nothing)),))
    assert SCRIPT["measured_of"](empty, README) == []


def test_a_statistic_is_of_all_iterations_or_samples() -> None:
    rows = [row for table in judged() for row in table.rows]
    heavy = next(row for row in rows if row.cell.label.startswith("3.14t-tasks") and "PROC_MS:5" in row.cell.label)
    assert heavy.sample
    times = [each.wall_ns for launch in heavy.sample.launches for each in launch.iterations]
    (first, *_) = heavy.sample.launches
    points = tuple(
        MemoryPoint(rss_bytes=size, uss_bytes=None, pss_bytes=None, processes=1) for size in (1 << 20, 5 << 20)
    )
    held = msgspec.structs.replace(first, role="memory", memory=points)
    with_memory = msgspec.structs.replace(heavy.sample, all_launches=(*heavy.sample.launches, held))
    rows[rows.index(heavy)] = msgspec.structs.replace(heavy, sample=with_memory)
    cuts = statistics.quantiles(times, n=100, method="inclusive")
    wanted = {"wall.mean": statistics.fmean(times), "wall.p50": cuts[49], "wall.p95": cuts[94]}
    wanted |= {"rss.min": 1 << 20, "rss.mean": 3 << 20, "rss.max": 5 << 20}
    for name, value in wanted.items():
        unit = "time" if name.startswith("wall") else "size"
        assert SCRIPT["figure_of"](f"tasks[3.14t, PROC_MS:5, EVAL_MS:50].{name}", rows) == units.of(unit, value)


def test_another_machine_gets_a_column_of_its_own() -> None:
    columns, rows = SCRIPT["read"](SCRIPT["rewritten"]([], judged(), "16 cores"))
    assert columns == ["test", "contract", "write-up", "16 cores", "why two cores differ"]
    assert [key[1] for key in rows] == [f"`{STARVED}`"]


def test_a_heat_map_has_the_timers_of_both_executors() -> None:
    begin = "<!-- heat map: receive_to_processed of 3.14t-tasks and 3.14t-threads by PROC_MS and EVAL_MS -->"
    text = SCRIPT["with_heat_maps"](f"before\n{begin}\nold\n<!-- end of the heat map -->\nafter", judged())
    before, marker, _, head, _, light, heavy, _, _, after = text.split("\n")
    assert (before, marker, after) == ("before", begin, "after")
    assert head == "| `PROC_MS` | `EVAL_MS` = 1 | `EVAL_MS` = 50 |"
    assert light.startswith("| 0.5 | ")
    assert light.endswith(" |  |")
    tasks, threads = map(float, heavy.split("|")[3].split(" / "))
    assert tasks > 2 * threads


def test_what_decide_says_stands_below() -> None:
    report = parse(MEASURED.read_bytes())
    lines = SCRIPT["decided"]("- `test_elsewhere`: threads", report, list(report.tables))
    assert "- `test_elsewhere`: threads" in lines, "it was not measured"
    assert any(line.startswith("- `test_pipeline`: ") and "is least with threads on 3.14t" in line for line in lines)
