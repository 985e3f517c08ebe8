"""`ftgate init` in a project that git alone cannot build: what it proposes, and its workflow in a fresh clone."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
import yaml
from project import commit, git
from test_init import lay

from pytest_ftgate import cli
from pytest_ftgate.features.init import builds
from pytest_ftgate.targets.environments import find_uv

ROOT = Path(__file__).parents[2]
FILES = {
    "pyproject.toml": """\
[build-system]
requires = ["setuptools"]
build-backend = "setuptools.build_meta"

[project]
name = "fast"
version = "1.0"

[tool.setuptools]
py-modules = []
ext-modules = [{name = "fast", sources = ["fast.c"]}]
""",
    "fast.pyx": """\
cdef class Whole:
    pass

include "part.pyx"

def total(int number):
    return sum(range(number))
""",
    "part.pyx": "cdef Whole part\n",  # no module by itself
    ".gitignore": "*.c\n*.so\n*.egg-info\nbuild\n.venv\n",
    "tests/test_fast.py": """\
from pytest_ftgate import ftgate, threads

COUNT = 20_000


@ftgate.compare(threads, pythons=["3.14"])
def test_total(worker):
    import fast

    return fast.total(COUNT)
""",
}
IGNORED = "fast.c is in the working tree but not in git"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, executables: dict[str, str]) -> Path:
    """A project whose C source is made by Cython, and ignored."""
    monkeypatch.setenv("PATH", f"{Path(executables['3.14']).parent}:{Path(find_uv()).parent}", prepend=":")
    folder = tmp_path / "project"
    lay(folder, FILES)
    commit(folder)
    lay(folder, {"fast.c": '#error "as it is here"\n'})
    monkeypatch.chdir(folder)
    return folder


def test_its_workflow_gates_a_fresh_clone(project: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / "fast.c").unlink()  # as in a clone: the compiler's message tells what to make
    assert cli.main(["init", "--dry-run"]) == 0
    assert "uvx cython fast.pyx" in capsys.readouterr().out
    lay(project, {"fast.c": '#error "as it is here"\n'})
    assert cli.main(["init", "--ci", "github", "--requirement", str(ROOT)]) == 0
    said = capsys.readouterr().out
    assert "cannot be installed: cannot install -e .: " in said
    needed = '[tool.pytest.ini_options]\nftgate_install = ["$ uvx cython fast.pyx", "-e ."]\n'
    assert f"(the workflow has them, pyproject.toml needs them):\n{needed}" in said
    assert (project / "fast.c").read_text() == '#error "as it is here"\n'
    commit(project)
    lay(project, {"tests/test_fast.py": FILES["tests/test_fast.py"].replace("20_000", "200_000")})
    commit(project)

    clone = tmp_path / "clone"
    git(tmp_path, "clone", "--quiet", str(project), str(clone))
    steps = yaml.safe_load((clone / ".github/workflows/ftgate.yml").read_text())["jobs"]["ftgate"]["steps"]
    lines = [step["run"] for step in steps if "run" in step and not step["run"].startswith("uv python install")]
    environment = {name: text for name, text in os.environ.items() if not name.startswith(("FTGATE", "GITHUB"))}
    environment |= {"PYTEST_ADDOPTS": "-o ftgate_launches=4", "FTGATE_EXPLAIN": "no"}
    for line in lines:
        done = subprocess.run(["bash", "-ec", line], cwd=clone, env=environment, capture_output=True, text=True)
        assert line is lines[-1] or not done.returncode, done.stdout + done.stderr
    (row,) = (row for table in json.loads((clone / "ftgate.json").read_text())["tables"] for row in table["rows"])
    assert (row["verdict"]["basis"], row["verdict"]["decision"]) == ("paired", "regressed"), done.stdout + done.stderr


def test_an_ini_file_is_told_its_own_form_after_a_build_that_took_long(
    project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(builds, "TOLD_EACH_S", 0.0)
    lay(project, {"tox.ini": "[pytest]\naddopts = -q\n"})
    assert cli.main(["init", "--ci", "none"]) == 0
    said = capsys.readouterr()
    assert "tox.ini needs them):\nftgate_install =\n    $ uvx cython fast.pyx\n    -e .\n" in said.out
    assert "building the project, " in said.err


def test_what_it_cannot_mend_it_says(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    git(project, "rm", "--quiet", "fast.pyx")
    commit(project)
    assert cli.main(["init", "--ci", "none"]) == 0
    said = capsys.readouterr().out
    assert "what git has of this project cannot be installed: cannot install -e .: " in said
    assert IGNORED in said
    assert "ftgate_install =" not in said


def test_a_project_that_git_has_whole_is_left_as_it_is(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    git(project, "add", "--force", "fast.c")
    commit(project)
    (project / "fast.c").unlink()
    git(project, "rm", "--quiet", "--cached", "fast.c")
    lay(project, {"pyproject.toml": FILES["pyproject.toml"].replace("ext-modules", "# ext-modules")})
    commit(project)
    assert cli.main(["init", "--ci", "none"]) == 0
    assert "cannot be installed" not in capsys.readouterr().out
