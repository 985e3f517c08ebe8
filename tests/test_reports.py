"""Reports: units, the terminal's table against golden files, JSON there and back.

`python tests/test_reports.py` writes the golden files anew; look at their diff before committing it.
"""

from __future__ import annotations

import json as stdlib_json
import math
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

import report_by_hand
from pytest_ftgate.errors import FtgateError
from pytest_ftgate.model import (
    Decision,
    Figures,
    Interval,
    Launch,
    Metric,
    MetricVerdict,
    Report,
    Row,
    Sample,
    Table,
    Verdict,
    WorkloadError,
)
from pytest_ftgate.reports import json, terminal, units
from report_by_hand import MIB, cell

GOLDEN = Path(__file__).parent / "golden"
TERMINALS: dict[str, dict[str, Any]] = {
    "terminal_80.txt": {"width": 80, "color": False, "unicode": True},
    "terminal_120.txt": {"width": 120, "color": False, "unicode": True},
    "terminal_120_verbose.txt": {"width": 120, "color": False, "unicode": True, "verbosity": 1},
    "terminal_80_ascii_color.txt": {"width": 80, "color": True, "unicode": False},
}


def interval(value: float, low: float, high: float, level: float = 0.95) -> Interval:
    return Interval(value=value, low=low, high=high, level=level)


def one_table(*rows: Row, title: str = "t.py::test", note: str = "") -> Report:
    """A report of one table."""
    table = Table(title=title, rows=rows, reference="3.14t-threads", note=note)
    return msgspec.structs.replace(report_by_hand.report(), tables=(table,), unused_baselines=())


def row(word: str = "threads", decision: Decision = Decision.PASSED, **fields: Any) -> Row:
    verdict = fields.pop("verdict", Verdict(decision=decision, reason=fields.pop("reason", "")))
    return Row(cell=cell("t.py::test", "3.14t", word, 8), verdict=verdict, **fields)


def shown(report: Report, width: int = 100, **options: Any) -> str:
    return terminal.render(report, **{"width": width, "color": False, "unicode": True, **options})


# ---- units


@pytest.mark.parametrize(
    ("ns", "text"),
    [
        (0, "0 ns"),
        (0.5, "0.500 ns"),
        (12, "12 ns"),
        (12.34, "12.3 ns"),
        (999.4, "999 ns"),
        (999.9, "1.00 µs"),
        (5320, "5.32 µs"),
        (1_832_000, "1.83 ms"),
        (762_000_000, "762 ms"),
        (999_960_000, "1.00 s"),
        (125e9, "125 s"),
        (1234e9, "1234 s"),
        (-1_832_000, "-1.83 ms"),
        (math.inf, "inf ns"),
        (math.nan, "nan ns"),
    ],
)
def test_time(ns: float, text: str) -> None:
    assert units.time(ns) == text


def test_time_in_ascii() -> None:
    assert units.time(5320, unicode=False) == "5.32 us"


@pytest.mark.parametrize(
    ("n_bytes", "text"),
    [
        (0, "0 B"),
        (512, "512 B"),
        (1023, "1023 B"),
        (1024, "1.00 KiB"),
        (24_327_000, "23.2 MiB"),
        (1013 * MIB, "1013 MiB"),
        (8 * 2**30, "8.00 GiB"),
        (-64 * 4096, "-256 KiB"),
    ],
)
def test_size(n_bytes: float, text: str) -> None:
    assert units.size(n_bytes) == text


@pytest.mark.parametrize(
    ("per_s", "text"),
    [
        (0, "0 /s"),
        (0.25, "0.250 /s"),
        (12.5, "12.5 /s"),
        (51_000, "51.0 k/s"),
        (1_098_000, "1.10 M/s"),
        (2.5e9, "2.50 G/s"),
    ],
)
def test_rate(per_s: float, text: str) -> None:
    assert units.rate(per_s) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(1, "1.00x"), (1.7, "1.70x"), (17.93, "17.9x"), (762, "762x"), (0.561, "0.56x"), (0.0123, "0.0123x")],
)
def test_ratio(value: float, text: str) -> None:
    assert units.ratio(value) == text


@pytest.mark.parametrize(("value", "text"), [(0, "0.00"), (0.034, "0.03"), (1.934, "1.93"), (12.41, "12.4")])
def test_cores(value: float, text: str) -> None:
    assert units.cores(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1.046, "+4.6 %"),
        (0.871, "-12.9 %"),
        (1.0, "0.0 %"),
        (1.0004, "0.0 %"),
        (0.9996, "0.0 %"),
        (2.3, "+130 %"),
        (1.9996, "+100 %"),
        (math.inf, "+inf %"),
    ],
)
def test_change(value: float, text: str) -> None:
    assert units.change(value) == text


@pytest.mark.parametrize(
    ("p", "text"),
    [(0.0, "p < 0.0001"), (0.00009, "p < 0.0001"), (0.00016, "p = 0.0002"), (0.0344, "p = 0.034"), (1.0, "p = 1")],
)
def test_p_value(p: float, text: str) -> None:
    assert units.p_value(p) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.04, "0.0 s"),
        (3.21, "3.2 s"),
        (9.97, "10 s"),
        (59.4, "59 s"),
        (59.7, "1 min"),
        (125.2, "2 min 5 s"),
        (3600, "1 h"),
        (3780, "1 h 3 min"),
        (7199, "2 h"),
    ],
)
def test_span(seconds: float, text: str) -> None:
    assert units.span(seconds) == text


@pytest.mark.parametrize(("level", "text"), [(0.95, "95 %"), (0.992, "99.2 %"), (0.99999, "99.9 %"), (0.29, "29 %")])
def test_level_is_never_rounded_up(level: float, text: str) -> None:
    assert units.level(level) == text


def test_interval_has_the_unit_of_its_value() -> None:
    assert units.time_ends(interval(1_832_000, 1_803_000, 1_866_000)) == "[1.80, 1.87]"
    assert units.time_ends(interval(950_000, 900_000, 1_100_000)) == "[900, 1100]"
    assert units.time_ends(interval(950, 0, math.inf)) == "[0, inf]"
    assert units.half_width(interval(100, 99, 103)) == "±3.0 %"
    assert units.half_width(interval(100, 99, 103), unicode=False) == "+-3.0 %"
    assert units.half_width(interval(0, 0, 0)) == ""


# ---- the terminal


@pytest.mark.parametrize("name", TERMINALS)
def test_terminal_golden(name: str) -> None:
    assert terminal.render(report_by_hand.report(), **TERMINALS[name]) == (GOLDEN / name).read_text(encoding="utf-8")


def test_every_decision_has_a_status_of_its_own() -> None:
    assert set(terminal.STATUS) == set(Decision) == set(terminal.WORST_FIRST)
    assert len({status.letter for status in terminal.STATUS.values()}) == len(Decision)
    assert terminal.STATUS[Decision.REGRESSED] == ("regressed", "R", "REGRESSED", {"red": True})
    assert all(status.category == decision.value for decision, status in terminal.STATUS.items())


@pytest.mark.parametrize("width", [60, 72, 80, 100, 120, 200])
def test_lines_fit_except_what_must_not_be_broken(width: int) -> None:
    for line in shown(report_by_hand.report(), width).splitlines():
        copied = "pytest --ftgate" in line or "::" in line or "│" in line or "baselines/" in line
        assert len(line) <= width or copied, line


def test_narrow_terminal_gives_up_the_less_important_columns_first() -> None:
    def head(width: int) -> str:
        text = shown(report_by_hand.report(), width)
        return next(line for line in text.splitlines() if "verdict" in line)

    assert re.split(r"\s{2,}", head(120).strip()) == ["time", "95 % CI", "ratio", "cores", "USS", "PSS", "verdict"]
    assert re.split(r"\s{2,}", head(80).strip()) == ["time", "95 % CI", "ratio", "cores", "USS", "verdict"]
    assert re.split(r"\s{2,}", head(64).strip()) == ["time", "95 % CI", "ratio", "verdict"]
    assert re.split(r"\s{2,}", head(40).strip()) == ["time", "ratio", "verdict"]


def test_numbers_end_in_one_column() -> None:
    lines = shown(report_by_hand.report(), 120).splitlines()
    times = [re.search(r"\d [mµn]?s(?= )", line) for line in lines if re.match(r"  3\.14t?-\w+-w8  ", line)]
    assert len({found.end() for found in times if found}) == 1


def test_columns_without_a_value_are_left_out() -> None:
    text = shown(one_table(row(figures=Figures(wall_ns=interval(1e6, 1e6, 1e6, level=0.0)))))
    head = next(line for line in text.splitlines() if "verdict" in line)
    assert head.split() == ["time", "verdict"]
    assert "ratio" not in text


def test_levels_that_differ_leave_the_heading_without_one() -> None:
    rows = [row(figures=Figures(wall_ns=interval(1e6, 9e5, 1.1e6, level))) for level in (0.9, 0.95)]
    head = next(line for line in shown(one_table(*rows)).splitlines() if "verdict" in line)
    assert head.split() == ["time", "CI", "verdict"]


def test_regressed_cell_says_what_by_how_much_and_how_to_look_closer() -> None:
    text = shown(report_by_hand.report())
    block = text.partition("  regressed: 3.14-fork-w8\n")[2].partition("  regressed:")[0]
    assert "wall time  3.12 ms, +31.2 % (99.2 % CI +28.1 % to +34.3 %), p = 0.0002" in block
    assert "USS" not in block
    assert "baselines/tests/test_words.py/test_tokenise.json at 1a2b3c4d5e" in block
    assert "pytest --ftgate 'tests/test_words.py::test_tokenise[3.14-fork-w8]'" in block
    assert "ftgate baseline diff" in block


def test_command_is_quoted_for_a_shell() -> None:
    nodeid = "t.py::test[3.14t-threads-w8-it's $HOME]"
    fallen = msgspec.structs.replace(cell("t.py::test", "3.14t", "threads", 8), nodeid=nodeid)
    text = shown(one_table(Row(cell=fallen, verdict=Verdict(decision=Decision.REGRESSED))), 60)
    assert """pytest --ftgate 't.py::test[3.14t-threads-w8-it'"'"'s $HOME]'""" in text


def test_reason_that_a_metric_gives_is_said_once() -> None:
    metric = MetricVerdict(metric=Metric.WALL, decision=Decision.INCONCLUSIVE, reason="9 more launches would settle it")
    verdict = Verdict(decision=Decision.INCONCLUSIVE, metrics=(metric,), reason=f"wall: {metric.reason}")
    assert shown(one_table(row(verdict=verdict))).count("would settle it") == 1
    bare = Verdict(decision=Decision.INCONCLUSIVE, reason="other fingerprint")
    assert "      other fingerprint\n" in shown(one_table(row(verdict=bare)))


def test_error_shows_the_last_lines_without_their_escapes() -> None:
    said = "\n".join(f"line {number}" for number in range(30)) + "\n\x1b[31mred\x1b[0m\x07 \x1b]0;title\x07end\r\n"
    fallen = row(decision=Decision.ERROR, error=WorkloadError(reason="exited\nwith 3", detail=said))
    text = shown(one_table(fallen))
    assert "exited with 3" in text
    assert "│ red end\n" in text
    assert "\x1b" not in text
    assert "line 18" not in text
    assert "line 19" in text
    assert "(19 lines more: -v)" in text
    assert "line 0\n" in shown(one_table(fallen), verbosity=1)


def test_error_is_found_in_the_sample_and_the_verdict() -> None:
    of = cell("t.py::test", "3.14t", "threads", 8)
    broken = Sample(cell=of, interpreter=report_by_hand.GIL, key="k", error=WorkloadError(reason="hung for 60 s"))
    assert "hung for 60 s" in shown(one_table(row(decision=Decision.ERROR, sample=broken)))
    assert "wall values cannot be compared" in shown(
        one_table(row(decision=Decision.ERROR, reason="wall values cannot be compared"))
    )


def test_unsupported_cells_are_grouped_by_reason() -> None:
    rows = [
        row(word, Decision.UNSUPPORTED, reason=why) for word, why in [("fork", "A"), ("spawn", "B"), ("tasks", "A")]
    ]
    text = shown(one_table(*rows))
    assert "unsupported: 3.14t-fork-w8, 3.14t-tasks-w8\n      A\n" in text
    assert "unsupported: 3.14t-spawn-w8\n      B\n" in text


def test_header_names_machine_interpreters_and_seed() -> None:
    text = shown(report_by_hand.report(), 160)
    assert "x86_64-epyc7763-2-9f3c · AMD EPYC 7763 64-Core Processor · 2 cores" in text
    assert "3.14.7t  GIL off · gcc 14.2.0, no PGO, no LTO, built from source · /opt/python/bin/python3.14t" in text
    assert "repeat with --ftgate-seed 20260102" in text
    assert "--ftgate-seed" not in shown(report_by_hand.report(), 160, verbosity=-1)


def test_footer_shows_updates_in_place_of_the_advice_to_record() -> None:
    new = row(decision=Decision.NO_BASELINE)
    assert "--ftgate-update" in shown(one_table(new))
    updated = msgspec.structs.replace(one_table(new), updates=("baselines/t.py/test.json: 1 cell new",))
    text = shown(updated)
    assert "updated  baselines/t.py/test.json: 1 cell new" in text
    assert "--ftgate-update" not in text


def test_report_of_nothing() -> None:
    text = shown(msgspec.structs.replace(one_table(), tables=(), wall_s=0.2, interpreters=()))
    assert text.endswith("\n0 cells in 0.2 s\n")


def test_colour_only_when_asked_and_always_closed() -> None:
    plain = shown(report_by_hand.report(), 80)
    colored = shown(report_by_hand.report(), 80, color=True)
    assert "\x1b" not in plain
    assert re.sub(r"\x1b\[[\d;]*m", "", colored) == plain
    assert "\x1b[31mregressed\x1b[0m" in colored
    assert "\x1b[32mpassed\x1b[0m" in colored
    assert "\x1b[33minconclusive\x1b[0m" in colored


def test_ascii_stream_gets_ascii() -> None:
    assert shown(report_by_hand.report(), 80, unicode=False, verbosity=1).isascii()


def test_lines_of_one_cell() -> None:
    regressed = report_by_hand.tokenise().rows[1]
    text = terminal.verdict_lines(regressed, width=80, color=False, unicode=True)
    assert text.startswith("  regressed: 3.14-fork-w8\n")
    passed = report_by_hand.tokenise().rows[0]
    assert terminal.verdict_lines(passed, width=80, color=False, unicode=True) == ""


# ---- JSON


def test_json_golden() -> None:
    assert json.render(report_by_hand.report()) == (GOLDEN / "report.json").read_text(encoding="utf-8")


def test_json_round_trip_keeps_everything() -> None:
    report = report_by_hand.report()
    assert json.parse(json.render(report)) == report
    assert shown(json.parse(json.render(report))) == shown(report)


def test_json_is_sorted_indented_and_holds_raw_values() -> None:
    text = json.render(report_by_hand.report())

    def in_order(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        names = [name for name, _ in pairs]
        assert names == sorted(names)
        return dict(pairs)

    raw = stdlib_json.loads(text, object_pairs_hook=in_order)
    assert raw["schema"] == 1
    assert '\n  "schema": 1,\n' in text
    assert text.endswith("}\n")
    sample = raw["tables"][0]["rows"][0]["sample"]
    assert sample["launches"][0]["turns"][0]["wall_ns"] == 1_830_000
    assert sample["launches"][1]["memory"][0]["uss_bytes"] == 24_300_000


def test_json_survives_numbers_and_text_that_it_cannot_hold() -> None:
    endless = Figures(wall_ns=interval(1e6, -math.inf, math.inf), counters_per_s={"n": math.nan})
    of = cell("t.py::test", "3.14t", "threads", 8)
    launch = Launch(order=0, hash_seed=0, started_at="", results=("caf\udce9",))
    odd = Row(
        cell=of,
        verdict=Verdict(decision=Decision.ERROR),
        figures=endless,
        sample=Sample(cell=of, interpreter=report_by_hand.GIL, key="nan", launches=(launch,)),
    )
    text = json.render(one_table(odd))
    assert stdlib_json.loads(text)["tables"][0]["rows"][0]["figures"]["wall_ns"]["high"] == "inf"
    back = json.parse(text).tables[0].rows[0]
    assert back.figures.wall_ns == endless.wall_ns
    assert math.isnan(back.figures.counters_per_s["n"])
    assert back.sample is not None
    assert back.sample.key == "nan"
    assert back.sample.launches[0].results == ("caf\\udce9",)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "r.json is not JSON"),
        ('{"schema": 1,', "r.json is not JSON"),
        (b"\xff\xfe", "r.json is not JSON"),
        ("[]", "r.json has schema None, this pytest-ftgate reads 1"),
        ('{"schema": 2}', "r.json has schema 2, this pytest-ftgate reads 1"),
        ('{"schema": 1, "seed": 3}', "r.json is not a report: Object missing required field"),
    ],
)
def test_json_that_is_no_report_is_an_error_that_names_it(text: str | bytes, said: str) -> None:
    with pytest.raises(FtgateError, match=re.escape(said)):
        json.parse(text, origin="r.json")


def test_json_with_an_unknown_field_is_an_error_that_names_the_place() -> None:
    raw = stdlib_json.loads(json.render(report_by_hand.report()))
    raw["tables"][0]["rows"][0]["figures"]["speed"] = 3
    with pytest.raises(json.ReportError, match=r"speed.*\$\.tables\[0\]\.rows|unknown field `speed`"):
        json.parse(stdlib_json.dumps(raw))


def write_golden() -> None:
    """Write every golden file from the report by hand."""
    GOLDEN.mkdir(exist_ok=True)
    for name, options in TERMINALS.items():
        (GOLDEN / name).write_text(terminal.render(report_by_hand.report(), **options), encoding="utf-8")
    (GOLDEN / "report.json").write_text(json.render(report_by_hand.report()), encoding="utf-8")


if __name__ == "__main__":
    write_golden()
