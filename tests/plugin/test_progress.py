"""Live progress, with a clock that stands still until told."""

from __future__ import annotations

import io

import pytest

from pytest_ftgate.plugin.progress import PLAIN_EVERY_S, Mode, Progress, mode_of

CELLS = ("3.14t-threads-w8", "3.14-fork-w8")


class Clock:
    """Seconds that pass when told."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Terminal(io.StringIO):
    """A stream that says what it is, and what its line shows."""

    def __init__(self, tty: bool = True) -> None:
        super().__init__()
        self.tty = tty

    def isatty(self) -> bool:
        return self.tty

    def screen(self) -> str:
        """The current line as a terminal shows it."""
        line: list[str] = []
        column = 0
        for character in self.getvalue():
            if character in "\r\n":
                column = 0
                line = line if character == "\r" else []
                continue
            line[column : column + 1] = [character]
            column += 1
        return "".join(line)


class Run:
    """Progress on a stream and a clock of the test's own."""

    def __init__(self, mode: Mode = "terminal", columns: int = 120) -> None:
        self.clock = Clock()
        self.stream = Terminal()
        self.columns = columns
        self.progress = Progress(self.stream, mode, clock=self.clock, columns=lambda: self.columns)


def test_mode_follows_the_stream_and_quiet() -> None:
    assert mode_of(Terminal(), quiet=False) == "terminal"
    assert mode_of(Terminal(tty=False), quiet=False) == "plain"
    assert mode_of(Terminal(), quiet=True) == "quiet"


def test_line_shows_where_the_run_is() -> None:
    run = Run()
    run.progress.start(3)
    run.progress.begin("test_tokenise[w8]", CELLS)
    assert run.stream.screen().rstrip() == "ftgate 1/3 test_tokenise[w8]  2 cells, starting  0 s"
    run.clock.now += 10
    run.progress.advance(CELLS[1], "time", 5, 10, iterations=240)
    shown = run.stream.screen().rstrip()
    assert shown == (
        "ftgate 1/3 test_tokenise[w8]  3.14-fork-w8 time 5/10 launches, 240 iterations  10 s, about 50 s left"
    )


def test_time_left_follows_launches_budget_and_the_tandems_before() -> None:
    run = Run()
    run.progress.start(2)
    run.progress.begin("one", CELLS)
    run.clock.now += 10
    run.progress.advance("cell", "time", 1, 10, left_s=20)
    assert run.stream.screen().rstrip().endswith("10 s, about 50 s left")
    run.clock.now += 20
    run.progress.begin("two", CELLS)
    assert run.stream.screen().rstrip().endswith("30 s, about 30 s left")
    run.clock.now += 10
    run.progress.advance("cell", "memory", 1, 2, left_s=300)
    assert run.stream.screen().rstrip().endswith("cell memory 1/2 launches  40 s, about 10 s left")


def test_time_left_is_unsaid_until_something_tells_it() -> None:
    run = Run()
    run.progress.start(2)
    run.progress.begin("one", CELLS)
    run.clock.now += 1
    run.progress.advance("cell", "time", 0, 0)
    assert "left" not in run.stream.screen()
    run.clock.now += 1
    run.progress.advance("cell", "time", 0, 10, left_s=-3)
    assert run.stream.screen().rstrip().endswith("2 s, about 2 s left")


def test_groups_that_share_a_time_have_what_is_left_of_it() -> None:
    run = Run()
    run.progress.start(2, 42.0)
    for _ in range(2):
        for title in ("one", "two"):
            run.clock.now += 10
            run.progress.begin(title, CELLS)
            run.progress.advance("cell", "time", 1, 10, left_s=5)
    assert run.stream.screen().rstrip() == "ftgate 2/2 two  2 cells, starting  40 s, at most 2 s left"
    run.clock.now += 10
    run.progress.begin("one", CELLS)
    assert run.stream.screen().rstrip().endswith("50 s, at most 0 s left")


def test_terminal_is_rewritten_at_most_five_times_a_second() -> None:
    run = Run()
    run.progress.start(1)
    run.progress.begin("one", CELLS)
    for _ in range(100):
        run.clock.now += 0.01
        run.progress.advance("cell", "time", 1, 10)
    assert 4 <= run.stream.getvalue().count("launches") <= 5


def test_shorter_line_leaves_nothing_of_the_longer_one() -> None:
    run = Run()
    run.progress.start(1)
    run.progress.begin("one", CELLS)
    run.clock.now += 1
    run.progress.advance("a-cell-with-a-long-label", "memory", 1, 10, iterations=1000)
    run.clock.now += 1
    run.progress.advance("cell", "time", 2, 10)
    assert run.stream.screen().rstrip() == "ftgate 1/1 one  cell time 2/10 launches  2 s, about 8 s left"


@pytest.mark.parametrize("columns", [1, 20, 40, 60, 80])
def test_line_stays_within_the_terminal(columns: int) -> None:
    run = Run(columns=columns)
    run.progress.start(1)
    run.progress.begin("tests/test_words.py::test_tokenise, 8 workers", CELLS)
    run.clock.now += 1
    run.progress.advance(CELLS[1], "time", 5, 10)
    assert len(run.stream.screen()) <= max(1, columns - 1)


def test_long_title_keeps_its_end() -> None:
    run = Run(columns=113)
    run.progress.start(1)
    run.progress.begin("tests/unit/deep/down/test_words.py::test_tokenise", CELLS)
    run.clock.now += 1
    run.progress.advance(CELLS[1], "time", 5, 10, iterations=240)
    assert "ftgate 1/1 ...test_words.py::test_tokenise  3.14-fork-w8" in run.stream.screen()
    assert run.stream.screen().endswith("1 s, about 1 s left")


def test_end_and_clear_leave_the_line_clean() -> None:
    run = Run()
    run.progress.start(1)
    run.progress.begin("one", CELLS)
    run.progress.clear()
    assert run.stream.screen().strip() == ""
    assert run.stream.getvalue().endswith("\r")
    run.clock.now += 1
    run.progress.advance("cell", "time", 1, 2)
    run.progress.end()
    assert run.stream.screen().strip() == ""
    before = run.stream.getvalue()
    run.progress.end()
    assert run.stream.getvalue() == before


def test_plain_line_now_and_then() -> None:
    run = Run("plain")
    run.progress.start(2)
    run.progress.begin("one", CELLS)
    assert run.stream.getvalue() == ""
    for _ in range(40):
        run.clock.now += 1
        run.progress.advance("cell", "time", 10, 100)
    run.progress.end()
    lines = run.stream.getvalue().splitlines()
    assert len(lines) == 40 // PLAIN_EVERY_S
    assert lines[0] == "ftgate 1/2 one: cell time 10/100 launches; 15 s, about 4 min 45 s left"
    assert "\r" not in run.stream.getvalue()


def test_quiet_writes_nothing() -> None:
    run = Run("quiet")
    run.progress.start(1)
    run.progress.begin("one", CELLS)
    run.clock.now += 100
    run.progress.advance("cell", "time", 1, 2)
    run.progress.end()
    assert run.stream.getvalue() == ""


def test_broken_stream_silences_progress() -> None:
    run = Run()
    run.progress.start(1)
    run.progress.begin("one", CELLS)
    run.stream.close()
    run.clock.now += 1
    run.progress.advance("cell", "time", 1, 2)
    run.clock.now += 1
    run.progress.advance("cell", "time", 2, 2)
    run.progress.end()


def test_title_beyond_the_encoding_is_replaced() -> None:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="ascii", write_through=True)
    progress = Progress(stream, "terminal", clock=Clock(), columns=lambda: 80)
    progress.start(1)
    progress.begin("test_café", CELLS)
    assert b"test_caf?" in raw.getvalue()
    progress.end()
