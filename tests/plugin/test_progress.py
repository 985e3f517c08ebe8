"""Live progress, with a clock that stands still until told."""

from __future__ import annotations

import io
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


MADE: list[Progress] = []


@pytest.fixture(autouse=True)
def cleared() -> Iterator[None]:
    """No test leaves a thread: later tests fork."""
    yield
    while MADE:
        MADE.pop().clear()


class Run:
    """Progress on a stream and a clock of the test's own."""

    def __init__(self, mode: Mode = "terminal", columns: int = 120) -> None:
        self.clock = Clock()
        self.stream = Terminal()
        self.columns = columns
        self.progress = Progress(self.stream, mode, clock=self.clock, columns=lambda: self.columns)
        MADE.append(self.progress)


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
    run.progress.advance(CELLS[1], "measuring", 5, 10)
    shown = run.stream.screen().rstrip()
    assert shown == ("ftgate 1/3 test_tokenise[w8]  measuring 3.14-fork-w8, round 6 of about 10  10 s, about 50 s left")


def test_time_left_follows_launches_budget_and_the_tandems_before() -> None:
    run = Run()
    run.progress.start(2)
    run.progress.begin("one", CELLS)
    run.clock.now += 10
    run.progress.advance("cell", "measuring", 1, 10, left_s=20)
    assert run.stream.screen().rstrip().endswith("10 s, about 50 s left")
    run.clock.now += 20
    run.progress.begin("two", CELLS)
    assert run.stream.screen().rstrip().endswith("30 s, about 30 s left")
    run.clock.now += 10
    run.progress.advance("cell", "measuring memory of", 1, 2, left_s=300)
    assert run.stream.screen().rstrip().endswith("measuring memory of cell, round 2 of about 2  40 s, about 10 s left")


def test_time_left_is_unsaid_until_something_tells_it() -> None:
    run = Run()
    run.progress.start(2)
    run.progress.begin("one", CELLS)
    run.clock.now += 1
    run.progress.advance("cell", "measuring", 0, 0)
    assert "left" not in run.stream.screen()
    run.clock.now += 1
    run.progress.advance("cell", "measuring", 0, 10, left_s=-3)
    assert run.stream.screen().rstrip().endswith("measuring cell, round 1  2 s, about 2 s left")


@pytest.mark.parametrize("mode", ["terminal", "plain"])
def test_what_has_no_rounds_is_shown_at_once_and_without_a_count(mode: Mode) -> None:
    run = Run(mode)
    run.progress.advance("HEAD~2", "checking out", 0, 0)  # before the tests are collected
    assert "ftgate: checking out HEAD~2" in run.stream.getvalue()
    run.progress.start(1)
    run.progress.begin("one", CELLS)
    run.progress.advance("3.14", "checking the interpreter", 0, 0)
    run.clock.now += 0.01
    run.progress.advance("3.14t", "building the project for", 0, 0)
    text = run.stream.getvalue()
    assert "building the project for 3.14t" in (text if mode == "plain" else run.stream.screen())
    assert "0/0" not in text
    if mode == "plain":
        run.progress.advance("3.14t", "building the project for", 0, 0)
        assert run.stream.getvalue() == text


def shown_left(run: Run, done: int, wanted: int, left_s: float, *, after_s: float = 5.0) -> str:
    """What the line says of the time left."""
    run.clock.now += after_s
    run.progress.advance("cell", "measuring", done, wanted, left_s=left_s)
    return run.stream.screen().rstrip().rpartition(", ")[2]


def test_an_estimate_that_grows_says_why() -> None:
    run = Run(columns=200)
    run.progress.start(1)
    run.progress.begin("one", CELLS)
    assert shown_left(run, 1, 8, 35) == "about 35 s left"
    assert shown_left(run, 2, 8, 31) == "about 30 s left"  # no growth worth a word, as it takes 1 s longer
    run.progress.expect_more("more rounds: the cells vary by 8 %")
    assert shown_left(run, 3, 20, 85) == "about 1 min 25 s left (more rounds: the cells vary by 8 %)"
    assert shown_left(run, 4, 20, 80) == "about 1 min 20 s left (more rounds: the cells vary by 8 %)"
    assert shown_left(run, 5, 20, 75, after_s=30) == "about 1 min 15 s left (rounds take longer than before)"


def test_the_test_and_the_time_left_need_the_room_more_than_the_reason() -> None:
    run = Run(columns=100)
    run.progress.start(1)
    run.progress.begin("tests/test_words.py::test_tokenise", CELLS)
    assert shown_left(run, 1, 8, 35) == "about 35 s left"
    assert shown_left(run, 2, 20, 85) == "about 1 min 25 s left"
    assert "test_tokenise  measuring cell" in run.stream.screen()


def test_a_later_test_that_takes_longer_says_so() -> None:
    run = Run(columns=200)
    run.progress.start(2)
    run.progress.begin("one", CELLS)
    assert shown_left(run, 9, 10, 1) == "about 6 s left"
    run.progress.begin("two", CELLS)
    assert shown_left(run, 1, 10, 100).endswith("(it takes longer than other tests)")


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
    """Nothing is measured any more, so that nothing is disturbed; before, the line comes again after 15 s."""
    shown = list[str]()
    run = Run()
    run.progress.start(1, 42.0)
    run.progress.begin("one", CELLS)
    run.clock.now += 41
    run.progress.advance("cell", "ending", 1, 10)
    for _ in range(12):
        run.clock.now += 0.5
        run.progress.beat()
        shown.append(run.stream.screen().rstrip().partition("round 2 of about 10  ")[2])
    assert list(dict.fromkeys(shown)) == [
        "41 s, at most 1 s left",
        *(f"{seconds} s, the time is over" for seconds in range(42, 48)),
    ]


def test_the_time_of_a_run_is_counted_from_its_start(
    pytester: pytest.Pytester, scripted_runs: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, start = list[float | None](), Progress.start

    def starting(progress: Progress, total: int, budget_s: float | None = None) -> None:
        begun.append(budget_s)
        start(progress, total, budget_s)

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
    assert run.stream.screen().rstrip() == "ftgate 1/1 one  measuring cell, round 3 of about 10  2 s, about 8 s left"


@pytest.mark.parametrize("columns", [1, 20, 40, 60, 80])
def test_line_stays_within_the_terminal(columns: int) -> None:
    run = Run(columns=columns)
    run.progress.start(1)
    run.progress.begin("tests/test_words.py::test_tokenise, 8 workers", CELLS)
    run.clock.now += 1
    run.progress.advance(CELLS[1], "measuring", 5, 10)
    assert len(run.stream.screen()) <= max(1, columns - 1)


def test_long_title_keeps_its_end() -> None:
    run = Run(columns=113)
    run.progress.start(1)
    run.progress.begin("tests/unit/deep/down/test_words.py::test_tokenise", CELLS)
    run.clock.now += 1
    run.progress.advance(CELLS[1], "measuring", 5, 10)
    assert "ftgate 1/1 ...own/test_words.py::test_tokenise  measuring 3.14-fork-w8" in run.stream.screen()
    assert run.stream.screen().endswith("1 s, about 1 s left")


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


def test_plain_line_now_and_then() -> None:
    run = Run("plain")
    run.progress.start(2)
    run.progress.begin("one", CELLS)
    assert run.stream.getvalue() == ""
    for _ in range(40):
        run.clock.now += 1
        run.progress.advance("cell", "measuring", 10, 100)
    run.progress.end()
    lines = run.stream.getvalue().splitlines()
    assert len(lines) == 40 // PLAIN_EVERY_S
    assert lines[0] == "ftgate 1/2 one: measuring cell, round 11 of about 100; 15 s, about 4 min 45 s left"
    assert "\r" not in run.stream.getvalue()


def test_a_step_that_is_a_script_is_one_short_line() -> None:
    run = Run("plain")
    run.progress.start(1)
    run.progress.begin("one", CELLS)
    run.progress.advance("for i in $(seq 9); do\n\techo \x1b[31m$i; done; " + "make;" * 40, "running", 0, 0)
    (line,) = run.stream.getvalue().splitlines()
    assert line.startswith("ftgate 1/1 one: running for i in $(seq 9); do echo $i; done; make;")
    assert line.endswith("...; 0 s")
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
    assert len(run.stream.getvalue().splitlines()) == 1
    run.clock.now += 0.1
    run.progress.beat()
    run.clock.now += PLAIN_EVERY_S
    run.progress.beat()
    assert run.stream.getvalue().splitlines()[1:] == [
        "ftgate 1/1 test_x: installing for 3.14t (15 s); 15 s",
        "ftgate 1/1 test_x: installing for 3.14t (30 s); 30 s",
    ]


def test_a_long_round_is_told_again_with_less_time_left() -> None:
    run = Run("plain")
    run.progress.start(1)
    run.progress.begin("test_x", CELLS)
    run.clock.now += PLAIN_EVERY_S
    run.progress.advance("cell", "measuring", 1, 10, left_s=40)
    run.clock.now += PLAIN_EVERY_S
    run.progress.beat()
    assert run.stream.getvalue().splitlines() == [
        "ftgate 1/1 test_x: measuring cell, round 2 of about 10; 15 s, about 40 s left",
        "ftgate 1/1 test_x: measuring cell, round 2 of about 10; 30 s, about 25 s left",
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
