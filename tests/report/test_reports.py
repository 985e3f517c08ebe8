"""Reports: units, the terminal's table against golden files, JSON there and back."""

from __future__ import annotations

import json as stdlib_json
import math
import random
import re
from collections import Counter
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest
import report_by_hand
import small_report
from fake_launcher import group_of, spec_of
from report_by_hand import KIB, MIB, around, cell, of_rows, role, site
from values import entry, held, probed, read, sample_of, timed

from golden import check_golden
from pytest_ftgate.features.baseline import render_diff
from pytest_ftgate.judge import figures
from pytest_ftgate.kit import units
from pytest_ftgate.kit.errors import FtgateError
from pytest_ftgate.kit.values import Interval, Metric
from pytest_ftgate.model.report import Figures, Report, RoleFigures, Row, Shortfall, Table, WaitFigures
from pytest_ftgate.model.sample import Latency, Launch, LockSite, LockWaits, Sample, WorkloadError
from pytest_ftgate.model.spec import RoleCounts
from pytest_ftgate.model.verdict import Decision, Expected, MetricVerdict, Outcome, Reason, Verdict, Why
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


# ---- units


NUMBERS = """
time | 0: 0 ns | 0.5: 0.500 ns | 12: 12 ns | 12.34: 12.3 ns | 999.4: 999 ns | 999.9: 1.00 µs | 5320: 5.32 µs |
    1832000: 1.83 ms | 762000000: 762 ms | 999960000: 1.00 s | 125000000000.0: 125 s | 1234000000000.0: 1234 s
    | -1832000: -1.83 ms | inf: inf ns | nan: nan ns
size | 0: 0 B | 512: 512 B | 1023: 1023 B | 1024: 1.00 KiB | 24327000: 23.2 MiB | 1062207488: 1013 MiB |
    8589934592: 8.00 GiB | -262144: -256 KiB
rate | 0: 0 /s | 0.25: 0.250 /s | 12.5: 12.5 /s | 51000: 51.0 k/s | 1098000: 1.10 M/s | 2500000000.0: 2.50 G/s
ratio | 1: 1.00x | 1.7: 1.70x | 17.93: 17.9x | 762: 762x | 0.561: 0.56x | 0.0123: 0.0123x
cores | 0: 0.00 | 0.034: 0.03 | 1.934: 1.93 | 12.41: 12.4
change | 1.046: +4.6 % | 0.871: -12.9 % | 1.0: 0.0 % | 1.0004: 0.0 % | 0.9996: 0.0 % | 2.3: +130 % | 1.9996:
    +100 % | inf: +inf %
p_value | 0.0: p < 0.0001 | 9e-05: p < 0.0001 | 0.00016: p = 0.00016 | 0.0344: p = 0.034 | 1.0: p = 1
span | 0.04: 0.0 s | 3.21: 3.2 s | 9.97: 10 s | 59.4: 59 s | 59.7: 1 min | 125.2: 2 min 5 s | 3600: 1 h |
    3780: 1 h 3 min | 7199: 2 h
level | 0.95: 95 % | 0.992: 99.2 % | 0.99999: 99.9 % | 0.29: 29 %
share | 0: 0 | 1e-09: <0.1 % | 0.00049: <0.1 % | 0.0005: 0.1 % | 0.312: 31.2 % | 0.9996: 100 % | 1.0: 100 % |
    nan: nan %
whole_share | 0: 0 % | 0.001: <1 % | 0.006: 1 % | 0.48: 48 % | 0.997: >99 % | 1.0: 100 % | 1.02: 102 %
points | 0.0412: +4.1 points | -0.3: -30.0 points | 0.0: 0.0 points | -0.0001: 0.0 points
"""
"""Of each form of a number: values, and their texts."""


def numbers() -> list[tuple[str, float, str]]:
    found = []
    for line in re.sub(r"\n +", " ", NUMBERS).strip().splitlines():
        written, *pairs = line.split(" | ")
        found += [(written, float(value), text) for value, text in (pair.split(": ") for pair in pairs)]
    return found


@pytest.mark.parametrize(("written", "value", "text"), numbers())
def test_a_number_has_three_digits_and_a_unit_that_fits(written: str, value: float, text: str) -> None:
    assert getattr(units, written)(value) == text


def test_time_in_ascii() -> None:
    assert units.time(5320, unicode=False) == "5.32 us"


@pytest.mark.parametrize("level", [float("inf"), float("-inf"), float("nan"), 1e308])
def test_any_number_can_be_a_level(level: float) -> None:
    assert units.level(level) in ("0 %", "100 %")


def test_interval_has_the_unit_of_its_value() -> None:
    assert units.ends("time", interval(1_832_000, 1_803_000, 1_866_000)) == "[1.80, 1.87]"
    assert units.ends("time", interval(950_000, 900_000, 1_100_000)) == "[900, 1100]"
    assert units.ends("time", interval(950, 0, math.inf)) == "[0, inf]"
    assert units.half_width(interval(100, 99, 103)) == "±3.0 %"
    assert units.half_width(interval(100, 99, 103), unicode=False) == "+-3.0 %"
    assert units.half_width(interval(0, 0, 0)) == ""


def test_intervals_of_bytes_and_ratios() -> None:
    assert units.ends("size", interval(102 * KIB, 100 * KIB, 104 * KIB)) == "[100, 104]"
    assert units.ends("size", interval(0.9 * MIB, 0, 2 * MIB)) == "[0, 2048]"
    assert units.ends("ratio", interval(1.03, 1.01, 1.052)) == "[1.01, 1.05]"
    assert units.ends("ratio", interval(17.93, 17.0, 18.04)) == "[17.0, 18.0]"


def test_fewer_digits_of_what_is_known_less_well() -> None:
    assert [units.time(ns, digits=2) for ns in (12_300, 1_234, 155_000, 996)] == ["12 µs", "1.2 µs", "155 µs", "996 ns"]


# ---- the terminal


@pytest.mark.parametrize("name", TERMINALS)
def test_terminal_golden(name: str) -> None:
    check_golden(name, terminal.render(report_by_hand.report(), **TERMINALS[name]))


def test_the_head_notes_an_interpreter_that_is_newer_than_those_that_are_tested() -> None:
    report = report_by_hand.report()
    newer = msgspec.structs.replace(report.interpreters[0], version="3.15.0")
    text = terminal.render(msgspec.structs.replace(report, interpreters=(newer,)), width=120, color=False, unicode=True)
    assert re.search(r"^python +3\.15\.0 .* · newer than \d\.\d+, the newest version that", text, re.MULTILINE)


def test_every_decision_is_an_outcome_of_pytest_s_with_a_reason() -> None:
    found = {outcome: [each for each in Decision if each.outcome == outcome] for outcome in get_args(Outcome)}
    assert found == {
        "failed": [Decision.REGRESSED, Decision.BROKEN, Decision.SUSPECT, Decision.ERROR],
        "passed": [Decision.ACCEPTED, Decision.UNCHANGED, Decision.IMPROVED, Decision.PASSED, Decision.RECORDED],
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
        copied = (
            "pytest --ftgate" in line or "ftgate accept" in line or "::" in line or "│" in line or "baselines/" in line
        )
        assert len(line) <= width or copied, line


def test_narrow_terminal_gives_up_the_less_important_columns_first() -> None:
    def head(width: int) -> str:
        text = shown(report_by_hand.report(), width)
        return next(line for line in text.splitlines() if "verdict" in line)

    assert re.split(r"\s{2,}", head(120).strip()) == ["wall", "change", "ratio", "cores", "uss", "pss", "verdict"]
    assert re.split(r"\s{2,}", head(80).strip()) == ["wall", "change", "uss", "verdict"]
    assert re.split(r"\s{2,}", head(64).strip()) == ["wall", "change", "verdict"]
    assert re.split(r"\s{2,}", head(40).strip()) == ["wall", "verdict"]


def of(decision: Decision, reason: str = "", **verdict: Any) -> Row:
    """A row with such a verdict; what is no part of a verdict is one of the row."""
    fields = {name: verdict.pop(name) for name in ("options", "shortfall", "error", "sample") if name in verdict}
    return row(verdict=Verdict(decision=decision, reason=reason, **verdict), **fields)


def timed_row(word: str, start_ns: float, work_ns: float, join_ns: float, roles: RoleCounts = (), **fields: Any) -> Row:
    of = msgspec.structs.replace(cell("t.py::test", "3.14t", word, 8), roles=roles)
    there = Sample(cell=of, interpreter=report_by_hand.GIL, key="k", **fields)
    timed = row(word, sample=there, figures=Figures(start_ns=start_ns, work_ns=work_ns, join_ns=join_ns))
    return msgspec.structs.replace(timed, cell=of)


def known(decision: Decision, reason: str) -> Row:
    expected = Expected(decision=Decision.BROKEN, reason=reason, line=7)
    return of(decision, "scaling: 1.1 against 2", expected=expected)


def walls(*levels: float) -> list[Row]:
    return [row(figures=Figures(wall_ns=interval(1e6, 9e5, 1.1e6, level))) for level in levels]


def undecided(metric: str, more: int | None) -> MetricVerdict:
    settles = Reason(code=Why.NEEDS_TO_PASS if more else Why.SETTLES)
    return MetricVerdict(
        metric=metric,
        decision=Decision.INCONCLUSIVE,
        ratio=interval(1.03, 0.98, 1.08),
        p_fail=0.8,
        p_pass=0.3,
        reasons=(Reason(code=Why.RULES_OUT), settles),
        launches=3,
        more=more,
        ruled_out=0.2,
        effect=1.05,
    )


def contract(decision: Decision, text: str, reason: Reason) -> MetricVerdict:
    return MetricVerdict(metric=Metric.CONTRACT, decision=decision, contract=text, reasons=(reason,))


SLOWER = MetricVerdict(metric=Metric.WALL, decision=Decision.REGRESSED, ratio=interval(1.312, 1.28, 1.34), allowed=1.02)
OPEN = tuple(undecided(metric, 14 - number) for number, metric in enumerate(("wall", "tail", "uss")))
GIL = contract(Decision.BROKEN, "gil == on", Reason(code=Why.GIL, counts=(5, 5), name="off"))
LEFT = contract(Decision.INCONCLUSIVE, "wall < 1 ms", Reason(code=Why.HELD, counts=(0, 5)))
SHORT = Shortfall(rounds=2, needed=7, cells=8, option="--ftgate-test-time", given_s=30, wanted_s=180)
NO_TEST = "main (1eb3b87e5d) has no such test: it will be compared from the next change on"
SHALLOW = (
    "recorded at 1eb3b87e5d, which is not at hand: the baseline's commit 1eb3b87e5d is not in this repository, but "
    "this clone is shallow: fetch it with `git fetch --depth=1 origin 1eb3b87e5d`"
)
GONE = "recorded at 1eb3b87e5d, whose test cannot run here: raised AttributeError: ftgate has no 'require'"
SAME = "not measured: nothing that it runs or reads differs at main"
RECORDED = (
    "6 recorded in baselines/: git add baselines",
    "recorded test_words.py::test_words: 6 cells, wall 4.54 ms to 11.2 ms (new)",
    "next: commit them; pytest --ftgate then compares each change with that commit",
)
LONG = "FTGATE_PYTHON='3.14 3.14t' pytest --ftgate " + " ".join(f"tests/test_{n}.py" for n in range(20))
OUTPUT = "\n".join(f"line {number}" for number in range(30)) + "\n\x1b[31mred\x1b[0m\x07 \x1b]0;title\x07end\r\n"
HUNG = Sample(
    cell=cell("t.py::test", "3.14t", "threads", 8),
    interpreter=report_by_hand.GIL,
    key="k",
    error=WorkloadError(reason="hung for 60 s"),
)
ODD_NAME = msgspec.structs.replace(
    cell("t.py::test", "3.14t", "threads", 8), nodeid="t.py::test[3.14t-threads-w8-it's $HOME]"
)
AGAINST = {"baseline": "main (1eb3b87)", "basis": "paired"}
NO_MORE_WAITS = MetricVerdict(
    metric=Metric.LOCK_WAIT, decision=Decision.IMPROVED, points=interval(-0.21, -0.24, -0.18), now=0.0, was=0.21
)
CASES: dict[str, tuple[list[Row], dict[str, Any]]] = {
    "a wait that became none": (
        [
            row(verdict=Verdict(decision=Decision.IMPROVED, metrics=(NO_MORE_WAITS,)), figures=Figures(lock_wait=0.0)),
            row("fork"),
        ],
        {},
    ),
    "bodies short beside their start": (
        [timed_row("threads", 700, 10, 290), timed_row("fork", 960, 40, 0), timed_row("spawn", 300, 500, 200)],
        {},
    ),
    "bodies that are not": (
        [
            timed_row("threads", 890, 110, 0),
            timed_row("fork", 0, 0, 0),
            timed_row("spawn", 99, 1, 0, reuse="pool"),
            timed_row("forkserver", 10, 40, 950, roles=(("producer", 4), ("writer", 4))),
        ],
        {},
    ),
    "one launch has no interval": (walls(0.0), {}),
    "levels that differ": (walls(0.9, 0.95), {}),
    "known failures": ([known(Decision.XFAILED, reason) for reason in ("one lock", "issue 7", "one lock")], {}),
    "a mended one": ([known(Decision.XPASSED, "one lock")], {}),
    "a regression and its limit": ([of(Decision.REGRESSED, metrics=(SLOWER,))], {}),
    "a contract left open beside a broken one": ([of(Decision.BROKEN, metrics=(GIL, LEFT))], {}),
    "a rerun with options of measuring": (
        [
            of(
                Decision.REGRESSED,
                baseline="3.14",
                why="--ftgate-against python:3.14",
                basis="paired",
                options=("--ftgate-against=python:3.14", "--ftgate-install=-e .[fast]"),
            )
        ],
        {},
    ),
    "a rerun with the comparison alone": (
        [of(Decision.REGRESSED, why="--ftgate-against main; tests/helper.py differs", **AGAINST)],
        {},
    ),
    "a name for a shell": ([Row(cell=ODD_NAME, verdict=Verdict(decision=Decision.REGRESSED))], {}),
    "a command that is long": ([row()], {"command": LONG}),
    "a partial report": ([row()], {"partial": "interrupted: 3 of 12 cells were not run"}),
    "unchanged cells": ([of(Decision.UNCHANGED, SAME)] * 2, {}),
    "an unchanged cell beside another": ([of(Decision.UNCHANGED, SAME), row()], {}),
    "passed by the same": ([of(Decision.PASSED, basis="stored")] * 2, {}),
    "passed by several": (
        [
            of(Decision.PASSED, basis="stored"),
            of(Decision.PASSED, basis="paired", why="its commit was measured too"),
        ],
        {},
    ),
    "one error of two cells": (
        [
            row(word, Decision.ERROR, error=WorkloadError(reason="exited\nwith 3", detail=OUTPUT))
            for word in ("fork", "tasks")
        ],
        {},
    ),
    "an error of the sample, one of the verdict": (
        [of(Decision.ERROR, sample=HUNG), of(Decision.ERROR, "wall values cannot be compared")],
        {},
    ),
    "unsupported for several reasons": (
        [row(word, Decision.UNSUPPORTED, reason=why) for word, why in [("fork", "A"), ("spawn", "B"), ("tasks", "A")]],
        {},
    ),
    "a reason of several lines": ([of(Decision.UNSUPPORTED, "not found\n  skipped: A\n  fix: B")], {}),
    "inconclusive without figures": (
        [row(word, Decision.INCONCLUSIVE, reason="the time ended") for word in ("fork", "spawn")],
        {},
    ),
    "inconclusive": ([of(Decision.INCONCLUSIVE, metrics=OPEN, basis="stored", why="because")], {}),
    "inconclusive, nothing settles it": ([of(Decision.INCONCLUSIVE, metrics=(undecided("wall", None),))], {}),
    "too little time": ([of(Decision.INCONCLUSIVE, shortfall=SHORT)] * 2, {}),
    "enough of it": ([of(Decision.PASSED, shortfall=SHORT)], {}),
    "without a baseline": ([of(Decision.NO_BASELINE)], {}),
    "without a baseline, outside of git": ([of(Decision.NO_BASELINE)], {"commit": ""}),
    "recorded now": ([of(Decision.RECORDED)] * 6, {"updates": RECORDED}),
    "one of two recorded": ([of(Decision.RECORDED), of(Decision.PASSED, basis="stored")], {"updates": RECORDED}),
    "without a reference": ([of(Decision.NO_BASELINE, NO_TEST, options=("--ftgate-against=main",))] * 2, {}),
    "recorded elsewhere, its commit fails": (
        [row(word, Decision.NO_BASELINE, reason=GONE) for word in ("fork", "spawn", "tasks", "threads")],
        {},
    ),
    "recorded here, its commit fails": (
        [
            of(Decision.SUSPECT, basis="stored", why=GONE),
            row("fork", verdict=Verdict(decision=Decision.INCONCLUSIVE, basis="stored", why=GONE)),
            row("spawn", Decision.NO_BASELINE),
        ],
        {},
    ),
    "its commit is not at hand": (
        [
            of(Decision.PASSED, basis="stored", why=SHALLOW),
            row("fork", Decision.NO_BASELINE, reason=f"another machine or build recorded it; {SHALLOW}"),
            row("spawn", verdict=Verdict(decision=Decision.INCONCLUSIVE, basis="stored", why=GONE)),
        ],
        {},
    ),
    "nothing": ([], {"tables": (), "wall_s": 0.2, "interpreters": ()}),
}


def test_what_is_said_of_each_kind_of_row() -> None:
    texts = [
        f"==== {name}\n{shown(of_rows(*rows, **fields), verbosity=0 if 'command' in fields else -1)}"
        for name, (rows, fields) in CASES.items()
    ]
    check_golden("terminal_cases.txt", "\n".join(texts))


def test_what_is_said_of_one_cell_with_all_that_is_known() -> None:
    names = ("known failures", "inconclusive", "one error of two cells", "a regression and its limit")
    texts = [f"==== {name}\n{terminal.cell_text(CASES[name][0][0], verbosity=1)}\n" for name in names]
    check_golden("terminal_cells.txt", "\n".join(texts))
    assert terminal.cell_text(row()) == ""


def test_what_is_said_of_all_cells_is_found_once_for_all_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    """Asked once a test it took 23 of 27 s for 1500 tests with an error each."""
    calls = Counter[str]()

    def counted(name: str) -> Any:
        whole = getattr(said, name)

        def call(*given: Any) -> Any:
            calls[name] += 1
            return whole(*given)

        return call

    for name in ("against", "by_test", "undecided", "block_of"):
        monkeypatch.setattr(said, name, counted(name))
    (table,) = of_rows(row("fork", Decision.ERROR), row("spawn", Decision.REGRESSED)).tables
    taken = []
    for tests in (5, 10):
        tables = [
            msgspec.structs.replace(
                table,
                title=f"t.py::test_{number}",
                rows=tuple(
                    msgspec.structs.replace(
                        each,
                        cell=msgspec.structs.replace(each.cell, nodeid=f"t.py::test_{number}[{each.cell.label}]"),
                    )
                    for each in table.rows
                ),
            )
            for number in range(tests)
        ]
        calls.clear()
        shown(msgspec.structs.replace(report_by_hand.report(), tables=tuple(tables)))
        taken.append(calls.copy())
    few, many = taken
    assert all(few[name] == many[name] for name in ("against", "by_test", "undecided"))
    assert 0 < few["block_of"] < many["block_of"] <= 2 * few["block_of"]


def test_tests_without_a_launch_are_one_block() -> None:
    """A run of an existing suite whose time is over had six lines for each of a thousand."""
    whole = report_by_hand.report()
    cells = [report_by_hand.cell(f"t.py::test_{n}[3.14-threads-w1]", "3.14", "threads", 1) for n in range(9)]
    late = Verdict(decision=Decision.NOT_MEASURED, reason="the time ended before its turn came")
    lacking = Verdict(decision=Decision.UNSUPPORTED, reason="there is no 3.15t")
    idle = [
        Table(title=f"t.py::test_{n}", reference="", rows=(Row(cell=of, verdict=late if n < 7 else lacking),))
        for n, of in enumerate(cells)
    ]
    text = shown(msgspec.structs.replace(whole, tables=(*whole.tables, *idle)), verbosity=0)
    assert "t.py::test_0, t.py::test_1, t.py::test_2, and 4 more" in text
    assert text.count("the time ended") == text.count("there is no 3.15t") == 1
    assert "unsupported: 2 cells of t.py::test_7, t.py::test_8" in text
    one = shown(of_rows(*idle[0].rows), verbosity=0)
    assert "3.14-threads-w1" in one


def test_of_many_tests_the_failures_are_named_again_at_the_end() -> None:
    one = of_rows(row(decision=Decision.REGRESSED, reason="so"))
    assert shown(one).count("regressed: ") == 1, "it stands below its table"
    cells = [
        msgspec.structs.replace(row(decision=Decision.REGRESSED).cell, nodeid=f"t.py::test_{n}[x]") for n in range(11)
    ]
    more = [row(decision=Decision.REGRESSED, reason="so") for _ in cells]
    rows = tuple(msgspec.structs.replace(each, cell=of) for each, of in zip(more, cells, strict=True))
    tables = (one.tables[0], msgspec.structs.replace(one.tables[0], rows=rows))
    assert "\nand 2 more cells, above\n" in shown(msgspec.structs.replace(one, tables=tables))


@pytest.mark.parametrize("color", [False, True])
def test_a_hostile_name_reaches_the_terminal_as_text(color: bool) -> None:
    name = "test_\x1b[2J\x1b]0;owned\x07\x9b8m\u202e\udc80.py"
    text = shown(of_rows(row(), title=name, note=name), color=color)
    assert "test_\\udc80.py" in text
    assert not re.search("[\x00-\x09\x0b-\x1a\x1c-\x1f\x7f-\x9f\u202e]", text)
    assert bool(re.findall(r"\x1b", text)) is color
    assert not re.findall(r"\x1b(?!\[(?:0|1|2|31|32|33)m)", text), "none but our own colours"


def test_colour_only_when_asked_and_always_closed() -> None:
    plain = shown(report_by_hand.report(), 80)
    colored = shown(report_by_hand.report(), 80, color=True)
    assert "\x1b" not in plain
    assert re.sub(r"\x1b\[[\d;]*m", "", colored) == plain


def test_ascii_stream_gets_ascii() -> None:
    assert shown(report_by_hand.report(), 80, unicode=False, verbosity=1).isascii()


def folded(text: str) -> str:
    """Without its line breaks."""
    return " ".join(text.split())


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
    values = read(sample, one_worker=launches(2e7))
    row = Row(
        cell=sample.cell,
        verdict=Verdict(decision=Decision.PASSED),
        figures=figures.figures(values, reference=values),
        sample=sample,
    )
    old = entry(sample_of(launches(9e6), memory=[held(1, 10_000_000)]))
    table = shown(of_rows(row), 300, verbosity=1)
    compared = folded(render_diff([(row, old, entry(values), "")]))
    update = Update(nodeid=row.cell.nodeid, action="record", reason="", new=entry(values))
    _, accepted, _ = update_lines([update], "baselines", git=True)
    stored = folded(render_diff([(row, entry(values), None, "")]))
    labelled = next(line for line in table.splitlines() if line.startswith(f"  {row.cell.label}"))
    figures_of = accepted.removesuffix(" (new)").partition(": ")[2].split(", ")
    printed = {name: text for each in figures_of for name, text in re.findall(r"^([A-Za-z_ ]+) ([\d.].*)$", each)}
    assert set(printed) == {"wall", "to control", "uss", "lock_wait", "scaling"}
    for name, text in printed.items():
        there = table if name == "to control" else labelled
        assert f" {text} " in there, name
        for diff in (compared, stored):
            assert re.search(rf"\b{name} (\S+ (\S+ )?-> )?{re.escape(text)}[, ]", diff), name


# ---- beneath a row


def detail_lines(verbosity: int = 0, width: int = 120, **fields: Any) -> str:
    """The lines beneath a row of these figures, each without its indentation."""
    style = Style(width, verbosity=verbosity)
    return "\n".join(line.strip() for line in block_of(row(figures=Figures(**fields)), style))


LATENCY = Latency(mean_ns=3.5e6, p50_ns=3.2e6, p95_ns=6.1e6, p99_ns=9e6, max_ns=21e6)
ASKED = msgspec.structs.replace(LATENCY, asked_per_s=500.0)
PHASES = {"start_ns": 0.0, "work_ns": 1e9, "join_ns": 0.0, "cold_ns": 4e5}
LITTLE = (site("a.py", 1, "Lock", 0.004), site("a.py", 2, "Lock", 0.003))
BUSY = {"main": 0.0, "logger": 0.01} | {f"child {index}": index / 10 for index in range(6)} | {"wsgi 0": 0.9}
ALONE = {"memory": {"tree": role(1, 12.3), "main": role(1, 12.3)}, "memory_samples": 41}
PEAKS = {"rss_bytes": 21 * MIB, "uss_peak_bytes": 12.7 * MIB}


SIX = tuple(site("app.py", line, "Lock", line / 1000) for line in range(1, 60, 10))
TWO = (site("a.py", 1, "Lock", 0.2), site("a.py", 2, "Lock", 0.1))
BENEATH: tuple[dict[str, Any], ...] = (
    {"latency": LATENCY, "ops_per_s": 2841.4},
    {"latency": LATENCY, "ops_per_s": 94.3},
    {"latency": msgspec.structs.replace(LATENCY, errors=1)},
    {"latency": msgspec.structs.replace(LATENCY, errors=3)},
    {"latency": ASKED, "ops_per_s": 499.2},
    {"latency": ASKED, "ops_per_s": 431.0},
    {"latency": LATENCY, **PHASES},
    PHASES,
    {"no_locks": "with the lock probe: no lock"},
    {"lock_wait": 0.0},
    {"sites": LITTLE, "lock_wait": 0.007},
    {"gil_enabled": True, "lock_wait": 0.312, "sites": (site("app.py", 12, "asyncio.Lock", 0.312),)},
    {"lock_wait": 0.312, "sites": (site("", 0, "multiprocessing.Lock", 0.312, name="\x1b[31ma\x07\nb"),)},
    {"lock_wait": 0.0, "sites": (site("app.py", 12, "Queue", 0.312, "queue", ratio=None),)},
    {"scaling": around(2.0, 0.05)},
    {"scaling": around(8.4, 0.05), "efficiency": 1.05, "serial_fraction": -0.007},
    {"scaling": around(12.0, 0.5), "efficiency": 1.5, "serial_fraction": -0.048},
    {"scaling": around(12.0, 6.0), "efficiency": 1.5, "serial_fraction": -0.048},
    {"growth_bytes": around(102 * KIB, 2 * KIB)},
    {"growth_bytes": around(102 * KIB, 103 * KIB)},
    {"growth_bytes": around(-50 * KIB, KIB)},
    {"growth_bytes": interval(9e9, 9e9, 9e9, 0)},
    {"growth_bytes": around(1000, 10)},
    {"waits": WaitFigures(running=1.0)},
    {"waits": WaitFigures()},
    {"waits": WaitFigures(running=0.48, runnable=0.02, gil=0.496, asleep=0.004), "memory_cost": around(1.01, 0.004)},
    {"waits": WaitFigures(running=0.5, gil=0.5, gil_p50_ns=5e6, gil_p95_ns=12.4e6, gil_max_ns=31e6)},
    {"waits": WaitFigures(unavailable="needs Linux's /proc")},
    {"waits": WaitFigures(unavailable="x", cores=BUSY)},
    {"waits": WaitFigures(unavailable="x", running=0.5, voluntary_per_s=1200.0, cores={"main": 1.0})},
    {"memory_dropped": 3},
    {"memory_samples": 1, "memory_dropped": 3},
    PEAKS,
    {"memory": {"tree": RoleFigures(processes=1, peak_uss=12.7 * MIB)}, **PEAKS},
    ALONE,
    {**ALONE, "memory_dropped": 16},
    {"peak_bytes": 12.7 * MIB, "unshared_bytes": 4.9 * MIB},
    {"floor_uss_bytes": 8.1 * MIB},
    {"memory": {"tree": role(1, 12.3, 8.9)}, "floor_uss_bytes": 8.1 * MIB, "floor_pss_bytes": 9 * MIB},
    {"sites": SIX, "lock_wait": 0.156},
    {"sites": (*(site("q.py", line, "Queue", 0.3, "queue") for line in (1, 2, 3)), site("a.py", 1, "Lock", 0.02))},
    {"sites": TWO, "lock_wait": 0.3, "lock_cost": around(1.03, 0.02)},
    {"sites": TWO, "lock_wait": 0.3, "lock_cost": around(1.31, 0.02)},
    {"sites": TWO, "lock_wait": 0.3, "lock_cost": interval(1.31, 1.31, 1.31, level=0.0)},
    {"sites": (site("src/" + "deeper/" * 20 + "cache.py", 7, "Lock", 0.5),), "lock_wait": 0.5},
)


def test_the_lines_beneath_a_row() -> None:
    texts = []
    for fields in BENEATH:
        quiet, verbose = (detail_lines(verbosity, 100, **fields) for verbosity in (0, 1))
        texts.append("\n".join([f"==== {', '.join(fields)}", quiet, "---- -v", verbose, ""]))
    check_golden("terminal_beneath.txt", "\n".join(texts))


def test_table_of_several_worker_counts_has_distinct_labels() -> None:
    for width in (40, 60, 80, 120):
        text = shown(msgspec.structs.replace(report_by_hand.report(), tables=(report_by_hand.cache(),)), width)
        labels = re.findall(r"^  (3\.1\S+)  ", text, re.MULTILINE)
        assert len(set(labels)) == len(labels) == 5, width


def test_lock_wait_that_was_not_measured_is_an_empty_place() -> None:
    rows = [row(figures=Figures(lock_wait=share)) for share in (None, 0.0, 0.0001)]
    details = [line for line in shown(of_rows(*rows)).splitlines() if line.startswith("  3.14t")]
    assert [line.split("w8")[1].strip() for line in details] == ["passed", "0  passed", "<0.1 %  passed"]


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("app.py", "app.py"),
        ("src/words/storage/cache.py", "…/storage/cache.py"),
        ("src/words/cache_of_all_the_words.py", "…of_all_the_words.py"),
        ("a/b/exactly_twenty.py", "…/exactly_twenty.py"),
    ],
)
def test_long_path_gives_way_from_the_left(path: str, text: str) -> None:
    assert short_path(path, Style(60)) == text


def test_long_path_in_ascii() -> None:
    assert short_path("src/words/storage/cache.py", Style(66, unicode=False)) == ".../storage/cache.py"


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


# ---- what is hardly known


def test_a_time_that_is_too_short_for_a_round() -> None:
    one = msgspec.structs.replace(SHORT, rounds=0, cells=1, wanted_s=90)
    assert said.shortfall_text(one) == (
        "use --ftgate-test-time=90s: 30 s do not allow a round of this cell, about 7 are needed to decide"
    )


def test_an_interval_of_nearly_everything_is_unknown() -> None:
    wide, wider = interval(1.0, 0.4, 4.0), interval(1.0, 0.3, 43.97)
    assert units.change_and_ends(wide, "3 pairs") == "0.0 % (-60.0 to +300)"
    assert units.change_and_ends(wider, "3 pairs") == "0.0 % (interval unknown)"
    assert units.difference_and_ends("share", interval(0.1, -0.5, 0.5), "3 pairs") == "+10.0 points (interval unknown)"
    assert units.half_width(wider) == units.ends("time", wider) == units.ends("ratio", wider) == "unknown"
    assert "[unknown] of 8" in detail_lines(verbosity=1, scaling=wider)


def test_launches_that_carry_no_interval_have_a_range() -> None:
    seen = interval(1.03, 0.97, 1.09, level=0.0)
    assert units.change_and_ends(seen, "2 pairs") == "+3.0 % (range of 2 pairs: -3.0 to +9.0)"
    assert units.change_and_ends(interval(4.0, 4.0, 4.0, level=0.0), "1 pair") == "+300 % (1 pair)"
    waits = interval(0.0, -0.5, 0.5, level=0.0)
    assert units.difference_and_ends("share", waits, "2 pairs") == "0.0 points (range of 2 pairs: -50.0 to +50.0)"
    judged = MetricVerdict(metric="wall", decision=Decision.INCONCLUSIVE, ratio=seen, launches=2)
    assert said.change_text(judged) == "+3.0 % (range of 2 launches: -3.0 to +9.0)"
    assert "range of 2 pairs: " in said.change_text(msgspec.structs.replace(judged, p_fail=0.3))
    assert units.estimate("ratio", seen) == "1.03x [0.97, 1.09] (range)"
    assert "[0.97, 1.09] (range) of 8" in detail_lines(verbosity=1, scaling=seen)


def test_a_table_leaves_out_an_interval_that_tells_nothing() -> None:
    def table(wall: Interval) -> str:
        return shown(of_rows(row(figures=Figures(wall_ns=wall))), verbosity=1)

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
    return entry(read(sample, one_worker=single))


def difference(old: schema.StoredCell, new: schema.StoredCell) -> Difference:
    row = Row(cell=group_of(spec=spec_of("threads", workers=8)).cells[0], verdict=Verdict(decision=Decision.PASSED))
    return row, old, new, ""


def test_diff_has_lock_wait_and_scaling_where_a_row_has_them() -> None:
    plain, full = cell_with(), cell_with(0.312, 1.72)
    both = render_diff([difference(cell_with(0.271, 1.96), full), difference(plain, plain)])
    first, second = (folded(cell) for cell in both.split("\n  3.14-")[1:])
    assert "lock_wait 27.1 % -> 31.2 % (+4.1 points), scaling 1.96x -> 1.72x (-12.2 %), baseline" in first
    assert "lock_wait" not in second
    assert "scaling" not in second


def test_share_that_was_zero_has_a_change_too() -> None:
    assert "lock_wait 0 -> 31.2 % (+31.2 points)," in folded(
        render_diff([difference(cell_with(0.0), cell_with(0.312))])
    )


def test_update_says_lock_wait_and_scaling() -> None:
    old, new = cell_with(0.271, 1.96), cell_with(0.312, 1.72)
    update = Update(nodeid="t.py::test[x]", action="record", old=old, new=new, reason="")
    _, line, _ = update_lines([update], "baselines", git=True)
    assert line.endswith("lock_wait 31.2 % (was 27.1 %, +4.1 points), scaling 1.72x (was 1.96x, -12.2 %)")


def test_what_is_recorded_first_is_a_line_a_test() -> None:
    def new(nodeid: str, wall_ns: int) -> Update:
        stored = entry(sample_of([timed(number, [wall_ns] * 3) for number in range(3)]))
        return Update(nodeid=nodeid, action="record", new=stored, reason="new")

    plan = [new("t.py::test_a[x]", 2_000_000), new("t.py::test_b[x]", 3_000_000), new("t.py::test_a[y]", 5_000_000)]
    first, several, one, then = update_lines([*plan], "a b", git=True)
    assert first == "3 recorded in a b/: git add 'a b'"
    assert several == "recorded t.py::test_a: 2 cells, wall 2.00 ms to 5.00 ms (new)"
    assert one.startswith("recorded t.py::test_b[x]: wall 3.00 ms")
    assert then.startswith("next: commit them; pytest --ftgate ")
    first, *_, then = update_lines(plan, "baselines", git=False)
    assert (first, then) == ("3 recorded in baselines/", "next: pytest --ftgate compares with them on this machine")
    known = Update(nodeid="t.py::test_a[x]", action="skip", reason="has a baseline")
    assert len(update_lines([known], "baselines", git=True)) == 1, "nothing was recorded, and nothing is to be added"


# ---- JSON


def test_json_golden() -> None:
    check_golden("report.json", json.render(small_report.report()))


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
        ('{"schema": 6,', "r.json is not JSON"),
        (b"\xff\xfe", "r.json is not JSON"),
        ("[" * 100_000, "r.json is not JSON"),
        ("[]", "r.json has schema None, this pytest-ftgate reads 6"),
        ('{"schema": 5}', "r.json has schema 5, this pytest-ftgate reads 6"),
        ('{"schema": 6, "seed": 3}', "r.json is not a report: $: Object missing required field"),
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


def test_the_report_that_the_manual_reads_is_of_a_run() -> None:
    """docs/reading.md shows it line by line: a run of `examples/docs/test_prices.py`, without its samples."""
    path = Path(__file__).parents[1] / "recorded" / "prices.json"
    report = json.parse(path.read_bytes(), origin=path.name)
    check_golden("reading_80.txt", terminal.render(report, width=80, color=False, unicode=True))
