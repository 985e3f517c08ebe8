"""`ftgate init`: what it finds out, each kind of configuration file, what it leaves, and runs of what it wrote."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from project import commit, git

from pytest_ftgate import cli
from pytest_ftgate.declare.options import report_target
from pytest_ftgate.features import inifile, init
from pytest_ftgate.features.init.project import Git, Project, ci_of, look, name_for, workload_folder
from pytest_ftgate.kit.errors import FtgateError

PYPROJECT = '[project]\nname = "my-pkg"\nversion = "0.1"\n'
MESON = '[build-system]\nrequires = ["meson-python"]\nbuild-backend = "mesonpy"\n'
HATCH = '[build-system]\nrequires = ["hatchling"]\nbuild-backend = "hatchling.build"\n'
TOML = pytest.mark.skipif(pytest.version_tuple < (9,), reason="this file is read from pytest 9 on")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def lay(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode())


def repository(folder: Path, branch: str = "main") -> None:
    commit(folder)
    git(folder, "branch", "-M", branch)


def contents(folder: Path) -> dict[str, bytes]:
    files = (path for path in folder.rglob("*") if path.is_file() and ".git" not in path.relative_to(folder).parts)
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


def planned(found: Project, ci: str = "none", trigger: str = "push") -> dict[str, str]:
    """The files that would be written, by their name below the repository's top, the workflow last."""
    top = found.git.top if found.git else found.root
    return {path.relative_to(top).as_posix(): text for path, text in init.plan(found, ci, trigger).files.items()}


def workflow(folder: Path, ci: str, trigger: str = "push") -> dict[Any, Any]:
    *_, text = planned(look(folder), ci, trigger).values()
    return dict(yaml.safe_load(text))


# -- configuration files -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("pyproject.toml", '[tool.pytest.ini_options]\naddopts = "-q --cov"\n'),
        pytest.param("pyproject.toml", '[tool.pytest]\naddopts = ["-q", "--cov"]\n', marks=TOML),
        pytest.param("pytest.toml", '[pytest]\naddopts = ["-q", "--cov"]\n', marks=TOML),
        (".pytest.ini", "[pytest]\r\naddopts =\r\n    # all\r\n    -q\r\n    --cov\r\n"),
        ("tox.ini", "[tox]\nenvlist = py\n[pytest]\naddopts = -q --cov\n"),
        ("setup.cfg", "[metadata]\nname = x\n\n[tool:pytest]\naddopts = -q --cov\nnorecursedirs: 5%%\n"),
    ],
)
def test_each_kind_of_file_is_read(folder: Path, name: str, text: str) -> None:
    lay(folder, {name: text})
    assert inifile.words(look(folder).ini["addopts"]) == ["-q", "--cov"]


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"pytest.ini": "", "tox.ini": "[pytest]\n", "pyproject.toml": "[tool.pytest.ini_options]\n"}, "pytest.ini"),
        ({"tox.ini": "[pytest]\n", "pyproject.toml": "[tool.pytest.ini_options]\n"}, "pyproject.toml"),
        ({"tox.ini": "[pytest]\n", "pyproject.toml": "[tool.ruff]\n"}, "tox.ini"),
        ({"tox.ini": "[tox]\n", "setup.cfg": "[tool:pytest]\n"}, "setup.cfg"),
        ({"tox.ini": "[tox]\n", "setup.cfg": "[pytest]\n"}, None),
    ],
)
def test_the_file_is_the_one_that_pytest_reads(folder: Path, files: dict[str, str], expected: str | None) -> None:
    lay(folder, files)
    found = inifile.find(folder, folder)
    assert (found.path.name if found else None) == expected


def test_an_older_pytest_does_not_read_its_own_toml(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lay(folder, {"pytest.toml": "[pytest]\n", "pyproject.toml": "[tool.pytest]\naddopts = []\n"})
    monkeypatch.setattr(inifile, "version", lambda _name: "8.4.2")
    assert inifile.find(folder, folder) is None


@pytest.mark.parametrize(
    ("name", "text", "place"),
    [
        ("pyproject.toml", '[project]\nname = "a"\nversion = \n', "pyproject.toml:3: this is not TOML"),
        ("pyproject.toml", "[project]\nname = [\n", "pyproject.toml:3: this is not TOML"),
        ("pytest.ini", "addopts = -q\n", "pytest.ini:1: this is not an ini file"),
        ("tox.ini", "[tox]\nenvlist = py\nnonsense\n", "tox.ini:3: this is not an ini file"),
    ],
)
def test_a_broken_file_is_named_with_its_line(
    folder: Path, capsys: pytest.CaptureFixture[str], name: str, text: str, place: str
) -> None:
    lay(folder, {name: text})
    assert cli.main(["init"]) == 2
    assert capsys.readouterr().err.startswith(f"ftgate: error: {folder / place}")
    assert [path.name for path in folder.iterdir()] == [name]


# -- what is found out ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("testpaths", "there", "expected"),
    [
        ([], [], "tests"),
        ([], ["test"], "test"),
        (["tests"], [], "tests"),
        (["tests", "benchmarks"], ["tests", "benchmarks"], "benchmarks"),
        (["src", "unit_tests"], ["src"], "unit_tests"),
        (["."], ["test"], "test"),
        (["checks"], ["tests"], "checks"),
        (["packages/*/tests"], ["packages/b/tests", "packages/a/tests"], "packages/a/tests"),
        (["../elsewhere", "tests"], [], "tests"),
        ([], ["pkg/tests", "docs/tests"], "pkg/tests"),
        ([], ["src/pkg/test"], "src/pkg/test"),
        ([], ["pkg/tests", "tests"], "tests"),
    ],
)
def test_the_workload_goes_where_pytest_looks(
    folder: Path, testpaths: list[str], there: list[str], expected: str
) -> None:
    for name in there:
        (folder / name).mkdir(parents=True)
    for name in ("pkg", "src/pkg"):  # the folders of the packages, where they are there
        if (folder / name).is_dir():
            (folder / name / "__init__.py").touch()
    assert workload_folder(folder, testpaths) == folder / expected


@pytest.mark.parametrize(
    ("patterns", "wanted", "prefixes", "expected"),
    [
        (["test_*.py", "*_test.py"], "test_concurrency.py", False, "test_concurrency.py"),
        (["bench_*.py"], "test_concurrency.py", False, "bench_concurrency.py"),
        (["*_spec.py"], "test_concurrency.py", False, "concurrency_spec.py"),
        (["test"], "test_checksum", True, "test_checksum"),
        (["bench"], "test_checksum", True, "bench_checksum"),
        (["bench_*"], "test_checksum", True, "bench_checksum"),
        (["*_check"], "test_checksum", True, "checksum_check"),
    ],
)
def test_names_are_such_as_pytest_collects(patterns: list[str], wanted: str, prefixes: bool, expected: str) -> None:
    assert name_for(patterns, wanted, prefixes=prefixes) == expected


def test_keys_that_are_there_are_followed(folder: Path) -> None:
    repository(folder)
    assert ', pythons=["3.1' in planned(look(folder))["tests/test_concurrency.py"]
    keys = "ftgate_python = 3.13t[gil=on] 3.13t /opt/python\nftgate_install = -r 'a b.txt'\n"
    lay(folder, {"pytest.ini": f"[pytest]\n{keys}"})
    written = planned(look(folder), "github")
    assert "pythons=" not in written["tests/test_concurrency.py"]
    assert "uv python install 3.13t\n" in written[".github/workflows/ftgate.yml"]
    assert 'uv pip install pytest-ftgate -r "a b.txt"\n' in written[".github/workflows/ftgate.yml"]


def test_a_test_that_uses_the_plugin_is_the_workload(folder: Path) -> None:
    ours = "from pytest_ftgate import ftgate\n"
    lay(folder, {"pytest.ini": "[pytest]\ntestpaths = tests .\npython_files = tests/test_*.py\n"})
    lay(folder, {"venv/pyvenv.cfg": "", "venv/test_b.py": ours, ".ftgate/test_c.py": ours, "tests/conftest.py": ours})
    assert "tests/test_concurrency.py" in planned(look(folder))
    lay(folder, {"tests/perf/test_cache.py": ours})
    steps = init.plan(look(folder), "none")
    assert (folder / "tests/perf/test_cache.py", "it already exists") in steps.left
    assert not steps.files


@pytest.mark.parametrize(
    ("files", "url", "expected"),
    [
        ([], "", ""),
        ([".gitlab-ci.yml"], "git@github.com:a/b", "gitlab"),
        ([".github/x.yml"], "", "github"),
        ([".github/x.yml", ".gitlab-ci.yml"], "https://gitlab.example/a/b", "gitlab"),
        ([], "git@github.com:a/b", "github"),
        ([], "https://code.example/a/b", ""),
    ],
)
def test_the_ci_system_is_found(folder: Path, files: list[str], url: str, expected: str) -> None:
    lay(folder, dict.fromkeys(files, ""))
    assert ci_of(Git(top=folder, branch="main", url=url)) == expected
    assert ci_of(None) == ""


def test_git_tells_the_branch_and_the_top(folder: Path) -> None:
    lay(folder, {"packages/a/pyproject.toml": PYPROJECT, "packages/a/deep/x": ""})
    repository(folder, "trunk")
    git(folder, "checkout", "--quiet", "-b", "mine")
    git(folder, "remote", "add", "origin", "https://gitlab.example/a/b")
    git(folder, "update-ref", "refs/remotes/origin/trunk", "HEAD")
    git(folder, "symbolic-ref", "refs/remotes/origin/HEAD", "refs/remotes/origin/trunk")
    found = look(folder / "packages" / "a" / "deep")
    assert found.git == Git(top=folder, branch="trunk", url="https://gitlab.example/a/b")
    assert found.root == folder / "packages" / "a"


# -- CI ------------------------------------------------------------------------------------------------------------


def test_a_workflow_below_the_top_works_in_its_folder(folder: Path) -> None:
    lay(folder, {"packages/a/pyproject.toml": PYPROJECT})
    repository(folder)
    for ci, name, line in (
        ("github", ".github/workflows/ftgate.yml", "        working-directory: packages/a"),
        ("gitlab", ".gitlab-ci.yml", "    - cd packages/a"),
    ):
        text = planned(look(folder / "packages/a"), ci)[name]
        assert line in text.splitlines()
        assert "packages/a/ftgate.json" in text


@pytest.mark.parametrize(
    ("tables", "lock", "said"),
    [
        ('[dependency-groups]\ndev = ["tox"]\ntests = ["pytest"]\ntyping = ["pytest"]\n', True, "uv add --group tests"),
        ('[dependency-groups]\ndev = ["tox"]\ntests = ["pytest"]\n', False, "add it to the group tests:"),
        ('[dependency-groups]\ndev = ["x"]\nunit = ["pytest>=8"]\n', True, "uv add --group unit"),
        ('[project.optional-dependencies]\ntesting = ["pytest"]\n', True, "uv add --optional testing"),
        ('[project.optional-dependencies]\ntesting = ["pytest"]\n', False, "add it to the extra testing:"),
        ('[dependency-groups]\ndev = ["pytest"]\n', True, "uv add --group dev"),
        ('[dependency-groups]\ndocs = ["sphinx"]\n', True, "uv add --dev"),
    ],
)
def test_the_projects_own_group_gets_our_requirement(folder: Path, tables: str, lock: bool, said: str) -> None:
    lay(folder, {"pyproject.toml": PYPROJECT + tables} | ({"uv.lock": ""} if lock else {}))
    assert f"{said} " in init.plan(look(folder), "none").notes[1]


@pytest.mark.parametrize(
    ("files", "install", "run"),
    [
        (
            {"pyproject.toml": PYPROJECT + '[project.optional-dependencies]\ntest = ["pytest"]\n'},
            ("uv venv --python 3.14", 'uv pip install pytest-ftgate -e ".[test]"'),
            "uv run --no-sync",
        ),
        (
            {"pyproject.toml": PYPROJECT + '[dependency-groups]\ndev = ["pytest"]\n'},
            ("uv venv --python 3.14", "uv pip install pytest-ftgate -e . --group dev"),
            "uv run --no-sync",
        ),
        (
            {"requirements.txt": ""},
            ("uv venv --python 3.14", "uv pip install pytest-ftgate -r requirements.txt"),
            "uv run --no-sync",
        ),
        (
            {"pyproject.toml": PYPROJECT + '[dependency-groups]\ndev = ["pytest"]\ntest = ["x"]\n', "uv.lock": ""},
            (),
            "uv run --frozen --python 3.14 --with pytest-ftgate --group test",
        ),
        (
            {"pyproject.toml": PYPROJECT + '[dependency-groups]\ndev = ["PyTest_ftgate>=0.1"]\n', "uv.lock": ""},
            (),
            "uv run --frozen --python 3.14",
        ),
    ],
)
def test_ci_installs_what_the_project_says(
    folder: Path, files: dict[str, str], install: tuple[str, ...], run: str
) -> None:
    lay(folder, files)
    assert init.ci_commands(look(folder)) == (install, run)


@pytest.mark.parametrize(
    ("files", "words"),
    [
        # As multidict, contourpy, cheroot and cachetools have them.
        (
            {
                "requirements/pytest.txt": "pytest==9.1.1\npytest-cov==7.1.0\n",
                "requirements/ci.txt": "-e .\n-r pytest.txt\n",
                "requirements/doc-spelling.txt": "",
                "requirements/doc.txt": "",
                "pytest.ini": "[pytest]\naddopts =\n    -p pytest_cov\n    --cov\n",
            },
            "-r requirements/pytest.txt",
        ),
        ({"pyproject.toml": PYPROJECT + "[project.optional-dependencies]\ntest = []\ndocs = []\n"}, '-e ".[test]"'),
        (
            {"pyproject.toml": PYPROJECT + MESON + "[project.optional-dependencies]\ntest = []\n"},
            '".[test]"',
        ),
        (
            {"tox.ini": "[testenv]\ndeps =\n  -rdependencies{/}tests.in\n", "dependencies/tests.in": "pytest\n"},
            "-r dependencies/tests.in",
        ),
        (
            {"tox.ini": "[testenv]\ndeps =\n    pytest\n    py310: x\n    {[a]b}\n    y>=2 # why\n"},
            'pytest "y>=2"',
        ),
        ({"pyproject.toml": '[tool.tox.env_run_base]\ndeps = ["pytest", "pytest-mock"]\n'}, "pytest pytest-mock"),
        ({"setup.cfg": "[options.extras_require]\ntest =\n  pytest-cov\n", "setup.py": ""}, '-e ".[test]"'),
        ({"dev-requirements.txt": "", "tests/requirements.txt": "", "old-tests.txt": ""}, "-r tests/requirements.txt"),
        ({"tox.ini": "[testenv]\ndeps = -r gone.txt\n"}, ""),
        # What pytest's configuration loads.
        (
            {"pytest.ini": "[pytest]\naddopts = --cov=x -n 2 -p no:randomly -p mine.plugin --timeout=9 --durations=3"},
            "pytest-xdist pytest-cov pytest-timeout",
        ),
        (
            {"pytest.ini": "[pytest]\nasyncio_mode = auto\nrequired_plugins = pytest-mock>=3 pytest-cov\n"},
            "pytest-mock pytest-cov pytest-asyncio",
        ),
        ({"pyproject.toml": '[tool.pytest.ini_options]\naddopts = "-pxdist -nauto"\n'}, "pytest-xdist"),
    ],
)
def test_ci_installs_what_the_tests_load(folder: Path, files: dict[str, str], words: str) -> None:
    lay(folder, files)
    (_, install), _ = init.ci_commands(look(folder))
    assert install == f"uv pip install pytest-ftgate {words}".rstrip()


def test_with_a_lock_file_sources_are_made_before_it_is_installed(folder: Path) -> None:
    steps = "    $ uvx cython a.pyx\n    $ maturin develop\n    -e .\n"
    lay(
        folder,
        {"pyproject.toml": PYPROJECT + HATCH, "uv.lock": "", "pytest.ini": f"[pytest]\nftgate_install =\n{steps}"},
    )
    expected = "uv run --frozen --python 3.14 --with pytest-ftgate"
    assert init.ci_commands(look(folder)) == (("uvx cython a.pyx",), expected)


def test_a_lock_file_and_what_it_lacks(folder: Path) -> None:
    lay(folder, {"pyproject.toml": PYPROJECT + HATCH + '[tool.pytest.ini_options]\naddopts = "--cov"\n', "uv.lock": ""})
    expected = "uv run --frozen --python 3.14 --with pytest-ftgate --with pytest-cov"
    assert init.ci_commands(look(folder)) == ((), expected)


def test_the_job_measures_without_coverage_and_workers(folder: Path) -> None:
    lay(folder, {"pytest.ini": "[pytest]\naddopts = --cov --cov-fail-under=90 --numprocesses=auto\n"})
    repository(folder)
    for ci, name in (("github", ".github/workflows/ftgate.yml"), ("gitlab", ".gitlab-ci.yml")):
        assert "pytest -m ftgate --no-cov -n0 --ftgate " in planned(look(folder), ci)[name]


def test_our_requirement_says_where_it_can_be_installed(folder: Path) -> None:
    older = 'python_version >= "3.11"'
    lay(folder, {"pyproject.toml": PYPROJECT + 'requires-python = ">=3.11"\n'})
    assert init.requirement(look(folder)) == "pytest-ftgate"
    lay(folder, {"pyproject.toml": PYPROJECT + 'requires-python = ">=3.9"\n'})
    assert init.requirement(look(folder)) == f"pytest-ftgate; {older}"
    lay(folder, {".github/workflows/ci.yml": "python: [3.9, pypy3.11]\n"})
    repository(folder)
    found = look(folder)
    both = f'pytest-ftgate; {older} and platform_python_implementation == "CPython"'
    assert init.requirement(found) == both
    notes = init.plan(found, "none").notes
    assert f"the dependencies of the tests: add it next to pytest: {both}" in notes[1]
    assert "its tests are skipped" in notes[2]


@pytest.mark.parametrize(
    ("asked", "installed"),
    [
        ("git+https://host/a/b", 'uv pip install "pytest-ftgate @ git+https://host/a/b"'),
        ("./dist/x.whl", "uv pip install ./dist/x.whl"),
        ("pytest-ftgate==0.1", "uv pip install pytest-ftgate==0.1"),
    ],
)
def test_the_workflow_installs_the_plugin_from_where_it_is(
    folder: Path, capsys: pytest.CaptureFixture[str], asked: str, installed: str
) -> None:
    repository(folder)
    assert cli.main(["init", "--ci", "github", "--comment", "--requirement", asked]) == 0
    written = {name: text.decode() for name, text in contents(folder).items()}
    lines = [
        step["run"] for step in yaml.safe_load(written[".github/workflows/ftgate.yml"])["jobs"]["ftgate"]["steps"][3:6]
    ]
    assert installed in lines
    comment = written[".github/workflows/ftgate-comment.yml"]
    assert (
        f"uvx --from {shlex.quote(installed.removeprefix('uv pip install ').strip(chr(34)))} ftgate report" in comment
    )
    assert "add it next to pytest: " in (said := capsys.readouterr().out)
    assert "--requirement" not in said


def test_a_plugin_from_a_folder_is_asked_for_another_place(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """CI does not have the folder; of a repository it gets the address and the commit."""
    repository(folder)
    vcs = {"url": "https://host/a/b", "vcs_info": {"vcs": "git", "commit_id": "0123"}}
    for origin, expected in (
        ({"url": "file:///a", "dir_info": {}}, "uv pip install pytest-ftgate\n"),
        (vcs, 'uv pip install "pytest-ftgate @ git+https://host/a/b@0123"\n'),
        (None, "uv pip install pytest-ftgate\n"),
    ):
        found = SimpleNamespace(version="0", read_text=lambda _name, origin=origin: origin and json.dumps(origin))
        monkeypatch.setattr(metadata, "distribution", lambda _name, found=found: found)
        assert cli.main(["init", "--ci", "github", "--dry-run"]) == 0
        said = capsys.readouterr()
        assert expected in said.out
        assert ("--requirement" in said.err) == (expected.endswith("ftgate\n") and origin is not None)


@pytest.mark.parametrize(
    ("ini", "named"),
    [
        ("filterwarnings =\n    error\n    ignore::DeprecationWarning\n", "filterwarnings = error"),
        ("addopts = -q -Werror\n", "-Werror"),
        ("addopts = --strict-config\n", "--strict-config"),
        ("strict = true\n", "strict"),
        ("filterwarnings = ignore:error\naddopts = --strict-markers\n", ""),
    ],
)
def test_settings_that_make_an_error_of_an_unknown_key_are_named(folder: Path, ini: str, named: str) -> None:
    lay(folder, {"pytest.ini": f"[pytest]\n{ini}"})
    found = look(folder)
    assert found.strict == named
    assert any(note.startswith(f"{named}: an ini key") for note in init.plan(found, "none").notes) == bool(named)


def test_what_ci_has_is_left(folder: Path) -> None:
    lay(
        folder,
        {
            ".gitlab-ci.yml": "stages: [a]\ntest:\n  script: pytest\n",
            ".github/workflows/t.yml": "run: pytest --ftgate\n",
        },
    )
    repository(folder)
    found = look(folder)
    assert (folder / ".github/workflows/t.yml", "it already exists") in init.plan(found, "github").left
    steps = init.plan(found, "gitlab")
    assert folder / ".gitlab/ftgate.yml" in steps.files
    assert "  include:\n    - local: .gitlab/ftgate.yml" in steps.notes[0]
    assert steps.notes[1] == ".gitlab-ci.yml names its own stages: give the job in .gitlab/ftgate.yml one of them"
    lay(folder, {".gitlab-ci.yml": "include:\n  - local: .gitlab/ftgate.yml\n", ".gitlab/ftgate.yml": "ftgate:\n"})
    steps = init.plan(found, "gitlab")
    assert (folder / ".gitlab/ftgate.yml", "it already exists") in steps.left
    assert not any("include" in note for note in steps.notes)


def test_the_job_takes_the_steps_of_ftgate_install(folder: Path) -> None:
    steps = '["meson-python pybind11>=2.13", "$ echo \'a: b\'", "--no-build-isolation -e ."]'
    lay(folder, {"pyproject.toml": f"{PYPROJECT}[tool.pytest.ini_options]\nftgate_install = {steps}\n"})
    repository(folder)
    assert init.ci_commands(look(folder))[0] == (
        "uv venv --python 3.14",
        'uv pip install meson-python "pybind11>=2.13"',
        "uv run --no-sync sh -c 'echo '\"'\"'a: b'\"'\"''",
        "uv pip install pytest-ftgate --no-build-isolation -e .",
    )
    for ci in ("github", "gitlab"):
        assert workflow(folder, ci)


@pytest.mark.parametrize("name", ["ftgate.yml", "perf.yaml"])
def test_a_workflow_that_is_not_ours_stays(folder: Path, name: str) -> None:
    """One under our name whatever it does, any other if it runs the gate."""
    theirs = "on: push\njobs: {}\n" if name == "ftgate.yml" else "jobs: {a: {steps: [run: pytest --ftgate]}}\n"
    lay(folder, {f".github/workflows/{name}": theirs, ".github/workflows/ci.yml": "on: push\n"})
    repository(folder)
    before = contents(folder)
    assert cli.main(["init", "--ci", "github"]) == 0
    after = contents(folder)
    assert set(after) - set(before) == {"tests/test_concurrency.py"}
    assert {path: after[path] for path in before} == before


def test_no_workflow_is_written_where_none_is_wanted(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lay(folder, {".github/workflows/ci.yml": "on: push\n"})
    repository(folder)
    assert cli.main(["init", "--ci", "none"]) == 0
    assert set(contents(folder)) == {"tests/test_concurrency.py", ".github/workflows/ci.yml"}
    assert "no CI workflow: none was asked for" in capsys.readouterr().out


def test_the_workflow_of_github_is_what_github_documents(folder: Path) -> None:
    repository(folder, "trunk")
    push, label = (workflow(folder, "github", by) for by in init.TRIGGERS)
    assert push[True] == {"pull_request": None, "push": {"branches": ["trunk"]}}  # YAML 1.1 takes `on` for true
    assert label[True] == {"pull_request": {"types": ["opened", "reopened", "synchronize", "labeled"]}}
    job = label["jobs"]["ftgate"]
    assert job["if"] == (
        "github.event.label.name == 'ftgate' || "
        "github.event.action != 'labeled' && contains(github.event.pull_request.labels.*.name, 'ftgate')"
    )
    assert {**job, "if": None} == {**push["jobs"]["ftgate"], "if": None}
    checkout, uv, cache, *runs, upload = job["steps"]
    assert checkout["with"] == {"fetch-depth": 0, "submodules": "recursive"}
    assert uv["with"] == {"enable-cache": True, "cache-python": True}
    assert cache["with"]["path"] == ".ftgate/envs"
    assert cache["with"]["key"] == cache["with"]["restore-keys"] + "${{ github.sha }}"
    assert [set(step) for step in runs] == [{"run"}] * 4
    gate = runs[-1]["run"].split()
    assert "--ftgate-time=20m" in gate
    assert "--ftgate-fail-on=regressed,suspect,beyond-effect,broken,unsupported,undecided-run" in gate
    files = ["ftgate.html", "ftgate.md", "ftgate.json"]
    assert [f"--ftgate-report={name.partition('.')[2]}:{name}" for name in files] == gate[-3:]
    assert all(report_target(word.removeprefix("--ftgate-report=")) for word in gate[-3:])
    assert (upload["if"], upload["with"]["path"].split()) == ("always()", files)


def test_the_job_of_gitlab_is_what_gitlab_documents(folder: Path) -> None:
    repository(folder)
    push, label = (workflow(folder, "gitlab", by)["ftgate"] for by in init.TRIGGERS)
    assert [rule["if"] for rule in push["rules"]] == [
        '$CI_PIPELINE_SOURCE == "merge_request_event"',
        "$CI_COMMIT_BRANCH == $CI_DEFAULT_BRANCH",
    ]
    assert label["rules"] == [
        {"if": '$CI_PIPELINE_SOURCE == "merge_request_event" && $CI_MERGE_REQUEST_LABELS =~ /(^|,)ftgate(,|$)/'}
    ]
    *paths, environments = push["cache"]["paths"]
    assert environments == ".ftgate/envs"
    for folder_of, path in zip(("UV_CACHE_DIR", "UV_PYTHON_INSTALL_DIR"), paths, strict=True):
        assert push["variables"][folder_of] == f"$CI_PROJECT_DIR/{path}"
    reports = {"junit": "ftgate-junit.xml", "metrics": "ftgate-metrics.txt"}
    files = ["ftgate.html", "ftgate.md", "ftgate.json"]
    assert push["artifacts"] == {"when": "always", "paths": files, "reports": reports}
    gate = push["script"][-1].split()
    assert "--ftgate-time=20m" in gate
    assert "--ftgate-fail-on=regressed,suspect,beyond-effect,broken,unsupported,undecided-run" in gate
    written = [word.removeprefix("--ftgate-report=") for word in gate if word.startswith("--ftgate-report=")]
    assert [name.partition(":")[2] for name in written] == [*files, *reports.values()]
    assert all(map(report_target, written))


def test_only_what_cannot_be_found_out_is_asked(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert init._asked_ci(look(folder), ask=True) == "none"  # no git: nothing to ask
    repository(folder)
    assert init._asked_ci(look(folder), ask=False) == "github"
    git(folder, "remote", "add", "origin", "https://code.example/a/b")
    found = look(folder)
    assert init._asked_ci(found, ask=False) == "none"
    answers = iter(["what?", " GitLab "])
    monkeypatch.setattr("builtins.input", lambda _prompt: next(answers))
    assert init._asked_ci(found, ask=True) == "gitlab"


# -- writing -------------------------------------------------------------------------------------------------------


def test_a_dry_run_is_the_patch_of_a_run(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lay(
        folder,
        {
            "setup.cfg": "[tool:pytest]\ntestpaths = benchmarks\naddopts = --cov",
            "benchmarks/test_a.py": "def test_a(): ...\n",
        },
    )
    repository(folder)
    before = contents(folder)
    assert cli.main(["init", "--dry-run"]) == 0
    assert contents(folder) == before
    patch = capsys.readouterr().out
    assert cli.main(["init", "--yes"]) == 0
    said = capsys.readouterr().out
    written = contents(folder)
    assert set(written) - set(before) == {"benchmarks/test_concurrency.py", ".github/workflows/ftgate.yml"}
    assert "wrote     benchmarks/test_concurrency.py\n" in said
    commit = "git commit -m 'Gate what threads and processes cost'"
    assert said.splitlines()[-4:] == [
        "next:",
        f"  git add benchmarks/test_concurrency.py .github/workflows/ftgate.yml && {commit}",
        "  # then a change: 20_000 becomes 40_000 in benchmarks/test_concurrency.py",
        "  pytest --no-cov --ftgate --ftgate-against=HEAD benchmarks/test_concurrency.py",
    ]
    for name in set(written) - set(before):
        (folder / name).unlink()
    lay(folder, {".git/patch": patch})
    git(folder, "apply", ".git/patch")
    assert contents(folder) == written


def test_a_second_run_leaves_all_and_says_so(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    repository(folder)
    assert cli.main(["init"]) == 0
    before = contents(folder)
    capsys.readouterr()
    assert cli.main(["init"]) == 0
    said = capsys.readouterr().out
    assert contents(folder) == before
    for name in before:
        assert f"left      {name}: " in said
    assert "wrote" not in said
    assert said.endswith("next:\n  pytest --ftgate --ftgate-against=merge-base tests/test_concurrency.py\n")


def test_from_a_folder_below_the_project_paths_are_seen_from_there(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lay(folder, {"pyproject.toml": PYPROJECT + HATCH, "docs/x.md": ""})
    monkeypatch.chdir(folder / "docs")
    assert cli.main(["init"]) == 0
    # Without git there is no commit to compare with: the second command ends in a verdict.
    test = "../tests/test_concurrency.py"
    assert f"  pytest --ftgate --ftgate-update=new {test}\n  pytest --ftgate {test}\n" in capsys.readouterr().out
    assert cli.main(["init", "nowhere"]) == 2


def test_nothing_is_replaced_and_nothing_stays_half_written(folder: Path) -> None:
    lay(folder, {"tests/test_a.py": "old"})
    with pytest.raises(FtgateError, match="written by another process meanwhile"):
        init.write(folder / "tests" / "test_a.py", "new")
    with pytest.raises(FtgateError, match="cannot be written"):
        init.write(folder / "tests" / "test_a.py" / "b.py", "new")
    assert contents(folder) == {"tests/test_a.py": b"old"}


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
    assert cli.main(["init", "--yes"]) == 0


@pytest.mark.usefixtures("strict")
def test_what_it_wrote_runs_as_it_is() -> None:
    short = ("-k", "threads", "-oftgate_launches=1", "-oftgate_iterations=1")
    for options, expected in (((), "5 passed"), (("--ftgate", *short), "2 no baseline")):
        assert expected in run_pytest(*options)


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
