"""A worker of pytest-xdist that is killed, at each step of its work: it costs the test that it measured, no other."""

from __future__ import annotations

import pytest
from example import Example

QUICK = ("-p", "fake_run", "--ftgate", "-oftgate_launches=1", "-oftgate_iterations=2", "--ftgate-report=json:out.json")
TESTS = """
    @ftgate.compare(threads, workers=[1, 2])
    def test_first(worker):
        return 1

    @ftgate.compare(threads, workers=[1, 2])
    def test_second(worker):
        return 1

    def test_plain():
        pass

    @ftgate.compare(threads, workers=[1, 2])
    def test_third(worker):
        return 1
"""
KILL = """
    import os, pathlib, signal
    from pytest_ftgate.run import rows
    from pytest_ftgate.run.trial import Trial

    HERE = pathlib.Path(__file__).parent
    STEP = {step!r}

    def at(step, name):
        if step == STEP and "test_second" in name:
            try:
                (HERE / "killed").touch(exist_ok=False)
            except FileExistsError:
                return
            os.kill(os.getpid(), signal.SIGKILL)

    def wrapped(cls, method, step):
        inner = getattr(cls, method)

        def outer(self, *given):
            at(step, self.group.key)
            return inner(self, *given)

        setattr(cls, method, outer)

    begin = Trial.begin

    def noted(self):
        with open(HERE / "begun", "a") as file:
            print(self.group.key, file=file)
        begin(self)

    Trial.begin = noted
    wrapped(Trial, "begin", "begin")
    wrapped(Trial, "step", "step")
    wrapped(Trial, "rows", "judge")
    write_whole = rows.write_whole

    def written(path, content):
        write_whole(path, content)
        if path.name.startswith("rows"):
            at("kept", b"".join(content).decode())

    rows.write_whole = written

    def pytest_collection_modifyitems(config):
        if hasattr(config, "workerinput"):
            at("collection", "test_second")

    def pytest_runtest_setup(item):
        at("setup", item.nodeid)
        if item.name == "test_plain":
            at("plain", "test_second")

    def pytest_runtest_logreport(report):
        if report.when == "call" and not hasattr(report, "node"):
            at("report", report.nodeid)
"""
LOST = {"begin", "step", "judge"}
"""At these steps a test is measured that no worker measures again."""
ALL = [
    f"test_a.py::test_{name}[3.14t-threads-w{workers}]" for name in ("first", "second", "third") for workers in (1, 2)
]


def long(*given: str) -> object:
    return pytest.param(*given, marks=pytest.mark.long)


@pytest.fixture
def example(pytester: pytest.Pytester, scripted_runs: None) -> Example:
    ini = "[pytest]\nftgate_install =\nftgate_python = 3.14t\n"
    return Example(pytester, {"pytest.ini": ini, "test_a.py": TESTS})


@pytest.mark.parametrize(
    ("step", "options"),
    [
        ("step", "-n2"),
        *(long(step, "-n2") for step in ("collection", "setup", "plain", "begin", "judge", "kept", "report")),
        *(long(step, "-n1") for step in ("setup", "begin", "step", "kept", "report")),
        *(long("step", f"-n3 --dist={mode}") for mode in ("loadscope", "loadfile", "loadgroup", "worksteal", "each")),
        long("step", "-n2 --ftgate-time=60s"),
        long("step", "-n2 -oftgate_exclusive=no"),
    ],
)
def test_a_killed_worker_costs_its_test_alone(example: Example, step: str, options: str) -> None:
    path = example.folder
    (path / "conftest.py").write_text(KILL.format(step=step).replace("\n    ", "\n").strip(), encoding="utf-8")
    result = example.run_fresh(*QUICK, *options.split())
    assert (path / "killed").exists()
    rows = example.decisions("out.json")
    assert [*rows] == ALL
    errors = {nodeid for nodeid, decision in rows.items() if decision == "error"}
    assert errors == ({each for each in ALL if "second" in each} if step in LOST else set())
    assert {*rows.values()} - {"error"} == {"no baseline"}
    begun = (path / "begun").read_text(encoding="utf-8").splitlines()
    if "--ftgate-time" not in options:  # the tests that take turns with it begin again
        assert len(begun) == len(set(begun)) == 3 - (step == "begin"), "nothing is measured twice"
    if step != "collection":
        assert result.ret == pytest.ExitCode.TESTS_FAILED
    text = result.stdout.str()
    assert ("ended while it measured test_a.py::test_second" in text) == (step in LOST | {"kept"})


@pytest.mark.parametrize("workers", ["-n2", pytest.param("-n1", marks=pytest.mark.long)])
def test_without_a_restart_the_report_says_what_was_not_run(example: Example, workers: str) -> None:
    path = example.folder
    (path / "conftest.py").write_text(KILL.format(step="step").replace("\n    ", "\n").strip(), encoding="utf-8")
    result = example.run_fresh(*QUICK, workers, "--max-worker-restart=0")
    report = example.report("out.json")
    rows = example.decisions("out.json")
    lost = [nodeid for nodeid in ALL if nodeid not in rows]
    assert result.ret != pytest.ExitCode.OK
    assert {rows[nodeid] for nodeid in ALL if nodeid in rows and "second" in nodeid} == {"error"}
    assert {rows[nodeid] for nodeid in ALL if nodeid in rows and "second" not in nodeid} == {"no baseline"}
    if lost:
        assert report["partial"].endswith(f": {len(lost)} of 6 cells {'was' if len(lost) == 1 else 'were'} not run")
        assert "ended while it measured test_a.py::test_second" in report["partial"]
