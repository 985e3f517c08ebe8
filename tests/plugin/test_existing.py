"""`--ftgate-existing`: which undecorated tests become cells, what is said of the others, and how their bodies run."""

from __future__ import annotations

import sys
import unittest
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from example import Example, assert_usage_error

from pytest_ftgate.features.existing import adapter

PATTERN = "--ftgate-existing=*::test_[!n]*,*::Test*"
QUICK = (
    "-p",
    "fake_run",
    PATTERN,
    "-oftgate_launches=2",
    "-oftgate_iterations=2",
    "--ftgate-python=3.14t",
    "-v",
    "-rs",
)
CELLS = {
    "test_plain": ["w1", "w2"],
    "test_made": ["w1", "w2"],
    "test_above": ["w1", "w2"],
    "test_params": ["w1-1", "w2-1"],
    "TestPlain::test_method": ["w1", "w2"],
    "TestCase::test_unit": ["w1", "w2"],
}
SKIPPED = {
    "test_capsys": "fixture 'capsys' is of neither the test's file nor a conftest.py",
    "test_deep": "fixture 'monkeypatch' is of neither the test's file nor a conftest.py",
    "test_above_all": "fixture 'above_all' has the scope session",
    "test_session": "fixture 'for_all' has the scope session",
    "test_used": "fixture 'made' of usefixtures runs in pytest's process",
    "test_params": "parameter n=<object object at",
    "test_warns": "it uses catch_warnings: the filters of warnings are those of the process",
    "test_patched": "it uses mock: a patch holds for all threads",
    "test_async": "it is async",
    "test_known": "it is marked xfail",
    "test_alone": "it is marked thread_unsafe",
    "TestSetup::test_around": "setup_method or teardown_method runs in pytest's process",
    "TestOnce::test_unit": "its class has setUpClass",
}
TESTS = """
    import unittest
    import warnings
    from unittest.mock import patch

    import pytest

    @pytest.fixture
    def made():
        yield 1

    @pytest.fixture
    def deep(made, monkeypatch): ...

    @pytest.fixture(scope="session")
    def for_all(): ...

    def test_plain(): ...
    def test_not_named(): ...
    def test_made(tmp_path, made): ...
    def test_above(above): ...
    def test_above_all(above_all): ...
    @pytest.mark.parametrize("n", [1, object()])
    def test_params(n): ...
    def test_capsys(capsys): ...
    def test_deep(deep): ...
    def test_session(for_all): ...
    @pytest.mark.usefixtures("made")
    def test_used(): ...
    def test_warns():
        with warnings.catch_warnings(): ...
    @patch("os.getcwd")
    def test_patched(getcwd): ...
    async def test_async(): ...
    @pytest.mark.xfail
    def test_known(): ...
    @pytest.mark.thread_unsafe
    def test_alone(): ...
    @pytest.mark.skipif(True, reason="its own reason")
    def test_skipped(capsys): ...

    class TestPlain:
        def test_method(self): ...

    class TestSetup:
        def setup_method(self): ...
        def test_around(self): ...

    class TestCase(unittest.TestCase):
        def test_unit(self): ...

    class TestOnce(unittest.TestCase):
        @classmethod
        def setUpClass(cls): ...
        def test_unit(self): ...
"""


CONFTEST = """
    import pytest

    @pytest.fixture
    def above(made): ...

    @pytest.fixture(scope="session")
    def above_all(): ...
"""


def test_what_is_measured_and_what_is_skipped(pytester: pytest.Pytester, scripted_runs: None) -> None:
    ini = "[pytest]\nftgate_install =\n"
    example = Example(pytester, {"pytest.ini": ini, "conftest.py": CONFTEST, "test_a.py": TESTS})
    result = example.run_pytest(*QUICK)
    text = result.stdout.str()
    wanted = [f"test_a.py::{test}[3.14t-threads-{each}]" for test, cells in CELLS.items() for each in cells]
    assert sorted(row["cell"]["nodeid"] for row in example.rows()) == sorted(wanted)
    for test, reason in SKIPPED.items():
        assert f"--ftgate-existing cannot measure it: {reason}" in text, test
        result.stdout.fnmatch_lines([f"test_a.py::{test}* SKIPPED *"])
    result.stdout.fnmatch_lines(["*test_not_named PASSED*", "*its own reason*"])
    result.assert_outcomes(passed=1, skipped=len(SKIPPED) + 1)
    listed = example.run_pytest(PATTERN, "--ftgate-python=3.14t", "--collect-only", "-q").outlines
    assert {*wanted} <= {*listed}


@pytest.mark.parametrize("options", [(), ("-n", "1")])
def test_a_run_that_skips_all_that_match_is_not_green(
    pytester: pytest.Pytester, scripted_runs: None, options: tuple[str, ...]
) -> None:
    example = Example(pytester, {"test_a.py": "def test_one(capsys): ...\n\ndef test_not_named(): ..."})
    result = example.run_pytest(*QUICK, *options)
    assert result.ret == pytest.ExitCode.NO_TESTS_COLLECTED
    result.assert_outcomes(passed=1, skipped=1)
    assert any("no cell was judged: --ftgate-existing skips every test" in line for line in result.outlines[-5:])


def test_a_glob_that_is_empty_or_matches_nothing_is_refused(pytester: pytest.Pytester, scripted_runs: None) -> None:
    example = Example(pytester, {"test_a.py": "def test_it(): ..."})
    assert_usage_error(example.run_pytest("--ftgate-existing="), "takes at least one GLOB")
    for workers in ("-n0", "-n1"):
        refused = example.run_pytest("-p", "fake_run", "--ftgate-existing=test_a.py", workers)
        assert_usage_error(refused, "--ftgate-existing=test_a.py matches none", "such as 'tests/test_cache.py::*'")


# -- the body, as the measured process makes it ---------------------------------------------------------------------

SEEN: list[Any] = []


def made() -> Iterator[list[int]]:
    value: list[int] = []
    yield value
    SEEN.append(f"ended with {value}")


def taker(made: list[int], tmp_path: Path, n: int, unused: int = 7) -> None:
    (tmp_path / "file").touch(exist_ok=False)
    made.append(n)
    SEEN.append((made, tmp_path))
    if n == 2:
        raise ValueError("two")


class Case(unittest.TestCase):
    __test__ = False

    def setUp(self) -> None:
        self.order = ["set up"]

    def test_it(self) -> None:
        self.order.append("called")

    def tearDown(self) -> None:
        SEEN.append(self.order)

    @unittest.skip("of unittest")
    def test_skipped(self) -> None: ...


class Plain:
    def test_it(self) -> None:
        SEEN.append(self)


def body(test: Callable[..., Any], owner: type | None = None) -> Callable[..., Any]:
    SEEN.clear()
    return adapter.declared(test, owner).body


def test_each_call_has_its_own_fixtures_which_end_after_an_error_too() -> None:
    call = body(taker)
    call("worker", n=1)
    with pytest.raises(ValueError, match="two"):
        call("worker", n=2)
    (first, folder), ended, (second, other), ended_too = SEEN
    assert first is not second
    assert folder != other
    assert not folder.exists()
    assert not other.exists()
    assert (ended, ended_too) == ("ended with [1]", "ended with [2]")


def test_a_fixture_is_of_the_file_or_of_the_nearest_conftest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("conftest", "deep", "deep.conftest"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    for folder in ("", "deep"):
        (tmp_path / folder).mkdir(exist_ok=True)
        (tmp_path / folder / "conftest.py").write_text(f"def near(): return {folder!r}\ndef of_{folder}(): ...\n")
    module = {"__file__": str(tmp_path / "deep" / "test_a.py"), "__package__": "deep", "own": made}
    assert adapter.fixture("own", module) is made
    assert adapter.fixture("near", module)() == "deep"
    assert adapter.fixture("near", module) is adapter.fixture("near", module)
    assert adapter.fixture("of_deep", module).__module__ == "deep.conftest"
    assert adapter.fixture("of_", module).__module__ == "conftest"
    with pytest.raises(LookupError, match=r"no conftest.py above .*test_a.py has a fixture 'none'"):
        adapter.fixture("none", module)


def test_each_call_has_its_own_instance() -> None:
    call = body(Plain.test_it, Plain)
    call("worker")
    call("worker")
    assert SEEN[0] is not SEEN[1]
    call = body(Case.test_it, Case)
    call("worker")
    assert SEEN == [["set up", "called"]]
    with pytest.raises(unittest.SkipTest, match="of unittest"):
        body(Case.test_skipped, Case)("worker")
