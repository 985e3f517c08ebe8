"""What a container may lack: a home, a known user, the ownership of the repository, memory, descriptors, processes."""

from __future__ import annotations

import json
import pwd
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from bench import THREADS, Bench
from container import Container, container
from fake_launcher import CONFIG, Quiet
from project import commit

from pytest_ftgate.features.doctor import diagnose
from pytest_ftgate.kit import git
from pytest_ftgate.kit.git import commit_of
from pytest_ftgate.measure.launch import LaunchFailed
from pytest_ftgate.measure.launchers import workload
from pytest_ftgate.measure.launchers.process import Process
from pytest_ftgate.model.spec import parse_target
from pytest_ftgate.run.run import Run
from pytest_ftgate.targets import find
from pytest_ftgate.targets.environments import uv_environment


@pytest.fixture
def homeless(monkeypatch: pytest.MonkeyPatch) -> None:
    """As for a random uid: HOME is not set, and no password database knows the user."""

    def unknown(uid: int) -> Any:
        raise KeyError(f"getpwuid(): uid not found: {uid}")

    monkeypatch.setattr(pwd, "getpwuid", unknown)
    for name in ("HOME", "XDG_CACHE_HOME", "XDG_DATA_HOME", "UV_CACHE_DIR", "UV_PYTHON_INSTALL_DIR"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.usefixtures("interpreters_on_path", "homeless")
def test_without_a_home_interpreters_are_found_and_only_what_keeps_one_fails(tmp_path: Path) -> None:
    assert find.find_interpreter(parse_target("3.14")).version.startswith("3.14.")
    assert uv_environment()["UV_NO_CACHE"] == "1"
    found = diagnose(["/nowhere/python"], tmp_path)
    assert "set HOME or XDG_CACHE_HOME to a folder that can be written" in [problem.fix for problem in found.problems]


def test_uv_keeps_its_cache_where_that_can_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("UV_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "not" / "yet" / "made"))
    assert "UV_NO_CACHE" not in uv_environment()
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file" / "cache"))
    assert uv_environment()["UV_NO_CACHE"] == "1"
    monkeypatch.setenv("UV_CACHE_DIR", "/said/by/the/user")
    assert "UV_NO_CACHE" not in uv_environment()


def test_a_repository_of_another_owner_is_named_with_its_fix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    subprocess.run(["git", "init", "--quiet", str(tmp_path)], check=True)
    monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")
    fix = f"git config --global --add safe.directory {tmp_path}"
    with pytest.raises(git.NotTrusted) as refused:
        git.Repository(tmp_path)
    assert fix in str(refused.value)
    assert commit_of(tmp_path) == ""
    listener = Listener()
    Run(CONFIG, tmp_path, "run", listener).check_out()
    (warning,) = listener.warnings
    assert "no commit is recorded" in warning
    assert fix in warning


def test_a_launch_that_gets_no_thread_names_the_limit_and_leaves_nothing(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.write("@ftgate.compare(threads)\ndef test_it(worker): return 1\n")
    started = []

    class Refused(Process):
        def __init__(self, popen: subprocess.Popen[bytes], *_: object) -> None:
            started.append(popen)
            raise RuntimeError("can't start new thread")

    monkeypatch.setattr(workload, "Process", Refused)
    with pytest.raises(LaunchFailed, match="raise `ulimit -u` or the container's limit"):
        bench.start(THREADS)
    (popen,) = started
    assert popen.returncode is not None


class Listener(Quiet):
    """Hears warnings."""

    def begin(self, title: str, cells: object) -> None:
        """Forget it."""


# -- real ones -----------------------------------------------------------------------------------------------------

TESTS = """from pytest_ftgate import ftgate, processes, threads

@ftgate.compare(threads, processes=["fork", "spawn"], workers=[1, 2])
def test_work(worker):
    return sum(range(2000))
"""
PYTEST = (sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--ftgate", "--ftgate-python=3.14")
QUICK = ("-oftgate_launches=1", "-oftgate_iterations=2", "--ftgate-test-time=60")
ONE = ("-k", "threads-w1")


@pytest.fixture
def box(executables: dict[str, str]) -> Iterator[Container]:
    """A container whose project has six cells and is a repository of its user."""
    with container(executables["3.14"]) as made:
        (made.project / "test_work.py").write_text(TESTS)
        (made.project / "pytest.ini").write_text("[pytest]\nftgate_install =\n")
        commit(made.project)
        made.give(made.project)
        yield made


def outcome(box: Container, *words: str, **given: Any) -> tuple[int, str, list[dict[str, Any]]]:
    """The exit code, the text on one line, and the rows of the report. No traceback, and no success without figures."""
    done = box.run(*PYTEST, *QUICK, *words, **given)
    text = " ".join(done.stdout.split())
    for trace in ("Traceback", "INTERNALERROR", "a mistake of"):
        assert trace not in text, done.stdout
    kept = box.project / ".ftgate" / "last-run.json"
    tables = json.loads(kept.read_text())["tables"] if kept.exists() else []
    rows = [row for table in tables for row in table["rows"]]
    measured = [row for row in rows if row.get("sample") and row["sample"]["launches"]]
    assert done.returncode or (rows and len(measured) == len(rows)), done.stdout
    return done.returncode, text, rows


def read_only(path: Path) -> list[str]:
    return [f"mount --bind {path} {path}", f"mount -o remount,ro,bind {path}"]


def foreign(box: Container) -> None:
    """The project is root's, and everyone may write in it."""
    box.give(box.project, 0)
    box.project.chmod(0o777)


def test_a_project_that_cannot_be_written_is_refused_with_its_name(box: Container) -> None:
    code, text, _ = outcome(box, *ONE, mounts=read_only(box.project))
    assert code == pytest.ExitCode.USAGE_ERROR
    assert f"ERROR: {box.project}/.ftgate: Read-only file system; " in text
    assert f"make {box.project} writable" in text


def test_what_needs_git_says_why_a_repository_of_another_owner_is_refused(box: Container) -> None:
    foreign(box)
    code, text, _ = outcome(box, *ONE, "--ftgate-against=HEAD~1")
    assert code == pytest.ExitCode.USAGE_ERROR
    assert f"git refuses the repository {box.project}" in text
    assert f"GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=safe.directory GIT_CONFIG_VALUE_0={box.project}" in text


@pytest.mark.long
@pytest.mark.parametrize("home", ["", "/", "/nonexistent"])
def test_a_user_without_a_home_measures_and_records(box: Container, home: str) -> None:
    words = ("--ftgate-update=new", "--ftgate-install=iniconfig", *ONE)
    code, text, rows = outcome(box, *words, **({"HOME": home} if home else {}))
    assert (code, len(rows)) == (0, 1), text
    (baseline,) = (box.project / "baselines").rglob("*.json")
    assert '"commit"' in baseline.read_text()
    assert not (box.project / ".uv_cache").exists()


@pytest.mark.long
def test_a_repository_of_another_owner_is_measured_without_a_commit_and_says_so(box: Container) -> None:
    foreign(box)
    code, text, rows = outcome(box, *ONE, "--ftgate-update=new")
    assert (code, len(rows)) == (0, 1), text
    assert (
        text.count(f"git config --global --add safe.directory {box.project}") == 2
    )  # at the start, and where recorded
    fix = {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "safe.directory", "GIT_CONFIG_VALUE_0": str(box.project)}
    # Nothing is said of the time: one launch of each run is compared, and no commit can be paired.
    code, text, rows = outcome(box, *ONE, "--ftgate-fail-on=broken", **fix)
    assert code == 0, text
    assert "safe.directory" not in text
    assert "branch main at " in text


@pytest.mark.long
def test_few_descriptors_split_a_test(box: Container) -> None:
    code, text, rows = outcome(box, limits=["--nofile=90"])
    assert (code, len(rows)) == (0, 6), text
    assert "not all cells were measured together" in text
    assert "this process may open 90 files (`ulimit -n`)" in text
    code, text, rows = outcome(box, limits=["--nofile=256"])
    assert (code, len(rows)) == (0, 6), text
    assert "together" not in text


@pytest.mark.long
@pytest.mark.parametrize("most", [64, 40])
def test_few_processes_split_a_test(box: Container, most: int) -> None:
    code, text, rows = outcome(box, limits=[f"--nproc={most}"])
    assert (code, len(rows)) == (0, 6), text
    assert "processes and threads can be started (`ulimit -u`, or the container's limit)" in text


@pytest.mark.long
def test_too_few_processes_for_one_cell_are_named(box: Container) -> None:
    code, text, rows = outcome(box, *ONE, limits=["--nproc=5"])
    assert code, text
    assert [row["verdict"]["decision"] for row in rows] == ["error"], text
    assert "Resource temporarily unavailable" in text or "raise `ulimit -u` or the container's limit" in text


@pytest.mark.long
@pytest.mark.parametrize("options", ["size=64m", "size=64m,ro"])
def test_little_shared_memory_is_enough(box: Container, options: str) -> None:
    code, text, rows = outcome(box, mounts=[f"mount -t tmpfs -o {options} shm /dev/shm"])
    errors = [row for row in rows if row["verdict"]["decision"] in ("error", "unsupported")]
    assert (bool(code), len(rows)) == (bool(errors), 6), text


@pytest.mark.long
def test_a_hidden_proc_is_named(box: Container) -> None:
    code, text, _ = outcome(box, *ONE, mounts=["mount -t tmpfs none /proc"])
    assert code == pytest.ExitCode.USAGE_ERROR
    assert "--ftgate cannot measure here: /proc is not mounted" in text
    code, text, rows = outcome(box, *ONE, mounts=["mount -t proc -o hidepid=2 proc /proc"])
    assert (code, len(rows)) == (0, 1), text


@pytest.mark.long
def test_a_disk_that_is_full_keeps_what_was_there(box: Container) -> None:
    full = box.project / "out"
    full.mkdir()
    small = [f"mount -t tmpfs -o size=8k,mode=777 small {full}", f"echo old > {full}/r.json"]
    kept = [f"trap 'cp {full}/* {box.folder}' EXIT"]  # the shell that ends after pytest copies what was there
    code, text, rows = outcome(box, *ONE, "--ftgate-report=json:out/r.json", mounts=[*small, *kept])
    assert (code, len(rows)) == (pytest.ExitCode.INTERNAL_ERROR, 1), text
    assert "json:out/r.json cannot be written: No space left on device" in text
    assert (box.folder / "r.json").read_text() == "old\n"
    assert not (box.folder / "r.json.part").exists()
    code, text, _ = outcome(box, *ONE, mounts=[f"mount -t tmpfs -o size=64k,mode=777 small {box.project}/.ftgate"])
    assert code
    assert "No space left on device" in text
