"""What changed beneath a regression, in explained."""

from __future__ import annotations

import msgspec
import pytest
from report_by_hand import HEAVIER, SLOWER, WAITING

from pytest_ftgate.model.report import Cause, CauseOf, Explanation, Part
from pytest_ftgate.report.said import COPIED, explained

SPLIT = "Splitter.words, src/words/split.py:31"


def caused(of: CauseOf, *parts: Part, **others: object) -> Explanation:
    return Explanation(causes=(Cause(of=of, parts=parts, **others),))  # type: ignore[arg-type]


def part(added: float, file: str = "a.py", line: int = 3, name: str = "f", *, changed: bool = False) -> Part:
    return Part(file=file, line=line, name=name, before=0.0, after=1.0, added=added, changed=changed)


def test_each_thing_that_changed_has_a_sentence_the_causes_first() -> None:
    assert explained(SLOWER) == (
        f"668 µs of the 742 µs added are spent in iterencode, json/encoder.py:204; 68.0 µs of them in {SPLIT}",
        "of the workers' time running 61 % -> 92 % and asleep (I/O, sleep) 38 % -> 7 %",
        "cores kept busy: 1.21 -> 1.93",
    )
    waits = "waits for src/words/cache.py:12 Lock: 2 % -> 23 % of the workers' time"
    assert explained(WAITING) == (f"{waits}, held at src/words/cache.py:40 in refill",)


def test_what_is_not_known_is_said_in_one_line() -> None:
    assert explained(HEAVIER) == ("the added memory is unexplained: no git here: its commit cannot be measured",)
    noise = "no function grew beyond the noise of 770 samples"
    assert explained(caused("time", unknown=noise, added=3e6)) == (noise,)


def test_memory_is_held_by_lines_and_modules_that_came() -> None:
    line = part(8.0 * 2**20, line=3, name='BALLAST = b"x" * (8 << 20)')
    modules = ("ssl", "asyncio", "asyncio.events")
    assert explained(caused("memory", line, added=8.5 * 2**20, modules=modules)) == (
        '8.00 MiB of the 8.50 MiB added are held at a.py:3: BALLAST = b"x" * (8 << 20)',
        "modules that came: asyncio (2 modules), ssl",
    )
    assert explained(caused("growth", part(2**16, name="x" * 99), added=2**16)) == (
        f"all 64.0 KiB that were added by each call are left at a.py:3: {'x' * 60} ...",
    )


def test_pages_of_the_parent_are_said_with_what_copies_them_before_the_lines() -> None:
    pages = Part(file="", line=0, name="unshared", before=3 * 2**20, after=33 * 2**20, added=42.0 * 2**20)
    copied, added = f"the workers' own copies of such pages: 3.00 MiB -> 33.0 MiB; {COPIED}", 42.0 * 2**20
    shared = "are held in pages that workers no longer share with their parent"
    assert explained(caused("memory", pages, added=added)) == (f"all 42.0 MiB that were added {shared}", copied)
    line = part(30.0 * 2**20, name="x")
    assert explained(caused("memory", pages, line, added=2 * added, unknown="")) == (
        f"42.0 MiB of the 84.0 MiB added {shared}; 30.0 MiB of them at a.py:3: x",
        copied,
    )


def test_a_start_is_spent_importing() -> None:
    found = explained(
        caused("start", part(120e6, "asyncio", 0, "ssl"), part(1e8, "", 0, "json"), added=252e6, modules=("ssl",))
    )
    assert found == (
        "120 ms of the 252 ms added are spent importing ssl, imported by asyncio; 100 ms of them importing json",
    )


def test_stacks_of_a_part_of_the_iterations_are_said_to_be_that() -> None:
    one = caused("time", part(5e6), added=6e6)
    (known, cut) = explained(msgspec.structs.replace(one, part=True))
    assert known.endswith("a.py:3")
    assert cut == (
        "the sampled stacks are so deep that they filled their space: only the first iterations were sampled"
    )


def test_never_more_is_said_to_be_spent_than_was_added() -> None:
    assert explained(caused("time", part(501_000.0), added=367_000.0)) == (
        "all 367 µs that were added are spent in f, a.py:3",
    )


@pytest.mark.parametrize("of", ["time", "memory"])
def test_the_cause_of_another_cell_is_named_as_its_own(of: CauseOf) -> None:
    borrowed = caused(of, part(4096, line=0), added=8192, unknown="no time left", like="3.14-threads-w1")
    (text,) = explained(borrowed)
    assert text.startswith("as in 3.14-threads-w1: 4.")


def test_without_an_explanation_there_is_no_sentence_and_hostile_names_cannot_move_the_cursor() -> None:
    assert explained(None) == ()
    hostile = caused("time", part(1e6, file="a\x1b[2J.py"), added=1e6)
    assert "\x1b" not in explained(hostile)[0]


def test_of_a_payload_the_argument_that_grew_and_of_dispatch_the_way_is_said() -> None:
    grown = Part(file="", line=0, name="argument 2, int -> list", before=5.0, after=2.0**20, added=2.0**20 - 5)
    assert explained(caused("payload", grown, added=2.0**20)) == ("argument 2, int -> list: 5 B -> 1.00 MiB a task",)
    new = msgspec.structs.replace(grown, before=0.0)
    assert explained(caused("payload", new)) == ("argument 2, int -> list: 1.00 MiB a task",)
    way = Part(file="", line=0, name="dispatch back", before=5e4, after=2e5, added=15e4)
    assert explained(caused("dispatch", way, unknown="")) == (
        "from the end of a task to its result: 50.0 µs -> 200 µs a task",
    )
