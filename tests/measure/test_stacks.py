"""What faulthandler wrote, read and shortened; real hangs and crashes are in tests/runner/test_hangs.py."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_ftgate.measure import stacks
from pytest_ftgate.measure.stacks import MAIN, Frame, Stack

RUNNER = "/my/.ftgate/runner/1f/pytest_ftgate/runner"
CRASH = f"""\
Fatal Python error: Segmentation fault

Thread 0x00007fdb78de06c0 [worker 1 of 2] (most recent call first):
  File "/my/test_a.py", line 4 in other
  File "{RUNNER}/worker.py", line 9 in call

Current thread 0x00007fdb73fff6c0 [worker 0 of 2] (most recent call first):
  File "/opt/lib/python3.14/ctypes/__init__.py", line 621 in string_at
  File "/opt/lib/python3.14/site-packages/mine.py", line 3 in peek
  File "/my/test_a.py", line 6 in body
  File "{RUNNER}/worker.py", line 9 in call
  File "/opt/lib/python3.14/threading.py", line 1024 in run

Current thread's C stack trace (most recent call first):
  Binary file "/opt/bin/python3.14", at _Py_DumpStack+0x2e [0x55f1681d47ad]

Extension modules: numpy._core (total: 1)
"""


def frame(path: str, line: int = 1, function: str = "f") -> Frame:
    return Frame(path, str(line), function)


def test_of_a_crash_the_thread_that_crashed_is_kept(tmp_path: Path) -> None:
    (tmp_path / "main").write_text(CRASH, encoding="utf-8")
    (tmp_path / "worker 1 of 2").write_text("Stack (most recent call first):\n", encoding="utf-8")
    reason, found = stacks.crashed(tmp_path)
    assert reason == "Segmentation fault"
    (stack,) = found
    assert stack.thread == "worker 0 of 2"
    assert [each.function for each in stack.frames] == ["string_at", "peek", "body"]
    assert stacks.at_line(found) == ", at /opt/lib/python3.14/site-packages/mine.py:3"


def test_the_file_of_a_process_names_its_worker(tmp_path: Path) -> None:
    text = CRASH.replace("Current thread 0x00007fdb73fff6c0 [worker 0 of 2]", "Stack")
    (tmp_path / "worker 3 of 8").write_text(f"Fatal Python error: {text.partition(': ')[2]}", encoding="utf-8")
    _, (stack,) = stacks.crashed(tmp_path)
    assert stack.thread == "worker 3 of 8"


def test_native_code_that_waits_is_told_with_its_thread() -> None:
    found = [Stack(f"worker {number} of 3", (frame("/my/a.py"),), waits_in) for number, waits_in in enumerate("xxy")]
    assert stacks.where(found) == "; worker 0 of 3 was at /my/a.py:1, in x"
    assert stacks.shown(found).splitlines() == [
        "worker 0 of 3, worker 1 of 3 (innermost call first):",
        "  native code that waits: x",
        "  /my/a.py:1 in f",
        "worker 2 of 3 (innermost call first):",
        "  native code that waits: y",
        "  /my/a.py:1 in f",
    ]


def test_without_a_crash_there_is_nothing(tmp_path: Path) -> None:
    assert stacks.crashed(tmp_path) == ("", [])
    assert stacks.crashed(tmp_path / "none") == ("", [])
    assert stacks.at_line([]) == stacks.where([]) == stacks.shown([]) == ""


def test_half_a_line_and_frames_that_are_not_known_are_no_error() -> None:
    text = (
        'Stack (most recent call first):\n  File "/my/a.py", line ??? in f\n  <invalid frame>\n  File "/my/b.py", line'
    )
    ((current, name, frames),) = stacks.parsed(text)
    assert (current, name, frames) == (True, "", [Frame("/my/a.py", "???", "f")])


def test_what_starts_a_thread_and_an_idle_worker_of_a_pool_are_left_out() -> None:
    pool, queue = "/opt/lib/python3.14/concurrent/futures/thread.py", "/opt/lib/python3.14/queue.py"
    task = frame("/my/a.py")
    assert stacks.own([task, frame(pool, function="run"), frame(pool, function="_worker")]) == (task,)
    assert stacks.own([frame(queue), frame(pool, function="_worker")]) == ()
    assert stacks.own([task, frame("/opt/lib/python3.14/threading.py", function="run")]) == (task,)
    assert stacks.own([task, frame(f"{RUNNER}/worker.py"), frame("/my/b.py")]) == (task,)


def test_a_main_thread_that_waits_for_others_is_not_at_work() -> None:
    shutdown = Stack(MAIN, (frame("/opt/lib/python3.14/threading.py", function="_shutdown"),))
    other = Stack("thread ticker", (frame("/my/a.py", 5),))
    assert stacks.awaits_threads([shutdown, other])
    assert not stacks.awaits_threads([other])
    assert stacks.at_work([shutdown, other]) == [other]
    assert stacks.where([other]) == "; thread ticker was at /my/a.py:5"


def test_what_is_shown_is_bounded() -> None:
    deep = tuple(frame("/my/a.py", line) for line in range(100))
    text = stacks.shown([Stack(f"worker {n} of 100", deep[n % 20 :]) for n in range(100)])
    lines = text.splitlines()
    assert len(lines) == stacks.MOST_STACKS * (1 + stacks.MOST_FRAMES + 1) + 1
    named = ", ".join(f"worker {n} of 100" for n in range(0, 100, 20))
    assert lines[0] == f"{named} (innermost call first):"
    assert lines[1] == "  /my/a.py:0 in f"
    assert lines[1 + stacks.MOST_FRAMES] == f"  and {100 - stacks.MOST_FRAMES} more calls"
    assert lines[-1] == f"and {20 - stacks.MOST_STACKS} more stacks"


def test_many_threads_with_one_name_are_counted() -> None:
    """A thread of every iteration that never ended filled 130 lines of an error."""
    names = ["thread pump at /x.py:14"] * 196 + ["worker 0 of 2"]
    assert stacks.counted(names) == "thread pump at /x.py:14 (196 of them), worker 0 of 2"
    assert stacks.counted(map(str, range(10))) == "0, 1, 2, 3, 4, 5, 6, 7 and 2 more"


class TestLoky:
    """A worker as faulthandler has written it, and the thread that manages the pool."""

    RUN = '  File "/lib/python3.14/multiprocessing/process.py", line 108 in run\n'
    GET = '  File "/lib/python3.14/multiprocessing/queues.py", line 101 in get\n'
    WORKER = '  File "/v/lib/python3.14/site-packages/loky/process_executor.py", line 485 in _process_worker\n'
    CALL = '  File "/v/lib/python3.14/site-packages/loky/process_executor.py", line 314 in __call__\n'
    WAIT = (
        '  File "/v/lib/python3.14/site-packages/loky/process_executor.py", line 720 in wait_result_broken_or_wakeup\n'
    )
    MANAGER = '  File "/v/lib/python3.14/site-packages/loky/process_executor.py", line 650 in run\n'
    THREAD = '  File "/lib/python3.14/threading.py", line 1082 in _bootstrap_inner\n'

    @pytest.mark.parametrize("idle", [GET + WORKER + RUN, WAIT + MANAGER + THREAD], ids=["worker", "manager"])
    def test_what_waits_has_no_calls_of_its_own(self, idle: str) -> None:
        ((_, _, frames),) = stacks.parsed("Thread 0x1 (most recent call first):\n" + idle)
        assert stacks.own(frames) == ()

    def test_a_worker_with_a_task_has_that_of_the_task(self) -> None:
        task = '  File "/p/test_it.py", line 4 in vowels\n'
        text = "Thread 0x1 (most recent call first):\n" + task + self.CALL + self.WORKER + self.RUN
        ((_, _, frames),) = stacks.parsed(text)
        assert stacks.own(frames)[0].function == "vowels"
