"""`ftgate init` in a project that git alone cannot build: what it says, and its workflow in a fresh clone."""

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
    keys = '[tool.pytest.ini_options]\nftgate_install = ["$ uvx cython fast.pyx", "-e ."]\n'
    lay(project, {"pyproject.toml": FILES["pyproject.toml"] + keys})
    commit(project)
    assert cli.main(["init", "--ci", "github", "--requirement", str(ROOT)]) == 0
    assert "cannot be installed" not in capsys.readouterr().out
    assert (project / "fast.c").read_text() == '#error "as it is here"\n'
    commit(project)
    lay(project, {"tests/test_fast.py": FILES["tests/test_fast.py"].replace("20_000", "200_000")})
    commit(project)

    clone = tmp_path / "clone"
    git(tmp_path, "clone", "--quiet", str(project), str(clone))
    steps = yaml.safe_load((clone / ".github/workflows/ftgate.yml").read_text())["jobs"]["ftgate"]["steps"]
    lines = [step["run"] for step in steps if "run" in step and not step["run"].startswith("uv python install")]
    environment = {name: text for name, text in os.environ.items() if not name.startswith(("FTGATE", "GITHUB"))}
    environment |= {
        "PYTEST_ADDOPTS": "-o ftgate_launches=4 -o ftgate_iterations=5 --ftgate-metrics=wall",
        "FTGATE_EXPLAIN": "no",
    }
    for line in lines:
        done = subprocess.run(["bash", "-ec", line], cwd=clone, env=environment, capture_output=True, text=True)
        assert line is lines[-1] or not done.returncode, done.stdout + done.stderr
    (row,) = (row for table in json.loads((clone / "ftgate.json").read_text())["tables"] for row in table["rows"])
    assert (row["verdict"]["basis"], row["verdict"]["decision"]) == ("paired", "regressed"), done.stdout + done.stderr


def test_what_git_lacks_is_said(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["init", "--ci", "none"]) == 0
    said = capsys.readouterr()
    assert "what git has of this project cannot be installed: cannot install -e .: " in said.out
    assert IGNORED in said.out
    assert "trying    -e . for 3.14" in said.err
