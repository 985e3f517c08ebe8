"""`ftgate init`: where its files go, what it leaves, and runs of what it wrote."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from project import commit

from pytest_ftgate import cli

WORKFLOW = ".github/workflows/ftgate.yml"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def lay(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")


def contents(folder: Path) -> dict[str, bytes]:
    files = (path for path in folder.rglob("*") if path.is_file() and ".git" not in path.relative_to(folder).parts)
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


@pytest.mark.parametrize(
    ("files", "options", "written"),
    [
        pytest.param({}, [], {"tests/test_concurrency.py", WORKFLOW}, id="an empty project"),
        pytest.param(
            {"pytest.ini": "[pytest]\ntestpaths = gone checks\n", "checks/test_a.py": ""},
            [],
            {"checks/test_concurrency.py", WORKFLOW},
            id="the first folder of testpaths that is there",
        ),
        pytest.param(
            {".gitlab-ci.yml": "stages: [a]\n"}, [], {"tests/test_concurrency.py", ".gitlab/ftgate.yml"}, id="gitlab"
        ),
        pytest.param(
            {".gitlab-ci.yml": "stages: [a]\n"}, ["--ci=github"], {"tests/test_concurrency.py", WORKFLOW}, id="asked"
        ),
        pytest.param({}, ["--ci=none"], {"tests/test_concurrency.py"}, id="no workflow"),
        pytest.param({WORKFLOW: "on: push\n"}, [], {"tests/test_concurrency.py"}, id="a workflow of this name"),
    ],
)
def test_where_the_files_go(folder: Path, files: dict[str, str], options: list[str], written: set[str]) -> None:
    lay(folder, files)
    commit(folder)
    before = contents(folder)
    assert cli.main(["init", *options]) == 0
    after = contents(folder)
    assert set(after) - set(before) == written
    assert {path: after[path] for path in before} == before
    for name in written:
        if name.endswith(".yml"):
            assert yaml.safe_load(after[name])


@pytest.mark.parametrize(
    ("commands", "branch"),
    [
        pytest.param([["checkout", "-q", "-b", "trunk"], ["branch", "-D", "main"]], "trunk", id="checked out"),
        pytest.param([["branch", "-m", "master"], ["checkout", "-q", "-b", "x"]], "master", id="master beside x"),
        pytest.param([["checkout", "-q", "-b", "x"]], "main", id="main beside x"),
        pytest.param(
            [
                ["remote", "add", "up", "nowhere"],
                ["update-ref", "refs/remotes/up/rel/1", "HEAD"],
                ["symbolic-ref", "refs/remotes/up/HEAD", "refs/remotes/up/rel/1"],
            ],
            "rel/1",
            id="the remote's",
        ),
        pytest.param([["branch", "-m", "1.0"], ["checkout", "-q", "--detach"]], "main", id="none"),
        pytest.param([["branch", "-m", "1.0"]], "1.0", id="a number"),
    ],
)
def test_the_workflow_has_the_default_branch(
    folder: Path, monkeypatch: pytest.MonkeyPatch, commands: list[list[str]], branch: str
) -> None:
    for name in ("GITHUB_HEAD_REF", "GITHUB_REF_NAME", "CI_COMMIT_REF_NAME"):
        monkeypatch.delenv(name, raising=False)
    commit(folder)
    subprocess.run(["git", "branch", "-M", "main"], check=True)
    for words in commands:
        subprocess.run(["git", *words], check=True)
    assert cli.main(["init"]) == 0
    triggers = yaml.load((folder / WORKFLOW).read_text("utf-8"), yaml.BaseLoader)["on"]
    assert triggers["push"]["branches"] == [branch]


def test_a_second_run_leaves_all_and_says_so(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    commit(folder)
    assert cli.main(["init"]) == 0
    first, before = capsys.readouterr().out, contents(folder)
    assert cli.main(["init"]) == 0
    second = capsys.readouterr().out
    assert contents(folder) == before
    for name in ("tests/test_concurrency.py", WORKFLOW):
        assert f"wrote {name}\n" in first
        assert f"left  {name}: it already exists\n" in second
    added = f"git add tests/test_concurrency.py {WORKFLOW} && git commit"
    assert added in first
    edit = f"# in {WORKFLOW}, edit the line `uv pip install`: it needs"
    assert edit in first
    for word in (edit, "git add"):
        assert word not in second
    for said in (first, second):
        assert said.endswith("\n  pytest --ftgate-against=HEAD tests/test_concurrency.py\n")


def test_a_project_below_the_top_of_its_repository(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its workflow has to begin in its folder."""
    lay(folder, {"packages/a/pytest.ini": "[pytest]\n", "packages/a/deep/x": ""})
    commit(folder)
    monkeypatch.chdir(folder / "packages/a/deep")
    assert cli.main(["init"]) == 0
    assert {"packages/a/tests/test_concurrency.py", WORKFLOW} <= contents(folder).keys()
    said = capsys.readouterr().out
    assert f"add `cd packages/a` to {WORKFLOW}" in said
    assert "pytest --ftgate-against=HEAD ../tests/test_concurrency.py\n" in said


def test_without_git_the_baselines_are_stored(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["init"]) == 0
    assert set(contents(folder)) == {"tests/test_concurrency.py"}
    said = capsys.readouterr().out
    assert "no workflow: this is not a git repository\n" in said
    test = "tests/test_concurrency.py"
    assert said.endswith(f"next:\n  pytest --ftgate-update {test}\n  pytest --ftgate {test}\n")


def test_what_gitlab_must_include_is_said(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    commit(folder)
    assert cli.main(["init", "--ci", "gitlab"]) == 0
    assert "  include:\n    - local: .gitlab/ftgate.yml\n" in capsys.readouterr().out


def test_a_folder_that_cannot_be_made_is_named(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lay(folder, {"pytest.ini": "[pytest]\ntestpaths = test_a.py\n", "test_a.py": "old"})
    assert cli.main(["init"]) == 2
    assert "test_a.py/test_concurrency.py: cannot be written: " in capsys.readouterr().err
    assert (folder / "test_a.py").read_text() == "old"


# -- for real ------------------------------------------------------------------------------------------------------


def run_pytest(*options: str) -> str:
    """The output of pytest in the current folder, where every warning is an error."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("FTGATE", "PYTEST_"))}
    command = [sys.executable, "-W", "error", "-m", "pytest", *options, "tests"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture
def strict(folder: Path, executables: dict[str, str]) -> None:
    """A project that is as strict as pytest can be, with what init writes and a test of its own."""
    ini = "[pytest]\naddopts = --strict-markers --strict-config --doctest-modules -Werror\nfilterwarnings = error\n"
    lay(folder, {"pytest.ini": ini, "tests/test_own.py": "def test_own(): ...\n"})
    assert set(executables) == {"3.14", "3.14t"}
    assert cli.main(["init"]) == 0


@pytest.mark.usefixtures("strict")
def test_what_it_wrote_runs_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    short = ("-k", "threads", "-oftgate_launches=1", "-oftgate_iterations=1", "--ftgate-metrics=wall")
    for options, expected in (((), "7 passed"), (("--ftgate", *short), "2 no baseline")):
        assert expected in run_pytest(*options)
    assert cli.main(["decide"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    left_out = "3.14-fork-w2, 3.14-spawn-w2, 3.14t-fork-w2 and 3.14t-spawn-w2"
    assert f"{left_out}: not measured; to compare all, run pytest --ftgate tests/test_concurrency.py::test_" in said


@pytest.mark.usefixtures("strict")
def test_what_it_wrote_is_skipped_where_the_plugin_is_disabled() -> None:
    said = run_pytest("-p", "no:ftgate", "-rs")
    assert re.search(r"SKIPPED .*pytest-ftgate is disabled", said)
    assert "1 passed, 1 skipped" in said


@pytest.mark.usefixtures("strict")
def test_what_it_wrote_is_skipped_where_the_plugin_is_missing(folder: Path) -> None:
    # An environment without the plugin: its entry point and its package are not to be found.
    hide = "import sys\nsys.modules['pytest_ftgate'] = None\n"
    lay(folder, {"conftest.py": hide})
    said = run_pytest("-p", "no:ftgate", "-rs")
    assert re.search(r"SKIPPED .*pytest-ftgate is not installed", said)
    assert "1 passed, 2 skipped" in said  # also the doctests of the file
