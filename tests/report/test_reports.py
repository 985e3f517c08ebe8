"""Reports: units, the terminal's table against golden files, JSON there and back."""

from __future__ import annotations

import json as stdlib_json
import math
import random
import re
from collections.abc import Callable
from typing import Any, get_args

import msgspec
import pytest
import report_by_hand
from fake_launcher import group_of, spec_of
from report_by_hand import KIB, MIB, around, cell, of_rows, role, site
from values import entry, held, probed, read, sample_of, timed

from golden import check_golden
from pytest_ftgate.features.baseline import render_diff
from pytest_ftgate.judge import figures
from pytest_ftgate.kit import units
from pytest_ftgate.kit.errors import FtgateError
from pytest_ftgate.kit.values import Interval, Metric
from pytest_ftgate.model.report import Figures, Report, RoleFigures, Row, Shortfall, WaitFigures
from pytest_ftgate.model.sample import Latency, Launch, LockSite, LockWaits, Sample, WorkloadError
from pytest_ftgate.model.verdict import Decision, Expected, MetricVerdict, Outcome, Verdict
from pytest_ftgate.report import details, json, said, terminal
from pytest_ftgate.report.baselines import update_lines
from pytest_ftgate.report.details import Style, phrases, short_path
from pytest_ftgate.report.details import detail_lines as block_of
from pytest_ftgate.store import schema
from pytest_ftgate.store.update import Difference, Update

TERMINALS: dict[str, dict[str, Any]] = {
    "terminal_80.txt": {"width": 80, "color": False, "unicode": True},
    "terminal_120.txt": {"width": 120, "color": False, "unicode": True},
    "terminal_120_verbose.txt": {"width": 120, "color": False, "unicode": True, "verbosity": 1},
    "terminal_80_ascii_color.txt": {"width": 80, "color": True, "unicode": False},
}


def interval(value: float, low: float, high: float, level: float = 0.95) -> Interval:
    return Interval(value=value, low=low, high=high, level=level)


def row(word: str = "threads", decision: Decision = Decision.PASSED, **fields: Any) -> Row:
    verdict = fields.pop("verdict", Verdict(decision=decision, reason=fields.pop("reason", "")))
    return Row(cell=cell("t.py::test", "3.14t", word, 8), verdict=verdict, **fields)


def shown(report: Report, width: int = 100, **options: Any) -> str:
    return terminal.render(report, **{"width": width, "color": False, "unicode": True, **options})


def timed_row(word: str, start_ns: float, work_ns: float, join_ns: float, **fields: Any) -> Row:
    of = cell("t.py::test", "3.14t", word, 8)
    there = Sample(cell=of, interpreter=report_by_hand.GIL, key="k", **fields)
    return row(word, sample=there, figures=Figures(start_ns=start_ns, work_ns=work_ns, join_ns=join_ns))


def test_a_body_that_is_short_beside_the_start_of_its_workers_has_a_hint() -> None:
    rows = [timed_row("threads", 700, 10, 290), timed_row("fork", 960, 40, 0), timed_row("spawn", 300, 500, 200)]
    text = shown(of_rows(*rows), 200)
    assert (
        "  hint       96 % or more of the time of 3.14t-threads-w8, 3.14t-fork-w8 is start and join: "
        'leave out reuse="fresh"\n'
    ) in text
    quiet = [timed_row("threads", 890, 110, 0), timed_row("fork", 0, 0, 0), timed_row("spawn", 99, 1, 0, reuse="pool")]
    assert "hint" not in shown(of_rows(*quiet))


# ---- units


@pytest.mark.parametrize(
    ("written", "value", "text"),
    [
        (units.time, 0, "0 ns"),
        (units.time, 0.5, "0.500 ns"),
        (units.time, 12, "12 ns"),
        (units.time, 12.34, "12.3 ns"),
        (units.time, 999.4, "999 ns"),
        (units.time, 999.9, "1.00 µs"),
        (units.time, 5320, "5.32 µs"),
        (units.time, 1_832_000, "1.83 ms"),
        (units.time, 762_000_000, "762 ms"),
        (units.time, 999_960_000, "1.00 s"),
        (units.time, 125e9, "125 s"),
        (units.time, 1234e9, "1234 s"),
        (units.time, -1_832_000, "-1.83 ms"),
        (units.time, math.inf, "inf ns"),
        (units.time, math.nan, "nan ns"),
        (units.size, 0, "0 B"),
        (units.size, 512, "512 B"),
        (units.size, 1023, "1023 B"),
        (units.size, 1024, "1.00 KiB"),
        (units.size, 24_327_000, "23.2 MiB"),
        (units.size, 1013 * MIB, "1013 MiB"),
        (units.size, 8 * 2**30, "8.00 GiB"),
        (units.size, -64 * 4096, "-256 KiB"),
        (units.rate, 0, "0 /s"),
        (units.rate, 0.25, "0.250 /s"),
        (units.rate, 12.5, "12.5 /s"),
        (units.rate, 51_000, "51.0 k/s"),
        (units.rate, 1_098_000, "1.10 M/s"),
        (units.rate, 2.5e9, "2.50 G/s"),
        (units.ratio, 1, "1.00x"),
        (units.ratio, 1.7, "1.70x"),
        (units.ratio, 17.93, "17.9x"),
        (units.ratio, 762, "762x"),
        (units.ratio, 0.561, "0.56x"),
        (units.ratio, 0.0123, "0.0123x"),
        (units.cores, 0, "0.00"),
        (units.cores, 0.034, "0.03"),
        (units.cores, 1.934, "1.93"),
        (units.cores, 12.41, "12.4"),
        (units.change, 1.046, "+4.6 %"),
        (units.change, 0.871, "-12.9 %"),
        (units.change, 1.0, "0.0 %"),
        (units.change, 1.0004, "0.0 %"),
        (units.change, 0.9996, "0.0 %"),
        (units.change, 2.3, "+130 %"),
        (units.change, 1.9996, "+100 %"),
        (units.change, math.inf, "+inf %"),
        (units.p_value, 0.0, "p < 0.0001"),
        (units.p_value, 0.00009, "p < 0.0001"),
        (units.p_value, 0.00016, "p = 0.00016"),
        (units.p_value, 0.0344, "p = 0.034"),
        (units.p_value, 1.0, "p = 1"),
        (units.span, 0.04, "0.0 s"),
        (units.span, 3.21, "3.2 s"),
        (units.span, 9.97, "10 s"),
        (units.span, 59.4, "59 s"),
        (units.span, 59.7, "1 min"),
        (units.span, 125.2, "2 min 5 s"),
        (units.span, 3600, "1 h"),
        (units.span, 3780, "1 h 3 min"),
        (units.span, 7199, "2 h"),
        (units.level, 0.95, "95 %"),
        (units.level, 0.992, "99.2 %"),
        (units.level, 0.99999, "99.9 %"),
        (units.level, 0.29, "29 %"),
        (units.share, 0, "0"),
        (units.share, 1e-9, "<0.1 %"),
        (units.share, 0.00049, "<0.1 %"),
        (units.share, 0.0005, "0.1 %"),
        (units.share, 0.312, "31.2 %"),
        (units.share, 0.9996, "100 %"),
        (units.share, 1.0, "100 %"),
        (units.share, math.nan, "nan %"),
        (units.whole_share, 0, "0 %"),
        (units.whole_share, 0.001, "<1 %"),
        (units.whole_share, 0.006, "1 %"),
        (units.whole_share, 0.48, "48 %"),
        (units.whole_share, 0.997, ">99 %"),
        (units.whole_share, 1.0, "100 %"),
        (units.whole_share, 1.02, "102 %"),
        (units.points, 0.0412, "+4.1 points"),
        (units.points, -0.3, "-30.0 points"),
        (units.points, 0.0, "0.0 points"),
        (units.points, -0.0001, "0.0 points"),
    ],
)
def test_a_number_has_three_digits_and_a_unit_that_fits(
    written: Callable[[float], str], value: float, text: str
) -> None:
    assert written(value) == text


def test_time_in_ascii() -> None:
    assert units.time(5320, unicode=False) == "5.32 us"


@pytest.mark.parametrize("level", [float("inf"), float("-inf"), float("nan"), 1e308])
def test_any_number_can_be_a_level(level: float) -> None:
    assert units.level(level) in ("0 %", "100 %")


def test_interval_has_the_unit_of_its_value() -> None:
    assert units.time_ends(interval(1_832_000, 1_803_000, 1_866_000)) == "[1.80, 1.87]"
    assert units.time_ends(interval(950_000, 900_000, 1_100_000)) == "[900, 1100]"
    assert units.time_ends(interval(950, 0, math.inf)) == "[0, inf]"
    assert units.half_width(interval(100, 99, 103)) == "±3.0 %"
    assert units.half_width(interval(100, 99, 103), unicode=False) == "+-3.0 %"
    assert units.half_width(interval(0, 0, 0)) == ""


def test_intervals_of_bytes_and_ratios() -> None:
    assert units.size_ends(interval(102 * KIB, 100 * KIB, 104 * KIB)) == "[100, 104]"
    assert units.size_ends(interval(0.9 * MIB, 0, 2 * MIB)) == "[0, 2048]"
    assert units.ratio_ends(interval(1.03, 1.01, 1.052)) == "[1.01, 1.05]"
    assert units.ratio_ends(interval(17.93, 17.0, 18.04)) == "[17.0, 18.0]"


def test_fewer_digits_of_what_is_known_less_well() -> None:
    assert [units.time(ns, digits=2) for ns in (12_300, 1_234, 155_000, 996)] == ["12 µs", "1.2 µs", "155 µs", "996 ns"]


# ---- the terminal


@pytest.mark.parametrize("name", TERMINALS)
def test_terminal_golden(name: str) -> None:
    check_golden(name, terminal.render(report_by_hand.report(), **TERMINALS[name]))


def test_every_decision_is_an_outcome_of_pytest_s_with_a_reason() -> None:
    found = {outcome: [each for each in Decision if each.outcome == outcome] for outcome in get_args(Outcome)}
    assert found == {
        "failed": [Decision.REGRESSED, Decision.BROKEN, Decision.SUSPECT, Decision.ERROR],
        "passed": [Decision.ACCEPTED, Decision.UNCHANGED, Decision.IMPROVED, Decision.PASSED],
        "undecided": [Decision.INCONCLUSIVE, Decision.NOT_MEASURED, Decision.NO_BASELINE],
        "skipped": [Decision.UNSUPPORTED],
        "xfailed": [Decision.XFAILED],
        "xpassed": [Decision.XPASSED],
    }
    assert [decision.severity for decision in Decision] == [*range(len(Decision))]
    worst, known = Decision.REGRESSED, Decision.XFAILED
    assert (worst.word, worst.color, worst.fails) == ("REGRESSED", "red", True)
    assert (known.word, known.color, known.fails) == ("XFAIL", "yellow", False)


@pytest.mark.parametrize("verbosity", [0, 1])
@pytest.mark.parametrize("width", [60, 72, 80, 100, 120, 200])
def test_lines_fit_except_what_must_not_be_broken(width: int, verbosity: int) -> None:
    for line in shown(report_by_hand.report(), width, verbosity=verbosity).splitlines():
        copied = "pytest --ftgate" in line or "::" in line or "│" in line or "baselines/" in line
        assert len(line) <= width or copied, line


def test_narrow_terminal_gives_up_the_less_important_columns_first() -> None:
    def head(width: int) -> str:
        text = shown(report_by_hand.report(), width)
        return next(line for line in text.splitlines() if "verdict" in line)

    assert re.split(r"\s{2,}", head(120).strip()) == ["wall", "95 % CI", "ratio", "cores", "uss", "pss", "verdict"]
    assert re.split(r"\s{2,}", head(80).strip()) == ["wall", "95 % CI", "ratio", "cores", "uss", "verdict"]
    assert re.split(r"\s{2,}", head(64).strip()) == ["wall", "ratio", "uss", "verdict"]
    assert re.split(r"\s{2,}", head(40).strip()) == ["wall", "ratio", "verdict"]


def test_columns_without_a_value_are_left_out() -> None:
    text = shown(of_rows(row(figures=Figures(wall_ns=interval(1e6, 1e6, 1e6, level=0.0)))))
    head = next(line for line in text.splitlines() if "verdict" in line)
    assert head.split() == ["wall", "verdict"]
    assert "ratio" not in text


def known(decision: Decision, reason: str) -> Row:
    expected = Expected(decision=Decision.BROKEN, reason=reason, line=7)
    return row(verdict=Verdict(decision=decision, reason="scaling: 1.1 against 2", expected=expected))


def test_known_failures_have_a_line_for_each_reason() -> None:
    cells = [known(Decision.XFAILED, reason) for reason in ("one lock", "issue 7", "one lock")]
    text = shown(of_rows(*cells))
    label = cells[0].cell.label
    assert f"  xfailed: {label}, {label}\n      broken, as expected: one lock\n" in text
    assert f"  xfailed: {label}\n      broken, as expected: issue 7\n" in text
    assert "1.1 against 2" not in text
    assert "1.1 against 2" in shown(of_rows(*cells), verbosity=1)


def test_a_mended_cell_names_the_mark_to_remove() -> None:
    text = shown(of_rows(known(Decision.XPASSED, "one lock")))
    assert "xpassed: " in text
    assert "expected broken, passed: remove the mark in line 7 (one lock)\n" in text


def test_levels_that_differ_leave_the_heading_without_one() -> None:
    rows = [row(figures=Figures(wall_ns=interval(1e6, 9e5, 1.1e6, level))) for level in (0.9, 0.95)]
    head = next(line for line in shown(of_rows(*rows)).splitlines() if "verdict" in line)
    assert head.split() == ["wall", "CI", "verdict"]


def test_a_regression_says_how_much_is_allowed() -> None:
    wall = MetricVerdict(
        metric=Metric.WALL, decision=Decision.REGRESSED, ratio=interval(1.312, 1.28, 1.34), allowed=1.02
    )
    text = shown(of_rows(row(verdict=Verdict(decision=Decision.REGRESSED, metrics=(wall,)))))
    assert "wall       +31.2 % (95 % CI +28.0 % to +34.0 %), allowed +2 %\n" in text


def test_of_many_tests_the_failures_are_named_again_at_the_end() -> None:
    one = of_rows(row(decision=Decision.REGRESSED, reason="so"))
    assert shown(one).count("regressed: ") == 1, "it stands below its table"
    tables = (one.tables[0], msgspec.structs.replace(one.tables[0], rows=one.tables[0].rows * 11))
    assert "\nand 2 more cells, above\n" in shown(msgspec.structs.replace(one, tables=tables))


def test_a_contract_that_was_left_open_is_named_beside_a_broken_one() -> None:
    gil, wall = (
        MetricVerdict(metric=Metric.CONTRACT, decision=decision, contract=text, reason=reason)
        for decision, text, reason in (
            (Decision.BROKEN, "gil == on", "the GIL was off in 5 of 5 launches"),
            (Decision.INCONCLUSIVE, "wall < 1 ms", "it did not hold in 5 of 5 rounds"),
        )
    )
    verdict = Verdict(decision=Decision.BROKEN, metrics=(gil, wall), reason=gil.reason)
    text = shown(of_rows(row(verdict=verdict)))
    assert "gil == on\n" in text
    assert "wall < 1 ms\n                 it did not hold in 5 of 5 rounds\n" in text


def test_errors_are_counted_in_the_plural() -> None:
    rows = [row(word, Decision.ERROR, reason="no") for word in ("threads", "fork")]
    assert "2 cells in 2 min 5 s: 2 errors\n" in shown(of_rows(*rows))


def test_a_rerun_has_the_options_that_change_what_is_measured() -> None:
    options = ("--ftgate-against=python:3.14", "--ftgate-install=-e .[fast]")
    verdict = Verdict(decision=Decision.REGRESSED, baseline="3.14", why="--ftgate-against python:3.14", basis="paired")
    text = shown(of_rows(row(verdict=verdict, options=options)))
    assert "rerun      pytest --ftgate --ftgate-against=python:3.14 '--ftgate-install=-e .[fast]' 't.py::test[" in text


def test_the_command_that_repeats_the_run_is_one_line() -> None:
    command = "FTGATE_PYTHON='3.14 3.14t' pytest --ftgate " + " ".join(f"tests/test_{n}.py" for n in range(20))
    text = shown(msgspec.structs.replace(report_by_hand.report(), command=command), 80)
    assert f"\nrepeat   {command}\n" in text
    assert "\nseed" not in text


@pytest.mark.parametrize("color", [False, True])
def test_a_hostile_name_reaches_the_terminal_as_text(color: bool) -> None:
    name = "test_\x1b[2J\x1b]0;owned\x07\x9b8m\u202e\udc80.py"
    text = shown(of_rows(row(), title=name, note=name), color=color)
    assert "test_\\udc80.py" in text
    assert not re.search("[\x00-\x09\x0b-\x1a\x1c-\x1f\x7f-\x9f\u202e]", text)
    assert bool(re.findall(r"\x1b", text)) is color
    assert not re.findall(r"\x1b(?!\[(?:0|1|2|31|32|33)m)", text), "none but our own colours"


def test_a_partial_report_says_why_at_its_end() -> None:
    partial = msgspec.structs.replace(report_by_hand.report(), partial="interrupted: 3 of 12 cells were not run")
    assert shown(partial).endswith("\nthis report is partial: interrupted: 3 of 12 cells were not run\n")


def test_what_was_measured_as_a_file_differs_is_rerun_with_the_comparison_alone() -> None:
    why = "--ftgate-against main; tests/helper.py differs"
    verdict = Verdict(decision=Decision.REGRESSED, baseline="main (1eb3b87)", basis="paired", why=why)
    text = shown(of_rows(row(verdict=verdict)))
    assert f"judged by  paired launches ({why})" in text
    assert "rerun      pytest --ftgate --ftgate-against=main 't.py::" in text
    assert "ftgate baseline diff" not in text


def test_unchanged_cells_say_once_by_what() -> None:
    reason = "not measured: the 14 files that it reads are the same at main"
    unchanged = row(verdict=Verdict(decision=Decision.UNCHANGED, reason=reason))
    passed = row(verdict=Verdict(decision=Decision.PASSED))
    assert f"  unchanged  {reason}\n" in shown(of_rows(unchanged, unchanged))
    assert f"  unchanged  {reason}: {unchanged.cell.label}\n" in shown(of_rows(unchanged, passed))


def test_what_passed_names_its_basis_in_one_line() -> None:
    stored = row(verdict=Verdict(decision=Decision.PASSED, basis="stored"))
    paired = row(verdict=Verdict(decision=Decision.PASSED, basis="paired", why="its commit was measured too"))
    assert "  passed by  the stored launches\n" in shown(of_rows(stored, stored))
    both = shown(of_rows(stored, paired))
    assert f"  passed by  the stored launches: {stored.cell.label}\n" in both
    assert "paired launches (its commit was measured too): " in both


def test_command_is_quoted_for_a_shell() -> None:
    nodeid = "t.py::test[3.14t-threads-w8-it's $HOME]"
    fallen = msgspec.structs.replace(cell("t.py::test", "3.14t", "threads", 8), nodeid=nodeid)
    text = shown(of_rows(Row(cell=fallen, verdict=Verdict(decision=Decision.REGRESSED))), 60)
    assert """pytest --ftgate 't.py::test[3.14t-threads-w8-it'"'"'s $HOME]'""" in text


def test_error_has_one_line_for_all_its_cells_and_refers_to_its_output() -> None:
    text_of = "\n".join(f"line {number}" for number in range(30)) + "\n\x1b[31mred\x1b[0m\x07 \x1b]0;title\x07end\r\n"
    fallen = [
        row(word, Decision.ERROR, error=WorkloadError(reason="exited\nwith 3", detail=text_of))
        for word in ("fork", "tasks")
    ]
    text = shown(of_rows(*fallen))
    assert "  error: 3.14t-fork-w8, 3.14t-tasks-w8\n      exited with 3 (see FAILURES)\n" in text
    assert "line" not in text
    assert terminal.cell_text(fallen[0]).endswith("line 29\nred end")


def test_error_is_found_in_the_sample_and_the_verdict() -> None:
    of = cell("t.py::test", "3.14t", "threads", 8)
    broken = Sample(cell=of, interpreter=report_by_hand.GIL, key="k", error=WorkloadError(reason="hung for 60 s"))
    assert "hung for 60 s" in shown(of_rows(row(decision=Decision.ERROR, sample=broken)))
    assert "wall values cannot be compared" in shown(
        of_rows(row(decision=Decision.ERROR, reason="wall values cannot be compared"))
    )


def test_unsupported_cells_are_grouped_by_reason() -> None:
    rows = [
        row(word, Decision.UNSUPPORTED, reason=why) for word, why in [("fork", "A"), ("spawn", "B"), ("tasks", "A")]
    ]
    text = shown(of_rows(*rows))
    assert "unsupported: 3.14t-fork-w8, 3.14t-tasks-w8\n      A\n" in text
    assert "unsupported: 3.14t-spawn-w8\n      B\n" in text


def test_inconclusive_cells_without_figures_are_grouped_by_reason() -> None:
    rows = [row(word, Decision.INCONCLUSIVE, reason="the time ended") for word in ("fork", "spawn")]
    assert "inconclusive: 3.14t-fork-w8, 3.14t-spawn-w8\n      the time ended\n" in shown(of_rows(*rows))


def test_a_reason_of_several_lines_keeps_them() -> None:
    text = shown(of_rows(row("fork", Decision.UNSUPPORTED, reason="not found\n  skipped: A\n  fix: B")))
    assert "      not found\n      skipped: A\n      fix: B\n" in text


def test_a_quiet_report_has_no_header() -> None:
    assert "--ftgate-seed" in shown(report_by_hand.report(), 160)
    assert "--ftgate-seed" not in shown(report_by_hand.report(), 160, verbosity=-1)


def test_footer_leads_cells_without_a_baseline_to_what_decides() -> None:
    new = of_rows(row(decision=Decision.NO_BASELINE))
    text = shown(new)
    assert "         pytest --ftgate --ftgate-against=REV\n         ftgate baseline update\n" in text
    assert "--ftgate-against" not in shown(msgspec.structs.replace(new, commit=""))  # outside of git
    updated = msgspec.structs.replace(new, updates=("baselines/t.py/test.json: 1 cell new",))
    text = shown(updated)
    assert "updated  baselines/t.py/test.json: 1 cell new" in text
    assert "ftgate baseline update" not in text


def test_footer_says_once_why_a_comparison_has_no_reference() -> None:
    why = "main (1eb3b87e5d) has no such test: it will be compared from the next change on"
    verdict = Verdict(decision=Decision.NO_BASELINE, reason=why)
    new = [row(name, verdict=verdict, options=("--ftgate-against=main",)) for name in ("fork", "threads")]
    text = shown(of_rows(*new), 160)
    assert text.count(f"new      {why}\n") == 1
    assert "ftgate baseline update" not in text


def test_report_of_nothing() -> None:
    text = shown(msgspec.structs.replace(of_rows(), tables=(), wall_s=0.2, interpreters=()))
    assert text.endswith("\n0 cells in 0.2 s\nnothing was measured\n")


def test_colour_only_when_asked_and_always_closed() -> None:
    plain = shown(report_by_hand.report(), 80)
    colored = shown(report_by_hand.report(), 80, color=True)
    assert "\x1b" not in plain
    assert re.sub(r"\x1b\[[\d;]*m", "", colored) == plain


def test_ascii_stream_gets_ascii() -> None:
    assert shown(report_by_hand.report(), 80, unicode=False, verbosity=1).isascii()


def test_lines_of_one_cell() -> None:
    passed, regressed, *_ = report_by_hand.tokenise().rows
    assert terminal.cell_text(regressed).startswith("regressed: 3.14-fork-w8\n")
    assert terminal.cell_text(passed) == ""


@pytest.mark.parametrize("seed", range(12))
def test_table_diff_and_accept_print_the_same_figures(seed: int) -> None:
    draw = random.Random(seed)
    rounds = range(draw.randint(1, 7))

    def launches(scale: float) -> list[Launch]:
        def walls() -> list[int]:  # now and then the machine is much slower
            slow = draw.choice((1, 1, 1, 3))
            return [round(scale * slow * draw.lognormvariate(0, 0.2)) for _ in range(5)]

        return [timed(number, walls()) for number in rounds]

    sample = sample_of(
        launches(9e6),
        control=launches(4e6),
        memory=[held(number, *(round(2e7 * draw.lognormvariate(0, 0.1)) for _ in range(3))) for number in rounds],
        locks=[probed(number, draw.random()) for number in rounds],
    )
    values = read(sample, single=launches(2e7))
    row = Row(
        cell=sample.cell,
        verdict=Verdict(decision=Decision.PASSED),
        figures=figures.figures(values, reference=values),
        sample=sample,
    )
    old = entry(sample_of(launches(9e6), memory=[held(1, 10_000_000)]))
    difference = Difference(nodeid=row.cell.nodeid, decision=Decision.PASSED, old=old, new=entry(values))
    table = shown(of_rows(row), 300, verbosity=1)
    compared = render_diff([difference])
    (accepted,) = update_lines([Update(nodeid=row.cell.nodeid, action="record", reason="", new=entry(values))])
    stored = render_diff([Difference(nodeid=row.cell.nodeid, decision=Decision.PASSED, old=entry(values))])
    labelled = next(line for line in table.splitlines() if line.startswith(f"  {row.cell.label}"))
    figures_of = accepted.removesuffix(" (new)").partition(": ")[2].split(", ")
    printed = {name: text for each in figures_of for name, text in re.findall(r"^([A-Za-z_ ]+) ([\d.].*)$", each)}
    assert set(printed) == {"wall", "to control", "uss", "lock_wait", "scaling"}
    for name, text in printed.items():
        there = table if name == "to control" else labelled
        assert f" {text} " in there, name
        assert f"{text} " in compared, name
        assert f" {text} " in stored, name


# ---- beneath a row


def detail_lines(verbosity: int = 0, width: int = 120, *, unicode: bool = True, workers: int = 8, **fields: Any) -> str:
    """The lines beneath a row of these figures, each without its indentation."""
    of = cell("t.py::test", "3.14t", "threads", workers)
    one = Row(cell=of, verdict=Verdict(decision=Decision.PASSED), figures=Figures(**fields))
    style = Style(width, unicode=unicode, verbosity=verbosity)
    return "\n".join(line.strip() for line in block_of(one, style))


LATENCY = Latency(mean_ns=3.5e6, p50_ns=3.2e6, p95_ns=6.1e6, p99_ns=9e6, max_ns=21e6)
TIMES = "mean 3.5 ms, p50 3.2 ms, p95 6.1 ms, p99 9.0 ms, max 21 ms"
ASKED = msgspec.structs.replace(LATENCY, asked_per_s=500.0)
PHASES = {"start_ns": 0.0, "work_ns": 1e9, "join_ns": 0.0, "cold_ns": 4e5}
WAITED = "p50 12 µs, p95 80 µs, p99 210 µs, max 1.4 ms"
LITTLE = (site("a.py", 1, "Lock", 0.004), site("a.py", 2, "Lock", 0.003))
BUSY = {"main": 0.0, "logger": 0.01} | {f"child {index}": index / 10 for index in range(6)} | {"wsgi 0": 0.9}
ALONE = {"memory": {"tree": role(1, 12.3), "main": role(1, 12.3)}, "memory_samples": 41}
PEAKS = {"rss_bytes": 21 * MIB, "uss_peak_bytes": 12.7 * MIB}
UNTOLD = "no figure: no sample was taken while all of its workers were held"


@pytest.mark.parametrize(
    ("verbosity", "fields", "text"),
    [
        (0, {}, ""),
        (1, {}, ""),
        # A server, whose windows have no phases; at a constant rate with what was kept of it.
        (0, {"latency": LATENCY, "ops_per_s": 2841.4}, f"load     2841 req/s; {TIMES}; no errors"),
        (0, {"latency": LATENCY, "ops_per_s": 94.3}, f"load     94.3 req/s; {TIMES}; no errors"),
        (0, {"latency": msgspec.structs.replace(LATENCY, errors=1)}, f"load     {TIMES}; 1 error"),
        (0, {"latency": msgspec.structs.replace(LATENCY, errors=3)}, f"load     {TIMES}; 3 errors"),
        (0, {"latency": ASKED, "ops_per_s": 499.2}, f"load     499 of 500 req/s; {TIMES}; no errors"),
        (0, {"latency": ASKED, "ops_per_s": 431.0}, f"load     431 of 500 req/s: behind; {TIMES}; no errors"),
        (1, {"latency": LATENCY, **PHASES}, f"cold 400 µs\nload     {TIMES}; no errors"),
        (1, PHASES, "start 0 ns; work 1.00 s; join 0 ns; cold 400 µs"),
        # Locks: waiting tasks do not wait for the GIL; of strangers no line, and of some no number is known.
        (0, {"no_locks": "with the lock probe: no lock"}, "lock     no figures: with the lock probe: no lock"),
        (1, {"lock_wait": 0.0}, "lock     no waits"),
        (0, {"sites": LITTLE, "lock_wait": 0.007}, ""),
        (1, {"sites": LITTLE, "lock_wait": 0.007}, "lock     2 sites: 0.7 % of the time together"),
        (
            0,
            {"gil_enabled": True, "lock_wait": 0.312, "sites": (site("app.py", 12, "asyncio.Lock", 0.312),)},
            f"lock     app.py:12 asyncio.Lock  31.2 % of the time, 45 % contended (1.20 k/s), {WAITED}",
        ),
        (
            0,
            {"lock_wait": 0.312, "sites": (site("", 0, "multiprocessing.Lock", 0.312, name="\x1b[31ma\x07\nb"),)},
            'lock     line unknown: multiprocessing.Lock "a b"  31.2 % of the time, 45 % contended (1.20 k/s), '
            + WAITED,
        ),
        (
            0,
            {"lock_wait": 0.0, "sites": (site("app.py", 12, "Queue", 0.312, "queue", ratio=None),)},
            f"queue    app.py:12 Queue  31.2 % of the time, 1.20 k/s waited, {WAITED}",
        ),
        # Scaling; growth unasked only where it is certain and not tiny.
        (0, {"scaling": around(2.0, 0.05)}, "scaling  2.00x of 8"),
        (
            0,
            {"scaling": around(8.4, 0.05), "efficiency": 1.05, "serial_fraction": -0.007},
            "scaling  8.40x of 8 (efficiency 105 %)",
        ),
        (0, {"growth_bytes": around(102 * KIB, 2 * KIB)}, "growth   102 KiB per iteration [100, 104]"),
        (0, {"growth_bytes": around(102 * KIB, 103 * KIB)}, ""),
        (0, {"growth_bytes": around(-50 * KIB, KIB)}, ""),
        (0, {"growth_bytes": interval(9e9, 9e9, 9e9, 0)}, ""),
        (0, {"growth_bytes": around(1000, 10)}, ""),
        (1, {"growth_bytes": around(1000, 10)}, "growth   1000 B per iteration [990, 1010]"),
        # Where threads wait, without what is hardly there; many processes of a kind are a range.
        (0, {"waits": WaitFigures(running=1.0)}, ""),
        (1, {"waits": WaitFigures()}, "waits    no samples\ncpu      run-queue wait 0 %"),
        (
            1,
            {
                "waits": WaitFigures(running=0.48, runnable=0.02, gil=0.496, asleep=0.004),
                "memory_cost": around(1.01, 0.004),
            },
            "waits    running 48 %, runnable 2 %, GIL 50 %; sampled 1.01x [1.01, 1.01]\ncpu      run-queue wait 2 %",
        ),
        (
            1,
            {"waits": WaitFigures(running=0.5, gil=0.5, gil_p50_ns=5e6, gil_p95_ns=12.4e6, gil_max_ns=31e6)},
            "waits    running 50 %, GIL 50 % (p95 12 ms)\ncpu      run-queue wait 0 %",
        ),
        (1, {"waits": WaitFigures(unavailable="needs Linux's /proc")}, "waits    not available: needs Linux's /proc"),
        (
            1,
            {"waits": WaitFigures(unavailable="x", cores=BUSY)},
            "waits    not available: x\ncpu      main 0.00, logger 0.01, wsgi 0 0.90, 6 children 0.00 to 0.50 cores",
        ),
        (
            1,
            {"waits": WaitFigures(unavailable="x", running=0.5, voluntary_per_s=1200.0, cores={"main": 1.0})},
            (
                "waits    not available: x\n"
                "cpu      main 1.00 cores; run-queue wait 0 %; switches 1.20 k/s voluntary, 0 /s involuntary"
            ),
        ),
        # Memory: by role in place of the phases', with what an empty workload takes and the looks that gave a sample.
        (0, {"memory_dropped": 3}, f"memory   {UNTOLD}"),
        (0, {"memory_samples": 1, "memory_dropped": 3}, ""),
        (1, PEAKS, "RSS 21.0 MiB; USS peak >= 12.7 MiB"),
        (
            1,
            {"memory": {"tree": RoleFigures(processes=1, peak_uss=12.7 * MIB)}, **PEAKS},
            "memory   USS peak >= 12.7 MiB",
        ),
        (1, ALONE, "memory   USS steady 12.3 MiB (peak >= 12.7 MiB)"),
        (
            1,
            {**ALONE, "memory_dropped": 16},
            "memory   USS steady 12.3 MiB (peak >= 12.7 MiB); 41 of 57 samples hold",
        ),
        (1, {"floor_uss_bytes": 8.1 * MIB}, "memory   USS floor 8.10 MiB"),
        (
            1,
            {"memory": {"tree": role(1, 12.3, 8.9)}, "floor_uss_bytes": 8.1 * MIB, "floor_pss_bytes": 9 * MIB},
            (
                "memory   USS steady 12.3 MiB (peak >= 12.7 MiB); PSS steady 8.90 MiB (peak >= 9.17 MiB); "
                "USS floor 8.10 MiB, workload 4.20 MiB above it; PSS floor 9.00 MiB, workload 0 B above it"
            ),
        ),
    ],
)
def test_the_lines_beneath_a_row(verbosity: int, fields: dict[str, Any], text: str) -> None:
    assert detail_lines(verbosity, 200, **fields) == text


def test_table_of_several_worker_counts_has_distinct_labels() -> None:
    for width in (40, 60, 80, 120):
        text = shown(msgspec.structs.replace(report_by_hand.report(), tables=(report_by_hand.cache(),)), width)
        labels = re.findall(r"^  (3\.1\S+)  ", text, re.MULTILINE)
        assert len(set(labels)) == len(labels) == 5, width


def test_lock_wait_that_was_not_measured_is_an_empty_place() -> None:
    rows = [row(figures=Figures(lock_wait=share)) for share in (None, 0.0, 0.0001)]
    details = [line for line in shown(of_rows(*rows)).splitlines() if line.startswith("  3.14t")]
    assert [line.split("w8")[1].strip() for line in details] == ["passed", "0  passed", "<0.1 %  passed"]


def test_worst_sites_are_shown_and_the_rest_counted() -> None:
    sites = tuple(site("app.py", line, "Lock", line / 1000) for line in range(1, 60, 10))
    short = detail_lines(sites=sites, lock_wait=0.156)
    assert re.findall(r"app.py:(\d+)", short) == ["51", "41"]
    assert short.endswith("3 more sites: 6.3 % of the time together (-v)")
    full = detail_lines(1, sites=sites, lock_wait=0.156)
    assert re.findall(r"app.py:(\d+)", full) == ["51", "41", "31", "21", "11"]
    assert full.endswith("1 more site: 0.1 % of the time")


def test_queues_come_after_locks_and_do_not_push_them_out() -> None:
    sites = (*(site("q.py", line, "Queue", 0.3, "queue") for line in (1, 2, 3)), site("a.py", 1, "Lock", 0.02))
    names = re.findall(r"^(lock|queue)", detail_lines(sites=sites, lock_wait=0.02), re.MULTILINE)
    assert names == ["lock", "queue", "queue"]


def test_overhead_of_a_probe_is_shown_with_the_figure() -> None:
    sites = (site("a.py", 1, "Lock", 0.2), site("a.py", 2, "Lock", 0.1))
    fields: dict[str, Any] = {"sites": sites, "lock_wait": 0.3}
    cheap, dear = (fields | {"lock_cost": around(value, 0.02)} for value in (1.03, 1.31))
    assert "probe" not in detail_lines(width=200, **cheap)
    assert detail_lines(1, width=200, **cheap).splitlines()[0].endswith("; probe 1.03x [1.01, 1.05]")
    assert detail_lines(width=200, **dear).splitlines()[0].endswith("; probe 1.31x [1.29, 1.33]")
    assert detail_lines(width=200, **dear).count("probe") == 1
    once = interval(1.31, 1.31, 1.31, level=0.0)
    assert detail_lines(width=200, **dear | {"lock_cost": once}).splitlines()[0].endswith("; probe 1.31x")


@pytest.mark.parametrize(
    ("path", "room", "text"),
    [
        ("app.py", 20, "app.py"),
        ("src/words/storage/cache.py", 20, "…/storage/cache.py"),
        ("src/words/cache_of_all_the_words.py", 20, "…of_all_the_words.py"),
        ("a/b/exactly_twenty.py", 20, "…/exactly_twenty.py"),
    ],
)
def test_long_path_gives_way_from_the_left(path: str, room: int, text: str) -> None:
    assert short_path(path, room, Style(80)) == text


def test_long_path_in_ascii() -> None:
    style = Style(80, unicode=False)
    assert short_path("src/words/storage/cache.py", 22, style) == ".../storage/cache.py"
    deep = (site("src/" + "deeper/" * 20 + "cache.py", 7, "Lock", 0.5),)
    line = detail_lines(sites=deep, lock_wait=0.5, width=80, unicode=False).splitlines()[0]
    assert re.match(r"lock     \.\.\.(/deeper)+/cache\.py:7 Lock  50\.0 %", line)


def test_a_long_name_covers_nothing_of_its_text() -> None:
    style = Style(40)
    assert details.entry("lock_wait", "20 ms", style, 2, 11) == ["  lock_wait  20 ms"]
    assert details.entry("latency_mean", "20 ms", style, 2, 11) == ["  latency_mean 20 ms"]


def test_phrases_are_broken_between_parts() -> None:
    groups = [["one part of this", "another part", "last part"], [], ["x" * 20 + " " + "y" * 20]]
    assert phrases("lock", groups, Style(47)) == [
        "      lock     one part of this, another part,",
        "               last part; xxxxxxxxxxxxxxxxxxxx",
        "               yyyyyyyyyyyyyyyyyyyy",
    ]


# ---- findings of shares and scaling


def undecided(metric: str, more: int | None) -> MetricVerdict:
    settles = f"+5 % needs about {more} more pairs" if more else "try a quieter machine"
    return MetricVerdict(
        metric=metric,
        decision=Decision.INCONCLUSIVE,
        ratio=interval(1.03, 0.98, 1.08),
        p_fail=0.8,
        p_pass=0.3,
        reason=f"rules out +20 %; {settles}",
        launches=3,
        more=more,
        ruled_out=0.2,
    )


def test_what_is_ruled_out_of_the_wall_time_is_said_below_the_table() -> None:
    text = shown(of_rows(row(verdict=Verdict(decision=Decision.INCONCLUSIVE, metrics=(undecided(Metric.WALL, 3),)))))
    assert "ruled out  a wall time of +20 % (3.14t-threads-w8)" in text
    nothing = msgspec.structs.replace(undecided(Metric.WALL, 3), ruled_out=None)
    text = shown(of_rows(row(verdict=Verdict(decision=Decision.INCONCLUSIVE, metrics=(nothing,)))))
    assert "a wall time of" not in text


@pytest.mark.parametrize(
    ("more", "settles"),
    [(14, "rules out +20 %; +5 % needs about 14 more pairs"), (None, "rules out +20 %; try a quieter machine")],
)
def test_an_open_cell_has_one_figure_and_what_settles_it_unless_all_is_asked_for(
    more: int | None, settles: str
) -> None:
    left = tuple(undecided(metric, more and more - number) for number, metric in enumerate(("wall", "tail", "uss")))
    measured = row(verdict=Verdict(decision=Decision.INCONCLUSIVE, metrics=left, basis="stored", why="because"))
    text = terminal.cell_text(measured)
    assert text.splitlines()[1] == "      wall       +3.0 % (95 % CI -2.0 % to +8.0 %); tail and uss too (-v)"
    assert settles in text
    assert len(text.splitlines()) <= 4
    assert "p = " not in text
    everything = terminal.cell_text(measured, verbosity=1)
    assert everything.count("p = 0.8") == 3
    assert "judged by  the stored launches (because)" in shown(of_rows(measured))


def test_a_time_that_was_too_short_is_a_line_beneath_the_open_cells() -> None:
    lacking = Shortfall(rounds=2, needed=7, cells=8, option="--ftgate-test-time", given_s=30, wanted_s=180)
    left, passed = (
        row(verdict=Verdict(decision=decision), shortfall=lacking)
        for decision in (Decision.INCONCLUSIVE, Decision.PASSED)
    )
    sentence = (
        "30 s allow 2 rounds of these 8 cells, about 7 are needed to decide: use --ftgate-test-time=3m or fewer cells"
    )
    assert shown(of_rows(left, left), 160).count(f"  budget     {sentence}\n") == 1
    assert "budget" not in shown(of_rows(passed))
    (kept,) = stdlib_json.loads(json.render(of_rows(left)))["tables"][0]["rows"]
    assert kept["shortfall"]["wanted_s"] == 180
    one = msgspec.structs.replace(lacking, rounds=0, cells=1, wanted_s=90)
    assert said.shortfall_text(one) == (
        "30 s do not allow a round of this cell, about 7 are needed to decide: use --ftgate-test-time=90s"
    )


def test_an_interval_of_nearly_everything_is_unknown() -> None:
    wide, wider = interval(1.0, 0.4, 4.0), interval(1.0, 0.3, 43.97)
    assert units.change_and_ends(wide) == "0.0 % (95 % CI -60.0 % to +300 %)"
    assert units.change_and_ends(wider) == "0.0 % (95 % CI unknown)"
    assert units.points_and_ends(interval(0.1, -0.5, 0.5)) == "+10.0 points (95 % CI unknown)"
    assert units.half_width(wider) == units.time_ends(wider) == units.ratio_ends(wider) == "unknown"
    assert "[unknown] of 8" in detail_lines(verbosity=1, scaling=wider)


def test_a_table_leaves_out_an_interval_that_tells_nothing() -> None:
    def table(wall: Interval) -> str:
        return shown(of_rows(row(figures=Figures(wall_ns=wall))))

    assert "1.00 ms" in table(interval(1e6, 0.34e6, 2.98e6))
    assert "CI" not in table(interval(1e6, 0.34e6, 2.98e6))
    assert "95 % CI" in table(interval(1e6, 0.8e6, 1.2e6))


# ---- baselines


def cell_with(lock_share: float | None = None, scaling: float | None = None) -> schema.StoredCell:
    """What is stored of 8 workers: 2 ms (the control 1 ms), 1 MiB, that share of the time in a lock, that scaling."""
    cell = group_of(spec=spec_of("threads", workers=8)).cells[0]
    share = [] if lock_share is None else [probed(0, lock_share, workers=8)]
    single = [] if scaling is None else [timed(0, [round(2e6 * scaling / 8)] * 3)]
    own, control = timed(0, [2_000_000] * 3), timed(0, [1_000_000] * 3)
    sample = sample_of([own], cell, control=[control], memory=[held(0, round(MIB))], locks=share)
    return entry(read(sample, single=single))


def difference(old: schema.StoredCell, new: schema.StoredCell) -> Difference:
    return Difference(nodeid="t.py::test[3.14t-threads-w8]", decision=Decision.PASSED, old=old, new=new)


def test_diff_has_lock_wait_and_scaling_where_a_row_has_them() -> None:
    plain, full = cell_with(), cell_with(0.312, 1.72)
    assert "lock_wait" not in render_diff([difference(plain, plain)])
    head, *details = render_diff([difference(cell_with(0.271, 1.96), full), difference(plain, plain)]).splitlines()[1:]
    assert re.split(r"\s{2,}", head.strip())[7:] == ["lock_wait", "change", "scaling", "change", "verdict", "baseline"]
    first, second = (re.split(r"\s{2,}", line.strip())[7:11] for line in details)
    assert first == ["27.1 % -> 31.2 %", "+4.1 points", "1.96x -> 1.72x", "-12.2 %"]
    assert second == ["-", "-", "-", "-"]


def test_share_that_was_zero_has_a_change_too() -> None:
    assert "  0 -> 31.2 %  +31.2 points  " in render_diff([difference(cell_with(0.0), cell_with(0.312))])


def test_update_says_lock_wait_and_scaling() -> None:
    old, new = cell_with(0.271, 1.96), cell_with(0.312, 1.72)
    update = Update(nodeid="t.py::test[x]", action="record", old=old, new=new, reason="")
    (line,) = update_lines([update])
    assert line.endswith("lock_wait 31.2 % (was 27.1 %, +4.1 points), scaling 1.72x (was 1.96x, -12.2 %)")


# ---- JSON


def test_json_golden() -> None:
    check_golden("report.json", json.render(report_by_hand.report()))


def test_json_round_trip_keeps_everything() -> None:
    report = report_by_hand.report()
    assert json.parse(json.render(report)) == report
    assert shown(json.parse(json.render(report))) == shown(report)


def test_json_survives_numbers_and_text_that_it_cannot_hold() -> None:
    endless = Figures(wall_ns=interval(1e6, -math.inf, math.inf), counters_per_s={"n": math.nan})
    of = cell("t.py::test", "3.14t", "threads", 8)
    site = LockSite(file="a.py", line=1, kind="Lock", waits_for="lock", contended=3, histogram={64: 1, 99: 2})
    waits = LockWaits(work_ns=1, ops=1, sites=(site,))
    launch = Launch(order=0, hash_seed=0, started_at="", results=("caf\udce9",), locks=waits)
    odd = Row(
        cell=of,
        verdict=Verdict(decision=Decision.ERROR),
        figures=endless,
        sample=Sample(cell=of, interpreter=report_by_hand.GIL, key="nan", all_launches=(launch,)),
    )
    text = json.render(of_rows(odd))
    assert stdlib_json.loads(text)["tables"][0]["rows"][0]["figures"]["wall_ns"]["high"] == "inf"
    back = json.parse(text).tables[0].rows[0]
    assert back.figures.wall_ns == endless.wall_ns
    assert math.isnan(back.figures.counters_per_s["n"])
    assert back.sample is not None
    assert back.sample.key == "nan"
    assert back.sample.launches[0].results == ("caf\\udce9",)
    assert back.sample.launches[0].locks == waits


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "r.json is not JSON"),
        ('{"schema": 4,', "r.json is not JSON"),
        (b"\xff\xfe", "r.json is not JSON"),
        ("[" * 100_000, "r.json is not JSON"),
        ("[]", "r.json has schema None, this pytest-ftgate reads 4"),
        ('{"schema": 1}', "r.json has schema 1, this pytest-ftgate reads 4"),
        ('{"schema": 4, "seed": 3}', "r.json is not a report: $: Object missing required field"),
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
