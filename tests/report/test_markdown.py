"""The Markdown report: against a golden file, at 500 cells, and with names that try to be markup."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
import report_by_hand
import small_report
from report_by_hand import cell, figures, judged, of_rows, told

from golden import check_golden
from pytest_ftgate.features import markdown
from pytest_ftgate.kit.values import Interval, Metric
from pytest_ftgate.model.report import Report, Row, Table
from pytest_ftgate.model.sample import WorkloadError
from pytest_ftgate.model.verdict import Acceptance, Decision, Verdict
from pytest_ftgate.report import json as formats
from pytest_ftgate.report import terminal

LONG = "tests/benchmarks/concurrency/test_pipeline.py::TestStorageEngine::test_write_batches_{}"


def report_of(*tables: Table, **fields: object) -> Report:
    return msgspec.structs.replace(report_by_hand.report(), tables=tables, **{"failing": None, **fields})


BESIDE = "more is known of this change"


def row(decision: Decision, test: str = "t.py::test", number: int = 0, **fields: object) -> Row:
    """A cell whose wall time has that decision."""
    of = cell(test, "3.14t", "threads", 8, ("size", str(number)))
    worse = {Decision.IMPROVED: 0.8, Decision.PASSED: 1.0, Decision.UNCHANGED: 1.0}.get(decision, 1.312)
    verdict = Verdict(
        decision=decision,
        metrics=(judged(Metric.WALL, decision, worse, 0.03, 0.001, *told(BESIDE)),),
        why="--ftgate-against merge-base; no file that it reads is the same",
        basis="paired",
        baseline="main at 1a2b3c4d5e",
        commit=report_by_hand.COMMIT,
    )
    return Row(cell=of, verdict=verdict, figures=figures(12.3, 1.0, 25.2, 25.2), **fields)  # type: ignore[arg-type]


def many(decision: Decision, count: int, at_once: int = 25) -> list[Table]:
    """Tests of so many cells each."""
    return [
        Table(
            title=f"{LONG.format(start)}, 8 workers",
            rows=tuple(row(decision, LONG.format(start), number) for number in range(at_once)),
            reference="3.14t-threads",
        )
        for start in range(0, count, at_once)
    ]


def one(*rows: Row, **fields: Any) -> str:
    return markdown.render(of_rows(*rows, **fields))


def heading(text: str) -> str:
    return next(line for line in text.splitlines() if line.startswith("## "))


def lines_of(tables: Sequence[Table], text: str) -> list[str]:
    """The lines that name the tables' cells before what is folded."""
    open_text = text.partition("<details><summary>All cells")[0]
    labels = {f"`{each.cell.label}`" for table in tables for each in table.rows}
    return [line for line in open_text.splitlines() if any(label in line for label in labels)]


def test_the_report_is_the_golden_one() -> None:
    check_golden("report.md", markdown.render(small_report.report()))


EVERY_VERDICT = r"""
### 1 broken

**`tests/test_words.py::test_tokenise`**

- `3.14t-fork-w8`: **wall \< 1.5 \* threads.wall: it did not hold in 16 of 16 rounds**
  - rerun `pytest --ftgate 'tests/test_words.py::test_tokenise[3.14t-fork-w8]'`
====

**`tests/test_cache.py::test_lookup`**

- `3.14t-threads-w8`: **lock\_wait +4.1 points (+2.0 to +6.2): 31.2 %, was 27.1 %;
====
 scaling -12.3 % (-15.3 to -9.3): 1.72x, was 1.96x**
  - why: waits for src/words/cache.py:12 Lock: 2 % -> 23 % of the workers' time, held at src/words/cache.py:40 in refill
  - wall +0.4 % (-0.8 to +1.6), passed: 7.03 ms, was 7.00 ms
====
; judged by stored figures (no git here)
====
### 1 accepted

- `tests/test_words.py::test_tokenise[3.14-threads-w8]`: wall +8.3 % (+7.2 to +9.4): 9.16 ms, was 8.46 ms; wall accepted
====
### 1 improved

- `tests/test_words.py::test_tokenise[3.14t-interpreters-w8]`: wall -12.9 % (-14.9 to -10.9): 7.20 ms, was 8.27 ms
====

- `3.14-spawn-w8` inconclusive: wall +3.1 % (-2.0 to +8.2); rules out +21 %; +5 % needs about 14 more
====

- `3.13-interpreters-w8`, `3.13t-interpreters-w8` unsupported: sub-interpreters need Python 3.14 or newer: take 3.13
====
: nothing was compared; ratio to `3.14t-threads`

a duration of 5 s: the time is that of one operation over all workers

| cell | verdict | wall | ratio |
|---|---|--:|--:|
| `3.14t-threads-w8-10_000_000` | no baseline | 911 ns | 1.00x |
====
- 3.14.7, GIL on, gcc 14.2.0
"""


@pytest.mark.parametrize("part", EVERY_VERDICT.strip("\n").split("\n====\n"))
def test_what_a_report_of_every_verdict_says_beside(part: str) -> None:
    assert part in markdown.render(report_by_hand.report()).replace("\u00a0", " ")


@pytest.mark.parametrize(
    ("decisions", "said"),
    [
        ((Decision.PASSED, Decision.INCONCLUSIVE), "1 of 2 decided, nothing regressed"),
        ((Decision.UNCHANGED,), "1 of 1 decided, nothing regressed"),
        ((Decision.ACCEPTED, Decision.PASSED), "2 of 2 decided, nothing else regressed, 1 accepted"),
        ((Decision.XFAILED,), "1 of 1 decided, nothing else regressed, 1 xfailed"),
        ((Decision.PASSED, Decision.NO_BASELINE), "1 of 1 decided, nothing regressed, 1 not compared"),
        ((Decision.INCONCLUSIVE, Decision.ERROR, Decision.ERROR), "test, 2 cells: it could not be measured"),
        ((Decision.NO_BASELINE, Decision.UNSUPPORTED), "nothing was compared"),
        ((Decision.RECORDED, Decision.RECORDED), "2 recorded"),
        ((Decision.RECORDED, Decision.PASSED), "1 of 1 decided, nothing regressed, 1 recorded"),
        ((Decision.INCONCLUSIVE,), "nothing was decided: 0 of 1 compared cell"),
        ((Decision.SUSPECT, Decision.PASSED), r"test\[3.14t-threads-w8-0\]: wall +31.2 %"),
        ((), "no cell was judged: all were skipped"),
        ((Decision.UNSUPPORTED,), "no cell was judged: 1 unsupported"),
    ],
)
def test_that_nothing_regressed_is_said_where_it_was_looked_for(decisions: Sequence[Decision], said: str) -> None:
    assert heading(one(*(row(each, number=number) for number, each in enumerate(decisions)))) == f"## ftgate: {said}"


def test_what_fails_is_what_the_run_was_told_to_fail_on() -> None:
    slower, noisy = row(Decision.REGRESSED, number=1), row(Decision.INCONCLUSIVE, number=2)
    text = one(slower, noisy, failing=frozenset({noisy.cell.nodeid}))
    assert heading(text).startswith(r"## ftgate: test\[3.14t-threads-w8-2\]: wall +31.2 %")
    assert "1 of 2 decided, 1 inconclusive. 2 cells in" in text
    heads = [line for line in text.splitlines() if line.startswith("### ")]
    assert heads == ["### 1 inconclusive", "### 1 regressed: no failure in this run"]
    assert heading(one(slower, failing=frozenset())) == "## ftgate: 1 of 1 decided, nothing fails, 1 regressed"


def test_a_partial_report_says_so_first() -> None:
    text = one(row(Decision.PASSED), partial="interrupted: 3 of 4 cells were not run @all")
    assert text.splitlines()[1:5] == [
        "## ftgate: partial report, 1 of 1 decided so far, nothing regressed",
        "",
        "> [!WARNING]",
        "> This report is partial: interrupted: 3 of 4 cells were not run @\u200ball",
    ]
    assert (
        heading(one(row(Decision.REGRESSED), partial="why"))
        == r"## ftgate: partial report, test\[3.14t-threads-w8-0\]: wall +31.2 %"
    )


# ---- size


def test_a_tail_beyond_its_body_is_said_once() -> None:
    of = row(Decision.REGRESSED)
    tail = judged(Metric.TAIL, Decision.REGRESSED, 1.595, 0.03, 0.001, *told(BESIDE))
    tails = (msgspec.structs.replace(tail, wall_growth=1.79),)
    text = one(msgspec.structs.replace(of, verdict=msgspec.structs.replace(of.verdict, metrics=tails)))
    assert "**tail +59.5 % (+56.5 to +62.5) beyond the body's own +79.0 %**" in text
    assert text.count("beyond the body's own +79.0 %") == 1


def test_two_pairs_have_a_range_in_every_form() -> None:
    of = row(Decision.SUSPECT)
    change = Interval(value=1.3, low=1.2, high=1.4, level=0.0)
    wall = msgspec.structs.replace(of.verdict.metrics[0], ratio=change, launches=2)
    report = of_rows(msgspec.structs.replace(of, verdict=msgspec.structs.replace(of.verdict, metrics=(wall,))))
    texts = [markdown.render(report), "".join(formats.rendered("html", report))]
    texts.append(terminal.render(report, width=120, color=False, unicode=True, verbosity=1))
    for text in texts:
        assert "range of 2 pairs: +20.0 to +40.0" in text
        assert "CI +" not in text


def test_500_regressed_cells_are_all_named_with_their_figures() -> None:
    tables = many(Decision.REGRESSED, 500)
    text = markdown.render(report_of(*tables))
    assert len(text) <= markdown.LIMIT
    named = lines_of(tables, text)
    assert len(named) == 500
    assert all("wall +31.2 %" in line for line in named)
    assert BESIDE in text, "as much as there is room for"
    assert text.count("<details>") == text.count("</details>")


def test_500_cells_of_which_few_regressed_keep_those_in_full() -> None:
    tables = [*many(Decision.REGRESSED, 20, 5), *many(Decision.IMPROVED, 100), *many(Decision.PASSED, 380, 20)]
    text = markdown.render(report_of(*tables))
    assert len(text) <= markdown.LIMIT
    assert len(lines_of(tables, text)) == 20
    assert text.count(": wall -20.0 %") == 100
    assert text.count(BESIDE) == 4, "once for the cells of a test"
    assert text.count("  - rerun `pytest --ftgate") == 4


def test_what_does_not_fit_at_all_is_counted() -> None:
    tables = many(Decision.REGRESSED, 3000, 1)
    text = markdown.render(report_of(*tables))
    assert len(text) <= markdown.LIMIT
    missing = re.search(r"^… (\d+) of 3000 cells left out: a JSON report has all.$", text, re.MULTILINE)
    assert missing is not None
    assert text.count("\n- `3.14t-threads-w8-") + int(missing[1]) == 3000


@pytest.mark.parametrize("limit", [0, 300, 1000, 5000, 20_000])
def test_a_report_of_any_length_can_be_asked_for(limit: int) -> None:
    text = markdown.render(report_of(*many(Decision.REGRESSED, 100), *many(Decision.PASSED, 100)), limit=limit)
    assert len(text) <= max(limit, 300)
    assert heading(text).endswith("\\_0, 25 cells: wall +31.2 %")


def test_names_of_any_length_leave_room_for_the_others() -> None:
    tables = [
        Table(title=f"t.py::test{n}", rows=(row(Decision.REGRESSED, "x" * 5000 + str(n)),), reference="")
        for n in range(100)
    ]
    text = markdown.render(report_of(*tables))
    assert len(text) <= markdown.LIMIT
    assert text.count("wall +31.2 %") >= 100


# ---- names and errors that try to be markup


HOSTILE = (
    "](https://evil.example) @admin #1 GH-2 <img src=x onerror=alert(1)> </details> <!-- a|b \\| `` ``` ![i](//x) "
    "$x$ www.evil.example\n## heading\n| a | b |\n\x1b[31mred\x9b1m \u202egnp.exe\u2066 \udc80"
)


def hostile() -> str:
    of = msgspec.structs.replace(cell("t.py::test", "3.14t", "threads", 8), nodeid=f"t.py::test{HOSTILE}[{HOSTILE}]")
    error = WorkloadError(reason=f"raised ValueError: {HOSTILE}", detail=f"Traceback\n````\n{HOSTILE}\n</details>")
    failed = Row(cell=of, verdict=Verdict(decision=Decision.ERROR, reason=HOSTILE), error=error)
    slower = row(Decision.REGRESSED)
    verdict = msgspec.structs.replace(slower.verdict, baseline=HOSTILE, why=HOSTILE, reason=HOSTILE)
    accepted = msgspec.structs.replace(
        verdict,
        decision=Decision.ACCEPTED,
        accepted=(Acceptance(cells="x", metric="wall", reason=HOSTILE, commit=HOSTILE),),
    )
    rows = (
        failed,
        msgspec.structs.replace(slower, cell=of, verdict=verdict),
        msgspec.structs.replace(slower, cell=of, verdict=accepted),
    )
    table = Table(title=HOSTILE, rows=rows, reference=HOSTILE, note=HOSTILE)
    return markdown.render(report_of(table, partial=HOSTILE, command=HOSTILE, version=HOSTILE))


def outside_of_code(text: str) -> str:
    """The Markdown without its code blocks and spans."""
    text = re.sub(r"^( *)(`{3,})$.*?^\1\2$", "", text, flags=re.MULTILINE | re.DOTALL)
    return re.sub(r"(?<![`\\])(`+)(?!`).*?(?<!`)\1(?!`)", "", text)


def test_hostile_names_and_errors_are_text() -> None:
    text = hostile()
    text.encode()  # no half of a surrogate pair
    bare = outside_of_code(text)
    assert re.search(r"@\w|#\d|GH-\d|://|www\.", bare) is None, "no mention, no reference, no link"
    tags = {"<!-- ftgate -->", "<details>", "</details>", "<summary>", "</summary>"}
    assert set(re.findall(r"(?<!\\)<[^<>\n]*>", bare)) == tags
    assert len(re.findall(r"(?<!\\)<details>", bare)) == len(re.findall(r"(?<!\\)</details>", bare))
    assert not set(text) & set("\x1b\x9b\u202e\u2066\udc80")
    assert heading(text).endswith(": wall +31.2 %")
    assert {line for line in text.splitlines() if line.startswith("#")} == {
        heading(text),
        "### 1 regressed",
        "### 1 error",
        "### 1 accepted",
    }


def test_a_pipe_in_a_name_does_not_end_its_table_cell() -> None:
    text = hostile()
    (head,) = (line for line in text.splitlines() if line.startswith("| cell |"))
    body = [line for line in text.splitlines() if line.startswith("| `")]
    assert len(body) == 3
    for line in (head, *body):  # GFM takes a backslash and what follows it as one
        assert len(re.sub(r"\\.", "", line).split("|")) == len(head.split("|"))


@pytest.mark.parametrize("words", ["`", "``", "a`b", "`a` ``b``", "", " ", "\n", "a\nb", "\\"])
def test_code_spans_hold_what_they_are_given(words: str) -> None:
    span = markdown.code(words)
    fence = re.match("`+", span)
    assert fence is not None
    inside = span.removeprefix(fence[0]).removesuffix(fence[0])
    assert fence[0] not in re.findall("`+", inside)
    assert inside.strip() == " ".join(words.split())


@pytest.mark.parametrize(
    ("words", "written"),
    [
        ("# heading", r"\# heading"),
        ("1. item", r"1\. item"),
        ("- item", r"\- item"),
        ("--- ", r"\---"),
        (">quoted", r"\>quoted"),
        ("+38 ms of 41 -> 51", "+38 ms of 41 -> 51"),
        ("1.5 GiB", "1.5 GiB"),
        ("* a_b <b>", r"\* a\_b \<b>"),
        ("@me #1 gh-2 https://x me@x.y", "@\u200bme #\u200b1 gh-\u200b2 https:\u200b//x me@\u200bx.y"),
    ],
)
def test_text_is_inert(words: str, written: str) -> None:
    assert markdown.text(words) == written
