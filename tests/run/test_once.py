"""Without --ftgate each cell's body runs once here; with it the target imports the workload as pytest did."""

from __future__ import annotations

import gc
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from bench import Bench
from example import Example

from pytest_ftgate.measure.launch import Handle, Request
from pytest_ftgate.model.spec import Cell, Spec
from pytest_ftgate.plugin import plain
from pytest_ftgate.runner.protocol import CHECK

ALL = '@ftgate.compare(serial, threads, interpreters, processes=["fork", "forkserver", "spawn"], pythons=["3.14"])'
HERE_TOO_OLD = sys.version_info < (3, 14)
IN_OTHER_PROCESSES = ("fork", "forkserver", "spawn")


def ran(example: Example) -> dict[str, list[str]]:
    """Which processes ran a body, by the line's first word."""
    found: dict[str, list[str]] = {}
    for line in (example.folder / "ran.txt").read_text(encoding="utf-8").splitlines():
        name, pid = line.split()
        found.setdefault(name, []).append(pid)
    return found


NOTE = """
import os
def note(name):
    with open(__file__.replace("test_a.py", "ran.txt"), "a") as file:
        file.write(f"{name} {os.getpid()}\\n")
"""


# -- every executor ------------------------------------------------------------------------------------------------


def test_a_missing_shared_state_is_named(pytester: pytest.Pytester) -> None:
    source = f"""
{ALL}
def test_it(worker):
    worker.shared.append(1)

@ftgate.compare(threads, pythons=["3.14"])
def test_unpacked(worker):
    one, two = worker.shared

@ftgate.compare(threads, pythons=["3.14"])
def test_other(worker):
    None.append(1)

class Pool:
    shared = None

def of_a_pool():
    Pool.shared.append(1)

@ftgate.compare(threads, pythons=["3.14"])
def test_other_shared(worker):
    of_a_pool()

@ftgate.compare(threads, pythons=["3.14"])
def test_of_none(worker):
    worker.shared.append(1)

@test_of_none.shared
def state(shared):
    return None
"""
    result = Example(pytester, {"test_a.py": source}).run_pytest("-rf", "--color=no")
    text = result.stdout.str()
    said = "\nworker.shared is None: test_it has no @test_it.shared\n"
    assert text.count(said) == (5 if HERE_TOO_OLD else 6), text
    assert text.count("\nworker.shared is None: test_unpacked has no @test_unpacked.shared\n") == 1
    assert "test_other" in text
    assert "test_other has no" not in text
    assert "test_other_shared has no" not in text
    assert "test_of_none has no" not in text


def test_each_cell_runs_its_body_once_a_worker(pytester: pytest.Pytester) -> None:
    source = f"""{NOTE}
import pytest
{ALL.replace("serial,", "serial, tasks,")}
@pytest.mark.parametrize("n", [5])
def test_it(worker, n):
    note(worker.shared)
    return n, worker.workers

@test_it.variant(tasks)
async def as_task(worker, n):
    note(worker.shared)
    return n, worker.workers

@test_it.shared
def state(shared):
    return shared.method or shared.name

@test_it.check
def right(results):
    assert results == [(5, 2), (5, 2)]
"""
    example = Example(pytester, {"test_a.py": source})
    outcome = example.run_fresh("-rs")
    outcome.assert_outcomes(passed=6 + (not HERE_TOO_OLD), skipped=HERE_TOO_OLD)
    if HERE_TOO_OLD:
        outcome.stdout.fnmatch_lines(["*sub-interpreters need CPython 3.14 or newer, this is 3.*"])
    by_executor = ran(example)
    assert {name: len(pids) for name, pids in by_executor.items() if name != "interpreters"} == dict.fromkeys(
        ("serial", "tasks", "threads", *IN_OTHER_PROCESSES), 2
    )
    here = set(by_executor["serial"])
    assert len(here) == 1
    for name, pids in by_executor.items():
        if name in IN_OTHER_PROCESSES:
            assert len({*pids, *here}) == 3, name
        else:
            assert set(pids) == here, name


TARGETS = ("--ftgate-python=3.14", "--ftgate-python=3.14t")


def test_a_plain_run_collects_and_freezes_nothing(pytester: pytest.Pytester) -> None:
    source = """
import gc

CALLED = []

@ftgate.compare(serial, threads, processes=["fork"], pythons=["3.14"])
def test_it(worker):
    assert not any(CALLED)
    assert gc.get_freeze_count() == FROZEN

@test_it.shared
def shared(context):
    global FROZEN
    FROZEN = gc.get_freeze_count()
    gc.callbacks.append(lambda phase, info: CALLED.append(info["generation"] == 2))
"""
    callbacks = list(gc.callbacks)
    try:
        result = Example(pytester, {"test_a.py": source}).run_pytest("-q")
    finally:
        gc.callbacks[:] = callbacks
    result.assert_outcomes(passed=3)


def test_a_body_runs_once_and_not_once_a_target(pytester: pytest.Pytester) -> None:
    source = f"""{NOTE}
import pytest
@ftgate.compare(serial, workers=1)
@pytest.mark.parametrize("kind", [dict, list])
def test_it(worker, kind):
    note(kind.__name__)
    assert kind is dict
"""
    example = Example(pytester, {"test_a.py": source})
    result = example.run_fresh(*TARGETS)
    result.assert_outcomes(passed=2, failed=2)  # what failed is run for each item, which has its own failure
    assert {name: len(pids) for name, pids in ran(example).items()} == {"dict": 1, "list": 2}
    here = ".".join(map(str, sys.version_info[:3]))
    assert f"ftgate: plain run on CPython {here}, not on 3.14 and 3.14t; use --ftgate to measure" in result.outlines
    example.run_fresh(*TARGETS, "-k", "3.14t and dict", "-q").assert_outcomes(passed=1)
    assert len(ran(example)["dict"]) == 2


def test_a_cell_that_passed_says_where_unless_its_name_does(pytester: pytest.Pytester) -> None:
    """`test_it[3.14t-serial-w1] PASSED` was said though nothing had run on 3.14t."""
    own = "{}.{}".format(*sys.version_info)
    sources = {"test_a.py": "@ftgate.compare(serial)\ndef test_it(worker): ...", "test_b.py": "def test_b(): ..."}
    example = Example(pytester, sources)
    for options in ((), ("-n1",)):
        result = example.run_fresh("-v", *TARGETS, *options)
        result.assert_outcomes(passed=3)
        lines = [line for line in result.outlines if f"PASSED (plain, on {own})" in line]
        assert len(lines) == 2
        assert all("test_it[3.14" in line for line in lines)
    assert plain.word([f"{plain.TARGET}{own}", "test_it"]) == "", "which is this interpreter itself"


def test_a_plain_run_says_under_xdist_which_targets_it_did_not_use(pytester: pytest.Pytester) -> None:
    sources = {"test_a.py": "@ftgate.compare(serial)\ndef test_it(worker): ...", "test_b.py": "def test_b(): ..."}
    example = Example(pytester, sources)
    assert "not on 3.14 and 3.14t;" in example.run_fresh(*TARGETS, "-n1").stdout.str()
    own = "{}.{}".format(*sys.version_info)
    for options in ((*TARGETS, "test_b.py"), (f"--ftgate-python={own}",)):
        assert "plain run" not in example.run_fresh(*options).stdout.str()


def test_a_body_that_drives_a_pool(pytester: pytest.Pytester) -> None:
    source = f"""
import os
def square(n):
    return n * n, os.getpid()

{ALL}
def test_it(executor):
    return list(executor.map(square, range(4)))

@test_it.check
def right(results):
    squares, pids = zip(*results)
    assert squares == (0, 1, 4, 9)

{ALL}
def test_state(executor):
    return executor.submit(seen).result()

def seen():
    return ftgate.shared()

@test_state.shared
def state(shared):
    return {{"word": shared.name}}

@test_state.check
def seen_there(result):
    assert result["word"] in ("serial", "threads", "processes", "interpreters")
"""
    example = Example(pytester, {"test_a.py": source})
    example.run_fresh().assert_outcomes(passed=2 * (5 + (not HERE_TOO_OLD)), skipped=2 * HERE_TOO_OLD)


def test_async_bodies_and_variants_of_another_shape(pytester: pytest.Pytester) -> None:
    source = f"""{NOTE}
import asyncio

@ftgate.compare(serial, threads, tasks, pythons=["3.14"])
async def test_async(worker):
    await asyncio.sleep(0)
    note("async")
    return worker.index

@ftgate.compare(serial, threads, processes=["fork", "spawn"], pythons=["3.14"])
def test_it(worker):
    note("body")

@test_it.variant(threads)
def pooled(executor):
    executor.submit(note, "pooled").result()

@test_it.variant(processes=["spawn"])
def spawned(worker):
    note("spawned")
"""
    example = Example(pytester, {"test_a.py": source})
    example.run_fresh().assert_outcomes(passed=7)
    assert {name: len(pids) for name, pids in ran(example).items()} == {
        "async": 6,
        "body": 4,
        "pooled": 1,
        "spawned": 2,
    }


def test_what_an_executor_cannot_share_is_skipped_with_the_mend(pytester: pytest.Pytester) -> None:
    source = """
        @ftgate.compare(threads, processes=["spawn"], pythons=["3.14"])
        def test_it(worker):
            worker.shared.add(worker.index)

        @test_it.shared
        def state(shared):
            return shared.set()
    """
    outcome = Example(pytester, {"test_a.py": source}).run_fresh("-rs")
    outcome.assert_outcomes(passed=1, skipped=1)
    outcome.stdout.fnmatch_lines(["*spawn has no set to share: give the cell another body with @test.variant*"])


# -- failures ------------------------------------------------------------------------------------------------------


def test_a_failing_body_shows_its_own_traceback(pytester: pytest.Pytester) -> None:
    source = f"""
def deep(n):
    raise LookupError(f"no {{n}} in here")

{ALL}
def test_it(worker):
    deep(worker.workers * 3)

{ALL}
def test_pool(executor):
    executor.submit(deep, 7).result()
"""
    result = Example(pytester, {"test_a.py": source}).run_fresh()
    result.assert_outcomes(failed=2 * (5 + (not HERE_TOO_OLD)), skipped=2 * HERE_TOO_OLD)
    text = result.stdout.str()
    assert text.count("LookupError: no 6 in here\n") >= 5
    assert text.count("LookupError: no 7 in here\n") >= 5
    assert 'test_a.py", line 7, in test_it' in text
    assert 'test_a.py", line 3, in deep' in text
    assert "hidden" not in text


def test_failing_asserts_and_checks_are_explained(pytester: pytest.Pytester) -> None:
    source = """
        @ftgate.compare(serial, threads, pythons=["3.14"])
        def test_body(worker):
            assert [1, 2] == [1, worker.workers + 1]

        @ftgate.compare(serial, pythons=["3.14"])
        def test_checked(worker):
            return worker.index

        @test_checked.check
        def right(results):
            total = sum(results)
            assert total == 7, "the total is wrong"

        @ftgate.compare(serial, pythons=["3.14"])
        def test_state(worker):
            return worker.index

        @test_state.shared
        def state(shared):
            raise OSError(f"no such state for {shared.name}")
    """
    result = Example(pytester, {"test_a.py": source}).run_fresh()
    result.assert_outcomes(failed=4)
    text = result.stdout.str()
    assert text.count("AssertionError: assert [1, 2] == [1, 3]") >= 2
    assert "AssertionError: the total is wrong" in text
    assert ">       assert total == 7" in text
    assert "OSError: no such state for serial" in text
    assert "pytest_ftgate/" not in text, "frames of ours"


def test_a_skip_inside_a_body_skips_the_cell(pytester: pytest.Pytester) -> None:
    source = """
        import unittest
        import pytest

        @ftgate.compare(serial, threads, processes=["spawn"], pythons=["3.14"])
        def test_it(worker):
            pytest.skip("not here")

        @ftgate.compare(serial, pythons=["3.14"])
        def test_unittest(worker):
            raise unittest.SkipTest("nor here")
    """
    result = Example(pytester, {"test_a.py": source}).run_fresh("-rs")
    result.assert_outcomes(skipped=4)
    assert "not here" in result.stdout.str()
    assert "nor here" in result.stdout.str()


def test_nothing_of_a_cell_stays_for_the_tests_that_follow(pytester: pytest.Pytester) -> None:
    source = """
        import sys, threading, warnings
        before = sys.getswitchinterval(), list(sys.path), threading.active_count()

        @ftgate.compare(threads, serial, pythons=["3.14[switchinterval=50ms]"])
        def test_it(worker):
            warnings.warn("seen")

        def test_after():
            assert (sys.getswitchinterval(), sys.path, threading.active_count()) == before
            assert "listen" not in repr(warnings.showwarning)
    """
    result = Example(pytester, {"test_a.py": source}).run_fresh()
    result.assert_outcomes(passed=3, warnings=2)


# -- setups and teardowns ------------------------------------------------------------------------------------------


def test_setups_and_teardowns_run_around_the_one_iteration(pytester: pytest.Pytester) -> None:
    source = f"""{NOTE}
{ALL.replace("serial,", "serial, tasks,")}
def test_it(worker):
    assert worker.local.n == worker.index
    note("body")

@test_it.variant(tasks)
async def as_task(worker):
    test_it(worker)

@test_it.setup
def up(worker):
    worker.local.n = worker.index
    note("setup")

@test_it.teardown("worker")
def down(worker):
    assert worker.local.n == worker.index
    note("worker")

@test_it.setup("launch")
@test_it.teardown("launch")
def around(state):
    assert state is None
    note("launch")
"""
    example = Example(pytester, {"test_a.py": source})
    example.run_fresh().assert_outcomes(passed=6 + (not HERE_TOO_OLD), skipped=HERE_TOO_OLD)
    here = 6 + (not HERE_TOO_OLD)
    assert {name: len(pids) for name, pids in ran(example).items()} == dict.fromkeys(
        ("setup", "body", "worker", "launch"), 2 * here
    )


def test_a_server_of_the_shared_state_does_not_keep_pytest_alive(pytester: pytest.Pytester) -> None:
    source = """
        import socketserver, threading, socket

        @ftgate.compare(serial, threads, pythons=["3.14"])
        def test_it(worker):
            socket.create_connection(worker.shared.server_address).close()

        @test_it.shared
        def serve(shared):
            server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), socketserver.BaseRequestHandler)
            threading.Thread(target=server.serve_forever).start()
            return server

        @test_it.teardown("launch")
        def stop(server):
            server.shutdown()
            server.server_close()
    """
    Example(pytester, {"test_a.py": source}).run_fresh().assert_outcomes(passed=2)


def test_of_several_errors_the_first_is_shown_and_all_is_torn_down(pytester: pytest.Pytester) -> None:
    source = f"""{NOTE}
@ftgate.compare(serial, threads, pythons=["3.14"])
def test_body(worker):
    raise KeyError("of the body")

@test_body.teardown
def down(worker):
    note("down")
    raise OSError("of a teardown")

@ftgate.compare(serial, threads, pythons=["3.14"])
def test_end(worker):
    pass

@test_body.teardown("launch")
@test_end.teardown("launch")
def end(state):
    note("end")
    raise ValueError("of the end")
"""
    example = Example(pytester, {"test_a.py": source})
    result = example.run_fresh()
    result.assert_outcomes(failed=4)
    text = result.stdout.str()
    for kind in ("serial", "threads"):
        assert f"FAILED test_a.py::test_body[3.14-{kind}-w2] - KeyError: 'of the body'\n" in text
    assert text.count("worker 0:\nTraceback") == 2
    assert text.count("teardown 'end' raised ValueError: of the end") >= 2
    assert "of a teardown" not in text
    assert {name: len(pids) for name, pids in ran(example).items()} == {"down": 4, "end": 4}


def test_a_class_has_one_instance_a_cell(pytester: pytest.Pytester) -> None:
    source = """
        class TestIt:
            seen = ()

            @ftgate.compare(serial, threads, pythons=["3.14"])
            def test_it(self, worker):
                assert self.seen == ("shared", "launch", "worker 0", "worker 1")

            @test_it.shared
            def make(self, shared):
                self.seen += ("shared",)

            @test_it.setup("launch")
            def begin(self, state):
                self.seen += ("launch",)

            @test_it.setup("worker")
            def up(self, worker):
                while worker.index and len(self.seen) < 3:
                    pass
                self.seen += (f"worker {worker.index}",)

            @test_it.check
            def right(self, results):
                assert len(self.seen) == 4
    """
    Example(pytester, {"test_a.py": source}).run_fresh().assert_outcomes(passed=2)


# -- layouts -------------------------------------------------------------------------------------------------------

CORPUS = "def work(n):\n    return n * n\n"
BODY = """
    import pytest
    from pytest import MonkeyPatch, mark, param

    pytestmark = [mark.filterwarnings("error")]

    @pytest.fixture(scope="module")
    def limit() -> int:
        return 9

    @pytest.mark.parametrize("n", [1, pytest.param(2, marks=pytest.mark.skip)])
    def test_plain(limit, n, monkeypatch: MonkeyPatch):
        with pytest.raises(ZeroDivisionError):
            assert task(3) == limit / 0

    def task(n):
        return work(n) + OFFSET

    COMPARE = ftgate.compare(threads, processes=["spawn"], pythons=PYTHONS)

    @COMPARE
    @pytest.mark.parametrize("n", [3, param(4, id="four")])
    def test_body(worker, n):
        return task(n)

    @test_body.check
    def right(results):
        assert results[0] in (10, 17)

    @COMPARE
    def test_pool(executor):
        return list(executor.map(task, range(3)))

    @test_pool.check
    def right_too(results):
        assert results == [1, 2, 5]
"""
PYTHONS = 'PYTHONS = ["3.14", "3.14t"]\n'
INI = "[pytest]\nftgate_install =\n"
PATH_CONFTEST = (
    "import sys\nfrom pathlib import Path\nsys.path.insert(0, str(Path(__file__).parents[1] / {folder!r}))\n"
)


def module(*imports: str) -> str:
    """A test module that imports `work` and OFFSET in this way."""
    return "\n".join(f"    {line}" for line in [*imports, PYTHONS]) + BODY


LAYOUTS = {
    "prepend, side by side": (
        ["--import-mode=prepend"],
        {
            "tests/test_a.py": module("from corpus import work", "from offsets import OFFSET"),
            "tests/corpus.py": CORPUS,
            "tests/offsets.py": "OFFSET = 1",
        },
    ),
    "prepend, packages": (
        ["--import-mode=prepend"],
        {
            "corpus.py": CORPUS,
            "tests/__init__.py": "",
            "tests/unit/__init__.py": "OFFSET = 1",
            "tests/unit/test_a.py": module("from corpus import work", "from . import OFFSET"),
        },
    ),
    "prepend, src by conftest": (
        ["--import-mode=prepend"],
        {
            "src/project/corpus.py": CORPUS,
            "src/project/__init__.py": "OFFSET = 1",
            "tests/conftest.py": PATH_CONFTEST.format(folder="src"),
            "tests/test_a.py": module("from project.corpus import work", "from project import OFFSET"),
        },
    ),
    "append, src by ini": (
        ["--import-mode=append", "-o", "pythonpath=src"],
        {
            "src/project/corpus.py": CORPUS,
            "src/project/__init__.py": "OFFSET = 1",
            "tests/test_a.py": module("from project.corpus import work", "from project import OFFSET"),
        },
    ),
    "importlib, src by ini": (
        ["--import-mode=importlib", "-o", "pythonpath=src"],
        {
            "src/project/corpus.py": CORPUS,
            "src/project/__init__.py": "OFFSET = 1",
            "tests/test_a.py": module("from project.corpus import work", "from project import OFFSET"),
            "tests/deep/test_a.py": "def test_same_name(): ...",
        },
    ),
    "importlib, packages": (
        ["--import-mode=importlib"],
        {
            "tests/__init__.py": "",
            "tests/corpus.py": CORPUS,
            "tests/unit/__init__.py": "OFFSET = 1",
            "tests/unit/test_a.py": module("from ..corpus import work", "from . import OFFSET"),
        },
    ),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts_here(pytester: pytest.Pytester, layout: str) -> None:
    args, files = LAYOUTS[layout]
    example = Example(pytester, {"pytest.ini": INI, **files})
    same_name = "tests/deep/test_a.py" in files
    example.run_fresh(*args).assert_outcomes(passed=12 + 1 + same_name, skipped=1)


OUTSIDE = {
    "project/pytest.ini": INI,
    "project/tests/conftest.py": PATH_CONFTEST.format(folder="../lib"),
    "project/tests/test_a.py": module("from corpus import work", "OFFSET = 1"),
    "lib/corpus.py": CORPUS,
}
CELLS = """
import sys
import msgspec
import pytest
from pytest_ftgate.plugin.collection import CELL

class Cells:
    def pytest_collection_finish(self, session):
        found = [item.stash[CELL] for item in session.items if CELL in item.stash]
        open(sys.argv[1], "wb").write(msgspec.json.encode(found))

sys.exit(pytest.main(["-q", "--collect-only", "-p", "no:cacheprovider", *sys.argv[2:]], plugins=[Cells()]))
"""


def cells(folder: Path, *args: str) -> list[tuple[Spec, Cell]]:
    """The cells that pytest collects in `folder`, in a process that has nothing of this one's on sys.path."""
    found = folder / "cells.json"
    command = [sys.executable, "-P", "-c", CELLS, str(found), *args]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert done.returncode == pytest.ExitCode.OK, done.stdout
    return msgspec.json.decode(found.read_bytes(), type=list[tuple[Spec, Cell]])


def launch(bench: Bench, cell: Cell, spec: Spec) -> Handle:
    """One launch of a collected cell, ended with the test."""
    build = cell.target.spec
    request = Request(
        cell=cell,
        spec=spec,
        python=bench.executables[build],
        role="own",
        expect_gil=build == "3.14",
        environment={},
        hash_seed=7,
        padding=100,
        timeout_s=30.0,
    )
    handle = bench.launcher.start(request)
    bench.started.append(handle)
    return handle


@pytest.mark.parametrize("layout", [*LAYOUTS, "outside"])
def test_layouts_in_targets(pytester: pytest.Pytester, bench: Bench, layout: str) -> None:
    args, files = LAYOUTS.get(layout, ([], OUTSIDE))
    Example(pytester, files)
    chosen = cells(pytester.path / ("project" if layout == "outside" else "."), *args, "-k", "spawn and (pool or four)")
    assert [cell.target.spec for _, cell in chosen] == ["3.14", "3.14t"] * 2
    for handle in [launch(bench, cell, spec) for spec, cell in (chosen[0], chosen[3])]:  # each test, and each build
        handle.ready()
        handle.iteration(CHECK)  # @check runs in here
        assert handle.finish().results == ()


def test_the_environment_of_a_cell_is_set_around_it(pytester: pytest.Pytester) -> None:
    source = """
        import os

        @ftgate.compare(threads, processes=["spawn"], pythons=["3.14"], workers=[1, 2],
            env=[{"FLAVOUR": "{workers}"}, {"FLAVOUR": "x", "MORE": "{python}"}])
        def test_it(worker):
            return os.environ["FLAVOUR"], os.environ.get("MORE")

        @test_it.check
        def right(results):
            import sys
            workers, flavour, more = len(results), os.environ["FLAVOUR"], os.environ.get("MORE")
            assert (flavour, more) in [(str(workers), None), ("x", sys.executable)]
            assert results == [(flavour, more)] * workers

        def test_after():
            assert "FLAVOUR" not in os.environ and "MORE" not in os.environ
    """
    example = Example(pytester, {"test_a.py": source})
    example.run_fresh().assert_outcomes(passed=9)
    example.run_fresh("-k", "FLAVOUR:workers and threads").assert_outcomes(passed=2, deselected=7)
