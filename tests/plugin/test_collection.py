"""What a user writes becomes ordinary pytest items with stable ids, or an error that names the place and a fix."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from example import HEAD, Example, assert_collection_error

from pytest_ftgate.plugin import missing

TOKENISE = """
    @ftgate.compare(threads, processes=["fork", "spawn"], workers=[1, 8])
    def test_tokenise(worker):
        return 1

    def test_plain(tmp_path):
        assert tmp_path.is_dir()
"""

CELLS = [
    f"test_tokenise[{python}-{executor}-w{workers}]"
    for workers in (1, 8)
    for python in ("3.14", "3.14t")
    for executor in ("threads", "fork", "spawn")
]


@pytest.fixture
def tokenise(pytester: pytest.Pytester) -> Example:
    return Example(pytester, {"test_a.py": TOKENISE})


# -- items ---------------------------------------------------------------------------------------------------------


def test_each_cell_is_an_item_beside_plain_tests(tokenise: Example) -> None:
    assert tokenise.collect() == [f"test_a.py::{cell}" for cell in CELLS] + ["test_a.py::test_plain"]


def test_ids_do_not_depend_on_what_else_is_collected(tokenise: Example) -> None:
    alone = tokenise.collect("test_a.py::test_tokenise")
    narrowed = tokenise.collect("--ftgate-python", "3.14t")
    assert alone == [f"test_a.py::{cell}" for cell in CELLS]
    assert narrowed[:-1] == [nodeid for nodeid in alone if "3.14t" in nodeid]


@pytest.mark.parametrize(
    ("args", "wanted"),
    [
        (["-m", "ftgate"], CELLS),
        (["-m", "not ftgate"], ["test_plain"]),
        (["-k", "threads and 3.14t"], ["test_tokenise[3.14t-threads-w1]", "test_tokenise[3.14t-threads-w8]"]),
        (["-k", "[3.14t-threads-w8]"], ["test_tokenise[3.14t-threads-w8]"]),
        (["-k", "w8 and not (fork or spawn)"], ["test_tokenise[3.14-threads-w8]", "test_tokenise[3.14t-threads-w8]"]),
        (["test_a.py::test_tokenise[3.14t-threads-w8]"], ["test_tokenise[3.14t-threads-w8]"]),
        (["--deselect", "test_a.py::test_tokenise"], ["test_plain"]),
    ],
)
def test_selection(tokenise: Example, args: list[str], wanted: list[str]) -> None:
    assert tokenise.collect(*args) == [f"test_a.py::{name}" for name in wanted]


def test_settings_and_paths_in_ids_can_be_selected(pytester: pytest.Pytester) -> None:
    source = """
        @ftgate.compare(threads, pythons=["3.14t[gil=on]", "/opt/python/bin/python3"])
        def test_it(worker):
            return 1
    """
    example = Example(pytester, {"test_a.py": source})
    expected = [
        "test_a.py::test_it[3.14t[gil=on]-threads-w2]",
        "test_a.py::test_it[/opt/python/bin/python3-threads-w2]",
    ]
    assert example.collect() == expected
    for nodeid in expected:
        assert example.collect(nodeid) == [nodeid]


def test_every_executor_has_its_word(pytester: pytest.Pytester) -> None:
    source = """
        @ftgate.compare(
            serial, interpreters, tasks, threads, processes=["fork", "forkserver", "spawn"], pythons=["3.14"]
        )
        async def test_it(worker):
            return 1
    """
    words = ["serial", "interpreters", "tasks", "threads", "fork", "forkserver", "spawn"]
    assert Example(pytester, {"test_a.py": source}).collect() == [f"test_a.py::test_it[3.14-{w}-w2]" for w in words]


def test_last_failed_and_exit_first(pytester: pytest.Pytester) -> None:
    source = """
        @ftgate.compare(serial, threads, pythons=["3.14"])
        def test_it(worker):
            raise ValueError("no luck")

        @ftgate.compare(serial, pythons=["3.14"])
        def test_good(worker):
            pass
    """
    example = Example(pytester, {"test_a.py": source})
    first = pytester.runpytest_inprocess("-x")
    first.assert_outcomes(failed=1)
    first.stdout.fnmatch_lines(["*test_it?3.14-serial-w2?*"])
    pytester.runpytest_inprocess().assert_outcomes(failed=2, passed=1)
    again = pytester.runpytest_inprocess("--lf")
    again.assert_outcomes(failed=2)
    assert example.collect() != []


def test_classes(pytester: pytest.Pytester) -> None:
    source = """
        class TestOuter:
            LIMIT = 10

            def helped(self, n):
                return n * self.LIMIT

            @ftgate.compare(serial, threads, pythons=["3.14"], workers=2)
            def test_it(self, worker):
                assert self.helped(2) == 20
                return worker.shared["n"] + self.LIMIT

            @test_it.shared
            def state(self, shared):
                return {"n": self.LIMIT}

            @test_it.check
            def right(self, results):
                assert results == [20, 20], self.LIMIT

            class TestInner:
                @ftgate.compare(serial, pythons=["3.14"])
                def test_it(self, worker):
                    return 1

        class TestHeir(TestOuter):
            LIMIT = 11
    """
    example = Example(pytester, {"test_a.py": source})
    outcome = example.run_pytest("-v")
    outcome.assert_outcomes(passed=4, failed=2)
    outcome.stdout.fnmatch_lines(
        ["*TestOuter::test_it?3.14-threads-w2? PASSED*", "*TestInner::test_it?3.14-serial-w2?*"]
    )
    outcome.stdout.fnmatch_lines(["*assert 2* == 20*"])


# -- parameters ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("above", [True, False])
def test_parametrize_multiplies_cells(pytester: pytest.Pytester, above: bool) -> None:
    compare = '@ftgate.compare(serial, threads, pythons=["3.14"], workers=1)'
    values = '@pytest.mark.parametrize(("n", "text"), [(3, "x"), pytest.param(4, "y", id="four")])'
    marks = [values, compare] if above else [compare, values]
    lines = ["import pytest", *marks, "def test_it(worker, n, text):", "    assert (n, text) in [(3, 'x'), (4, 'y')]"]
    example = Example(pytester, {"test_a.py": "\n".join(lines)})
    assert example.collect() == [
        f"test_a.py::test_it[3.14-{executor}-w1-{case}]"
        for executor in ("serial", "threads")
        for case in ("3-x", "four")
    ]
    example.run_pytest().assert_outcomes(passed=4)


def test_parametrize_of_a_class_a_module_and_in_any_position(pytester: pytest.Pytester) -> None:
    source = """
        import pytest

        pytestmark = pytest.mark.parametrize("m", [{"deep": (1, None)}, b"bytes"])

        @pytest.mark.parametrize("n", [3, -0.5])
        class TestIt:
            @ftgate.compare(threads, pythons=["3.14"], workers=1)
            def test_it(self, n, worker, m):
                assert n in (3, -0.5)
                assert m in ({"deep": (1, None)}, b"bytes")

            @ftgate.compare(threads, pythons=["3.14"], workers=1)
            def test_keyword_only(self, *, n, m, worker, left_alone=7):
                assert (n in (3, -0.5), left_alone) == (True, 7)
    """
    Example(pytester, {"test_a.py": source}).run_pytest().assert_outcomes(passed=8)


def test_an_empty_parametrize_skips_as_in_pytest(pytester: pytest.Pytester) -> None:
    source = """
        import pytest

        @pytest.mark.parametrize("n", [])
        @ftgate.compare(threads, pythons=["3.14"])
        def test_it(worker, n):
            raise AssertionError
    """
    Example(pytester, {"test_a.py": source}).run_pytest().assert_outcomes(skipped=1)


def test_marks_of_pytest_hold_for_cells(pytester: pytest.Pytester) -> None:
    source = """
        import pytest

        @pytest.mark.skip(reason="not today")
        @ftgate.compare(threads, pythons=["3.14"])
        def test_skipped(worker):
            raise AssertionError

        @pytest.mark.xfail(reason="known", strict=True)
        @ftgate.compare(threads, pythons=["3.14"])
        def test_known(worker):
            raise AssertionError

        @pytest.mark.parametrize("n", [1, pytest.param(2, marks=pytest.mark.skip)])
        @ftgate.compare(threads, pythons=["3.14"])
        def test_partly(worker, n):
            assert n == 1
    """
    Example(pytester, {"test_a.py": source}).run_pytest("--strict-markers").assert_outcomes(
        skipped=2, xfailed=1, passed=1
    )


# -- errors --------------------------------------------------------------------------------------------------------


# Arguments of @ftgate.compare, and what is said of them.
ARGUMENTS = {
    "threads, worker=3": "unknown argument 'worker' (did you mean 'workers'?)",
    "": "it names no executor; for example @ftgate.compare(threads",
    "threads=True": "threads is no keyword: write threads as in @ftgate.compare(threads, processes=['fork', 'spawn'])",
    "'threads'": "'threads' is not an executor; use serial, threads",
    "processes=['fork', 'spwan']": "is not a start method; use fork, forkserver or spawn (did you mean 'spawn'?)",
    "threads, processes='frok'": "processes=: 'frok' is not a start method",
    "threads, processes=[]": "processes= takes start methods such as ['fork', 'spawn'], not []",
    "processes=True": "processes= takes start methods such as ['fork', 'spawn'], not True",
    "processes=[b'fork']": "processes= takes start methods such as ['fork', 'spawn'], not [b'fork']",
    "processes=['spawn', 'fork', 'spawn']": "processes= names 'spawn' twice",
    "threads, processes('fork', 'spawn')": "processes('fork', 'spawn') is no executor: write processes=['fork', ",
    "processes()": "processes() is no executor: write processes",
    "threads('fork')": "threads('fork') is no executor: write threads",
    "tasks('own')": "write tasks; an event loop of another kind is written tasks(",
    "threads, workers=[2, 0]": "workers= takes a whole number from 1, 'cores', or a list of them, not [2, 0]",
    "threads, workers=[]": "workers= takes a whole number",
    "threads, workers=True": "workers= takes a whole number",
    "threads, reuse='never'": "reuse= takes fresh or pool, not 'never'",
    "threads, reuse='fresh', duration=1": "drop reuse='fresh', or use iterations=",
    "threads, iterations=1.5": "iterations= takes a whole number from 1, not 1.5",
    "threads, duration=float('nan')": "duration= takes a number of seconds above 0, not nan",
    "threads, duration=1, iterations=3": "it takes iterations= or duration=, not both",
    "threads, warmup=-1": "warmup= takes a whole number from 0, not -1",
    "threads, timeout='1s'": "timeout= takes a number of seconds above 0, not '1s'",
    "threads, pythons=[]": "pythons= takes a list of targets such as ['3.14', '3.14t'], not []",
    "threads, pythons=3.14": "pythons= takes a list of targets",
    "threads, pythons=['pypy']": "pythons=['pypy']: target 'pypy'",
    "threads, pythons='3.14[gil=maybe]'": "write gil=on or gil=off",
    "threads, tasks": "tasks run coroutines: make the body `async def ...(worker)`, or add one with @test_it.variant",
}
OTHERS = {
    "bare": (
        "@ftgate.compare\ndef test_it(worker): ...",
        "it needs parentheses and its executors: @ftgate.compare(threads",
    ),
    "class for an executor": (
        "import concurrent.futures as f\n@ftgate.compare(f.ThreadPoolExecutor)\ndef test_it(worker): ...",
        "ThreadPoolExecutor is not an executor; use serial, threads",
    ),
    "fixture": (
        "@ftgate.compare(threads)\ndef test_it(worker, tmp_path): ...",
        "fixture 'tmp_path' cannot be used: the workload runs in another interpreter",
    ),
    "fixture by mark": (
        "import pytest\n@ftgate.compare(threads)\n@pytest.mark.usefixtures('tmp_path')\ndef test_it(worker): ...",
        "fixture 'tmp_path' cannot be used",
    ),
    "fixture by mark of the class": (
        (
            "import pytest\n"
            "@pytest.mark.usefixtures('tmp_path')\n"
            "class TestIt:\n"
            "    @ftgate.compare(threads)\n"
            "    def test_it(self, worker): ..."
        ),
        "fixture 'tmp_path' cannot be used",
    ),
    "fixture by mark of the module": (
        (
            "import pytest\n"
            "pytestmark = [pytest.mark.usefixtures('tmp_path')]\n"
            "@ftgate.compare(threads)\n"
            "def test_it(worker): ..."
        ),
        "fixture 'tmp_path' cannot be used",
    ),
    "indirect": (
        (
            "import pytest\n"
            "@pytest.fixture\n"
            "def size(request): ...\n"
            "@ftgate.compare(threads)\n"
            "@pytest.mark.parametrize('size', [1], indirect=True)\n"
            "def test_it(worker, size): ..."
        ),
        "the indirect parameter 'size' cannot be used",
    ),
    "indirect by name": (
        (
            "import pytest\n"
            "@pytest.fixture\n"
            "def size(request): ...\n"
            "@ftgate.compare(threads)\n"
            "@pytest.mark.parametrize('n,size', [(1, 2)], indirect=['size'])\n"
            "def test_it(worker, n, size): ..."
        ),
        "the indirect parameter 'size' cannot be used",
    ),
    "parameter named worker": (
        "import pytest\n@ftgate.compare(threads)\n@pytest.mark.parametrize('worker', [1])\ndef test_it(worker): ...",
        "'worker' is an argument of the cell itself; rename the parameter",
    ),
    "async pool": (
        "@ftgate.compare(threads)\nasync def test_it(executor): ...",
        "test_it drives a pool, so it cannot be `async def`",
    ),
    "variant without the parameter": (
        (
            "import pytest\n"
            "@ftgate.compare(threads, tasks)\n"
            "@pytest.mark.parametrize('n', [1])\n"
            "def test_it(worker, n): ...\n"
            "@test_it.variant(tasks)\n"
            "async def other(worker): ..."
        ),
        "other does not take 'n', which the test is parametrized with; add it",
    ),
    "no argument": (
        "@ftgate.compare(threads)\ndef test_it(): ...",
        "test_it takes neither worker nor executor: a body that every worker runs takes `worker`",
    ),
    "both arguments": (
        "@ftgate.compare(threads)\ndef test_it(worker, executor): ...",
        "test_it takes worker and executor",
    ),
    "local": (
        "def make():\n    @ftgate.compare(threads)\n    def test_it(worker): ...\n    return test_it\ntest_it = make()",
        "measured interpreter cannot import it; move it to the module",
    ),
    "decorated again": (
        (
            "import functools\n"
            "def twice(f):\n"
            "    @functools.wraps(f)\n"
            "    def inner(worker): ...\n"
            "    return inner\n"
            "@twice\n"
            "@ftgate.compare(threads)\n"
            "def test_it(worker): ..."
        ),
        "another decorator above it would be ignored",
    ),
    "class": (
        "@ftgate.compare(threads)\nclass TestIt:\n    def test_it(self): ...",
        "it is a class; decorate its test methods",
    ),
    "static method": (
        "class TestIt:\n    @staticmethod\n    @ftgate.compare(threads)\n    def test_it(worker): ...",
        "a static or class method cannot be compared; make it a plain method that takes self",
    ),
    "method without self": (
        "class TestIt:\n    @ftgate.compare(threads)\n    def test_it(worker): ...",
        "test_it is in a class and takes self first: def test_it(self, worker)",
    ),
    "variant without self": (
        (
            "class TestIt:\n"
            "    @ftgate.compare(threads, tasks)\n"
            "    def test_it(self, worker): ...\n"
            "    @test_it.variant(tasks)\n"
            "    async def other(worker): ..."
        ),
        "other is in a class and takes self first: def other(self, worker)",
    ),
    "shared without self": (
        (
            "class TestIt:\n"
            "    @ftgate.compare(threads)\n"
            "    def test_it(self, worker): ...\n"
            "    @test_it.shared\n"
            "    def make(context): ..."
        ),
        "make is in a class and takes self first: def make(self, context)",
    ),
    "setup without self": (
        (
            "class TestIt:\n"
            "    @ftgate.compare(threads)\n"
            "    def test_it(self, worker): ...\n"
            "    @test_it.setup('launch')\n"
            "    def warm(shared): ..."
        ),
        "warm is @test_it.setup: the first parameter after self is the shared state",
    ),
    "given": (
        (
            "from hypothesis import given, strategies\n"
            "@ftgate.compare(threads)\n"
            "@given(n=strategies.integers())\n"
            "def test_it(worker, n): ..."
        ),
        "remove @given, and take the values from pytest.mark.parametrize",
    ),
    "unittest": (
        (
            "import unittest\n"
            "class TestIt(unittest.TestCase):\n"
            "    @ftgate.compare(threads)\n"
            "    def test_it(self, worker): ..."
        ),
        "tests of unittest.TestCase cannot have cells; move it to a plain class",
    ),
    "shared": (
        "@ftgate.compare(threads)\ndef test_it(worker): ...\n@test_it.shared\ndef state(): ...",
        "state is @test.shared, which takes one argument: the executor's context",
    ),
    "check": (
        "@ftgate.compare(threads)\ndef test_it(worker): ...\n@test_it.check\ndef right(results, worker): ...",
        "right is @test.check, which takes one argument: the results",
    ),
}
# Parameters that cannot be sent, each beside one that can.
UNSENT = {
    "lambda: 1": "a lambda has no name: define a function in a module and pass that",
    "float('nan')": "parameter x=nan cannot be sent",
    "object()": "make the object in the body",
}
# Executors of a variant, a role and a known failure of a test that has threads and fork, and what is said of them.
SOME = {
    "tasks": "tasks is not among the executors of the test: add it there or remove it here",
    "processes=['fork', 'spawn']": "processes='spawn' is not among the executors of the test",
    "processes=['frok']": "processes=: 'frok' is not a start method; use fork, forkserver or spawn (did you mean 'f",
    "processes=[]": "processes= takes start methods such as ['fork', 'spawn'], not []",
    "processes=True": "processes= takes start methods such as ['fork', 'spawn'], not True",
    "processes=['fork', 'fork']": "processes= names 'fork' twice",
    "processes('fork')": "processes('fork') is no executor: write processes=['fork']",
    "'threads'": "'threads' is not an executor; use serial, threads",
}
FORKED = "@ftgate.compare(threads, processes=['fork']{})\ndef test_it(worker): ...\n"
TAKE_SOME = {
    "variant": FORKED.format("") + "@test_it.variant({})\ndef other(worker): ...",
    "role": FORKED.format(", workers={{'w': 1, 'r': 1}}") + "@test_it.role('r', {})\ndef other(worker): ...",
    "xfail": "@ftgate.xfail('regressed', {}, reason='x')\n" + FORKED.format(""),
}
OTHERS |= {
    "variant by keyword": (
        TAKE_SOME["variant"].format("threads=True"),
        "@test_it.variant of other: {'threads': True} is not an executor; use serial, threads",
    ),
    "variant of a program": (
        "from pytest_ftgate import command\nLS = command('ls', ['ls'])\n"
        + TAKE_SOME["variant"].format("LS").replace("(threads", "(threads, LS"),
        "@test_it.variant of other: command('ls') is not an executor; use serial, threads",
    ),
    "server by start methods": (
        "@ftgate.serve(['x'], processes=['fork'])\ndef test_it(server): ...",
        "unknown argument 'processes'; it takes ",
    ),
}
WRONG = {
    **{
        f"{decorator} of {some}": (text.format(some), said)
        for decorator, text in TAKE_SOME.items()
        for some, said in SOME.items()
    },
    **{case: (f"@ftgate.compare({case})\ndef test_it(worker): ...", said) for case, said in ARGUMENTS.items()},
    **OTHERS,
}


def _file(case: str) -> str:
    return f"test_{list(WRONG).index(case)}.py"


@pytest.fixture(scope="module")
def complaints(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What one run says about each wrong file, and about the run as a whole under ''."""
    folder = tmp_path_factory.mktemp("wrong")
    for case, (source, _) in WRONG.items():
        (folder / _file(case)).write_text(HEAD + source, encoding="utf-8")
    (folder / "test_good.py").write_text("def test_good(): ...", encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert done.returncode == pytest.ExitCode.INTERRUPTED, done.stdout + done.stderr
    errors, _, summary = done.stdout.partition("short test summary info")
    parts = re.split(r"_+ ERROR collecting (\S+) _+", errors)
    return {"": summary, **dict(zip(parts[1::2], parts[2::2], strict=True))}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_declaration_names_place_and_fix(complaints: dict[str, str], case: str) -> None:
    source, message = WRONG[case]
    starts = ("@ftgate", "@twice", "@static")
    line = next(number for number, line in enumerate(source.splitlines(), 2) if line.lstrip().startswith(starts))
    said = complaints[_file(case)].strip().partition("\n===")[0]
    place, decorator, text = re.split(r": (@ftgate\.\w+) of ", said, maxsplit=1)
    assert place.endswith(f"{os.sep}{_file(case)}:{line}")
    assert decorator in source
    assert message in text
    assert "\n" not in said, "no traceback"


def test_wrong_declarations_leave_the_other_modules_alone(complaints: dict[str, str]) -> None:
    assert f"{len(WRONG)} errors during collection" in complaints[""]
    assert "test_good.py" not in complaints[""]


def test_a_wrong_declaration_ends_the_run(pytester: pytest.Pytester) -> None:
    example = Example(pytester, {"test_a.py": WRONG["fixture"][0], "test_b.py": "def test_good(): ..."})
    assert_collection_error(example.run_pytest(), "test_a.py:2: @ftgate.compare of test_it: fixture 'tmp_path'")


def test_interpreters_on_an_old_target_are_cells_which_the_run_finds_unsupported(pytester: pytest.Pytester) -> None:
    example = Example(pytester, {"test_a.py": "@ftgate.compare(interpreters)\ndef test_it(worker): ..."})
    assert example.collect("--ftgate-python=3.13") == ["test_a.py::test_it[3.13-interpreters-w2]"]


@pytest.mark.parametrize("value", UNSENT)
def test_a_parameter_that_cannot_be_sent_costs_its_cells(pytester: pytest.Pytester, value: str) -> None:
    """Those of other parameters, and all other tests, run; its own fail, also where cells alone are selected."""
    source = f"""
        import pytest

        @pytest.mark.parametrize("x", [1, {value}])
        @ftgate.compare(threads, workers=[1, 2])
        def test_it(worker, x): ...

        def test_plain(): ...
    """
    example = Example(pytester, {"test_a.py": source})
    result = example.run_pytest("--ftgate-python=3.14")
    result.assert_outcomes(passed=3, failed=2)
    result.stdout.fnmatch_lines([f"*test_a.py:4: @ftgate.compare of test_it: *{UNSENT[value]}*"])
    example.run_pytest("--ftgate-python=3.14", "-m", "ftgate").assert_outcomes(passed=2, failed=2, deselected=1)


REPEATS = """
    import pytest

    @pytest.fixture
    def count_of_a_plugin(request):
        return request.param

    @pytest.hookimpl(trylast=True)
    def pytest_generate_tests(metafunc):
        metafunc.fixturenames.append("count_of_a_plugin")
        metafunc.parametrize("count_of_a_plugin", range(2), indirect=True, ids=["1-2", "2-2"])
"""


def test_a_plugin_that_repeats_all_tests_leaves_cells_as_they_are(pytester: pytest.Pytester) -> None:
    """As pytest-repeat: a cell is repeated by itself, and its baseline has its name."""
    source = """
        import pytest

        @pytest.mark.parametrize("n", [1])
        @ftgate.compare(threads, workers=[1])
        def test_it(worker, n): ...

        def test_plain(): ...
    """
    example = Example(pytester, {"test_a.py": source, "repeats.py": REPEATS})
    pytester.syspathinsert()
    assert example.collect("--ftgate-python=3.14", "-p", "repeats") == [
        "test_a.py::test_it[3.14-threads-w1-1]",
        "test_a.py::test_plain[1-2]",
        "test_a.py::test_plain[2-2]",
    ]
    example.run_pytest("--ftgate-python=3.14", "-p", "repeats").assert_outcomes(passed=3)


def test_a_cell_below_given_is_told_why_it_is_none(pytester: pytest.Pytester) -> None:
    source = """
        from hypothesis import given, strategies

        @given(n=strategies.integers())
        @ftgate.compare(threads)
        def test_it(worker, n): ...
    """
    result = Example(pytester, {"test_a.py": source}).run_pytest()
    result.stdout.fnmatch_lines(["*and test_it is run by hypothesis: @given and a cell do not go together"])


def test_one_error_does_not_hide_other_modules(pytester: pytest.Pytester) -> None:
    wrong = "@ftgate.compare(threads, wrokers=3)\ndef test_it(worker): ..."
    example = Example(pytester, {"test_a.py": wrong, "test_b.py": wrong, "test_c.py": "def test_c(): ..."})
    result = example.run_pytest("--continue-on-collection-errors")
    result.assert_outcomes(errors=2, passed=1)
    assert result.ret == pytest.ExitCode.TESTS_FAILED


def test_without_the_plugin_a_decorated_test_is_still_a_function(pytester: pytest.Pytester) -> None:
    source = """
        @ftgate.compare(threads)
        def test_it(worker):
            return worker + 1

        def test_plain():
            assert test_it(1) == 2
    """
    Example(pytester, {"test_a.py": source}).run_pytest("-k", "plain").assert_outcomes(passed=1, deselected=2)


# -- what pytest would run around a test ---------------------------------------------------------------------------

METHOD = "class TestIt:\n    {}\n    @ftgate.compare(threads)\n    def test_it(self, worker): ...\n"
FUNCTION = "import pytest\n{}\n@ftgate.compare(threads)\ndef test_it(worker): ...\n"
SERVER = (
    "from pytest_ftgate import load\nclass TestIt:\n    {}\n    @ftgate.serve(['x', '{{port}}'], "
    "ready='http://127.0.0.1:{{port}}/', load=load('/'))\n    def test_it(self, server): ...\n"
)
AROUND = {
    METHOD.format("def setup_method(self): ..."): "setup_method or teardown_method",
    METHOD.format("def teardown_method(self): ..."): "setup_method or teardown_method",
    METHOD.format("setup_class = classmethod(lambda cls: None)"): "setup_class or teardown_class",
    FUNCTION.format("def setup_function(function): ..."): "setup_function or teardown_function",
    FUNCTION.format("def setup_module(module): ..."): "setup_module or teardown_module",
    FUNCTION.format("def teardown_module(module): ..."): "setup_module or teardown_module",
    FUNCTION.format("@pytest.fixture(autouse=True)\ndef fresh(): ..."): "the autouse fixture 'fresh' of its file",
    SERVER.format("def setup_method(self): ..."): "setup_method or teardown_method",
}


def test_what_pytest_would_run_around_it_in_its_own_process_is_refused(pytester: pytest.Pytester) -> None:
    files = {f"test_{number}.py": source for number, source in enumerate(AROUND)}
    result = Example(pytester, files).run_pytest("--collect-only", "--continue-on-collection-errors")
    text = result.stdout.str()
    for number, (source, refused) in enumerate(AROUND.items()):
        (line,) = [each for each in text.splitlines() if f"test_{number}.py:" in each and ": @ftgate." in each]
        way = "do it in the test itself" if "serve" in source else "use @test_it.setup and @test_it.teardown, or @test_"
        assert f"{refused} would run in pytest's process, not where the body runs; {way}" in line


def test_what_is_for_all_tests_runs_around_the_cell(pytester: pytest.Pytester) -> None:
    conftest = """
        import pytest
        @pytest.fixture(autouse=True)
        def around(request):
            print("before", request.node.name)
            yield
            print("after", request.node.name)
    """
    source = """
        def setup_function(function):  # of a method pytest does not call it
            raise AssertionError(function)
        class TestIt:
            @ftgate.compare(threads, pythons=["3.14"])
            def test_it(self, worker):
                print("body")
    """
    result = Example(pytester, {"conftest.py": conftest, "test_a.py": source}).run_pytest("-s", "-q")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["before test_it*", "body", "body", "*after test_it*"])


@pytest.mark.parametrize("declared", ["['NoSuchOne>=3', 'other']", "NEEDED"])
def test_a_module_of_requires_that_is_missing_here_says_what_to_install_where(
    pytester: pytest.Pytester, declared: str
) -> None:
    pytester.makepyfile(
        test_one=f"""
        from pytest_ftgate import ftgate, threads
        NEEDED = ("NoSuchOne>=3",)
        import nosuchone.inner

        @ftgate.compare(threads, packages={declared})
        def test_it(worker):
            pass
        """,
        test_two="import nosuchtwo",
        test_three="""
        import no_such_three
        from pytest_ftgate import ftgate, threads

        @ftgate.compare(threads, packages=["a>=1", "b"])
        def test_it(worker):
            pass
        """,
    )
    said = pytester.runpytest("--tb=short").stdout.str()
    one, three = (part for part in said.split("packages= installs ")[1:])
    assert one.startswith("NoSuchOne>=3 for the targets alone.")
    assert "an environment that has no nosuchone" in one
    assert f"    {sys.executable} -m " in one
    assert "install" in one
    assert "'NoSuchOne>=3'\nor import nosuchone where the measured code runs: in the body" in one
    assert three.startswith("a>=1, b for the targets alone.")
    assert "No module named 'nosuchtwo'" in said


@pytest.mark.parametrize(
    ("pip", "installer"), [(True, "-m pip install numpy"), (None, f"-m uv pip install --python {sys.executable} numpy")]
)
def test_a_missing_module_is_installed_by_what_there_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pip: object, installer: str
) -> None:
    file = tmp_path / "test_a.py"
    file.write_text('@ftgate.compare(threads, packages=[OTHER, "numpy"])\ndef test_it(): ...\n', encoding="utf-8")
    monkeypatch.setattr(missing, "find_spec", lambda name: pip)
    assert installer in missing.hint(file, ModuleNotFoundError("none", name="numpy"))
    for other in (None, ValueError("none"), ModuleNotFoundError("none")):
        assert missing.hint(file, other) == ""
