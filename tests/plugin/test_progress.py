"""Live progress, with a clock that stands still until told."""

from __future__ import annotations

import io
import os
import re
import threading
import time
from collections.abc import Iterator

import pytest
from example import Example

from pytest_ftgate.plugin import progress as module
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
        """The line of the cursor as a terminal shows it."""
        lines, row = screen(self.getvalue())
        return lines[row]


def screen(text: str) -> tuple[list[str], int]:
    """The lines that a terminal shows, which ends a line at its last column only if told; the line of the cursor."""
    lines, row, column = [list[str]()], 0, 0
    for count, move, character in re.findall(r"\x1b\[([\d;?]*)([A-Za-z])|(.)", text, re.DOTALL):
        if character == "\n":
            row, column = row + 1, 0
            lines += [[] for _ in range(row + 1 - len(lines))]
        elif character == "\r":
            column = 0
        elif character:
            lines[row] += " " * (column - len(lines[row]))
            lines[row][column : column + 1] = [character]
            column += 1
        elif move == "A":
            row -= int(count or 1)
        elif move == "C":
            column += int(count or 1)
        elif move == "K":
            del lines[row][column:]
    return ["".join(line) for line in lines], row


MADE: list[Progress] = []


@pytest.fixture(autouse=True)
def cleared() -> Iterator[None]:
    """No test leaves a thread: later tests fork."""
    yield
    while MADE:
        MADE.pop().clear()


class Run:
    """Progress on a stream and a clock of the test's own."""

    def __init__(self, mode: Mode = "terminal", columns: int = 120, before: str = "") -> None:
        self.clock = Clock()
        self.stream = Terminal()
        self.stream.write(before)
        self.columns = columns
        self.progress = Progress(
            self.stream,
            mode,
            clock=self.clock,
            columns=lambda: self.columns,
            written=lambda: len(before),
            new_line=lambda: self.stream.write("\n") if before else None,
        )
        MADE.append(self.progress)


def test_mode_follows_the_stream_and_quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    assert mode_of(Terminal(), quiet=False) == "terminal"
    assert mode_of(Terminal(tty=False), quiet=False) == "plain"
    assert mode_of(Terminal(), quiet=True) == "quiet"
    monkeypatch.setenv("TERM", "dumb")
    assert mode_of(Terminal(), quiet=False) == "plain"


def test_line_shows_where_the_run_is() -> None:
    run = Run()
    run.progress.start(3)
    run.progress.begin("test_tokenise[w8]", CELLS)
    assert run.stream.screen().rstrip() == "ftgate 1/3 test_tokenise[w8]  2 cells, starting  0 s"
    run.clock.now += 10
    run.progress.advance(CELLS[1], "measuring", 6, 10)
    assert run.stream.screen().rstrip() == "ftgate 1/3 test_tokenise[w8]  measuring 3.14-fork-w8, round 6 of 10  10 s"
    run.clock.now += 10
    run.progress.advance(CELLS[1], "measuring", 7, 0)
    assert run.stream.screen().rstrip().endswith("measuring 3.14-fork-w8, round 7  20 s")


def shown_left(run: Run) -> str:
    """What the line says of the time left."""
    return run.stream.screen().rstrip().rpartition(", ")[2]


def test_the_time_left_is_the_most_that_this_test_and_later_ones_may_take() -> None:
    run = Run()
    run.progress.start(3, group_s=60.0)
    run.progress.begin("one", CELLS)
    assert shown_left(run) == "at most 3 min left"
    run.clock.now += 10
    run.progress.advance("3.14t", "installing for", 0, 0)
    assert shown_left(run) == "at most 3 min left"  # this takes nothing of it
    run.clock.now += 10
    run.progress.advance("cell", "measuring", 1, 0, left_s=50)
    assert shown_left(run) == "at most 2 min 50 s left"
    run.clock.now += 10
    run.progress.begin("two", CELLS)
    assert shown_left(run) == "at most 2 min left"
    run.progress.begin("three", CELLS)
    run.clock.now += 10
    run.progress.advance("cell", "explaining", 9, 0, left_s=0)
    assert shown_left(run) == "the time is over"


def test_what_has_no_rounds_is_shown_at_once_and_without_a_count() -> None:
    run = Run()
    run.progress.advance("HEAD~2", "checking out", 0, 0)  # before the tests are collected
    assert "ftgate: checking out HEAD~2" in run.stream.getvalue()
    run.progress.start(1)
    run.progress.begin("one", CELLS)
    run.progress.advance("3.14", "checking the interpreter", 0, 0)
    run.clock.now += 0.01
    run.progress.advance("3.14t", "building the project for", 0, 0)
    assert "building the project for 3.14t" in run.stream.screen()
    assert "0/0" not in run.stream.getvalue()


@pytest.mark.parametrize("mode", ["terminal", "plain", "quiet"])
def test_a_warning_stays(mode: Mode) -> None:
    run = Run(mode)
    run.progress.start(1)
    run.progress.begin("one", CELLS)
    run.progress.warn("30 s allow 2 rounds")
    run.clock.now += 1
    run.progress.advance("cell", "measuring", 1, 2)
    assert ("ftgate: 30 s allow 2 rounds\n" in run.stream.getvalue()) == (mode != "quiet")
    if mode == "terminal":
        assert run.stream.screen().startswith("ftgate 1/1 one  measuring cell")


def test_groups_that_share_a_time_have_what_is_left_of_it() -> None:
    run = Run()
    run.progress.start(2, 42.0)
    for _ in range(2):
        for title in ("one", "two"):
            run.clock.now += 10
            run.progress.begin(title, CELLS)
            run.progress.advance("cell", "measuring", 1, 10, left_s=5)
    assert run.stream.screen().rstrip() == "ftgate 2/2 two  2 cells, starting  40 s, at most 2 s left"
    run.clock.now += 10
    run.progress.begin("one", CELLS)
    assert run.stream.screen().rstrip().endswith("50 s, the time is over")


def test_what_ends_after_the_time_is_counted_by_seconds_in_a_terminal() -> None:
    """Nothing is measured any more, so that nothing is disturbed; before, the line comes again after 20 s."""
    shown = list[str]()
    run = Run()
    run.progress.start(1, 42.0)
    run.progress.begin("one", CELLS)
    run.clock.now += 41
    run.progress.advance("cell", "ending", 2, 0)
    for _ in range(12):
        run.clock.now += 0.5
        run.progress.beat()
        shown.append(run.stream.screen().rstrip().partition("round 2  ")[2])
    assert list(dict.fromkeys(shown)) == [
        "41 s, at most 1 s left",
        *(f"{seconds} s, the time is over" for seconds in range(42, 48)),
    ]


def test_the_time_of_a_run_is_counted_from_its_start(
    pytester: pytest.Pytester, scripted_runs: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, start = list[float | None](), Progress.start

    def starting(progress: Progress, total: int, budget_s: float | None = None, group_s: float | None = None) -> None:
        begun.append(budget_s)
        start(progress, total, budget_s, group_s)

    monkeypatch.setattr(Progress, "start", starting)
    slow = "import time\nbegan = time.monotonic()\nwhile time.monotonic() <= began + 0.01: pass\n"
    test = "@ftgate.compare(threads, workers=1)\ndef test_it(worker): ...\n"
    Example(pytester, {"pytest.ini": "[pytest]\nftgate_install =\n", "test_a.py": slow + test}).run_pytest(
        "-p", "fake_run", "--ftgate", "--ftgate-time=1000"
    )
    assert begun[-1] is not None
    assert begun[-1] <= 1000 - 0.01


def test_terminal_is_rewritten_at_most_five_times_a_second() -> None:
    run = Run()
    run.progress.start(1)
    run.progress.begin("one", CELLS)
    for _ in range(100):
        run.clock.now += 0.01
        run.progress.advance("cell", "measuring", 1, 10)
    assert 4 <= run.stream.getvalue().count("measuring") <= 5


def test_shorter_line_leaves_nothing_of_the_longer_one() -> None:
    run = Run()
    run.progress.start(1)
    run.progress.begin("one", CELLS)
    run.clock.now += 1
    run.progress.advance("a-cell-with-a-long-label", "measuring memory of", 1, 10)
    run.clock.now += 1
    run.progress.advance("cell", "measuring", 2, 10)
    assert run.stream.screen().rstrip() == "ftgate 1/1 one  measuring cell, round 2 of 10  2 s"


@pytest.mark.parametrize("columns", [1, 20, 40, 60, 80])
def test_line_stays_within_the_terminal(columns: int) -> None:
    run = Run(columns=columns)
    run.progress.start(1)
    run.progress.begin("tests/test_words.py::test_tokenise, 8 workers", CELLS)
    run.clock.now += 1
    run.progress.advance(CELLS[1], "measuring", 5, 10)
    assert len(run.stream.screen()) <= max(1, columns - 1)


def test_long_title_keeps_its_end() -> None:
    run = Run(columns=91)
    run.progress.start(1)
    run.progress.begin("tests/unit/deep/down/test_words.py::test_tokenise", CELLS)
    run.clock.now += 1
    run.progress.advance(CELLS[1], "measuring", 5, 10)
    assert "ftgate 1/1 ...own/test_words.py::test_tokenise  measuring 3.14-fork-w8" in run.stream.screen()
    assert run.stream.screen().endswith(", round 5 of 10  1 s")


def test_end_and_clear_leave_the_line_clean() -> None:
    run = Run()
    run.progress.start(1)
    run.progress.begin("one", CELLS)
    run.progress.clear()
    assert run.stream.screen().strip() == ""
    assert run.stream.getvalue().endswith("\r")
    run.clock.now += 1
    run.progress.advance("cell", "measuring", 1, 2)
    run.progress.end()
    assert run.stream.screen().strip() == ""
    before = run.stream.getvalue()
    run.progress.end()
    assert run.stream.getvalue() == before


def test_the_cursor_returns_to_what_others_have_written() -> None:
    run = Run(columns=40, before="test_a.py ")
    run.progress.start(1)
    for _ in range(2):
        run.progress.begin("one", CELLS)
        (first, line), row = screen(run.stream.getvalue())
        assert (first, row) == ("test_a.py ", 1)
        assert line.startswith("ftgate 1/1 one")
        run.progress.clear()
    run.stream.write(".")
    (first, line), _ = screen(run.stream.getvalue())
    assert (first, line.strip()) == ("test_a.py .", "")


def test_behind_the_last_column_the_line_of_others_ends() -> None:
    run = Run(columns=40, before="x" * 40)
    run.progress.start(1)
    run.progress.begin("one", CELLS)
    run.progress.clear()
    run.stream.write(".")
    lines, row = screen(run.stream.getvalue())
    assert (lines[0], lines[row].rstrip()) == ("x" * 40, ".")


OPTIONS = [(), ("-v",), ("--capture=no",), ("-p", "no:terminal"), ("-n", "1")]
NEW = """
    from pytest_ftgate.run.run import Run

    Run.tell_new = lambda run: run.listener.warn("main has no test_a.py")
"""
"""A warning at the end of the collection."""


@pytest.mark.parametrize("options", OPTIONS, ids=" ".join)
def test_a_terminal_shows_nothing_of_the_line_at_the_end(
    pytester: pytest.Pytester, scripted_runs: None, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...]
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    test = "@ftgate.compare(threads, workers=[1, 2])\ndef test_it(worker): ...\n"
    ini = "[pytest]\nftgate_install =\n"
    example = Example(pytester, {"pytest.ini": ini, "conftest.py": NEW, "test_a.py": test})
    ours, theirs = os.openpty()
    process = example.start("-p", "fake_run", "--ftgate", "--ftgate-python=3.14", *options, output=theirs)
    os.close(theirs)
    written = bytearray()
    with open(ours, "rb", buffering=0) as terminal:
        try:
            while part := terminal.read(65536):
                written += part
        except OSError:  # the other end is closed
            pass
    text = written.decode()
    assert process.wait() == 0, text
    assert "\rftgate 1/1 test_a.py::test_it" in text
    lines = [line.rstrip() for line in screen(text)[0]]
    assert "ftgate: main has no test_a.py" in lines
    assert not [line for line in lines if re.search(r"ftgate \d+/\d|ftgate: [a-z]+ing (for|out|the)|^collecting", line)]
    if options == ("-p", "no:terminal"):
        assert [*filter(None, lines)] == ["ftgate: main has no test_a.py"]
    elif options == ("-v",):
        words = [line.split()[1:] for line in lines if line.startswith("test_a.py::test_it[")]
        assert len(words) == 2
        assert all(words)
    elif options != ("-n", "1"):
        assert [line for line in lines if re.match(r"test_a\.py \?\?( |$)", line)], "\n".join(lines)


def test_plain_line_now_and_then() -> None:
    run = Run("plain")
    run.progress.start(2)
    run.progress.begin("one", CELLS)
    assert run.stream.getvalue() == ""
    for _ in range(40):
        run.clock.now += 1
        for step in ("looking for the interpreter of", "checking the interpreter", "measuring"):
            run.progress.advance("cell", step, 0, 0)
    run.progress.end()
    assert run.stream.getvalue().splitlines() == [
        "ftgate 1/2 one: looking for the interpreter of cell; 20 s",
        "ftgate 1/2 one: looking for the interpreter of cell; 40 s",
    ]
    assert "\r" not in run.stream.getvalue()


def test_a_step_that_is_a_script_is_one_short_line() -> None:
    run = Run("plain")
    run.progress.start(1)
    run.progress.begin("one", CELLS)
    run.clock.now += PLAIN_EVERY_S
    run.progress.advance("for i in $(seq 9); do\n\techo \x1b[31m$i; done; " + "make;" * 40, "running", 0, 0)
    (line,) = run.stream.getvalue().splitlines()
    assert line.startswith("ftgate 1/1 one: running for i in $(seq 9); do echo $i; done; make;")
    assert line.endswith("...; 20 s")
    assert len(line) < 130


def test_quiet_writes_nothing() -> None:
    run = Run("quiet")
    run.progress.start(1)
    run.progress.begin("one", CELLS)
    run.clock.now += 100
    run.progress.advance("cell", "measuring", 1, 2)
    run.progress.end()
    assert run.stream.getvalue() == ""


def test_broken_stream_silences_progress() -> None:
    run = Run()
    run.progress.start(1)
    run.progress.begin("one", CELLS)
    run.stream.close()
    run.clock.now += 1
    run.progress.advance("cell", "measuring", 1, 2)
    run.clock.now += 1
    run.progress.advance("cell", "measuring", 2, 2)
    run.progress.end()


def test_title_beyond_the_encoding_is_replaced() -> None:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="ascii", write_through=True)
    progress = Progress(stream, "terminal", clock=Clock(), columns=lambda: 80)
    MADE.append(progress)
    progress.start(1)
    progress.begin("test_café", CELLS)
    assert b"test_caf?" in raw.getvalue()
    progress.end()


def test_a_long_phase_is_told_with_its_seconds() -> None:
    run = Run("plain")
    run.progress.start(1)
    run.progress.begin("test_x", CELLS)
    run.progress.advance("3.14t", "installing for", 0, 0)
    run.clock.now += PLAIN_EVERY_S - 0.1
    run.progress.beat()
    assert not run.stream.getvalue()
    run.clock.now += 0.1
    run.progress.beat()
    run.clock.now += PLAIN_EVERY_S
    run.progress.beat()
    assert run.stream.getvalue().splitlines() == [
        "ftgate 1/1 test_x: installing for 3.14t (20 s); 20 s",
        "ftgate 1/1 test_x: installing for 3.14t (40 s); 40 s",
    ]


def test_a_long_round_is_told_again_with_less_time_left() -> None:
    run = Run("plain")
    run.progress.start(1, group_s=60.0)
    run.progress.begin("test_x", CELLS)
    run.clock.now += PLAIN_EVERY_S
    run.progress.advance("cell", "measuring", 2, 0, left_s=40)
    run.clock.now += PLAIN_EVERY_S
    run.progress.beat()
    assert run.stream.getvalue().splitlines() == [
        "ftgate 1/1 test_x: measuring cell, round 2; 20 s, at most 40 s left",
        "ftgate 1/1 test_x: measuring cell, round 2; 40 s, at most 20 s left",
    ]


@pytest.mark.parametrize("mode", ["terminal", "plain"])
def test_the_line_comes_again_by_itself_until_clear(mode: Mode, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PLAIN_EVERY_S", 0.01)
    stream = Terminal()
    before = threading.active_count()
    shown = Progress(stream, mode)
    shown.advance("main", "checking out", 0, 0)
    for _ in range(2):
        told = len(stream.getvalue())
        while len(stream.getvalue()) == told:
            time.sleep(0.01)
    shown.erase()
    assert "checking out main (0 s)" in stream.getvalue()
    shown.clear()
    assert threading.active_count() == before, "the process may fork"
    told = len(stream.getvalue())
    time.sleep(0.05)
    assert len(stream.getvalue()) == told


def test_a_quiet_run_and_a_stream_that_is_gone_start_no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PLAIN_EVERY_S", 0.01)
    before = threading.active_count()
    Run("quiet").progress.advance("main", "checking out", 0, 0)
    assert threading.active_count() == before
    run = Run("plain")
    run.stream.close()
    run.clock.now += PLAIN_EVERY_S
    run.progress.advance("main", "checking out", 0, 0)
    run.progress.clear()
    assert threading.active_count() == before


def test_where_no_thread_can_be_started_events_draw_the_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refused)
    terminal = Terminal()
    shown = Progress(terminal, "terminal", clock=Clock(), columns=lambda: 80)
    shown.begin("test_a.py::test_it", CELLS)
    assert "starting" in terminal.screen()
    shown.clear()
    assert not terminal.screen().strip()
