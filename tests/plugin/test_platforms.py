"""Where nothing can be measured: plain runs work, `--ftgate` says why."""

from __future__ import annotations

import importlib
import re
import sys
from typing import Any

import elsewhere
import pytest
from example import Example, assert_usage_error

from pytest_ftgate import cli
from pytest_ftgate.kit import platforms

TEST = """
    from concurrent.futures import ThreadPoolExecutor
    from pytest_ftgate import executor

    @ftgate.contract("threads.wall < 1 s")
    @ftgate.compare(serial, threads, processes=["fork"], workers=[1, "cores"], pin=True, timeout=9)
    def test_worker(worker):
        with worker.timed("all"):
            worker.count("calls")

    @ftgate.compare(threads, executor("own", ThreadPoolExecutor))
    def test_executor(executor):
        return list(executor.map(abs, range(3)))

    @ftgate.compare(tasks)
    async def test_task(worker): ...

    @ftgate.compare(interpreters)
    def test_interpreters(worker): ...
"""


@pytest.mark.skipif(sys.version_info >= (3, 14), reason="what the stand-in takes away, 3.14 loads late")
def test_on_windows_tests_run_as_plain_tests_and_measuring_is_refused(pytester: pytest.Pytester) -> None:
    Example(pytester, {"test_a.py": TEST})
    run = ("-q", "--ftgate-python=3.14")
    result = pytester.run(sys.executable, elsewhere.__file__, "win32", *run, "--", *run, "--ftgate")
    assert_usage_error(
        result,
        "ERROR: --ftgate cannot measure here: this platform is win32; measuring needs CPython on Linux (with /proc) or "
        "on macOS. Without --ftgate the tests run as plain tests",
    )
    assert result.parseoutcomes() == {"passed": 5, "skipped": 2}


PROGRAMS = """
    import sys
    from pytest_ftgate import command, load

    SAYS = "import sys, time; print('a line'); print('{\\"ops\\": 3}', flush=True)"
    SERVES = "import http.server as h, sys; h.test(h.SimpleHTTPRequestHandler, port=int(sys.argv[1]), bind='127.0.0.1')"

    @ftgate.compare(command("native", [sys.executable, "-c", SAYS]))
    def test_command(worker): ...

    @ftgate.compare(command("broken", [sys.executable, "-c", "print('why'); raise SystemExit(3)"]))
    def test_broken(worker): ...

    @ftgate.serve([sys.executable, "-c", SERVES, "{port}"], ready="http://127.0.0.1:{port}/", load=load("/"))
    def test_server(server):
        assert "test_a.py" in server.get("/")
"""


@pytest.mark.skipif(sys.version_info >= (3, 14), reason="what the stand-in takes away, 3.14 loads late")
def test_on_windows_programs_and_servers_run_as_plain_tests(pytester: pytest.Pytester) -> None:
    Example(pytester, {"test_a.py": PROGRAMS})
    result = pytester.run(sys.executable, elsewhere.__file__, "win32,psutil,numpy,scipy", "-q")
    assert result.parseoutcomes() == {"passed": 3, "failed": 1}
    result.stdout.fnmatch_lines(["*exited with code 3", "*why"])


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("sys.platform", "freebsd14", "this platform is freebsd14; measuring needs CPython on Linux"),
        ("sys.implementation.name", "pypy", "this interpreter is pypy; measuring needs CPython on Linux"),
        ("os.path.exists", lambda _path: False, "/proc is not mounted; measuring needs CPython on Linux"),
    ],
)
def test_what_cannot_measure(monkeypatch: pytest.MonkeyPatch, name: str, value: Any, why: str) -> None:
    assert platforms.unsupported() == ""
    monkeypatch.setattr(name, value)
    assert platforms.unsupported().startswith(why)


def test_the_command_names_what_cannot_be_imported(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "scipy", None)
    monkeypatch.setattr(cli, "build_parser", lambda: importlib.import_module("scipy"))
    assert cli.main(["doctor"]) == 2
    assert re.fullmatch(r"ftgate: error: scipy cannot be imported \(.*\): install it again\n", capsys.readouterr().err)
