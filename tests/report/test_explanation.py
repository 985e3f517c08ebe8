"""What changed beneath a regression, in explained."""

from __future__ import annotations

import msgspec
from report_by_hand import HEAVIER, SLOWER, WAITING

from pytest_ftgate.model.report import Explanation, FunctionTime
from pytest_ftgate.report.said import explained

SPLIT = "Splitter.words, src/words/split.py:31"


def test_each_thing_that_changed_has_a_sentence_the_functions_first() -> None:
    assert explained(SLOWER) == (
        f"668 µs of the 742 µs added are spent in iterencode, json/encoder.py:204; 68.0 µs of them in {SPLIT}",
        "of the workers' time running 61 % -> 92 % and asleep (I/O, sleep) 38 % -> 7 %",
        "cores kept busy: 1.21 -> 1.93",
    )
    assert explained(HEAVIER) == ("no function is named: no git here: its commit cannot be measured",)
    assert explained(Explanation(refused="none of its body: it is added to start")) == (
        "functions that take the added time: none of its body: it is added to start",
    )
    assert explained(WAITING) == (
        "waits at src/words/cache.py:12 Lock: 2 % -> 23 % of the workers' time",
        "start: 1.20 ms -> 2.90 ms",
    )


def test_stacks_of_a_part_of_the_iterations_are_said_to_be_that() -> None:
    (known, part) = explained(
        msgspec.structs.replace(SLOWER, shares=(), cores=None, functions=SLOWER.functions[:1], part=True)
    )
    assert known.endswith("json/encoder.py:204")
    assert part == (
        "the sampled stacks are so deep that they filled their space: only the first iterations were sampled"
    )
    unknown = Explanation(refused="not known (only 12 samples of the workers' stacks were taken)", part=True)
    assert explained(unknown) == (
        part,
        "no function is named: only 12 samples of the workers' stacks were taken",
    )


def test_never_more_is_said_to_be_spent_than_was_added() -> None:
    one = FunctionTime(file="a.py", line=3, name="f", before=1.0, after=1.0, added_ns=501_000.0)
    assert explained(Explanation(functions=(one,), added_ns=367_000.0)) == (
        "all 367 µs that were added are spent in f, a.py:3",
    )


def test_the_same_time_is_said_once() -> None:
    def function(name: str, ms: float, *, changed: bool = False) -> FunctionTime:
        return FunctionTime(file="a.py", line=3, name=name, before=0.1, after=0.2, added_ns=ms * 1e6, changed=changed)

    found = (function("outer", 12.7, changed=True), function("inner", 12.6), function("leaf", 4.0))
    assert explained(Explanation(functions=found, added_ns=12.7e6)) == (
        "all 12.7 ms that were added are spent in outer, a.py:3, which changed; 4.00 ms of them in leaf, a.py:3",
    )
    both = (function("outer", 12.7, changed=True), function("inner", 12.6, changed=True))
    (text,) = explained(Explanation(functions=both, added_ns=12.7e6))
    assert text.endswith("; 12.6 ms of them in inner, a.py:3, which changed")


def test_a_level_of_all_functions_is_no_part_of_the_sentence() -> None:
    why = "not known (no function's time grew beyond the noise of 770 and 810 samples (p < 0.01 over 60 functions))"
    assert explained(Explanation(refused=why)) == (
        "no function is named: no function's time grew beyond the noise of 770 and 810 samples",
    )


def test_the_functions_of_another_cell_are_named_as_its_own() -> None:
    one = FunctionTime(file="a.py", line=0, name="f", before=0.1, after=0.2, added_ns=900_000.0)
    borrowed = Explanation(functions=(one,), added_ns=41e6, refused="not known (no time left)", like="3.14-threads-w1")
    assert explained(borrowed) == ("as in 3.14-threads-w1: 900 µs of the 41.0 ms added are spent in f, a.py",)


def test_without_an_explanation_there_is_no_sentence_and_hostile_names_cannot_move_the_cursor() -> None:
    assert explained(None) == ()
    hostile = FunctionTime(file="a\x1b[2J.py", line=1, name="f", before=0, after=1, added_ns=1e6)
    assert "\x1b" not in explained(Explanation(functions=(hostile,), added_ns=1e6))[0]
