"""Hosts of `--tx ssh=...`: network namespaces with an sshd, scripted launches; one is cut off in the middle."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from example import Example
from project import commit
from ssh_hosts import SshHost, ssh_hosts, unavailable

pytestmark = pytest.mark.long
QUICK = ("-p", "fake_run", "-oftgate_launches=1", "-oftgate_iterations=2", "--ftgate-python=3.14", "-d")
BODY = "@ftgate.compare(threads, workers=[1, 2])\ndef test_{name}(worker): ...\n"
# What a test is doing when its host is lost: a name with `held` in it is held.
CONFTEST = """
    import os, pathlib, time
    def pytest_runtest_setup(item):
        folder = os.environ.get("XDG_CACHE_HOME")
        if "held" in item.name and folder:
            pathlib.Path(folder, "began").write_text(str(os.getpid()))
            time.sleep(60)
        time.sleep(0.4 if folder else 0)
"""
Hosts = Callable[..., list[SshHost]]


@pytest.fixture(scope="module", autouse=True)
def possible() -> None:
    if why := unavailable():
        pytest.skip(why)


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[Hosts]:
    with ExitStack() as stack:
        yield lambda *names, **how: stack.enter_context(ssh_hosts(tmp_path, *names, **how))


@pytest.fixture
def project(pytester: pytest.Pytester, scripted_runs: None) -> Example:
    files = {f"tests/test_{name}.py": BODY.format(name=name) for name in "abc"}
    plain = {"tests/test_plain.py": "def test_plain(tmp_path): assert tmp_path.exists()\n"}
    return Example(pytester, {**files, **plain, "conftest.py": CONFTEST, "pytest.ini": "[pytest]\n"})


def tx(hosts: list[SshHost]) -> list[str]:
    return [word for host in hosts for word in ("--tx", host.spec)]


def failed(running: subprocess.Popen[str]) -> str:
    """What a run said that ends by itself, however its lines were wrapped."""
    text = running.communicate(timeout=300)[0]
    assert running.returncode == pytest.ExitCode.TESTS_FAILED, text
    return " ".join(text.split())


def began(host: SshHost) -> int:
    """The process that holds a test there."""
    path = host.cache / "began"
    for _ in range(3000):
        if path.exists() and path.read_text():
            return int(path.read_text())
        time.sleep(0.1)
    raise AssertionError(f"no test began on {host.name}")


def test_a_test_is_measured_once_on_hosts_of_one_class_as_the_working_tree_is(project: Example, hosts: Hosts) -> None:
    commit(project.folder)
    with (project.folder / "tests" / "test_a.py").open("a") as file:
        file.write("# changed, not committed\n")
    path = project.folder / "tests" / "test_new.py"
    path.write_text(f"from pytest_ftgate import *\nfrom pytest_ftgate import ftgate\n{BODY.format(name='new')}")
    result = project.run_fresh("--ftgate", *QUICK, *tx(hosts("one", "two")), "tests")
    assert result.ret == 0
    assert result.parseoutcomes()["passed"] == 1  # the plain test, with a folder of its own
    report = project.report()
    measured = [row["cell"]["nodeid"] for row in project.rows()]
    assert len(measured) == len(set(measured)) == 8
    by_test = {(row["cell"]["nodeid"].partition("[")[0], row["host"]) for row in project.rows()}
    assert len(by_test) == 4, "the cells of a test stay together"
    assert {host["name"] for host in report["hosts"]} == {row["host"] for row in project.rows()} == {"one", "two"}
    assert report["commit"].endswith("+")
    result.stdout.fnmatch_lines(["*measured on one (*", "*measured on two (*"])


def test_unlike_hosts_keep_their_verdicts_and_baselines_apart(project: Example, hosts: Hosts) -> None:
    commit(project.folder)
    both = tx(hosts("one", "other", other_machines=("other",)))
    assert project.run_fresh("--ftgate-update", *QUICK, *both, "tests").ret == 0
    prints = {host["machine"]["fingerprint"] for host in project.report()["hosts"]}
    assert len(prints) == 2
    assert sorted(row["host"] for row in project.rows()) == ["one"] * 6 + ["other"] * 6
    stored = [path.read_text() for path in (project.folder / "baselines").rglob("*.json")]
    assert [sum(mark in text for text in stored) for mark in prints] == [3, 3]
    again = project.run_fresh("--ftgate", *QUICK, *both, "tests/test_a.py")
    assert again.ret == 0
    assert {row["verdict"]["decision"] for row in project.rows()} == {"passed"}
    assert {row["verdict"]["basis"] for row in project.rows()} == {"stored"}


def test_a_slowdown_is_found_there_against_the_commit_before(project: Example, hosts: Hosts) -> None:
    path = project.folder / "tests" / "test_slower.py"
    path.write_text(f"from pytest_ftgate import *\nfrom pytest_ftgate import ftgate\n{BODY.format(name='slower')}")
    commit(project.folder)
    path.write_text(path.read_text() + "# changed\n")
    result = project.run_fresh("--ftgate-against=HEAD", *QUICK, *tx(hosts("one")), "tests/test_slower.py", "-v")
    assert result.ret == 1
    assert {row["verdict"]["decision"] for row in project.rows()} <= {"regressed", "suspect"}


def test_a_host_is_cut_off_in_the_middle(project: Example, hosts: Hosts) -> None:
    held = project.folder / "tests" / "test_held.py"
    held.write_text(f"from pytest_ftgate import *\nfrom pytest_ftgate import ftgate\n{BODY.format(name='held')}")
    (project.folder / "tests" / "test_a.py").rename(project.folder / "tests" / "test_z.py")
    commit(project.folder)
    one, two = hosts("one", "two")
    running = project.start("--ftgate", *QUICK, *tx([one, two]), "tests/test_held.py", "tests")
    lost, kept = (one, two) if _first(one, two) is one else (two, one)
    lost.cut()
    text = failed(running)
    assert f"host {lost.name} was lost while it measured tests/test_held.py::test_held, which is missing" in text
    assert {row["host"] for row in project.rows()} >= {kept.name}
    missing = {"tests/test_held.py::test_held"}
    assert {row["cell"]["nodeid"].partition("[")[0] for row in project.rows()} == {
        f"tests/test_{file}.py::test_{name}" for file, name in (("z", "a"), ("b", "b"), ("c", "c"))
    }, text
    assert all(test in project.report()["partial"] for test in missing)
    _ends(lost)


def _first(*hosts: SshHost) -> SshHost:
    """The host on which a test is held."""
    for _ in range(3000):
        for host in hosts:
            if (host.cache / "began").exists():
                return host
        time.sleep(0.1)
    raise AssertionError("no test began")


def _ends(host: SshHost) -> None:
    """Nothing of a run is left there, although nobody could tell it."""
    for _ in range(3000):
        if len(host.processes()) <= 1:  # its sshd
            return
        time.sleep(0.1)
    raise AssertionError([Path(f"/proc/{pid}/cmdline").read_text() for pid in host.processes()])


def test_what_no_host_is_left_for_is_named(project: Example, hosts: Hosts) -> None:
    held = project.folder / "tests" / "test_a.py"
    held.write_text(held.read_text().replace("test_a", "test_held"))
    commit(project.folder)
    one, other = hosts("one", "other", other_machines=("other",))
    running = project.start("--ftgate", *QUICK, *tx([one, other]), "tests")
    began(other)
    other.cut()
    os.kill(began(one), signal.SIGALRM)  # ends the sleep: a signal without a handler ends the worker
    text = failed(running)
    assert "host other was lost while it measured tests/test_a.py::test_held, which is missing" in text
    assert "no host of linux" in text
    assert {row["host"] for row in project.rows()} == {"one"}


def test_a_worker_that_is_killed_costs_its_test_alone(project: Example, hosts: Hosts) -> None:
    held = project.folder / "tests" / "test_a.py"
    held.write_text(held.read_text().replace("test_a", "test_held"))
    commit(project.folder)
    (one,) = hosts("one")
    running = project.start("--ftgate", *QUICK, *tx([one]), "tests")
    os.kill(began(one), signal.SIGKILL)
    text = failed(running)
    assert "while it measured tests/test_a.py::test_held, which is missing" in text
    assert len(project.rows()) == 4, text


def test_a_host_is_kept_for_one_run_and_let_go_when_its_controller_dies(project: Example, hosts: Hosts) -> None:
    held = project.folder / "tests" / "test_a.py"
    held.write_text(held.read_text().replace("test_a", "test_held"))
    commit(project.folder)
    (one,) = hosts("one")
    running = project.start("--ftgate", *QUICK, *tx([one]), "tests/test_a.py")
    began(one)
    second = project.run_fresh("--ftgate", *QUICK, *tx([one]), "tests/test_b.py")
    assert second.ret == pytest.ExitCode.USAGE_ERROR
    second.stderr.fnmatch_lines(["ERROR: host one: the run * measures there: wait for its end, or end it there"])
    running.kill()
    running.communicate()
    _ends(one)
    assert project.run_fresh("--ftgate", *QUICK, *tx([one]), "tests/test_b.py").ret == 0


def test_a_host_that_cannot_be_used_is_named_before_anything_is_measured(project: Example, hosts: Hosts) -> None:
    commit(project.folder)
    (one,) = hosts("one")
    one.cut()
    gone = project.run_fresh("--ftgate", *QUICK, *tx([one]), "tests")
    assert gone.ret == pytest.ExitCode.USAGE_ERROR
    gone.stderr.fnmatch_lines(["ERROR: host one: cannot be reached by ssh*"])
    (two,) = hosts("two")
    bare = project.run_fresh("--ftgate", *QUICK, "--tx", two.spec.replace(str(two.python), "/usr/bin/python3"), "tests")
    assert bare.ret == pytest.ExitCode.USAGE_ERROR
    bare.stderr.fnmatch_lines(["ERROR: host two: /usr/bin/python3 has no pytest-ftgate*install pytest-ftgate?xdist?*"])
