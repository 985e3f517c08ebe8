"""Beside the plugins that people use, all at once, with the options that they give: plain runs and measuring ones."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
from pathlib import Path

import filelock
import pytest
from example import Example
from junitparser import JUnitXml

from pytest_ftgate.targets.environments import run_uv

ROOT = Path(__file__).parents[2]
PINNED = Path(__file__).with_name("beside.txt")


@pytest.fixture(scope="session")
def python(pytestconfig: pytest.Config) -> str:
    """The interpreter of an environment with the pinned plugins and ours: made once, kept in pytest's cache folder."""
    inputs = (PINNED.read_bytes(), sys.executable.encode(), sys.version.encode(), str(ROOT).encode())
    digest = hashlib.sha256(b"".join(inputs)).hexdigest()[:16]
    folder = ROOT / pytestconfig.getini("cache_dir") / "d" / f"beside-{digest}"
    executable = folder / "bin" / "python"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with filelock.FileLock(f"{folder}.lock"):
        if not (folder / "ready").exists():
            into = ["--quiet", "--python", str(executable)]
            _uv("venv", "--quiet", "--clear", "--no-project", "--python", sys.executable, str(folder))
            _uv("pip", "sync", "--require-hashes", *into, str(PINNED))
            _uv("pip", "install", "--no-deps", "--no-build-isolation", *into, "--editable", str(ROOT))
            (folder / "ready").touch()
    return str(executable)


def _uv(*arguments: str) -> None:
    done = run_uv(arguments, cwd=ROOT)
    assert done.returncode == 0, done.stderr


SETTINGS = """
    [tool.pytest.ini_options]
    addopts = "--strict-markers --strict-config --cov=calc --cov-branch -p no:cacheprovider --durations=3"
    asyncio_mode = "auto"
    asyncio_default_fixture_loop_scope = "function"
    filterwarnings = ["error"]
    pythonpath = ["src"]
    ftgate_install = ""
    ftgate_iterations = 2
    ftgate_launches = 1
    ftgate_python = "3.14"

    [tool.coverage.run]
    patch = ["subprocess"]
"""
CELLS = """
    import asyncio, os, time
    from calc import add

    @ftgate.compare(threads, processes=["fork"], workers=1)
    def test_cell(worker):
        time.sleep(0.05)
        assert not [name for name in os.environ if name.startswith("COVERAGE_PROCESS")] or not measured()
        return sum(add(i, 2) for i in range(2000))

    @ftgate.compare(tasks, workers=1)
    async def test_async(worker):
        await asyncio.sleep(0)

    @ftgate.compare(serial, workers=1)
    def test_fails(worker):
        assert not measured()

    def measured():
        return "PYTEST_VERSION" not in os.environ
"""
OTHERS = """
    import asyncio
    import pytest
    from calc import add
    from hypothesis import given, settings, strategies as st

    pytestmark = pytest.mark.timeout(60, method="thread")

    @pytest.mark.thread_unsafe  # pytest-run-parallel runs neither of these two in threads
    async def test_loop():
        assert asyncio.get_running_loop()

    @pytest.mark.thread_unsafe
    def test_speed(benchmark):
        assert benchmark(add, 1, 2) == 3

    @settings(max_examples=5, database=None, deadline=None)
    @given(st.integers())
    def test_property(n):
        assert add(n, 0) == n

    @pytest.mark.flaky(reruns=1)
    def test_plain(tmp_path):
        assert add(1, 2) == 3
"""


@pytest.fixture
def example(pytester: pytest.Pytester, python: str, interpreters_on_path: None) -> Example:
    files = {
        "pyproject.toml": SETTINGS,
        "src/calc.py": "def add(a, b):\n    return a + b\n",
        "tests/test_cells.py": CELLS,
        "tests/test_others.py": OTHERS,
    }
    return Example(pytester, files)


def run(example: Example, python: str, *args: str) -> tuple[int, str]:
    """pytest with these options in the environment of all plugins; its exit code and output."""
    words = [python, "-P", "-m", "pytest", "--benchmark-disable", *args]
    done = subprocess.run(words, cwd=example.folder, capture_output=True, text=True, timeout=300)
    print(done.stdout, done.stderr)
    assert "INTERNALERROR" not in done.stdout + done.stderr
    return done.returncode, done.stdout + done.stderr


def summary(text: str) -> dict[str, int]:
    """The numbers of pytest's last line."""
    last = next(line for line in reversed(text.splitlines()) if re.search(r" in \d+\.\d+s", line))
    return {word: int(number) for number, word in re.findall(r"(\d+) ([a-z][a-z ]*?)(?=,| in )", last)}


PLAIN = ("--import-mode=importlib", "-n2", "--dist=worksteal", "--reruns=1", "--parallel-threads=2", "--timeout=60")
MEASURED = ("--ftgate", "--reruns=2", "--parallel-threads=2", "--timeout=1", "--junit-xml=junit.xml")
DUMPED = ("-o", "faulthandler_timeout=1")


def test_plain_runs(example: Example, python: str) -> None:
    code, text = run(example, python, *PLAIN)
    assert (code, summary(text)) == (0, {"passed": 8})


@pytest.mark.parametrize("workers", [(), ("-n2",)])
def test_a_measuring_run(example: Example, python: str, workers: tuple[str, ...]) -> None:
    code, text = run(example, python, *MEASURED, *DUMPED, *workers)
    assert (code, summary(text)) == (1, {"failed": 1, "passed": 4, "undecided": 3})
    assert "Timeout" not in text, "neither pytest-timeout nor faulthandler_timeout"
    suite = JUnitXml.fromfile(str(example.folder / "junit.xml"))
    assert (suite.tests, suite.failures + suite.errors) == (8, 1)
    assert not [path for path in os.listdir(example.folder) if path.startswith(".coverage.")]


MARKED = """
    import asyncio
    import pytest

    @ftgate.compare(tasks, workers=1)
    async def test_async(worker):
        await asyncio.sleep(0)

    class TestMethods:
        @pytest.mark.anyio
        @ftgate.compare(tasks, workers=1)
        async def test_marked(self, worker):
            await asyncio.sleep(0)

    @ftgate.compare(tasks, workers=1)
    @pytest.mark.asyncio
    async def test_marked(worker):
        await asyncio.sleep(0)
"""
BACKEND = """
    import pytest

    @pytest.fixture(scope="session", autouse=True)
    def anyio_backend():
        return "asyncio"
"""


LEFT_TO_US = ("-Werror", "-o", "markers=asyncio: of another plugin", "-p", "no:asyncio")


def marked(pytester: pytest.Pytester, conftest: str) -> Example:
    settings = '[tool.pytest.ini_options]\nftgate_install = ""\nftgate_python = "3.14"\n'
    return Example(pytester, {"pyproject.toml": settings, "test_marked.py": MARKED, "conftest.py": conftest})


@pytest.mark.parametrize(
    ("options", "conftest"),
    [
        (("-o", "anyio_mode=auto", *LEFT_TO_US), ""),
        (("-o", "anyio_mode=auto", *LEFT_TO_US), BACKEND),
        (("-o", "trio_mode=true", *LEFT_TO_US), ""),
        (("-o", "asyncio_mode=auto", "-o", "asyncio_default_fixture_loop_scope=function", "-Werror"), ""),
    ],
    ids=["anyio", "anyio-backend", "trio", "asyncio"],
)
def test_plugins_that_run_async_tests_leave_cells_to_us(
    pytester: pytest.Pytester, python: str, options: tuple[str, ...], conftest: str, interpreters_on_path: None
) -> None:
    code, text = run(marked(pytester, conftest), python, *options)
    assert (code, summary(text)) == (0, {"passed": 3}), "each cell once"


def test_cells_that_a_plugin_would_run_are_measured(
    pytester: pytest.Pytester, python: str, interpreters_on_path: None
) -> None:
    quick = ("--ftgate", "-oftgate_launches=1", "-oftgate_iterations=2", "--ftgate-metrics=wall")
    code, text = run(marked(pytester, BACKEND), python, *LEFT_TO_US, "-o", "anyio_mode=auto", *quick)
    assert (code, summary(text)) == (0, {"undecided": 3})
