"""The locks by which the processes of a run agree, between this process and one that is told what to do."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_ftgate.run import turns
from pytest_ftgate.run.turns import MeasuringTurn

OTHER = """
import sys
from pathlib import Path
from pytest_ftgate.run.turns import MeasuringTurn

mine = MeasuringTurn(Path(sys.argv[1]), "gw1", exclusive=sys.argv[2] == "yes")
mine.open()
for line in sys.stdin:
    if line == "measure\\n":
        with mine.excluded(lambda _: None):
            print("measuring", flush=True)
            sys.stdin.readline()
        print("measured", flush=True)
        continue
    with mine.running(line.strip()):
        print("running", flush=True)
        sys.stdin.readline()
    print("ended", flush=True)
"""


class Other:
    """The other process: `ask` gives it a line and waits for its answer."""

    def __init__(self, folder: Path, exclusive: str) -> None:
        words = [sys.executable, "-c", OTHER, str(folder), exclusive]
        self.process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)

    def send(self, line: str) -> None:
        assert self.process.stdin
        self.process.stdin.write(line + "\n")

    def ask(self, line: str) -> str:
        self.send(line)
        assert self.process.stdout
        return self.process.stdout.readline().strip()


@pytest.fixture(params=["yes"])
def other(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Other]:
    made = Other(tmp_path, request.param)
    yield made
    made.process.kill()
    made.process.communicate()


def mine_of(folder: Path, *, exclusive: bool = True) -> MeasuringTurn:
    made = MeasuringTurn(folder, "gw0", exclusive=exclusive)
    made.open()
    return made


def test_a_measurement_waits_for_a_test_and_says_which(
    tmp_path: Path, other: Other, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turns, "SAID_AFTER_S", 0.05)
    mine, said = mine_of(tmp_path), list[str]()

    def say(text: str) -> None:
        if not said:
            other.send("")
        said.append(text)

    assert other.ask("test_long") == "running"
    with mine.excluded(say):
        assert said[0] == "test_long in gw1, for 0 s"
        assert other.process.stdout
        assert other.process.stdout.readline() == "ended\n"
        assert mine.note == ""


def test_no_test_begins_while_one_is_measured(tmp_path: Path, other: Other) -> None:
    mine, ended = mine_of(tmp_path), list[bool]()

    def end() -> None:
        ended.append(True)
        other.send("")

    assert other.ask("measure") == "measuring"
    timer = threading.Timer(0.2, end)
    timer.start()
    with mine.running("after"):
        assert ended
        timer.join()
        with mine.paused():
            assert other.ask("measure") == "measured"
            assert other.process.stdout
            assert other.process.stdout.readline() == "measuring\n"
            other.send("")


def test_the_locks_of_a_process_that_is_killed_are_free(tmp_path: Path, other: Other) -> None:
    mine = mine_of(tmp_path)
    assert other.ask("measure") == "measuring"
    other.process.kill()
    with mine.running("a test"):
        pass
    again = Other(tmp_path, "yes")
    assert again.ask("test_long") == "running"
    again.process.kill()
    with mine.excluded(lambda _: None):
        pass
    again.process.communicate()


def test_a_test_that_waits_for_something_is_not_waited_for(
    tmp_path: Path, other: Other, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as for what a session fixture of the measuring process holds."""
    monkeypatch.setattr(turns, "SAID_AFTER_S", 0.05)
    monkeypatch.setattr(turns, "IDLE_S", 0.3)
    monkeypatch.setattr(turns, "cpu_s", lambda _: 1.0)
    mine = mine_of(tmp_path)
    assert other.ask("test_waits") == "running"
    with mine.excluded(lambda _: None):
        assert mine.note.startswith("test_waits was not waited for: it had not used the CPU for ")


@pytest.mark.parametrize("other", ["no"], indirect=True)
def test_without_exclusion_the_tests_that_run_meanwhile_are_counted(tmp_path: Path, other: Other) -> None:
    mine = mine_of(tmp_path, exclusive=False)
    assert [other.ask("before"), other.ask("")] == ["running", "ended"]
    assert other.ask("meanwhile") == "running"
    with mine.excluded(lambda _: None):
        assert mine.note == "1 other test ran meanwhile (ftgate_exclusive = no)"
        assert [other.ask(""), other.ask("another")] == ["ended", "running"]
        assert mine.note == "2 other tests ran meanwhile (ftgate_exclusive = no)"
