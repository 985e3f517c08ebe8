"""Forgers: what a change may bring or do to pass although it is slower; what is detected, and what docs/trust.md says.

Where nothing detects it, the test shows what happens, so that the page stays true.
"""

from __future__ import annotations

import os
import py_compile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from bench import SERIAL, THREADS, Bench
from example import Example
from fake_launcher import CONFIG, FakeLauncher, Quiet, group_of, spec_of
from project import commit, git

from pytest_ftgate import cli
from pytest_ftgate.kit.errors import FtgateError
from pytest_ftgate.kit.git import Checkout
from pytest_ftgate.measure.launch import LaunchFailed, Request, request_here
from pytest_ftgate.measure.launchers import workload
from pytest_ftgate.measure.launchers.workload import CLOCK, Turns, install_runner, too_many_cores
from pytest_ftgate.model.report import Row
from pytest_ftgate.model.sample import Iteration
from pytest_ftgate.model.verdict import Decision, Verdict
from pytest_ftgate.run.folder import refuse_tracked
from pytest_ftgate.run.rows import placed_row
from pytest_ftgate.run.run import Run
from pytest_ftgate.run.sides import worktrees
from pytest_ftgate.run.sides import worktrees as mending
from pytest_ftgate.runner.protocol import CHECKED_COLD, MEASURED
from pytest_ftgate.targets.environments import STAMP

MS = 1_000_000


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    """A quick commit, then a slow one."""
    folder = tmp_path / "repo"
    folder.mkdir()
    (folder / ".gitignore").write_text("*.so\n__pycache__/\n.ftgate/\n", encoding="utf-8")
    for text in ("quick\n", "slow\n"):
        (folder / "work.py").write_text(text, encoding="utf-8")
        commit(folder, text)
    return folder


# ---- the copy of the runner


def _edit(home: Path) -> None:
    with (home / "pytest_ftgate/runner/main.py").open("a", encoding="utf-8") as file:
        file.write("# a third of the time\n")


def _add(home: Path) -> None:
    (home / "sitecustomize.py").write_text("import time\n", encoding="utf-8")


def _link(home: Path) -> None:
    (home / "pytest_ftgate/runner/clock.py").unlink()
    (home / "pytest_ftgate/runner/clock.py").symlink_to("main.py")


def _compile(home: Path) -> None:
    source = home / "pytest_ftgate/runner/main.py"
    cache = source.parent / "__pycache__/main.cpython-314.pyc"
    py_compile.compile(str(source), str(cache), invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)


def _move(home: Path) -> None:
    home.rename(home.with_name("elsewhere"))
    home.symlink_to("elsewhere")


def _files(folder: Path) -> dict[str, bytes | str]:
    return {
        str(path.relative_to(folder)): str(path.readlink()) if path.is_symlink() else path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_symlink() or path.is_file()
    }


@pytest.mark.parametrize("forge", [_edit, _add, _link, _compile, _move])
def test_a_copy_of_the_runner_that_differs_is_replaced(tmp_path: Path, forge: Callable[[Path], None]) -> None:
    home = install_runner(tmp_path)
    honest = _files(home)
    forge(home)
    assert install_runner(tmp_path) == home
    assert not home.is_symlink()
    assert _files(home) == honest


# ---- what a commit brings in .ftgate


@pytest.mark.parametrize("name", [".ftgate/runner/0123/pytest_ftgate/__init__.py", ".ftgate", ".FTGATE/envs/x"])
def test_a_tracked_folder_of_ours_is_refused_by_name(repo: Path, name: str) -> None:
    refuse_tracked(repo / ".ftgate")
    path = repo / name
    path.parent.mkdir(parents=True, exist_ok=True)
    if name == ".ftgate":
        path.symlink_to("/tmp")
    else:
        path.write_text("forged", encoding="utf-8")
    git(repo, "add", "--force", name)
    with pytest.raises(FtgateError, match=rf"git tracks {name}: .* `git rm -r -f \.ftgate`"):
        refuse_tracked(repo / ".ftgate")
    git(repo, "rm", "-r", "-f", "--quiet", name)
    refuse_tracked(repo / ".ftgate")


def test_outside_of_git_there_is_nothing_to_refuse(tmp_path: Path) -> None:
    refuse_tracked(tmp_path / ".ftgate")


# ---- the checkout of the reference


def _checked_out(repo: Path) -> Checkout:
    """The reference as a run finds it, and as it measures it."""
    reference = worktrees.pair(repo, "HEAD~1", repo / ".ftgate").reference
    mending.remove_extras(repo, reference, repo / ".ftgate" / "envs")
    return reference


def _in_tree(checkout: Checkout) -> dict[str, bytes | str]:
    return {name: content for name, content in _files(checkout.project).items() if name != ".git"}


def _hidden_edit(bit: str) -> Callable[[Path], None]:
    def forge(tree: Path) -> None:
        (tree / "work.py").write_text("slow\n", encoding="utf-8")
        git(tree, "update-index", bit, "work.py")

    return forge


def _planted(name: str) -> Callable[[Path], None]:
    def forge(tree: Path) -> None:
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_text("slow\n", encoding="utf-8")

    return forge


def _left_lock(tree: Path) -> None:
    folder = Path(git(tree, "rev-parse", "--absolute-git-dir"))
    (folder / "index.lock").touch()
    (folder / "HEAD.lock").touch()


def _no_index(tree: Path) -> None:
    Path(git(tree, "rev-parse", "--absolute-git-dir"), "index").write_bytes(b"DIRC")


def _repository(tree: Path) -> None:
    git(tree, "init", "--quiet", "work")
    _planted("work/__init__.py")(tree)


PLANTED = ["work/__init__.py", "sitecustomize.py", "x.pth", "__pycache__/work.cpython-314.pyc", "work.so"]
FORGED: dict[str, Callable[[Path], None]] = {
    "edit": _planted("work.py"),
    "repository": _repository,
    "assume-unchanged": _hidden_edit("--assume-unchanged"),
    "skip-worktree": _hidden_edit("--skip-worktree"),
    "index.lock": _left_lock,
    "broken index": _no_index,
    **{name: _planted(name) for name in PLANTED},
}


@pytest.mark.parametrize("forge", FORGED.values(), ids=FORGED)
def test_the_reference_is_what_its_commit_has(repo: Path, forge: Callable[[Path], None]) -> None:
    reference = _checked_out(repo)
    honest = _in_tree(reference)
    assert honest["work.py"] == b"quick\n"
    forge(reference.project)
    assert _in_tree(_checked_out(repo)) == honest


def test_a_file_that_is_the_same_keeps_its_time(repo: Path) -> None:
    reference = _checked_out(repo)
    before = (reference.project / "work.py").stat().st_mtime_ns
    assert (_checked_out(repo).project / "work.py").stat().st_mtime_ns == before


def test_what_an_installation_left_stays_until_it_differs(repo: Path) -> None:
    reference = _checked_out(repo)
    built, stamp = reference.project / "native.so", repo / ".ftgate" / "envs" / "one" / STAMP
    built.write_text("built", encoding="utf-8")
    stamp.parent.mkdir(parents=True)
    stamp.write_text(f'{{"project": "{reference.project.resolve()}"}}', encoding="utf-8")
    mending.note_built(repo, reference)
    (reference.project / "other.so").write_text("planted", encoding="utf-8")
    _checked_out(repo)
    assert built.exists()
    assert stamp.exists()
    assert not (reference.project / "other.so").exists()
    built.write_text("forged", encoding="utf-8")
    _checked_out(repo)
    assert not built.exists()
    assert not stamp.exists()  # it is installed again


# ---- the clock


def _request(**changes: Any) -> Request:
    group = group_of("threads")
    return Request(**{**_fields(request_here(group.cells[0], spec_of("threads"), "python", 60.0)), **changes})


def _fields(request: Request) -> dict[str, Any]:
    return {name: getattr(request, name) for name in request.__struct_fields__}


def _turns(own: tuple[float, float], beside: tuple[float, float], **of_beside: Any) -> Turns:
    """Twenty turns of a cell and of what is measured beside it: what was waited and what was said, in ms."""
    found = Turns()
    for _ in range(20):
        found.add(_request(), own[0] / 1e3, own[1] * MS)
        found.add(_request(**of_beside), beside[0] / 1e3, beside[1] * MS)
    return found


PAIRED: dict[str, Any] = {"reference": True}
ALONE: dict[str, Any] = {"role": "control"}
OTHER: dict[str, Any] = {"cell": group_of("fork").cells[0]}


@pytest.mark.parametrize(
    ("own", "beside", "of", "wrong"),
    [
        ((21.2, 21.0), (7.2, 7.0), PAIRED, ""),
        ((21.2, 7.0), (7.2, 7.0), PAIRED, "shorter"),
        ((7.0, 21.0), (7.2, 7.0), PAIRED, "longer"),
        ((30.0, 10.0), (27.0, 7.0), PAIRED, ""),  # a machine that is so busy explains it
        ((1000.0, 990.0), (990.0, 985.0), PAIRED, ""),
        ((1000.0, 700.0), (990.0, 985.0), PAIRED, "shorter"),
        ((40.0, 10.0), (7.2, 7.0), ALONE, ""),  # threads of the workload may delay its answers
        ((400.0, 130.0), (7.2, 7.0), ALONE, "shorter"),
        ((40.0, 10.0), (7.2, 7.0), OTHER, ""),
        ((400.0, 130.0), (7.2, 7.0), OTHER, "shorter"),
    ],
)
def test_turns_that_the_controllers_clock_does_not_agree_with(
    own: tuple[float, float], beside: tuple[float, float], of: dict[str, Any], wrong: str
) -> None:
    error = _turns(own, beside, **of).disagreement(_request())
    assert (error.detail if error else "") == "" if not wrong else error is not None and wrong in error.detail
    assert error is None or error.reason == CLOCK


def test_one_turn_in_time_or_too_few_turns_prove_nothing() -> None:
    found = _turns((21.2, 7.0), (7.2, 7.0), reference=True)
    found.add(_request(), 0.0212, 21.0 * MS)
    assert found.disagreement(_request()) is None
    assert Turns().disagreement(_request()) is None


def test_more_cores_than_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pytest_ftgate.measure.launchers.workload.usable_cores", lambda: 2)
    forged = Iteration(wall_ns=70 * MS, work_ns=70 * MS, cpu_ns=190 * MS)
    error = too_many_cores(_request(), [forged] * 20)
    assert error is not None
    assert error.reason == "it says that it kept 2.71 cores busy, and there are 2"
    honest = Iteration(wall_ns=70 * MS, work_ns=70 * MS, cpu_ns=142 * MS)
    short = Iteration(wall_ns=MS, work_ns=MS, cpu_ns=4 * MS)  # ticks of ended processes
    assert too_many_cores(_request(), [honest] * 20) is None
    assert too_many_cores(_request(), [short] * 10) is None


SPIN = """
import time
from pytest_ftgate.runner import clock, main
real = time.perf_counter_ns
{}
@ftgate.compare(threads, workers=[1])
def test_it(worker):
    end = real() + 30_000_000
    while real() < end: pass
"""
REPLACED = "clock.now_ns = lambda: real() // 3"
IN_THIRDS = """
import sys
def now_ns(): return real() // 3
for name, module in list(sys.modules.items()):
    if name.startswith("pytest_ftgate.runner") and "now_ns" in vars(module): module.now_ns = now_ns
clock._CLOCK = clock.now_ns
"""


def _measured(bench: Bench, forged: str, *, reference: bool = False, count: int = 20) -> Any:
    """The record of a launch of a workload that spins for 30 ms, with `forged` in its module."""
    bench.write(SPIN.format(forged))
    handle = bench.start(SERIAL if reference else THREADS, workers=1)
    handle.request = _with(handle.request, reference)  # type: ignore[attr-defined]
    handle.ready()
    handle.iteration(CHECKED_COLD)
    for _ in range(count):
        handle.iteration(MEASURED)
    return handle.finish()


def _with(request: Request, reference: bool) -> Request:
    return Request(**{**_fields(request), "reference": reference})


def test_a_runner_whose_clock_is_replaced_is_an_error(bench: Bench) -> None:
    with pytest.raises(LaunchFailed) as failed:
        _measured(bench, REPLACED, count=1)
    assert failed.value.error.reason == CLOCK
    assert "now_ns" in failed.value.error.detail


COUNTED = """
from pytest_ftgate.runner.record import LaunchRecord
LaunchRecord.wall_ns = property(lambda _: 1, lambda *_: None)
"""


def test_answers_that_the_result_file_does_not_agree_with(bench: Bench) -> None:
    with pytest.raises(LaunchFailed, match=r"2 iterations of .* ms and, in its result file, 2 iterations of 1e-06 ms"):
        _measured(bench, COUNTED, count=2)


def test_a_clock_that_hides_its_replacement_disagrees_with_the_controllers(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workload, "DELAYS", 0.0)  # else this machine may be too busy to tell
    _measured(bench, "", reference=True, count=5)
    with pytest.raises(LaunchFailed) as failed:
        _measured(bench, IN_THIRDS)
    assert failed.value.error.reason == CLOCK
    assert "shorter than" in failed.value.error.detail


def test_clocks_that_the_workload_sees_are_not_the_runners(bench: Bench) -> None:
    launch = _measured(bench, "time.perf_counter_ns = time.monotonic = time.process_time_ns = lambda: 0", count=2)
    assert all(iteration.wall_ns >= 30 * MS for iteration in launch.iterations)


def test_the_result_file_brings_no_times(bench: Bench) -> None:
    forged = """
write = main._write_result
def _write_result(path, result):
    result["launch"]["iterations"] = [{"wall_ns": 1, "work_ns": 1}] * 2
    write(path, result)
main._write_result = _write_result
"""
    launch = _measured(bench, forged, count=2)
    assert all(iteration.wall_ns >= 30 * MS for iteration in launch.iterations)


def test_figures_that_agree_with_the_clock_are_believed(bench: Bench) -> None:
    """Not detected: code of the workload that changes what the runner answers. docs/trust.md says so."""
    forged = """
from pytest_ftgate.runner.executors.threads import ThreadWorkers
honest = ThreadWorkers.iteration
def iteration(self, order, observer):
    times, *reports = honest(self, order, observer)
    return times | dict.fromkeys(("start_ns", "work_ns", "join_ns"), 1_000_000), *reports
ThreadWorkers.iteration = iteration
"""
    launch = _measured(bench, forged, count=2)
    assert {iteration.wall_ns for iteration in launch.iterations} == {3 * MS}


class Watcher(Quiet):
    def begin(self, title: str, cells: Sequence[str]) -> None:
        """Forget it."""


def test_rows_that_are_written_for_a_test_are_taken_for_its_own(tmp_path: Path) -> None:
    """Not detected: measured code that writes into `.ftgate/runs`. docs/trust.md says so."""
    session, group = Run(CONFIG, tmp_path, "run", Watcher(), FakeLauncher()), group_of("threads")
    session.start()
    session.collect((group,))
    row = Row(cell=group.cells[0], verdict=Verdict(decision=Decision.PASSED))
    session.folder.run.mkdir(parents=True)
    file = session.folder.shared("rows", group.key)
    file.write_bytes(msgspec.json.encode([placed_row(0, group, row)]))
    assert session.row(group.cells[0].nodeid).row == row


# ---- what judges: the settings and the set of tests

BASE = {
    "pytest.ini": "[pytest]\n",
    ".gitignore": ".ftgate/\n__pycache__/\n",
    "test_a.py": """
        import pytest

        @ftgate.compare(threads, workers=1)
        def test_slower(worker):
            return 1

        @ftgate.compare(threads, workers=1)
        def test_marked_slower(worker):
            return 1

        @ftgate.compare(threads, workers=1)
        def test_known_slower(worker):
            return 1

        @ftgate.compare(threads, workers=1)
        def test_skipped(worker):
            return 1

        @pytest.mark.skip
        @ftgate.compare(threads, workers=1)
        def test_always_skipped(worker):
            return 1

        @ftgate.compare(threads, serial, workers=1)
        def test_of_two(worker):
            return 1

        @ftgate.compare(threads, workers=1)
        def test_removed(worker):
            return 1
        """,
}
LENIENT = """[pytest]
ftgate_limit = wall: margin=900%, effect=950%
    tail: margin=900%, effect=950%
ftgate_fail_on = improved
ftgate_alpha = 1e-12
addopts = --deselect test_b.py
"""
QUICK = (
    "-p", "fake_run", "--ftgate", "--ftgate-against=HEAD~1", "-oftgate_launches=1", "-oftgate_iterations=2",
    "--ftgate-python=3.14t",
)  # fmt: skip
FORGED_TESTS = """
from pytest_ftgate import ftgate, threads
import pytest

@ftgate.limit("wall", margin="900%", effect="950%")
@ftgate.compare(threads, workers=1)
def test_slower(worker):
    return 1

@pytest.mark.xfail
@ftgate.compare(threads, workers=1)
def test_marked_slower(worker):
    return 1

@ftgate.xfail("regressed", reason="it is known", strict=False)
@ftgate.compare(threads, workers=1)
def test_known_slower(worker):
    return 1

@pytest.mark.skip
@ftgate.compare(threads, workers=1)
def test_skipped(worker):
    return 1

@pytest.mark.skip
@ftgate.compare(threads, workers=1)
def test_always_skipped(worker):
    return 1

@ftgate.compare(threads, workers=1)
def test_of_two(worker):
    return 1
"""


@pytest.fixture
def change(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, scripted_runs: None) -> Example:
    """A change that makes tests a hundred times slower, and does what it can to hide it."""
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    example, folder = Example(pytester, BASE), pytester.path
    (folder / "test_b.py").write_text(BASE_B, encoding="utf-8")
    git(folder, "init", "--quiet", "--template=")
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "-m", "base")
    (folder / "pytest.ini").write_text(LENIENT, encoding="utf-8")
    (folder / "test_a.py").write_text(FORGED_TESTS, encoding="utf-8")
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "-m", "change", "-m", "Ftgate-Accept: test_a.py::test_slower* wall: meant")
    return example


BASE_B = """
from pytest_ftgate import ftgate, threads

@ftgate.compare(threads, workers=1)
def test_deselected(worker):
    return 1
"""


def test_a_change_cannot_judge_itself_where_the_base_is_trusted(change: Example) -> None:
    result = change.run_pytest(*QUICK, "--ftgate-trust=base", "--ftgate-report=md:report.md")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    report = change.report()
    found = {nodeid.partition("::")[2]: decision for nodeid, decision in change.decisions().items()}
    gone = {"of_two[3.14t-serial-w1]", "skipped[3.14t-threads-w1]", "removed[3.14t-threads-w1]"}
    gone = {f"test_{each}" for each in gone | {"deselected[3.14t-threads-w1]"}}
    slower = {f"test_{each}slower[3.14t-threads-w1]" for each in ("", "marked_", "known_")}
    assert {name for name, decision in found.items() if decision == "error"} == gone
    assert {name for name, decision in found.items() if decision in ("regressed", "suspect")} == slower
    assert found.keys() == gone | slower | {"test_of_two[3.14t-threads-w1]"}
    assert {each.partition("::")[2] for each in report["failing"]} == gone | slower
    assert report["limits_from"] == git(change.folder, "rev-parse", "HEAD~1")
    said = f"from commit {report['limits_from'][:10]} (--ftgate-trust=base)"
    assert said in result.stdout.str()
    assert said in (change.folder / "report.md").read_text(encoding="utf-8")
    assert "a change cannot remove, rename, skip or deselect" in " ".join(result.stdout.str().split())


@pytest.mark.long
def test_shards_and_workers_of_xdist_are_judged_by_the_base_as_one_run_is(change: Example) -> None:
    trusted = (*QUICK, "--ftgate-trust=base", "--ftgate-seed=1", "--ftgate-report")
    assert change.run_pytest(*trusted, "json:one.json").ret == pytest.ExitCode.TESTS_FAILED
    one = change.report("one.json")
    assert change.run_pytest(*trusted, "json:workers.json", "-n2").ret == pytest.ExitCode.TESTS_FAILED
    assert change.report("workers.json")["failing"] == one["failing"]
    assert change.decisions("workers.json") == change.decisions("one.json")
    for part in (1, 2):
        change.run_pytest(*trusted, f"json:s{part}.json", f"--ftgate-shard={part}/2")
    assert cli.main(["merge", "s2.json", "s1.json", "-o", "all.json"]) == 1
    joined = change.report("all.json")
    assert (joined["failing"], joined["limits_from"]) == (one["failing"], one["limits_from"])
    assert change.decisions("all.json") == change.decisions("one.json")


@pytest.mark.long
def test_a_change_judges_itself_where_the_head_is_trusted(change: Example) -> None:
    assert change.run_pytest(*QUICK).ret == 0


@pytest.mark.long
def test_the_command_line_wins_over_both(change: Example) -> None:
    words = (*QUICK, "--ftgate-trust=base", "--ftgate-fail-on=improved", "test_a.py::test_slower")
    assert change.run_pytest(*words).ret == 0


@pytest.mark.long
def test_settings_above_the_checkout_are_not_the_bases(change: Example) -> None:
    folder = change.folder
    git(folder, "checkout", "--quiet", "HEAD~1")
    git(folder, "rm", "--quiet", "pytest.ini")
    git(folder, "commit", "--quiet", "-m", "base without settings")
    (folder / "pytest.ini").write_text(LENIENT, encoding="utf-8")
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "-m", "change")
    result = change.run_pytest(*QUICK, "--ftgate-trust=base", "test_a.py::test_slower")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert change.report()["tables"][0]["rows"][0]["verdict"]["decision"] in ("regressed", "suspect")


def test_it_needs_a_commit_to_trust(change: Example) -> None:
    result = change.run_pytest("-p", "fake_run", "--ftgate", "--ftgate-trust=base")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*--ftgate-trust=base takes limits from the commit*: add --ftgate-against REV"])


@pytest.mark.long
def test_a_base_that_cannot_be_collected_is_a_usage_error(change: Example) -> None:
    folder = change.folder
    git(folder, "checkout", "--quiet", "HEAD~1")
    (folder / "test_b.py").write_text("import nowhere\n", encoding="utf-8")
    git(folder, "commit", "--quiet", "--all", "-m", "a base that is broken")
    git(folder, "commit", "--quiet", "--allow-empty", "-m", "change")
    (folder / "test_b.py").write_text("", encoding="utf-8")
    result = change.run_pytest(*QUICK, "--ftgate-trust=base")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "No module named 'nowhere'" in result.stderr.str()
    assert "cannot be collected here" in result.stderr.str()


def test_a_tracked_folder_of_ours_ends_the_run(change: Example) -> None:
    folder = change.folder
    planted = folder / ".ftgate" / "runner" / "0123" / "main.py"
    planted.parent.mkdir(parents=True)
    planted.write_text("forged", encoding="utf-8")
    git(folder, "add", "--force", ".ftgate/runner")
    git(folder, "commit", "--quiet", "-m", "a runner")
    result = change.run_pytest("-p", "fake_run", "--ftgate")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*git tracks .ftgate/runner/0123/main.py: *`git rm -r -f .ftgate`*"])
