"""The stub of pytest in the measured process: what bodies use of it is as in the real one."""

from __future__ import annotations

import itertools
import math
import re
import subprocess
import sys
from decimal import Decimal
from fractions import Fraction
from importlib.metadata import requires
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from bench import BUILDS, FORK, INTERPRETERS, SPAWN, THREADS, Bench, runner_home
from packaging.requirements import Requirement

from pytest_ftgate.measure.launch import CellUnsupported, LaunchFailed
from pytest_ftgate.model.spec import Executor
from pytest_ftgate.runner import pytest_parts, pytest_stub
from pytest_ftgate.runner.protocol import CHECK, Failure, Unsupported


@pytest.fixture
def stub(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.setitem(sys.modules, "pytest", pytest_stub)
    return pytest_stub


NUMBERS: tuple[Any, ...] = (
    *(0, 1, -1, 1.0, 1 + 5e-7, 1 + 2e-6, 1e-13, 1e-11, 1e300, math.inf, -math.inf, math.nan, True, 1j, 1j + 1e-7),
    *(Fraction(1), None, "1", (1.0,), [1 + 5e-7], [1, 2], {"a": 1}, {"a": 1 + 5e-7}, {"b": 1}),
    *(np.float64(1 + 5e-7), np.array([1.0]), np.array([1 + 5e-7, 2.0]), np.array(1.0), np.array([[1.0], [2.0]])),
)


@pytest.mark.skipif(pytest.version_tuple < (9, 2), reason="it is that of pytest 9.2")
@pytest.mark.parametrize("options", [{}, {"rel": 1e-2}, {"abs": 1e-3}, {"rel": 1e-9, "abs": 1e-10}, {"nan_ok": True}])
def test_approx_is_that_of_pytest(options: Any) -> None:
    for actual, expected in itertools.product(NUMBERS, repeat=2):
        if expected is None or isinstance(expected, str):
            continue  # newer versions of pytest refuse them
        ours, theirs = pytest_parts.approx(expected, **options), pytest.approx(expected, **options)
        if isinstance(actual, (list, tuple)) and isinstance(expected, np.generic):
            assert actual != ours  # pytest has no answer
            continue
        said = f"{actual!r} and {expected!r} with {options}"
        assert (actual == ours) == (actual == theirs), said
        assert (actual != ours) == (actual != theirs), said


def test_approx_of_decimals_and_what_it_refuses() -> None:
    approx = pytest_parts.approx
    assert Decimal("1.0000001") == approx(Decimal(1))
    assert Decimal("1.00001") != approx(Decimal(1))
    for mistake, kind in (
        (lambda: bool(approx(1)), AssertionError),
        (lambda: approx([[1]]) == [[1]], TypeError),
        (lambda: approx(1, rel=-1), ValueError),
    ):
        with pytest.raises(kind):
            mistake()
    assert repr(approx(0.5)) == "approx(0.5)"


def test_raises_is_that_of_pytest() -> None:
    with pytest_parts.raises(ValueError, match="inv.*") as caught:
        int("invalid")
    assert (caught.type, caught.typename, caught.tb is not None) == (ValueError, "ValueError", True)
    assert "invalid literal" in str(caught.value)
    assert isinstance(pytest_parts.raises((KeyError, ValueError), int, "x").value, ValueError)
    with pytest.raises(pytest_parts.Failed, match="DID NOT RAISE"), pytest_parts.raises(KeyError):
        pass
    with pytest.raises(KeyError), pytest_parts.raises(ValueError):
        raise KeyError("other")
    with (
        pytest.raises(pytest_parts.Failed, match=r"'\^no' is not found in 'yes'"),
        pytest_parts.raises(ValueError, match="^no"),
    ):
        raise ValueError("yes")
    with (
        pytest.raises(pytest_parts.Failed, match="returned False"),
        pytest_parts.raises(ValueError, check=lambda error: not error.args),
    ):
        raise ValueError("yes")
    with pytest.raises(TypeError, match="takes match= and check=, not message"):
        pytest_parts.raises(ValueError, message="old")


def test_the_stub_s_outcomes(stub: Any) -> None:
    for call, kind in ((stub.skip, Unsupported), (stub.xfail, Unsupported), (stub.fail, pytest_parts.Failed)):
        with pytest.raises(kind, match="because"):
            call("because")
        assert call.Exception is kind
    assert not issubclass(stub.fail.Exception, Exception)
    assert stub.importorskip("math") is math
    with pytest.raises(Unsupported, match="no_such_module"):
        stub.importorskip("no_such_module")
    assert stub.importorskip("numpy", "1.2") is np
    with pytest.raises(Unsupported, match=re.escape(f"numpy {np.__version__} is installed, 99.1 is required")):
        stub.importorskip("numpy", minversion="99.1")


def test_the_version_is_that_of_the_pytest_that_is_installed(stub: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert stub.__version__ == pytest.__version__
    assert stub.version_tuple == pytest.version_tuple
    monkeypatch.setitem(sys.modules, "_pytest._version", None)
    oldest = next(each for each in map(Requirement, requires("pytest-ftgate") or ()) if each.name == "pytest")
    assert oldest.specifier.contains(stub.__version__)
    assert str(oldest.specifier) == f">={stub.version_tuple[0]}.{stub.version_tuple[1]}"
    assert not hasattr(stub, "__path__")


@pytest.mark.parametrize("build", BUILDS)
@pytest.mark.parametrize("executor", [THREADS, FORK, SPAWN, INTERPRETERS], ids=lambda executor: executor.label)
def test_a_body_uses_pytest(bench: Bench, executor: Executor, build: str) -> None:
    bench.write("""
        import sys
        from importlib.util import find_spec

        import pytest
        from pytest import approx

        @ftgate.compare(threads)
        def test_it(worker):
            with pytest.raises(KeyError) as caught:
                {}["x"]
            assert 0.1 + 0.2 == approx(0.3) != 0.31
            heavy = {"_pytest", "inspect", "traceback", "importlib.metadata"} & set(sys.modules)
            return find_spec("pytest") is not None, pytest.__version__[:1].isdigit(), caught.typename, sorted(heavy)
    """)
    assert bench.results(executor, build=build, workers=1) == ("(True, True, 'KeyError', [])",)


WARNS = """
    import pytest

    @ftgate.compare(threads)
    def test_it(worker):
        return pytest.warns(3), worker.workers
"""


def test_other_functions_are_those_of_the_real_pytest_where_there_is_one(bench: Bench) -> None:
    (bench.folder / "pytest").mkdir()
    (bench.folder / "pytest" / "__init__.py").write_text("def warns(n):\n    return n + 1\n")
    bench.write(WARNS)
    assert bench.results(THREADS) == ("(4, 2); (4, 2)",)


def test_without_one_the_error_says_what_to_do(bench: Bench) -> None:
    bench.write(WARNS)
    handle = bench.ready(THREADS)
    with pytest.raises(LaunchFailed) as failed:
        handle.iteration(CHECK)
    assert "pytest.warns was called inside the measured process" in failed.value.error.reason
    assert "use plain asserts, or add packages=['pytest']" in failed.value.error.reason


def test_fail_and_xfail_in_a_body(bench: Bench) -> None:
    bench.write("""
        import pytest

        @ftgate.compare(threads)
        def test_it(worker):
            pytest.fail("not today")

        @ftgate.compare(threads)
        def test_later(worker):
            pytest.xfail("some day")
    """)
    handle = bench.ready(THREADS, workers=1)
    with pytest.raises(LaunchFailed) as failed:
        handle.iteration(CHECK)
    assert failed.value.error.reason == "raised Failed: not today"
    assert failed.value.error.detail.count("File ") == 1
    handle = bench.ready(THREADS, test="test_later")
    with pytest.raises(CellUnsupported, match="some day"):
        handle.iteration(CHECK)


def test_the_real_pytest_takes_the_stub_s_place() -> None:
    script = (
        "from pytest_ftgate.runner import pytest_stub; import sys\n"
        "sys.modules['pytest'] = pytest_stub; import pytest as stub\n"
        "import warnings\n"
        "with stub.warns(UserWarning): warnings.warn('x')\n"
        "import pytest; assert pytest is not stub and pytest.__path__ and pytest_stub._load() is pytest\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)


def test_child_processes_find_the_pytest_of_their_environment_or_else_the_stub(
    executables: dict[str, str], tmp_path: Path
) -> None:
    def printed(*words: str) -> str:
        environment = {"PYTHONPATH": str(runner_home())}
        # Elsewhere: older ones load the conftest.py of the folder, and warn.
        how: dict[str, Any] = {"capture_output": True, "text": True, "timeout": 60}
        return str(subprocess.run(words, env=environment, cwd=tmp_path, check=True, **how).stdout)

    for python, file in ((sys.executable, pytest.__file__), (executables["3.14t"], "runner/pytest_stub.py")):
        assert printed(python, "-c", "import pytest; print(pytest.__file__)").rstrip().endswith(file)
    # Older ones load this plugin first, which the runner's copy has not.
    quiet = () if pytest.version_tuple >= (9,) else ("-p", "no:ftgate")
    assert printed(sys.executable, "-m", "pytest", *quiet, "--version") == f"pytest {pytest.__version__}\n"


def test_a_failure_is_what_a_call_without_pytest_raises(stub: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [])
    monkeypatch.setattr(sys, "meta_path", sys.meta_path[:2])
    with pytest.raises(Failure, match="warns was called"):
        stub.warns(UserWarning)
    assert sys.modules["pytest"] is stub
