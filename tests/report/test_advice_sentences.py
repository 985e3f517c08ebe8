"""The advice in sentences: a golden file, 80 columns, ASCII, hostile names, JSON."""

from __future__ import annotations

import json

import msgspec
import pytest
import report_by_hand

from golden import check_golden
from pytest_ftgate.features.decide import rank, sentences
from pytest_ftgate.features.decide.rank import Advice, MemoryUse
from pytest_ftgate.kit.values import Interval
from pytest_ftgate.model.report import Report
from pytest_ftgate.report.details import Style, wrapped


def test_the_sentences_of_every_kind_of_row() -> None:
    advised = sentences.of_report(report_by_hand.report())
    texts = [sentences.render(advised), sentences.render(advised, verbose=True)]
    check_golden("advice_80.txt", "\n== -v\n\n".join(texts))
    assert max(len(line) for text in texts for line in text.splitlines()) <= 80


def test_a_stream_that_is_not_unicode_gets_ascii() -> None:
    report = report_by_hand.report()
    text = sentences.render(sentences.of_report(report), unicode=False, verbose=True)
    assert text.isascii()
    assert "5.32 us" in text


def test_a_test_of_many_places_has_seven_lines_of_times() -> None:
    first, *_ = sentences.of_report(report_by_hand.report())
    times = [sentence for sentence in first.sentences if sentence.topic == "time"]
    first = first._replace(sentences=(*first.sentences[:1], *times * 3, *first.sentences[-1:]))
    advice, *lines = sentences.render([first]).splitlines()[1:]
    assert advice.split()[0] == "advice"
    began = next(number for number, line in enumerate(lines) if line.split()[0] == "time")
    times_shown = lines[began : began + sentences.TABLE]
    assert times_shown[-1].strip() == f"{18 - sentences.TABLE + 1} lines more with -v"
    assert lines[began + sentences.TABLE].split()[0] in ("hazard", "from")
    assert sentences.render([first], verbose=True).count("takes 1.83 ms") == 3


def test_the_advice_comes_first_and_the_weights_are_in_it() -> None:
    report = msgspec.structs.replace(report_by_hand.report(), weights=(("time", 1.0), ("memory", 0.5)))
    for each in sentences.of_report(report):
        assert each.sentences[0].topic == "advice"
    first = sentences.of_report(report)[0].sentences[0]
    assert "threads on 3.14t" in first.text
    assert "by time=1 memory=0.5" in first.text


def test_what_was_declared_and_not_measured_is_named_with_the_command() -> None:
    """`-k threads` leaves out fork and spawn: that no other is faster is not known."""
    report = report_by_hand.report()
    table = next(each for each in report.tables if each.rows[0].cell.nodeid.startswith(report_by_hand.TOKENISE))
    labels = tuple(row.cell.label for row in table.rows)

    def advice(*declared: str) -> str:
        of = msgspec.structs.replace(table, declared=declared)
        (found,) = sentences.of_report(msgspec.structs.replace(report, tables=(of,)))
        return " ".join(each.text for each in found.sentences if each.topic == "advice")

    whole, part = advice(*labels), advice(*labels, "3.14t-fork-w16")
    assert "; no other is clearly faster or smaller" in whole
    assert "not measured" not in whole
    assert "; no other that was measured is clearly faster or smaller" in part
    command = f"pytest --ftgate {report_by_hand.TOKENISE}"
    assert part.endswith(f" 3.14t-fork-w16: not measured; to compare all, run {command}")


@pytest.mark.parametrize("width", [40, 60, 80, 120])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    lines = sentences.render(sentences.of_report(report_by_hand.report()), width, verbose=True).splitlines()
    assert max(len(line) for line in lines if line.startswith(" ")) <= width


def test_what_a_workload_writes_neither_colours_nor_moves_the_cursor() -> None:
    hostile = msgspec.json.encode(report_by_hand.report()).decode()
    hostile = hostile.replace("raised ValueError in worker 3", r"raised \u001b[31mred\u001b[2J\u0007")
    advised = sentences.of_report(msgspec.json.decode(hostile, type=Report))
    said = " ".join(sentence.text for each in advised for sentence in each.sentences)
    for text in (said, sentences.render(advised)):
        assert "raised red" in text
        assert not {letter for letter in text if ord(letter) < 32} - {"\n"}


def test_the_figures_behind_the_sentences_are_json() -> None:
    found = rank.of_report(report_by_hand.report())
    first, *_ = json.loads(sentences.as_json(found))
    assert first["test"] == report_by_hand.TOKENISE
    assert first["choices"][0]["time"]["ranked"][0]["name"] == "threads on 3.14t"


def test_the_memory_of_a_further_worker_that_may_be_none_is_given_by_its_upper_end() -> None:
    total = Interval(value=2**24, low=2**24, high=2**24, level=0.95)
    further = Interval(value=-(2.0**17), low=-(2.0**20), high=2.0**19, level=0.95)
    use = MemoryUse(
        name="threads on 3.14",
        workers="w2",
        setting="",
        figure="PSS",
        total=total,
        further=further,
        further_of="counts",
    )
    (sentence,) = sentences.said(Advice(test="t", source="s", memory=(use,))).sentences
    assert sentence.text.splitlines()[1] == "  threads on 3.14  16.0 MiB, 512 KiB at most"


def test_a_number_stays_with_its_unit_and_an_interval_in_one_piece() -> None:
    style = Style(20)
    assert wrapped("it takes 12345678 ms [1, 2] at 31.2 % or 8 workers", style, indent=0) == [
        "it takes 12345678 ms",
        "[1, 2] at 31.2 % or",
        "8 workers",
    ]
    assert wrapped("it took some times 12 ms", style, indent=0) == ["it took some times", "12 ms"]
