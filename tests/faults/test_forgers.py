"""What a change may bring or do to pass although it is slower: what is detected, and what is not.

Where nothing detects it, docs/trust.md says so, and a test shows what happens.
"""

from __future__ import annotations

import py_compile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from bench import THREADS, Bench
from example import Example
from project import commit, git

from pytest_ftgate.kit.errors import FtgateError
from pytest_ftgate.measure.launch import LaunchFailed
from pytest_ftgate.measure.launchers.workload import CLOCK, clock_error, install_runner
from pytest_ftgate.run.folder import refuse_tracked
from pytest_ftgate.run.sides import worktrees
from pytest_ftgate.run.sides.checkout import Checkout
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
    worktrees.remove_extras(repo, reference, repo / ".ftgate" / "envs")
    return reference


def _in_tree(checkout: Checkout) -> dict[str, bytes | str]:
    return {name: content for name, content in _files(checkout.project).items() if name != ".git"}


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


def test_what_an_installation_left_stays_and_where_it_is_gone_it_is_installed_again(repo: Path) -> None:
    """As in CI, which keeps environments and makes each checkout again."""
    envs, reference = repo / ".ftgate" / "envs", _checked_out(repo)
    built = [reference.project / name for name in ("native.so", "work.so")]
    stamps = {bound: envs / f"bound{bound}" / STAMP for bound in ("bound", "")}
    for path in built:
        path.write_text("built", encoding="utf-8")
    for bound, stamp in stamps.items():
        stamp.parent.mkdir(parents=True)
        stamp.write_text(f'{{"project": "{reference.project.resolve()}", "bound": "{bound}"}}', encoding="utf-8")
    worktrees.note_built(repo, reference, envs)
    (reference.project / "other.so").write_text("left by a workload", encoding="utf-8")
    _checked_out(repo)
    assert [path.exists() for path in built] == [True, True]
    assert not (reference.project / "other.so").exists()
    assert [stamp.exists() for stamp in stamps.values()] == [True, True]
    built[0].unlink()
    _checked_out(repo)
    assert not built[1].exists()
    assert [stamp.exists() for stamp in stamps.values()] == [False, True]  # a copy needs no checkout


# ---- the clock


@pytest.mark.parametrize(
    ("waited_ms", "said_ms", "wrong"),
    [(21.2, 21.0, False), (7.0, 21.0, True), (7.0, 7.9, False), (7.0, 8.2, True), (1000, 1010, False)],
)
def test_no_iteration_is_longer_than_its_answer_was_waited_for(waited_ms: float, said_ms: float, wrong: bool) -> None:
    error = clock_error(waited_ms * MS, said_ms * MS)
    assert (error is not None) is wrong
    assert error is None or (error.reason, "longer than" in error.detail) == (CLOCK, True)


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
TENFOLD = """
import sys
def now_ns(): return real() * 10
for name, module in list(sys.modules.items()):
    if name.startswith("pytest_ftgate.runner") and "now_ns" in vars(module): module.now_ns = now_ns
clock._CLOCK = clock.now_ns
"""


def _measured(bench: Bench, forged: str, *, count: int) -> Any:
    """The record of a launch of a workload that spins for 30 ms, with `forged` in its module."""
    bench.write(SPIN.format(forged))
    handle = bench.start(THREADS, workers=1)
    handle.ready()
    handle.iteration(CHECKED_COLD)
    for _ in range(count):
        handle.iteration(MEASURED)
    return handle.finish()


def test_a_runner_whose_clock_is_replaced_is_an_error(bench: Bench) -> None:
    with pytest.raises(LaunchFailed) as failed:
        _measured(bench, REPLACED, count=1)
    assert failed.value.error.reason == CLOCK
    assert "now_ns" in failed.value.error.detail


def test_a_clock_that_runs_faster_and_hides_its_replacement_is_an_error(bench: Bench) -> None:
    with pytest.raises(LaunchFailed) as failed:
        _measured(bench, TENFOLD, count=1)
    assert failed.value.error.reason == CLOCK
    assert "longer than" in failed.value.error.detail


COUNTED = """
from pytest_ftgate.runner.record import LaunchRecord
LaunchRecord.wall_ns = property(lambda _: 1, lambda *_: None)
"""


def test_answers_that_the_result_file_does_not_agree_with(bench: Bench) -> None:
    with pytest.raises(LaunchFailed, match=r"2 iterations of .* ms and, in its result file, 2 iterations of 1e-06 ms"):
        _measured(bench, COUNTED, count=2)


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


def test_a_tracked_folder_of_ours_ends_the_run(pytester: pytest.Pytester, scripted_runs: None) -> None:
    example = Example(pytester, {"test_a.py": "@ftgate.compare(threads)\ndef test_it(worker): ...\n"})
    folder = example.folder
    git(folder, "init", "--quiet", "--template=")
    planted = folder / ".ftgate" / "runner" / "0123" / "main.py"
    planted.parent.mkdir(parents=True)
    planted.write_text("forged", encoding="utf-8")
    git(folder, "add", "--force", ".ftgate/runner")
    git(folder, "commit", "--quiet", "-m", "a runner")
    result = example.run_pytest("-p", "fake_run", "--ftgate")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*git tracks .ftgate/runner/0123/main.py: *`git rm -r -f .ftgate`*"])
