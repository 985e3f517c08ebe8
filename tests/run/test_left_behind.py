"""What a plain run of a cell leaves: it fails the cell, and pytest ends."""

from __future__ import annotations

import pytest
from example import Example

LEFT = {
    "a thread": ("threading.Thread(target=threading.Event().wait, name='web', daemon=False).start()", "thread web"),
    "a server": ("threading.Thread(target=server.serve_forever).start()", "serve_forever"),
    "a pool at work": ("ThreadPoolExecutor(1).submit(time.sleep, 600)", "ThreadPoolExecutor-0_0"),
    "a process": ("get_context('fork').Process(target=time.sleep, args=(600,)).start()", "ForkProcess-"),
    "a program": ("subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])", "time.sleep(600)"),
}
SOURCE = """
    import subprocess, sys, threading, time
    from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
    from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
    from multiprocessing import get_context

    @ftgate.compare(EXECUTOR, pythons=["3.14"])
    def test_it(worker): ...

    @test_it.shared
    def state(shared):
        server = ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler)
        START
        return None if EXECUTOR is not threads else server
"""


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch, pytester: pytest.Pytester) -> None:
    """What goes on gets less time to end."""
    pytester.makeconftest("from pytest_ftgate.run import plain\nplain.THREADS_S = 0.3")


def test_what_is_left_fails_its_cell_and_is_not_waited_for(pytester: pytest.Pytester) -> None:
    files = {}
    for number, (start, _) in enumerate(LEFT.values()):
        executor = "processes" if number == 0 else "serial"
        files[f"test_{number}.py"] = SOURCE.replace("EXECUTOR", executor).replace("START", start)
    result = Example(pytester, files).run_fresh()
    result.assert_outcomes(failed=len(LEFT))
    text = result.stdout.str().partition("short test summary info")[0]
    for _, named in LEFT.values():
        assert named in text
    assert text.count("a thread of the workload still runs") == 3
    assert f"started at {pytester.path / 'test_1.py'}:13 in state" in text
    assert text.count("left 1 process behind") == 2
    assert text.count('@<test>.teardown("launch")') == len(LEFT)


def test_what_a_teardown_or_the_interpreter_s_end_ends_is_not_left(pytester: pytest.Pytester) -> None:
    source = SOURCE.replace("EXECUTOR", "threads").replace("START", LEFT["a server"][0])
    source += """
    @test_it.teardown("launch")
    def stop(server):
        server.shutdown()
        server.server_close()

    @ftgate.compare(serial, pythons=["3.14"])
    def test_exit(worker):
        threading.Thread(target=threading.Event().wait, daemon=True).start()
        ThreadPoolExecutor(1).submit(abs, 1).result()
        global pool, manager
        pool, manager = ProcessPoolExecutor(1, get_context("fork")), get_context("fork").Manager()
        pool.submit(abs, 1).result()
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        import atexit
        atexit.register(child.kill)
    """
    Example(pytester, {"test_a.py": source}).run_fresh().assert_outcomes(passed=2)


def test_an_error_is_reported_before_what_it_leaves(pytester: pytest.Pytester) -> None:
    source = SOURCE.replace("EXECUTOR", "serial").replace("START", "; ".join(each[0] for each in LEFT.values()))
    source = source.replace("...", "raise KeyError('first')")
    result = Example(pytester, {"test_a.py": source.replace("subprocess.Popen", "str")}).run_fresh()
    result.assert_outcomes(failed=1)
    assert "KeyError: 'first'" in result.stdout.str()
    assert "still runs" not in result.stdout.str()
