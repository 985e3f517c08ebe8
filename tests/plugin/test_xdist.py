"""With pytest-xdist the workers run all other tests; the controller measures the cells when no worker is left."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from example import Example
from junitparser import JUnitXml
from under_xdist import QUICK, TESTS, outcome

SETTINGS = "[pytest]\nftgate_install =\nftgate_python = 3.14t\nmarkers = xdist_group: of pytest-xdist\n"
REPORT = "--ftgate-report=json:out.json"
NOTES = """
    import os, pathlib, psutil, pytest, time

    HERE = pathlib.Path(__file__).parent

    def note(name, text):
        with open(HERE / name, "a") as file:
            print(text, file=file)

    def noted(name):
        return (HERE / name).read_text().splitlines() if (HERE / name).exists() else []

    if "PYTEST_XDIST_WORKER" in os.environ:
        note("workers", os.getpid())

    def hang(step):
        if noted("hangs") == [step]:
            note("hanging", step)
            time.sleep(300)

    def pytest_configure(config):
        import fake_run
        start = fake_run.ByName.start

        def alone(self, request):
            hang("measuring")
            note("measured", request.cell.nodeid)
            for pid in filter(psutil.pid_exists, map(int, noted("workers"))):
                note("beside", pid)
            return start(self, request)

        patch = pytest.MonkeyPatch()
        config.add_cleanup(patch.undo)
        patch.setattr(fake_run.ByName, "start", alone)

    def pytest_collection_modifyitems(config):
        if not hasattr(config, "workerinput"):
            hang("collecting")

    def pytest_runtest_call(item):
        if "plain" in item.name:
            hang("working")
"""
CELLS = """
    @ftgate.compare(threads, workers=[1, 2])
    def test_first(worker):
        return 1

    @ftgate.compare(threads, workers=[1, 2])
    def test_{second}(worker):
        return 1

    @ftgate.compare(threads, workers=[1, 2])
    def test_third(worker):
        return 1
"""
PLAIN = """
    import os, pytest

    @pytest.mark.parametrize("number", range(50))
    def test_plain(number):
        {body}
"""
NAMES = ["first", "second", "third"]
ALL = [f"test_cells.py::test_{name}[3.14t-threads-w{count}]" for name in NAMES for count in (1, 2)]


def long(*given: str) -> object:
    return pytest.param(given, marks=pytest.mark.long)


@pytest.fixture
def make(pytester: pytest.Pytester, scripted_runs: None) -> Callable[..., Example]:
    """Six cells beside fifty tests, and what is otherwise."""

    def made(second: str = "second", body: str = "pass", conftest: str = "", **files: str) -> Example:
        usual = {
            "pytest.ini": SETTINGS,
            "conftest.py": NOTES + conftest,
            "test_cells.py": CELLS.format(second=second),
            "test_plain.py": PLAIN.format(body=body),
        }
        return Example(pytester, usual | {f"test_{name}.py": text for name, text in files.items()})

    return made


def lines(example: Example, name: str) -> list[str]:
    path = example.folder / name
    return path.read_text(encoding="utf-8").splitlines() if path.exists() else []


def measured(example: Example) -> list[str]:
    """The tests that were measured, in order; no process of a worker was there at any launch."""
    assert not lines(example, "beside")
    return list(dict.fromkeys(re.findall("::test_([a-z]+)", "".join(lines(example, "measured")))))


def run(example: Example, *options: str) -> pytest.RunResult:
    """A run with two workers, unless the options say otherwise."""
    for name in ("workers", "measured", "out.json"):
        (example.folder / name).unlink(missing_ok=True)
    return example.run_fresh(*QUICK, REPORT, "-n2", *options)


def partial(example: Example) -> str:
    return str(example.report("out.json")["partial"])


# -- as one run ----------------------------------------------------------------------------------------------------


def test_two_workers_give_the_same(pytester: pytest.Pytester, scripted_runs: None) -> None:
    """Other ways of distribution are in tests/faults/test_distribution.py: each takes seconds."""
    files = {"pytest.ini": SETTINGS, "a/test_a.py": TESTS, "b/test_b.py": TESTS.replace("first", "fourth")}
    example = Example(pytester, files)
    assert outcome(example, "-n2", "--dist=loadgroup") == outcome(example)


@pytest.mark.parametrize(
    "options",
    [
        (),
        ("test_cells.py",),
        ("test_plain.py",),
        ("-k", "plain"),
        ("-k", "first or 7"),
        long("-m", "ftgate"),
        long("-m", "not ftgate"),
        long("--deselect=test_cells.py::test_first"),
        long("test_cells.py::test_third[3.14t-threads-w2]", "test_plain.py::test_plain[7]"),
        long("-k", "nothing"),
        long("--setup-plan"),
        long("--dist=loadscope"),
        long("--dist=loadgroup"),
        long("--dist=worksteal"),
        long("-n0"),
    ],
    ids=" ".join,
)
def test_a_selection_runs_and_measures_what_one_process_does(
    make: Callable[..., Example], options: tuple[str, ...]
) -> None:
    example = make(second="missing")
    whole = run(example, *options)
    cells, found = measured(example), (example.folder / "out.json").exists() and example.verdicts("out.json")
    one = run(example, *(word for word in options if "--dist" not in word), "-n0")
    assert (whole.ret, cells) == (one.ret, measured(example))
    assert found == ((example.folder / "out.json").exists() and example.verdicts("out.json"))
    counts = [{word: n for word, n in each.parseoutcomes().items() if word != "deselected"} for each in (whole, one)]
    assert counts[0] == counts[1]
    ours = [
        [line for line in each.outlines if line.startswith("ftgate: ") and "seed" not in line] for each in (whole, one)
    ]
    assert ours[0] == ours[1]


def test_plain_tests_alone_are_green(make: Callable[..., Example]) -> None:
    result = run(make(), "test_plain.py")
    assert result.ret == pytest.ExitCode.OK
    assert "ftgate: no collected test has cells: nothing was gated" in result.outlines


@pytest.mark.parametrize("options", [("-v",), ("-oconsole_output_style=progress",)], ids=" ".join)
def test_the_progress_is_that_of_one_run(make: Callable[..., Example], options: tuple[str, ...]) -> None:
    example = make()
    result = run(example, *options)
    assert measured(example) == NAMES
    shown = [int(each) for each in re.findall(r"\[ *(\d+)%\]", result.stdout.str())]
    assert shown == sorted(shown)
    assert shown[-1] == 100
    if options == ("-v",):
        assert shown == [number * 100 // 56 for number in range(1, 57)]
    assert "collected" not in result.stdout.str()


def test_there_is_one_junit_file_and_nothing_is_measured_to_collect(make: Callable[..., Example]) -> None:
    example = make()
    listed = run(example, "--collect-only", "-q")
    assert (listed.ret, sum("::" in line for line in listed.outlines)) == (0, 56)
    assert not measured(example)
    run(example, "--junit-xml=junit.xml")
    suite = JUnitXml.fromfile(str(example.folder / "junit.xml"))
    assert (suite.tests, len({(case.classname, case.name) for each in suite for case in each})) == (56, 56)


def test_what_failed_is_run_again(make: Callable[..., Example]) -> None:
    example = make(second="missing", body="assert number != 7")
    assert run(example, "-p", "cacheprovider").parseoutcomes()["failed"] == 3
    again = run(example, "-p", "cacheprovider", "--lf")
    assert again.parseoutcomes()["failed"] == 3
    assert "passed" not in again.parseoutcomes()
    assert example.verdicts("out.json").keys() == {each.replace("second", "missing") for each in ALL[2:4]}


@pytest.mark.parametrize("folder", ["of[1]", "root/.."], ids=["brackets", "outside"])
def test_a_file_that_cannot_be_an_argument_is_found(make: Callable[..., Example], folder: str) -> None:
    """Pytest takes what is in brackets for parameters; outside of the rootdir a node id has no file."""
    example = make()
    (example.folder / folder.partition("/")[0]).mkdir()
    (example.folder / "test_cells.py").rename(example.folder / folder / "test_cells.py")
    options = ("--rootdir=root", "-cpytest.ini", "test_cells.py", "test_plain.py") if folder == "root/.." else ()
    result = run(example, *options)
    assert (result.ret, measured(example)) == (pytest.ExitCode.OK, NAMES)
    assert result.parseoutcomes() == {"passed": 50, "undecided": 6}


def test_without_a_terminal_cells_are_measured(make: Callable[..., Example]) -> None:
    example = make()
    assert run(example, "-p", "no:terminal").ret == pytest.ExitCode.OK
    assert measured(example) == NAMES


CHOOSES = """
    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(items):
        items[:] = items[1::2][::-1]
"""


def test_plugins_choose_once_from_all_tests(make: Callable[..., Example]) -> None:
    example = make(conftest=CHOOSES)
    result = run(example)
    assert result.ret == pytest.ExitCode.OK
    assert measured(example) == NAMES[::-1]
    assert example.verdicts("out.json").keys() == {*ALL[1::2]}
    assert result.parseoutcomes() == {"passed": 25, "undecided": 3}


# -- runs that end early -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("option", ["-x", "--maxfail=1"])
def test_where_a_plain_test_ends_the_run_no_cell_is_measured(make: Callable[..., Example], option: str) -> None:
    example = make(body="assert number != 49")
    result = run(example, option)
    assert result.ret != pytest.ExitCode.OK
    assert not measured(example)
    assert partial(example) == "interrupted: stopping after 1 failures: 6 of 6 cells were not run"


@pytest.mark.parametrize(("option", "body"), [("-x", "pass"), ("--maxfail=2", "assert number != 7")])
def test_where_a_cell_ends_the_run_the_next_is_not_measured(
    make: Callable[..., Example], option: str, body: str
) -> None:
    example = make(second="missing", body=body)
    result = run(example, option)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert measured(example) == ["first", "missing"]
    left = [*ALL[:2], *(each.replace("second", "missing") for each in ALL[2:4])]
    assert [*example.verdicts("out.json")] == left
    failures = option[-1] if option != "-x" else "1"
    assert partial(example) == f"stopping after {failures} failures: 2 of 6 cells were not run"


def test_after_an_error_of_collection_no_cell_is_measured(make: Callable[..., Example]) -> None:
    example = make(broken="import nothing_of_that_name")
    result = run(example)
    assert result.ret == pytest.ExitCode.INTERRUPTED
    assert not measured(example)
    assert partial(example) == "interrupted: 1 error during collection: 6 of 6 cells were not run"
    result = run(example, "--continue-on-collection-errors")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert (measured(example), partial(example)) == (NAMES, "")
    assert result.parseoutcomes() == {"passed": 50, "undecided": 6, "errors": 1}


@pytest.mark.parametrize(
    "options", [(), long("--max-worker-restart=0"), long("-n1", "--max-worker-restart=0")], ids=str
)
def test_a_worker_that_crashes_costs_no_cell(make: Callable[..., Example], options: tuple[str, ...]) -> None:
    example = make(body="number == 7 and os._exit(1)")
    result = run(example, *options)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert (measured(example), partial(example)) == (NAMES, "")
    result.stdout.fnmatch_lines(["FAILED test_plain.py::test_plain?7?*"])
    if not options:
        assert result.parseoutcomes() == {"passed": 49, "undecided": 6, "failed": 1}


@pytest.mark.parametrize("step", ["working", "collecting", "measuring"])
@pytest.mark.parametrize("whom", [pytest.param("all", marks=pytest.mark.long), "controller"])
def test_ctrl_c_leaves_a_report_and_no_process(make: Callable[..., Example], step: str, whom: str) -> None:
    """In a terminal, all processes get it."""
    example = make()
    (example.folder / "hangs").write_text(step, encoding="utf-8")
    process = example.start(*QUICK, REPORT, "-n2")
    until = time.monotonic() + 120
    while not lines(example, "hanging"):
        assert process.poll() is None
        assert time.monotonic() < until
        time.sleep(0.05)
    workers = [int(each) for each in lines(example, "workers")]
    assert (len(workers), [*filter(psutil.pid_exists, workers)]) == (2, workers if step == "working" else [])
    (os.killpg if whom == "all" else os.kill)(process.pid, signal.SIGINT)
    said, _ = process.communicate(timeout=120)
    print(said)
    assert process.returncode == pytest.ExitCode.INTERRUPTED
    assert partial(example).endswith("interrupted: 6 of 6 cells were not run")
    assert not [*filter(psutil.pid_exists, workers)]


# -- what the controller has of the workers' surroundings ----------------------------------------------------------

SESSION = """
    @pytest.fixture(scope="session", autouse=True)
    def server(worker_id):
        note("sessions", f"{worker_id} begins, {os.environ.get('PYTEST_XDIST_WORKER')}")
        yield
        note("sessions", f"{worker_id} ends")
"""


def test_fixtures_of_a_session_run_once_more_in_the_controller(make: Callable[..., Example]) -> None:
    example = make(conftest=SESSION)
    assert run(example).ret == pytest.ExitCode.OK
    assert measured(example) == NAMES
    noted = lines(example, "sessions")
    assert noted[-2:] == ["master begins, None", "master ends"]
    assert sorted(noted[:-2]) == ["gw0 begins, gw0", "gw0 ends", "gw1 begins, gw1", "gw1 ends"]


DIFFERS = """
    import os

    if "PYTEST_XDIST_WORKER" in os.environ:
        @ftgate.compare(threads, workers=1)
        def test_there(worker): ...
"""


def test_cells_that_the_controller_does_not_have_are_an_error(make: Callable[..., Example]) -> None:
    example = make(differs=DIFFERS)
    result = run(example)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert not measured(example)
    result.stderr.fnmatch_lines(
        ["ERROR: the workers have collected 1 cell that the controller, which measures, has not: test_differs.py::*"]
    )


ALONE = """
    import os, pathlib

    @ftgate.compare(threads, workers=1)
    def test_cell(worker):
        workers = (pathlib.Path(__file__).parent / "workers").read_text().split()
        assert len(workers) == 2
        assert not [pid for pid in workers if os.path.exists(f"/proc/{pid}")]

    def test_plain():
        with open(pathlib.Path(__file__).parent / "plain", "w") as file:
            print(os.environ["PYTEST_XDIST_WORKER"], file=file)
"""
PIDS = """
    import os, pathlib

    if "PYTEST_XDIST_WORKER" in os.environ:
        with open(pathlib.Path(__file__).with_name("workers"), "a") as file:
            print(os.getpid(), file=file)
"""


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="the cell looks into /proc")
def test_in_a_real_cell_no_worker_is_alive(pytester: pytest.Pytester, interpreters_on_path: None) -> None:
    example = Example(pytester, {"pytest.ini": SETTINGS, "conftest.py": PIDS, "test_a.py": ALONE})
    options = ("--ftgate", "-oftgate_launches=1", "-oftgate_iterations=2", "--ftgate-metrics=wall", "-n2")
    result = example.run_fresh(*options)
    assert result.ret == pytest.ExitCode.OK
    assert [*example.decisions().values()] == ["no baseline"]
    assert lines(example, "plain") in (["gw0"], ["gw1"])
